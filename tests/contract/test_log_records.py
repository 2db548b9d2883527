"""Records come out as they went in, on the partition that Java would choose."""

from __future__ import annotations

import pytest

from processor.core.stream.partitioner import murmur2, partition_of
from processor.ports.log import Headers, Record, TopicPartition

from .log_clients import commit_value, joined, opened, values
from .worlds import World, eventually, poll_until

NOW = 1_700_000_000_123
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


def test_bytes_headers_timestamps_and_nulls_survive(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), TopicPartition(topic, 0)
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
        records = eventually(lambda number=number: list(reader.read(TopicPartition(topic, number), 0)))  # type: ignore[misc]
        assert [(record.key, record.value, record.headers) for record in records] == wanted


def test_a_member_sees_what_a_reader_sees(world: World, names: tuple[str, str, str]) -> None:
    at = TopicPartition(names[0], 3)
    world.produce(at, b"\x00k", None, NOW)
    world.produce(at, None, b"\xff", NOW + 1)
    member, _ = joined(world, names)
    member.start(at, 0)
    records = poll_until(lambda seen: len(seen) == 2, member)
    assert records == list(world.reader().read(at, 0))
    assert [(r.key, r.value, r.timestamp) for r in records] == [(b"\x00k", None, NOW), (None, b"\xff", NOW + 1)]


def test_a_record_without_a_timestamp_gets_one(world: World, topic: str) -> None:
    output, reader, at = opened(world), world.reader(), TopicPartition(topic, 0)
    commit_value(output, at, b"v")
    (record,) = eventually(lambda: list(reader.read(at, 0)))
    assert record.timestamp >= 1_700_000_000_000


@pytest.mark.parametrize("key", MURMUR2)
def test_partition_minus_one_means_by_key_as_java_does(world: World, topic: str, key: bytes) -> None:
    assert murmur2(key) == MURMUR2[key]
    expected = TopicPartition(topic, (MURMUR2[key] & 0x7FFFFFFF) % 4)
    assert partition_of(key, 4) == expected.partition
    output = opened(world)
    output.begin()
    output.send(TopicPartition(topic, -1), key, b"v")
    assert output.commit() == {}, "offsets are told of partitions that were named"
    assert eventually(lambda: values(world.reader(), expected)) == [b"v"]
