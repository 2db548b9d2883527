"""What every log promises the processor, in memory and on a real Kafka broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest

from processor.adapters.log import At, Committed, Fenced, Headers, Input, Output, Reader, Record, Retry, Stop
from processor.core.stream.partitioning import murmur2, partition_of

from .worlds import Diary, MemoryWorld, World, eventually, flat, poll_until

NOW = 1_700_000_000_123
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Callable[[], World]]:
    """Makes worlds on one real broker; in CI its absence is a failure."""
    try:
        from tests.servers.broker import Broker, available
        from tests.servers.kafka_world import KafkaWorld

        reason = available()
    except ImportError as error:
        reason = str(error)
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(f"no Kafka broker in CI: {reason}")
        pytest.skip(f"no Kafka broker: {reason}")
    with Broker() as broker:
        yield lambda: KafkaWorld(broker.bootstrap)


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    make = MemoryWorld if request.param == "memory" else request.getfixturevalue("kafka")
    made: World = make()
    yield made
    made.close()


@pytest.fixture
def names(world: World) -> tuple[str, str, str]:
    """Two inputs of four partitions and a group, all new."""
    unique = uuid4().hex[:8]
    left, right = f"requests-{unique}", f"feedback-{unique}"
    world.topics({left: 4, right: 4})
    return left, right, f"group-{unique}"


@pytest.fixture
def topic(world: World) -> str:
    name = f"decisions-{uuid4().hex[:8]}"
    world.topics({name: 4})
    return name


def opened(world: World, name: str | None = None) -> Output:
    output = world.output(name or f"instance-{uuid4().hex[:8]}")
    open_it(output)
    return output


def open_it(output: Output) -> None:
    def attempt() -> bool:
        output.open()
        return True

    eventually(attempt, what="open")


def values(reader: Reader, at: At) -> list[bytes | None]:
    start, _ = bounds(reader, at)
    return [record.value for record in reader.read(at, start)]


def bounds(reader: Reader, at: At) -> tuple[int, int]:
    """The first answer: a real broker asks for another try while a new topic has no leader."""
    return eventually(lambda: reader.bounds(at))


def commit_value(output: Output, at: At, value: bytes) -> dict[At, int]:
    output.begin()
    output.send(at, b"k", value)
    return output.commit()


# transactions


def test_a_transaction_appears_on_all_its_partitions_or_on_none(world: World, topic: str) -> None:
    output, reader = opened(world), world.reader()
    output.begin()
    for partition in range(4):
        output.send(At(topic, partition), None, b"%d" % partition)
    assert all(values(reader, At(topic, partition)) == [] for partition in range(4))
    output.commit()
    for partition in range(4):
        assert eventually(partial(values, reader, At(topic, partition))) == [b"%d" % partition]


def test_commit_tells_the_offset_of_the_last_record_on_each_partition(world: World, topic: str) -> None:
    output, reader = opened(world), world.reader()
    first, second = At(topic, 0), At(topic, 2)
    output.begin()
    for at, value in ((first, b"a"), (second, b"b"), (first, b"c")):
        output.send(at, None, value)
    last = output.commit()
    assert last.keys() == {first, second}
    for at, value in ((first, b"c"), (second, b"b")):
        assert eventually(partial(values, reader, at))[-1] == value
        assert [record.value for record in reader.read(at, last[at])] == [value]


def test_a_transaction_without_records_commits(world: World, topic: str) -> None:
    output = opened(world)
    output.begin()
    assert output.commit() == {}
    assert commit_value(output, At(topic, 0), b"next") == {At(topic, 0): 0}


def test_aborted_records_are_never_seen_but_occupy_offsets(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), At(topic, 1)
    commit_value(output, at, b"before")
    eventually(lambda: values(reader, at))
    output.begin()
    output.send(at, None, b"never")
    output.abort()
    commit_value(output, at, b"after")
    eventually(lambda: len(values(reader, at)), lambda n: n == 2)
    assert values(reader, at) == [b"before", b"after"]
    offsets = [record.offset for record in reader.read(at, 0)]
    assert offsets[0] == 0
    assert offsets[1] >= 2  # at least the first marker lies between, and more if the aborted record was sent


def test_an_open_transaction_holds_back_the_stable_end_for_all(world: World, topic: str) -> None:
    slow, fast, reader, at = opened(world), opened(world), world.reader(), At(topic, 3)
    slow.begin()
    slow.send(at, None, b"slow")
    # A real producer sends in its own time. A committed transaction takes two offsets, so a hole shows that it has.
    done: list[int] = []

    def arrived() -> bool:
        done.append(commit_value(fast, at, b"fast")[at])
        return done[-1] != 2 * (len(done) - 1)

    eventually(arrived, what="the arrival of the open transaction")
    held = bounds(reader, at)[1]
    assert held < done[-1]
    assert all(record.offset < held for record in reader.read(at, 0))
    slow.commit()
    everything = eventually(lambda: values(reader, at), lambda seen: len(seen) == len(done) + 1)
    assert everything.count(b"slow") == 1


# the group's offsets


def joined(world: World, names: tuple[str, str, str]) -> tuple[Input, Diary]:
    left, right, group = names
    diary = Diary()
    member = world.input(f"instance-{uuid4().hex[:8]}", group, [left, right], diary)
    poll_until(lambda _: bool(diary.owned), member)
    return member, diary


def test_positions_and_their_metadata_come_back_as_committed(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    at, other, never = At(names[0], 0), At(names[1], 0), At(names[0], 3)
    output = opened(world)
    said = {at: Committed(17, '{"lineage":"ü","sequence":3}'), other: Committed(0, "")}
    output.begin()
    output.send_offsets(said, diary.membership)
    output.commit()
    assert eventually(lambda: member.committed([at, other, never])) == {**said, never: None}


def test_committed_does_not_answer_while_a_transaction_may_change_it(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    at = At(names[0], 0)
    output = opened(world)
    output.begin()
    output.send_offsets({at: Committed(5, "first")}, diary.membership)
    with pytest.raises(Retry):
        member.committed([at])
    output.commit()
    assert eventually(lambda: member.committed([at])) == {at: Committed(5, "first")}


def test_aborted_positions_are_forgotten(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    at = At(names[0], 0)
    output = opened(world)
    for offset, end in ((5, output.commit), (9, output.abort)):
        output.begin()
        output.send_offsets({at: Committed(offset, "")}, diary.membership)
        end()
    assert eventually(lambda: member.committed([at])) == {at: Committed(5, "")}


def test_records_and_positions_are_one_transaction(world: World, names: tuple[str, str, str], topic: str) -> None:
    member, diary = joined(world, names)
    at, out, reader = At(names[0], 0), At(topic, 0), world.reader()
    output = opened(world)
    output.begin()
    output.send(out, None, b"decided")
    output.send_offsets({at: Committed(1, "")}, diary.membership)
    output.abort()
    assert eventually(lambda: member.committed([at])) == {at: None}
    output.begin()
    output.send(out, None, b"decided again")
    output.send_offsets({at: Committed(1, "")}, diary.membership)
    output.commit()
    assert eventually(lambda: member.committed([at])) == {at: Committed(1, "")}
    assert eventually(lambda: values(reader, out)) == [b"decided again"]


# fencing


def test_a_newer_producer_of_the_name_fences_the_older_and_aborts_what_it_left(world: World, topic: str) -> None:
    name, reader, at = f"instance-{uuid4().hex[:8]}", world.reader(), At(topic, 0)
    older = opened(world, name)
    older.begin()
    older.send(at, None, b"older")
    newer = opened(world, name)
    with pytest.raises(Fenced):
        older.commit()
    commit_value(newer, at, b"newer")
    assert eventually(lambda: values(reader, at)) == [b"newer"]


def test_a_fenced_producer_cannot_start_again(world: World, topic: str) -> None:
    name, at = f"instance-{uuid4().hex[:8]}", At(topic, 0)
    older = opened(world, name)
    newer = opened(world, name)
    with pytest.raises(Fenced):
        commit_value(older, at, b"older")
    commit_value(newer, at, b"newer")
    assert eventually(lambda: values(world.reader(), at)) == [b"newer"]


def test_offsets_sent_with_an_old_generation_are_refused(world: World, names: tuple[str, str, str]) -> None:
    first, diary = joined(world, names)
    old = diary.membership
    second_diary = Diary()
    second = world.input(f"instance-{uuid4().hex[:8]}", names[2], names[:2], second_diary)
    poll_until(lambda _: bool(second_diary.owned) and bool(diary.owned), first, second)
    assert diary.membership.generation > old.generation
    output = opened(world)
    output.begin()
    with pytest.raises(Fenced):
        output.send_offsets({At(names[0], 0): Committed(1, "")}, old)
    output.abort()
    output.begin()
    output.send_offsets({At(names[0], 0): Committed(2, "")}, diary.membership)
    output.commit()
    assert eventually(lambda: first.committed([At(names[0], 0)])) == {At(names[0], 0): Committed(2, "")}


def test_offsets_of_a_member_that_has_left_are_refused(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    member.close()
    output = opened(world)

    def refused() -> bool:
        output.begin()
        try:
            output.send_offsets({At(names[0], 0): Committed(1, "")}, diary.membership)
        except Fenced:
            return True
        finally:
            output.abort()
        return False

    eventually(refused, what="the end of the session")  # a static member of a real group is missed only then


def test_abort_may_always_be_called_on_the_way_out(world: World, topic: str) -> None:
    name = f"instance-{uuid4().hex[:8]}"
    output = world.output(name)
    output.abort()
    open_it(output)
    output.abort()
    newer = opened(world, name)
    with pytest.raises(Fenced):
        commit_value(output, At(topic, 0), b"v")
    output.abort()
    with pytest.raises(Fenced):
        output.begin()
    commit_value(newer, At(topic, 0), b"v")


# the group


def test_a_rebalance_revokes_everything_before_it_assigns(world: World, names: tuple[str, str, str]) -> None:
    first, diary = joined(world, names)
    everything = tuple(sorted(At(topic, i) for topic in names[:2] for i in range(4)))
    assert diary.events == [("assigned", everything)]
    second_diary = Diary()
    second = world.input(f"instance-{uuid4().hex[:8]}", names[2], names[:2], second_diary)
    poll_until(lambda _: bool(second_diary.owned) and len(diary.names) >= 3, first, second)
    assert diary.events[1] == ("revoked", everything)
    assert diary.names[:3] == ["assigned", "revoked", "assigned"]
    assert diary.owned.isdisjoint(second_diary.owned)


def test_two_members_own_the_same_partitions_of_both_inputs(world: World, names: tuple[str, str, str]) -> None:
    left, right, group = names
    diaries = [Diary(), Diary()]
    members = [world.input(f"{i}-{uuid4().hex[:8]}", group, [left, right], diaries[i]) for i in range(2)]
    poll_until(lambda _: all(len(diary.owned) == 4 for diary in diaries), *members)
    for diary in diaries:
        of_left = {at.partition for at in diary.owned if at.topic == left}
        assert of_left == {at.partition for at in diary.owned if at.topic == right}
    assert sorted(diaries[0].owned | diaries[1].owned) == [At(t, i) for t in sorted(names[:2]) for i in range(4)]


def test_closing_revokes_and_another_member_takes_over(world: World, names: tuple[str, str, str]) -> None:
    first, diary = joined(world, names)
    first.close()
    assert diary.names == ["assigned", "revoked"]
    _, second_diary = joined(world, names)
    assert len(second_diary.owned) == 8


def test_a_process_that_takes_an_instance_over_shuts_the_older_out(world: World, names: tuple[str, str, str]) -> None:
    left, right, group = names
    instance, diary, newer_diary = f"instance-{uuid4().hex[:8]}", Diary(), Diary()
    older = world.input(instance, group, [left, right], diary)
    poll_until(lambda _: bool(diary.owned), older)
    newer = world.input(instance, group, [left, right], newer_diary)
    poll_until(lambda _: bool(newer_diary.owned), newer)
    output = opened(world)
    output.begin()
    with pytest.raises(Fenced):
        output.send_offsets({At(left, 0): Committed(1, "")}, diary.membership)
    with pytest.raises(Stop):
        poll_until(lambda _: False, older)


# reading


def test_assigned_partitions_give_nothing_until_they_are_started(world: World, names: tuple[str, str, str]) -> None:
    at, other = At(names[0], 1), At(names[1], 1)
    for each in (at, other):
        world.produce(each, b"k", b"v")
    member, _ = joined(world, names)
    assert [record for _ in range(10) for record in flat(member.poll(100, 0.05))] == []
    member.start(at, 0)
    records = poll_until(bool, member)
    assert [record.at for record in records] == [at]
    member.start(other, 0)
    assert [record.at for record in poll_until(bool, member)] == [other]


def test_start_reads_again_from_an_earlier_offset(world: World, names: tuple[str, str, str]) -> None:
    at = At(names[0], 2)
    for i in range(5):
        world.produce(at, b"k", b"%d" % i)
    member, _ = joined(world, names)
    member.start(at, 0)
    assert [r.offset for r in poll_until(lambda seen: len(seen) >= 5, member)] == [0, 1, 2, 3, 4]
    member.start(at, 3)
    assert [r.value for r in poll_until(lambda seen: len(seen) >= 2, member)] == [b"3", b"4"]


def test_a_paused_partition_goes_on_where_it_is_started(world: World, names: tuple[str, str, str]) -> None:
    at = At(names[0], 0)
    world.produce(at, b"k", b"0")
    member, _ = joined(world, names)
    member.start(at, 0)
    poll_until(bool, member)
    member.pause([at])
    world.produce(at, b"k", b"1")
    assert [record for _ in range(10) for record in flat(member.poll(100, 0.05))] == []
    member.start(at, 1)
    assert [record.value for record in poll_until(bool, member)] == [b"1"]


def test_a_member_hears_of_the_end_of_a_partition(world: World, names: tuple[str, str, str]) -> None:
    at, empty = At(names[0], 0), At(names[1], 0)
    for i in range(3):
        world.produce(at, b"k", b"%d" % i)
    member, _ = joined(world, names)
    assert not member.ended(at)
    member.start(at, 0)
    member.start(empty, 0)
    assert not member.ended(at)
    records = poll_until(lambda _: member.ended(at) and member.ended(empty), member)
    assert len(records) == 3
    member.start(at, 1)
    assert not member.ended(at)
    member.pause([empty])
    assert len(poll_until(lambda _: member.ended(at), member)) == 2


def test_a_member_knows_how_far_a_position_is_from_the_end(world: World, names: tuple[str, str, str]) -> None:
    """Of a partition that was written to in transactions, whose markers are no records."""
    member, _ = joined(world, names)
    output, at = opened(world), At(names[0], 0)
    written = [commit_value(output, at, b"%d" % i)[at] for i in range(3)]
    member.start(at, 0)
    poll_until(lambda _: member.ended(at), member)
    assert member.lag(at, written[-1] + 1) == 0
    assert (member.lag(at, written[0]) or 0) >= 3
    world.produce(at, b"k", b"more")
    poll_until(bool, member)
    poll_until(lambda _: member.ended(at), member)
    assert (member.lag(at, written[-1] + 1) or 0) >= 1
    member.pause([at])
    member.poll(1, 0.05)
    assert (member.lag(at, written[-1] + 1) or 0) >= 1, "while it is paused too"


def test_the_end_of_a_partition_is_its_stable_end(world: World, names: tuple[str, str, str]) -> None:
    member, _ = joined(world, names)
    output, at = opened(world), At(names[0], 0)
    commit_value(output, at, b"0")
    output.begin()
    output.send(at, b"k", b"open")
    member.start(at, 0)
    assert [record.value for record in poll_until(lambda _: member.ended(at), member)] == [b"0"]
    output.commit()
    assert [record.value for record in poll_until(bool, member)] == [b"open"]


def test_a_poll_gives_no_more_than_asked_and_keeps_the_order(world: World, names: tuple[str, str, str]) -> None:
    at = At(names[1], 0)
    for i in range(7):
        world.produce(at, b"k", b"%d" % i)
    member, _ = joined(world, names)
    member.start(at, 0)
    seen: list[Record] = []
    while len(seen) < 7:
        records = flat(member.poll(3, 0.05))
        assert len(records) <= 3
        seen += records
    assert [record.offset for record in seen] == list(range(7))


def test_a_member_sees_committed_records_only(world: World, names: tuple[str, str, str]) -> None:
    member, _ = joined(world, names)
    output, at = opened(world), At(names[0], 0)
    member.start(at, 0)
    output.begin()
    output.send(at, b"k", b"aborted")
    output.abort()
    commit_value(output, at, b"committed")
    assert [record.value for record in poll_until(bool, member)] == [b"committed"]


def test_bytes_headers_timestamps_and_nulls_survive(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), At(topic, 0)
    every_byte = bytes(range(256))
    headers = (("reason", b"\x00\xff"), ("none", None), ("reason", b"twice"), ("empty", b""))
    output.begin()
    output.send(at, every_byte, every_byte, headers, NOW)
    output.send(at, None, None, timestamp=NOW + 1)
    output.send(at, b"", b"", timestamp=NOW + 2)
    output.commit()
    records = eventually(lambda: list(reader.read(at, 0)))
    assert records == [
        Record(topic, 0, 0, NOW, every_byte, every_byte, headers),
        Record(topic, 0, 1, NOW + 1, None, None),
        Record(topic, 0, 2, NOW + 2, b"", b""),
    ]


def test_many_are_sent_as_each_by_itself_would_be(world: World, topic: str) -> None:
    output, reader = opened(world), world.reader()
    headers: Headers = (("h", b"x"), ("h", None))
    many: list[tuple[bytes, bytes, Headers]] = [
        (b"key-%d" % (i % 7), b"%d" % i, headers if i % 5 == 0 else ()) for i in range(30)
    ]
    output.begin()
    output.send_all(topic, many)
    output.commit()
    for number in range(4):
        wanted = [one for one in many if partition_of(one[0], 4) == number]
        records = eventually(lambda number=number: list(reader.read(At(topic, number), 0)))  # type: ignore[misc]
        assert [(record.key, record.value, record.headers) for record in records] == wanted


def test_a_member_sees_what_a_reader_sees(world: World, names: tuple[str, str, str]) -> None:
    at = At(names[0], 3)
    world.produce(at, b"\x00k", None, NOW)
    world.produce(at, None, b"\xff", NOW + 1)
    member, _ = joined(world, names)
    member.start(at, 0)
    records = poll_until(lambda seen: len(seen) == 2, member)
    assert records == list(world.reader().read(at, 0))
    assert [(r.key, r.value, r.timestamp) for r in records] == [(b"\x00k", None, NOW), (None, b"\xff", NOW + 1)]


def test_a_record_without_a_timestamp_gets_one(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), At(topic, 0)
    commit_value(output, at, b"v")
    (record,) = eventually(lambda: list(reader.read(at, 0)))
    assert record.timestamp >= 1_700_000_000_000


@pytest.mark.parametrize("key", MURMUR2)
def test_partition_minus_one_means_by_key_as_java_does(world: World, topic: str, key: bytes) -> None:
    assert murmur2(key) == MURMUR2[key]
    expected = At(topic, (MURMUR2[key] & 0x7FFFFFFF) % 4)
    assert partition_of(key, 4) == expected.partition
    output = opened(world)
    output.begin()
    output.send(At(topic, -1), key, b"v")
    assert output.commit() == {}, "offsets are told of partitions that were named"
    assert eventually(lambda: values(world.reader(), expected)) == [b"v"]


# the reader


def test_bounds_of_an_empty_partition_are_zero(world: World, topic: str) -> None:
    reader = world.reader()
    assert bounds(reader, At(topic, 0)) == (0, 0)
    assert list(reader.read(At(topic, 0), 0)) == []


def test_bounds_count_markers_and_read_skips_them(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), At(topic, 0)
    for i in range(3):
        assert commit_value(output, at, b"%d" % i) == {at: 2 * i}
    eventually(lambda: reader.bounds(at), lambda found: found == (0, 6))
    assert [record.offset for record in reader.read(at, 0)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, None, [0, 1, 2, 3, 4]),
        (2, None, [2, 3, 4]),
        (1, 4, [1, 2, 3]),
        (3, 3, []),
        (5, None, []),
        (4, 9, [4]),
        (9, None, []),
    ],
)
def test_read_gives_the_records_of_a_range(
    world: World, topic: str, start: int, stop: int | None, expected: list[int]
) -> None:
    at, reader = At(topic, 2), world.reader()
    for i in range(5):
        world.produce(at, b"k", b"%d" % i)
    assert bounds(reader, at) == (0, 5)
    assert [record.offset for record in reader.read(at, start, stop)] == expected


def test_a_range_that_ends_in_a_marker_ends(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), At(topic, 0)
    commit_value(output, at, b"v")
    eventually(lambda: reader.bounds(at)[1], lambda end: end == 2)
    assert [record.offset for record in reader.read(at, 0, 2)] == [0]
    assert list(reader.read(at, 1, 2)) == []


def test_partitions_counts_or_says_that_there_is_no_such_topic(world: World, topic: str) -> None:
    reader = world.reader()
    assert reader.partitions(topic) == 4
    assert reader.partitions(f"no-such-{uuid4().hex[:8]}") is None


def test_a_position_that_is_not_kept_stops_the_member(world: World, names: tuple[str, str, str]) -> None:
    member, _ = joined(world, names)
    member.start(At(names[0], 0), 1000)
    with pytest.raises(Stop):
        poll_until(bool, member)


def test_a_member_is_told_its_generation_and_member_id(world: World, names: tuple[str, str, str]) -> None:
    _, diary = joined(world, names)
    assert diary.membership.generation >= 1
    assert diary.membership.member_id
