"""A reader knows the bounds of a partition, and gives the records of any range of it."""

from __future__ import annotations

from uuid import uuid4

import pytest

from processor.ports.log import TopicPartition

from .log_clients import bounds, commit_value, opened
from .worlds import World, eventually


def test_bounds_of_an_empty_partition_are_zero(world: World, topic: str) -> None:
    reader = world.reader()
    assert bounds(reader, TopicPartition(topic, 0)) == (0, 0)
    assert list(reader.read(TopicPartition(topic, 0), 0)) == []


def test_bounds_count_markers_and_read_skips_them(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), TopicPartition(topic, 0)
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
    at, reader = TopicPartition(topic, 2), world.reader()
    for i in range(5):
        world.produce(at, b"k", b"%d" % i)
    assert bounds(reader, at) == (0, 5)
    assert [record.offset for record in reader.read(at, start, stop)] == expected


def test_a_range_that_ends_in_a_marker_ends(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), TopicPartition(topic, 0)
    commit_value(output, at, b"v")
    eventually(lambda: reader.bounds(at)[1], lambda end: end == 2)
    assert [record.offset for record in reader.read(at, 0, 2)] == [0]
    assert list(reader.read(at, 1, 2)) == []


def test_partitions_counts_or_says_that_there_is_no_such_topic(world: World, topic: str) -> None:
    reader = world.reader()
    assert reader.partitions(topic) == 4
    assert reader.partitions(f"no-such-{uuid4().hex[:8]}") is None
