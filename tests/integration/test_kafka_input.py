"""What only a real broker shows about reading as a member. The rest is in the contract suite of the log."""

from __future__ import annotations

from uuid import uuid4

import pytest

from processor.adapters.kafka.admin import delete_records
from processor.adapters.kafka.input import KafkaInput
from processor.ports.log import Committed, OperatorActionRequiredError, Record, RetryableError, TopicPartition
from tests.contract.worlds import flat, named
from tests.servers.broker import Broker
from tests.servers.kafka_world import SESSION, KafkaWorld

from .kafka_members import Heard, joined, poll_until


def test_commit_metadata_comes_back_as_it_was_sent(world: KafkaWorld, topic: str) -> None:
    member, heard = joined(world, "g-" + topic, topic)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    sent = {TopicPartition(topic, 0): Committed(5, "a1:17:δé"), TopicPartition(topic, 1): Committed(0, "")}
    output.send_offsets(sent, heard.membership)
    assert output.commit() == {}
    assert member.committed(sent) == sent


def test_a_partition_without_commit_has_no_position(world: KafkaWorld, topic: str) -> None:
    member, _ = joined(world, "g-" + topic, topic)
    assert member.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): None}


def test_assigned_partitions_are_paused_until_started(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
    for number in range(6):
        world.produce(at, b"k", b"%d" % number, timestamp=1000 + number)
    member, _ = joined(world, "g-" + topic, topic)
    world.produce(at, b"k", b"6")
    assert [record for _ in range(10) for record in flat(member.poll(10, 0.05))] == []
    member.start(at, 3)
    records: list[Record] = []
    poll_until(lambda: records.extend(flat(member.poll(10, 0.1))) or len(records) >= 4)
    assert [record.offset for record in records] == [3, 4, 5, 6]
    assert (records[0].value, records[0].timestamp) == (b"3", 1003)


def test_the_end_of_a_partition_is_heard_and_forgotten(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
    world.produce(at, b"k", b"v")
    member, _ = joined(world, "g-" + topic, topic)
    assert not member.ended(at)
    member.start(at, 0)
    assert not member.ended(at)
    assert len(poll_until(lambda: member.ended(at), member)) == 1
    world.produce(at, b"k", b"v")
    records: list[Record] = []
    poll_until(lambda: records.extend(flat(member.poll(1, 0.1))) or records)
    poll_until(lambda: member.ended(at), member)
    member.start(at, 1)
    assert not member.ended(at)
    assert len(poll_until(lambda: member.ended(at), member)) == 1


def test_an_open_transaction_ends_the_stable_part(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
    world.produce(at, b"k", b"v")
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(at, b"k", b"open")
    output._producer.flush(10)  # type: ignore[union-attr]
    member, _ = joined(world, "g-" + topic, topic)
    member.start(at, 0)
    assert [record.value for record in poll_until(lambda: member.ended(at), member)] == [b"v"]
    output.commit()
    records: list[Record] = []
    poll_until(lambda: records.extend(flat(member.poll(10, 0.1))) or records)
    assert [record.value for record in records] == [b"open"]


def test_started_again_further_back_it_reads_again(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
    for _ in range(5):
        world.produce(at, b"k", b"v")
    member, _ = joined(world, "g-" + topic, topic)
    for start in (0, 2, 4, 1):
        member.start(at, start)
        records: list[Record] = []
        poll_until(
            lambda records=records, start=start: records.extend(flat(member.poll(10, 0.1))) or len(records) >= 5 - start
        )
        assert [record.offset for record in records] == list(range(start, 5))


def test_a_started_position_that_is_not_kept_stops(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
    for _ in range(5):
        world.produce(at, b"k", b"v")
    assert delete_records(world.properties, at, 3) == 3
    member, _ = joined(world, "g-" + topic, topic)
    member.start(at, 1)
    with pytest.raises(OperatorActionRequiredError, match="not in the log any more"):
        poll_until(lambda: False, member)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_own_the_same_partitions_of_both_inputs(broker: Broker, world: KafkaWorld, protocol: str) -> None:
    names = [f"{kind}-{uuid4().hex[:8]}" for kind in ("requests", "feedback")]
    world.topics(dict.fromkeys(names, 3))
    properties = world.properties | ({} if protocol == "consumer" else SESSION)
    heard = [Heard(), Heard()]
    members = [
        KafkaInput(properties, "g-" + names[0], f"i{i}", named(names), each, protocol=protocol)  # type: ignore[arg-type]
        for i, each in enumerate(heard)
    ]
    try:
        poll_until(lambda: all(each.owned for each in heard) and sum(len(e.owned) for e in heard) == 6, *members)
        for each in heard:
            by_topic = [{at.partition for at in each.owned if at.topic == name} for name in names]
            assert by_topic[0] == by_topic[1]
        output = world.output("o-" + names[0])
        output.open()
        for each in heard:  # the membership announced last is one the broker takes, whatever moved since
            output.begin()
            output.send_offsets({at: Committed(0, "x") for at in each.owned}, each.membership)
            output.commit()
    finally:
        for member in members:
            member.close()


def test_a_second_process_under_the_same_name_stops_the_first(world: KafkaWorld, topic: str) -> None:
    one, _ = joined(world, "g-" + topic, topic)
    heard = Heard()
    two = world.input("one", "g-" + topic, [topic], heard)
    with pytest.raises(OperatorActionRequiredError, match='own "instance"'):
        poll_until(lambda: False, two, one)


def test_committed_waits_for_an_open_transaction(world: KafkaWorld, topic: str) -> None:
    at, heard = TopicPartition(topic, 0), Heard()
    asking = KafkaInput(world.properties, "g-" + topic, "asks", named([topic]), heard, request_timeout=1.0)
    poll_until(lambda: heard.owned, asking)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send_offsets({at: Committed(7, "pending")}, heard.membership)
    with pytest.raises(RetryableError):
        asking.committed([at])
    output.commit()
    assert asking.committed([at]) == {at: Committed(7, "pending")}
    asking.close()
