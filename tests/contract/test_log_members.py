"""A member reads committed records, in order, from where it is started to the stable end."""

from __future__ import annotations

import pytest

from processor.ports.log import OperatorActionRequiredError, Record, TopicPartition

from .log_clients import commit_value, joined, opened
from .worlds import World, flat, poll_until


def test_assigned_partitions_give_nothing_until_they_are_started(world: World, names: tuple[str, str, str]) -> None:
    at, other = TopicPartition(names[0], 1), TopicPartition(names[1], 1)
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
    at = TopicPartition(names[0], 2)
    for i in range(5):
        world.produce(at, b"k", b"%d" % i)
    member, _ = joined(world, names)
    member.start(at, 0)
    assert [r.offset for r in poll_until(lambda seen: len(seen) >= 5, member)] == [0, 1, 2, 3, 4]
    member.start(at, 3)
    assert [r.value for r in poll_until(lambda seen: len(seen) >= 2, member)] == [b"3", b"4"]


def test_a_paused_partition_goes_on_where_it_is_started(world: World, names: tuple[str, str, str]) -> None:
    at = TopicPartition(names[0], 0)
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
    at, empty = TopicPartition(names[0], 0), TopicPartition(names[1], 0)
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
    output, at = opened(world), TopicPartition(names[0], 0)
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
    output, at = opened(world), TopicPartition(names[0], 0)
    commit_value(output, at, b"0")
    output.begin()
    output.send(at, b"k", b"open")
    member.start(at, 0)
    assert [record.value for record in poll_until(lambda _: member.ended(at), member)] == [b"0"]
    output.commit()
    assert [record.value for record in poll_until(bool, member)] == [b"open"]


def test_a_poll_gives_no_more_than_asked_and_keeps_the_order(world: World, names: tuple[str, str, str]) -> None:
    at = TopicPartition(names[1], 0)
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
    output, at = opened(world), TopicPartition(names[0], 0)
    member.start(at, 0)
    output.begin()
    output.send(at, b"k", b"aborted")
    output.abort()
    commit_value(output, at, b"committed")
    assert [record.value for record in poll_until(bool, member)] == [b"committed"]


def test_a_position_that_is_not_kept_stops_the_member(world: World, names: tuple[str, str, str]) -> None:
    member, _ = joined(world, names)
    member.start(TopicPartition(names[0], 0), 1000)
    with pytest.raises(OperatorActionRequiredError):
        poll_until(bool, member)
