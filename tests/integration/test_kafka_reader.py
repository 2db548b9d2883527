"""On a real broker a reader ends at the last stable offset and refuses what is not kept; topics are made once."""

from __future__ import annotations

from uuid import uuid4

import pytest

from processor.adapters.kafka.admin import Topic, create_topics, delete_records, describe_topics
from processor.ports.log import OperatorActionRequiredError, TopicPartition
from tests.servers.kafka_world import KafkaWorld

from .kafka_members import comes_to_hold, poll_until


def test_the_reader_ends_at_the_last_stable_offset(world: KafkaWorld, topic: str) -> None:
    at = TopicPartition(topic, 0)
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
    at = TopicPartition(topic, 0)
    for _ in range(4):
        world.produce(at, None, b"v")
    assert delete_records(world.properties, at, 2) == 2
    reader = world.reader()
    assert reader.bounds(at) == (2, 4)
    with pytest.raises(OperatorActionRequiredError, match="kept from offset 2"):
        reader.read(at, 0)


def test_topics_are_created_once_and_described(world: KafkaWorld) -> None:
    wanted = Topic(f"described-{uuid4().hex[:8]}", 3, {"retention.ms": "-1"})
    assert create_topics(world.properties, [wanted]) == [wanted.name]
    assert create_topics(world.properties, [wanted]) == []
    found = describe_topics(world.properties, [wanted.name, "nowhere"])
    assert found["nowhere"] is None
    assert found[wanted.name] is not None
    assert (found[wanted.name].partitions, found[wanted.name].configs["retention.ms"]) == (3, "-1")  # type: ignore[union-attr]
