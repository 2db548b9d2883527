"""What only a real broker shows about producing in transactions. The rest is in the contract suite of the log."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from uuid import uuid4

import pytest

from processor.adapters.kafka.admin import Topic, create_topics
from processor.adapters.kafka.output import KafkaOutput
from processor.core.stream.partitioner import partition_of
from processor.ports.log import (
    Committed,
    CommitUnknownError,
    FencedError,
    LogError,
    OperatorActionRequiredError,
    Record,
    RetryableError,
    TopicPartition,
    TransactionAbortedError,
)
from tests.contract.worlds import flat
from tests.servers.broker import Broker
from tests.servers.kafka_world import KafkaWorld

from .kafka_members import Heard, comes_to_hold, joined, poll_until


def test_a_producer_opened_twice_fences_the_first(world: KafkaWorld, topic: str) -> None:
    first, second = world.output("one-" + topic), world.output("one-" + topic)
    first.open()
    first.begin()
    first.send(TopicPartition(topic, 0), b"k", b"zombie")
    second.open()
    with pytest.raises(FencedError):
        first.commit()
    first.abort()  # nothing to do, and no error
    with pytest.raises(FencedError):
        first.begin()
    second.begin()
    second.send(TopicPartition(topic, 0), b"k", b"alive")
    second.commit()
    assert comes_to_hold(world.reader(), TopicPartition(topic, 0), b"alive")
    first.open()  # it may take its place back
    first.begin()
    first.send(TopicPartition(topic, 0), b"k", b"back")
    first.commit()
    assert comes_to_hold(world.reader(), TopicPartition(topic, 0), b"alive", b"back")


def test_offsets_of_an_old_generation_are_refused(world: KafkaWorld, topic: str) -> None:
    one, heard = joined(world, "g-" + topic, topic)
    old = heard.membership
    other = Heard()
    two = world.input("two", "g-" + topic, [topic], other)
    poll_until(lambda: other.owned and heard.owned and heard.membership != old, one, two)
    assert heard.membership.generation > old.generation
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(TopicPartition(topic, 0), b"k", b"stale")
    with pytest.raises(FencedError, match="ILLEGAL_GENERATION"):
        output.send_offsets({TopicPartition(topic, 0): Committed(1, "stale")}, old)
    output.abort()
    assert one.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): None}
    output.begin()  # fenced by the group, not by another producer: after abort it goes on
    output.send_offsets({TopicPartition(topic, 0): Committed(1, "fresh")}, heard.membership)
    output.commit()
    assert one.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): Committed(1, "fresh")}


@pytest.mark.parametrize("change", [{"generation": -1}, {"member_id": ""}])
def test_a_membership_that_is_none_is_never_sent(world: KafkaWorld, topic: str, change: dict[str, object]) -> None:
    _, heard = joined(world, "g-" + topic, topic)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    with pytest.raises(FencedError):
        output.send_offsets({TopicPartition(topic, 0): Committed(1, "")}, replace(heard.membership, **change))


def test_partitions_are_those_of_java(world: KafkaWorld) -> None:
    name = f"wide-{uuid4().hex[:8]}"
    world.topics({name: 7})
    draw = random.Random(1)
    keys = [draw.randbytes(draw.randint(1, 40)) for _ in range(200)]
    output = world.output("one-" + name)
    output.open()
    output.begin()
    for key in keys:
        output.send(TopicPartition(name, -1), key, b"")
    output.commit()
    reader, records = world.reader(), []
    for at in [TopicPartition(name, number) for number in range(7)]:
        here = sum(partition_of(key, 7) == at.partition for key in keys)
        poll_until(lambda at=at, here=here: reader.bounds(at)[1] > here)  # the marker of the transaction comes last
        records += list(reader.read(at, 0))
    assert sorted(record.key or b"" for record in records) == sorted(keys)
    assert all(record.partition == partition_of(record.key or b"", 7) for record in records)


def test_a_record_larger_than_the_client_allows_stops(world: KafkaWorld, topic: str) -> None:
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    with pytest.raises(OperatorActionRequiredError, match=r"max\.message\.bytes"):
        output.send(TopicPartition(topic, 0), b"k", b"x" * (5 << 20))
    output.abort()


@pytest.mark.parametrize("partition", [0, -1], ids=["by number", "by key"])
def test_a_record_larger_than_the_topic_allows_stops(world: KafkaWorld, topic: str, partition: int) -> None:
    name = f"small-{topic}"
    create_topics(world.properties, [Topic(name, 1, {"max.message.bytes": "1000"})])
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(TopicPartition(name, partition), b"k", random.Random(1).randbytes(5000))
    with pytest.raises(OperatorActionRequiredError, match=r"max\.message\.bytes"):
        output.commit()
    output.abort()
    output.open()
    output.begin()
    output.send(TopicPartition(name, 0), b"k", b"small")
    assert output.commit()[TopicPartition(name, 0)] >= 0


def test_an_open_transaction_of_a_dead_process_is_aborted_by_open(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
    member, heard = joined(world, "g-" + topic, topic)
    dead, heir = world.output("one-" + topic), world.output("one-" + topic)
    dead.open()
    dead.begin()
    dead.send_offsets({at: Committed(7, "pending")}, heard.membership)
    heir.open()
    assert member.committed([at]) == {at: None}


def test_headers_and_nulls_survive(world: KafkaWorld, topic: str) -> None:
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(TopicPartition(topic, 1), None, None, (("reason", b"bad"), ("empty", None)), timestamp=12345)
    assert output.commit() == {TopicPartition(topic, 1): 0}
    reader = world.reader()
    poll_until(lambda: reader.bounds(TopicPartition(topic, 1)) == (0, 2))
    (record,) = reader.read(TopicPartition(topic, 1), 0)
    assert record == Record(topic, 1, 0, 12345, None, None, (("reason", b"bad"), ("empty", None)))


def test_an_aborted_transaction_leaves_nothing(world: KafkaWorld, topic: str) -> None:
    output = world.output("one-" + topic)
    output.open()
    for _ in range(20):  # abort at once, while the first request is on its way
        output.begin()
        output.send(TopicPartition(topic, 0), b"k", b"no")
        output.abort()
    output.begin()
    output.send(TopicPartition(topic, 0), b"k", b"yes")
    output.commit()
    assert comes_to_hold(world.reader(), TopicPartition(topic, 0), b"yes")


def test_a_transaction_that_timed_out_is_fenced_and_open_goes_on(broker: Broker, topic: str) -> None:
    world = KafkaWorld(broker.bootstrap, transaction_timeout_ms=1000)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(TopicPartition(topic, 0), b"k", b"late")
    output._producer.flush(10)  # type: ignore[union-attr]
    time.sleep(3.5)
    with pytest.raises((FencedError, TransactionAbortedError)):
        output.commit()
    output.abort()
    output.open()
    output.begin()
    output.send(TopicPartition(topic, 0), b"k", b"again")
    output.commit()
    assert comes_to_hold(world.reader(), TopicPartition(topic, 0), b"again")
    world.close()


def settle(output: KafkaOutput, seconds: float = 60) -> None:
    """What a runtime does after an error: abort if it can, else open again, until one works."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            output.abort()
            output.open()
            return
        except (RetryableError, TransactionAbortedError, FencedError):
            assert time.monotonic() < deadline


def test_a_broker_killed_midway_costs_a_rewind_and_no_more(world: KafkaWorld, topic: str, broker: Broker) -> None:
    if not broker.restartable:
        pytest.skip("the broker of KAFKA_BOOTSTRAP is not ours to kill")
    at = TopicPartition(topic, 0)
    member, heard = joined(world, "g-" + topic, topic)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(at, b"k", b"before")
    output.commit()
    output.begin()
    output.send(at, b"k", b"lost")
    broker.kill()
    with pytest.raises((TransactionAbortedError, CommitUnknownError, FencedError)):
        output.commit()
    broker.start()
    settle(output)
    assert flat(member.poll(10, 0.1)) == []
    reader = world.reader()
    deadline = time.monotonic() + 60
    while True:
        try:
            output.begin()
            output.send(at, b"k", b"after")
            output.send_offsets({at: Committed(1, "after")}, heard.membership)
            output.commit()
            break
        except LogError:
            assert time.monotonic() < deadline
            poll_until(lambda: heard.owned, member)
            settle(output)
    assert comes_to_hold(reader, at, b"before", b"after")
    assert member.committed([at]) == {at: Committed(1, "after")}
