"""What only a real broker shows about the Kafka adapter. The rest is in the contract suite of the log."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from processor.adapters.kafka.admin import Topic, create_topics, delete_records, describe_topics
from processor.adapters.kafka.input import KafkaInput
from processor.adapters.kafka.output import KafkaOutput
from processor.adapters.kafka.reader import KafkaReader
from processor.adapters.log import At, Committed, Fenced, LogError, Membership, Record, Retry, Rewind, Stop, Unknown
from processor.core.stream.partitioning import partition_of
from tests.contract.worlds import flat, named
from tests.servers.broker import Broker
from tests.servers.kafka_world import SESSION, KafkaWorld


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.owned: set[At] = set()
        self.memberships: list[Membership] = []
        self.revocations: list[set[At]] = []
        self.losses: list[set[At]] = []

    def assigned(self, partitions: Sequence[At], membership: Membership) -> None:
        self.owned |= set(partitions)
        self.memberships.append(membership)

    def revoked(self, partitions: Sequence[At]) -> None:
        self.revocations.append(set(partitions))
        self.owned -= set(partitions)

    def lost(self, partitions: Sequence[At]) -> None:
        self.losses.append(set(partitions))
        self.owned -= set(partitions)

    @property
    def membership(self) -> Membership:
        return self.memberships[-1]


@pytest.fixture
def world(broker: Broker) -> Iterator[KafkaWorld]:
    running = KafkaWorld(broker.bootstrap, f"group-{uuid4().hex[:8]}")
    yield running
    running.close()


@pytest.fixture
def topic(world: KafkaWorld) -> str:
    name = f"topic-{uuid4().hex[:8]}"
    world.topics({name: 2})
    return name


def poll_until(condition: Callable[[], object], *inputs: KafkaInput, seconds: float = 30) -> list[Record]:
    """Poll all inputs in turn until the condition holds."""
    deadline, records = time.monotonic() + seconds, []
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        for each in inputs:
            records += flat(each.poll(100, 0.05))
    return records


def joined(world: KafkaWorld, group: str, topic: str, instance: str = "one") -> tuple[KafkaInput, Heard]:
    heard = Heard()
    member = world.input(instance, group, [topic], heard)
    poll_until(lambda: heard.owned, member)
    return member, heard


def comes_to_hold(reader: KafkaReader, at: At, *values: bytes) -> bool:
    """Whether the partition holds just these, soon: markers land after the commit is answered."""
    poll_until(lambda: [record.value for record in reader.read(at, 0)] == list(values))
    return True


def test_commit_metadata_comes_back_as_it_was_sent(world: KafkaWorld, topic: str) -> None:
    member, heard = joined(world, "g-" + topic, topic)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    sent = {At(topic, 0): Committed(5, "a1:17:δé"), At(topic, 1): Committed(0, "")}
    output.send_offsets(sent, heard.membership)
    assert output.commit() == {}
    assert member.committed(sent) == sent


def test_a_partition_without_commit_has_no_position(world: KafkaWorld, topic: str) -> None:
    member, _ = joined(world, "g-" + topic, topic)
    assert member.committed([At(topic, 0)]) == {At(topic, 0): None}


def test_assigned_partitions_are_paused_until_started(world: KafkaWorld, topic: str) -> None:
    at = At(topic, 0)
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
    at = At(topic, 0)
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
    at = At(topic, 0)
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
    at = At(topic, 0)
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
    at = At(topic, 0)
    for _ in range(5):
        world.produce(at, b"k", b"v")
    assert delete_records(world.properties, at, 3) == 3
    member, _ = joined(world, "g-" + topic, topic)
    member.start(at, 1)
    with pytest.raises(Stop, match="not in the log any more"):
        poll_until(lambda: False, member)


def test_a_producer_opened_twice_fences_the_first(world: KafkaWorld, topic: str) -> None:
    first, second = world.output("one-" + topic), world.output("one-" + topic)
    first.open()
    first.begin()
    first.send(At(topic, 0), b"k", b"zombie")
    second.open()
    with pytest.raises(Fenced):
        first.commit()
    first.abort()  # nothing to do, and no error
    with pytest.raises(Fenced):
        first.begin()
    second.begin()
    second.send(At(topic, 0), b"k", b"alive")
    second.commit()
    assert comes_to_hold(world.reader(), At(topic, 0), b"alive")
    first.open()  # it may take its place back
    first.begin()
    first.send(At(topic, 0), b"k", b"back")
    first.commit()
    assert comes_to_hold(world.reader(), At(topic, 0), b"alive", b"back")


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
    output.send(At(topic, 0), b"k", b"stale")
    with pytest.raises(Fenced, match="ILLEGAL_GENERATION"):
        output.send_offsets({At(topic, 0): Committed(1, "stale")}, old)
    output.abort()
    assert one.committed([At(topic, 0)]) == {At(topic, 0): None}
    output.begin()  # fenced by the group, not by another producer: after abort it goes on
    output.send_offsets({At(topic, 0): Committed(1, "fresh")}, heard.membership)
    output.commit()
    assert one.committed([At(topic, 0)]) == {At(topic, 0): Committed(1, "fresh")}


@pytest.mark.parametrize("change", [{"generation": -1}, {"member_id": ""}])
def test_a_membership_that_is_none_is_never_sent(world: KafkaWorld, topic: str, change: dict[str, object]) -> None:
    _, heard = joined(world, "g-" + topic, topic)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    with pytest.raises(Fenced):
        output.send_offsets({At(topic, 0): Committed(1, "")}, replace(heard.membership, **change))


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
    with pytest.raises(Stop, match='own "instance"'):
        poll_until(lambda: False, two, one)


def test_partitions_are_those_of_java(world: KafkaWorld) -> None:
    name = f"wide-{uuid4().hex[:8]}"
    world.topics({name: 7})
    draw = random.Random(1)
    keys = [draw.randbytes(draw.randint(1, 40)) for _ in range(200)]
    output = world.output("one-" + name)
    output.open()
    output.begin()
    for key in keys:
        output.send(At(name, -1), key, b"")
    output.commit()
    reader, records = world.reader(), []
    for at in [At(name, number) for number in range(7)]:
        here = sum(partition_of(key, 7) == at.partition for key in keys)
        poll_until(lambda at=at, here=here: reader.bounds(at)[1] > here)  # the marker of the transaction comes last
        records += list(reader.read(at, 0))
    assert sorted(record.key or b"" for record in records) == sorted(keys)
    assert all(record.partition == partition_of(record.key or b"", 7) for record in records)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", True),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_uncommitted"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("group.id", "mine"),
        ("no.such.property", "1"),
    ],
)
def test_consumer_properties_that_break_the_protocol_are_refused(name: str, value: str | bool) -> None:
    with pytest.raises(Stop, match=name):
        KafkaInput({"bootstrap.servers": "127.0.0.1:1", name: value}, "g", "i", named(["t"]), Heard())


@pytest.mark.parametrize("name", ["session.timeout.ms", "partition.assignment.strategy"])
def test_under_the_consumer_protocol_the_broker_decides(name: str) -> None:
    with pytest.raises(Stop, match=name):
        KafkaInput(
            {"bootstrap.servers": "127.0.0.1:1", name: "range"}, "g", "i", named(["t"]), Heard(), protocol="consumer"
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("partitioner", "consistent"), ("acks", 1), ("enable.idempotence", False), ("transactional.id", "mine")],
)
def test_producer_properties_that_break_the_protocol_are_refused(name: str, value: str | int) -> None:
    with pytest.raises(Stop, match=name):
        KafkaOutput({"bootstrap.servers": "127.0.0.1:1", name: value}, "g", "i")


def test_without_brokers_there_is_a_clear_stop() -> None:
    with pytest.raises(Stop, match=r"bootstrap\.servers"):
        KafkaReader({})


def test_a_missing_topic_stops(world: KafkaWorld) -> None:
    with pytest.raises(Stop, match="no such topic: nowhere"):
        world.input("one", "g", ["nowhere"], Heard())
    assert world.reader().partitions("nowhere") is None


def test_a_broker_that_is_not_there_is_worth_another_try() -> None:
    output = KafkaOutput({"bootstrap.servers": "127.0.0.1:1"}, "g", "i", request_timeout=0.5)
    with pytest.raises(Retry):
        output.open()
    output.close()


def test_a_record_larger_than_the_client_allows_stops(world: KafkaWorld, topic: str) -> None:
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    with pytest.raises(Stop, match=r"max\.message\.bytes"):
        output.send(At(topic, 0), b"k", b"x" * (5 << 20))
    output.abort()


@pytest.mark.parametrize("partition", [0, -1], ids=["by number", "by key"])
def test_a_record_larger_than_the_topic_allows_stops(world: KafkaWorld, topic: str, partition: int) -> None:
    name = f"small-{topic}"
    create_topics(world.properties, [Topic(name, 1, {"max.message.bytes": "1000"})])
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(At(name, partition), b"k", random.Random(1).randbytes(5000))
    with pytest.raises(Stop, match=r"max\.message\.bytes"):
        output.commit()
    output.abort()
    output.open()
    output.begin()
    output.send(At(name, 0), b"k", b"small")
    assert output.commit()[At(name, 0)] >= 0


def test_committed_waits_for_an_open_transaction(world: KafkaWorld, topic: str) -> None:
    at, heard = At(topic, 0), Heard()
    asking = KafkaInput(world.properties, "g-" + topic, "asks", named([topic]), heard, request_timeout=1.0)
    poll_until(lambda: heard.owned, asking)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send_offsets({at: Committed(7, "pending")}, heard.membership)
    started = time.monotonic()
    with pytest.raises(Retry):
        asking.committed([at])
    assert time.monotonic() - started < 3
    output.commit()
    assert asking.committed([at]) == {at: Committed(7, "pending")}
    asking.close()


def test_an_open_transaction_of_a_dead_process_is_aborted_by_open(world: KafkaWorld, topic: str) -> None:
    at = At(topic, 0)
    member, heard = joined(world, "g-" + topic, topic)
    dead, heir = world.output("one-" + topic), world.output("one-" + topic)
    dead.open()
    dead.begin()
    dead.send_offsets({at: Committed(7, "pending")}, heard.membership)
    heir.open()
    assert member.committed([at]) == {at: None}


def test_the_reader_ends_at_the_last_stable_offset(world: KafkaWorld, topic: str) -> None:
    at = At(topic, 0)
    first, other = world.output("one-" + topic), world.output("two-" + topic)
    for each in (first, other):
        each.open()
        each.begin()
        each.send(at, b"k", b"committed")
        each.commit()
    first.begin()
    first.send(at, b"k", b"open")
    first._producer.flush(10)  # type: ignore[union-attr]
    world.produce(at, b"k", b"behind the open one")
    reader = world.reader()
    poll_until(lambda: reader.bounds(at) == (0, 4))  # two records and their two markers
    assert comes_to_hold(reader, at, b"committed", b"committed")
    first.abort()
    poll_until(lambda: reader.bounds(at)[1] == 7)
    assert comes_to_hold(reader, at, b"committed", b"committed", b"behind the open one")
    assert [record.offset for record in reader.read(at, 1, 6)] == [2, 5]
    assert list(reader.read(at, 3, 5)) == []


def test_the_reader_refuses_what_is_not_kept(world: KafkaWorld, topic: str) -> None:
    at = At(topic, 0)
    for _ in range(4):
        world.produce(at, None, b"v")
    assert delete_records(world.properties, at, 2) == 2
    reader = world.reader()
    assert reader.bounds(at) == (2, 4)
    with pytest.raises(Stop, match="kept from offset 2"):
        reader.read(at, 0)


def test_topics_are_created_once_and_described(world: KafkaWorld) -> None:
    wanted = Topic(f"described-{uuid4().hex[:8]}", 3, {"retention.ms": "-1"})
    assert create_topics(world.properties, [wanted]) == [wanted.name]
    assert create_topics(world.properties, [wanted]) == []
    found = describe_topics(world.properties, [wanted.name, "nowhere"])
    assert found["nowhere"] is None
    assert found[wanted.name] is not None
    assert (found[wanted.name].partitions, found[wanted.name].configs["retention.ms"]) == (3, "-1")  # type: ignore[union-attr]


def test_headers_and_nulls_survive(world: KafkaWorld, topic: str) -> None:
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(At(topic, 1), None, None, (("reason", b"bad"), ("empty", None)), timestamp=12345)
    assert output.commit() == {At(topic, 1): 0}
    reader = world.reader()
    poll_until(lambda: reader.bounds(At(topic, 1)) == (0, 2))
    (record,) = reader.read(At(topic, 1), 0)
    assert record == Record(topic, 1, 0, 12345, None, None, (("reason", b"bad"), ("empty", None)))


def test_an_aborted_transaction_leaves_nothing(world: KafkaWorld, topic: str) -> None:
    output = world.output("one-" + topic)
    output.open()
    for _ in range(20):  # abort at once, while the first request is on its way
        output.begin()
        output.send(At(topic, 0), b"k", b"no")
        output.abort()
    output.begin()
    output.send(At(topic, 0), b"k", b"yes")
    output.commit()
    assert comes_to_hold(world.reader(), At(topic, 0), b"yes")


def test_a_transaction_that_timed_out_is_fenced_and_open_goes_on(broker: Broker, topic: str) -> None:
    world = KafkaWorld(broker.bootstrap, transaction_timeout_ms=1000)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(At(topic, 0), b"k", b"late")
    output._producer.flush(10)  # type: ignore[union-attr]
    time.sleep(3.5)
    with pytest.raises((Fenced, Rewind)):
        output.commit()
    output.abort()
    output.open()
    output.begin()
    output.send(At(topic, 0), b"k", b"again")
    output.commit()
    assert comes_to_hold(world.reader(), At(topic, 0), b"again")
    world.close()


def settle(output: KafkaOutput, seconds: float = 60) -> None:
    """What a runtime does after an error: abort if it can, else open again, until one works."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            output.abort()
            output.open()
            return
        except (Retry, Rewind, Fenced):
            assert time.monotonic() < deadline


def test_a_broker_killed_midway_costs_a_rewind_and_no_more(world: KafkaWorld, topic: str, broker: Broker) -> None:
    if not broker.restartable:
        pytest.skip("the broker of KAFKA_BOOTSTRAP is not ours to kill")
    at = At(topic, 0)
    member, heard = joined(world, "g-" + topic, topic)
    output = world.output("one-" + topic)
    output.open()
    output.begin()
    output.send(at, b"k", b"before")
    output.commit()
    output.begin()
    output.send(at, b"k", b"lost")
    broker.kill()
    with pytest.raises((Rewind, Unknown, Fenced)):
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
