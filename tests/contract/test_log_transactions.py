"""Records and positions appear together or not at all, and nobody reads past an open transaction."""

from __future__ import annotations

from functools import partial

import pytest

from processor.ports.log import Committed, RetryableError, TopicPartition

from .log_clients import bounds, commit_value, joined, opened, values
from .worlds import World, eventually

# records


def test_a_transaction_appears_on_all_its_partitions_or_on_none(world: World, topic: str) -> None:
    output, reader = opened(world), world.reader()
    output.begin()
    for partition in range(4):
        output.send(TopicPartition(topic, partition), None, b"%d" % partition)
    assert all(values(reader, TopicPartition(topic, partition)) == [] for partition in range(4))
    output.commit()
    for partition in range(4):
        assert eventually(partial(values, reader, TopicPartition(topic, partition))) == [b"%d" % partition]


def test_commit_tells_the_offset_of_the_last_record_on_each_partition(world: World, topic: str) -> None:
    output, reader = opened(world), world.reader()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 2)
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
    assert commit_value(output, TopicPartition(topic, 0), b"next") == {TopicPartition(topic, 0): 0}


def test_aborted_records_are_never_seen_but_occupy_offsets(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), TopicPartition(topic, 1)
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
    slow, fast, reader, at = opened(world), opened(world), world.reader(), TopicPartition(topic, 3)
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


def test_positions_and_their_metadata_come_back_as_committed(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    at, other, never = TopicPartition(names[0], 0), TopicPartition(names[1], 0), TopicPartition(names[0], 3)
    output = opened(world)
    said = {at: Committed(17, '{"lineage":"ü","sequence":3}'), other: Committed(0, "")}
    output.begin()
    output.send_offsets(said, diary.membership)
    output.commit()
    assert eventually(lambda: member.committed([at, other, never])) == {**said, never: None}


def test_committed_does_not_answer_while_a_transaction_may_change_it(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    at = TopicPartition(names[0], 0)
    output = opened(world)
    output.begin()
    output.send_offsets({at: Committed(5, "first")}, diary.membership)
    with pytest.raises(RetryableError):
        member.committed([at])
    output.commit()
    assert eventually(lambda: member.committed([at])) == {at: Committed(5, "first")}


def test_aborted_positions_are_forgotten(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    at = TopicPartition(names[0], 0)
    output = opened(world)
    for offset, end in ((5, output.commit), (9, output.abort)):
        output.begin()
        output.send_offsets({at: Committed(offset, "")}, diary.membership)
        end()
    assert eventually(lambda: member.committed([at])) == {at: Committed(5, "")}


def test_records_and_positions_are_one_transaction(world: World, names: tuple[str, str, str], topic: str) -> None:
    member, diary = joined(world, names)
    at, out, reader = TopicPartition(names[0], 0), TopicPartition(topic, 0), world.reader()
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
