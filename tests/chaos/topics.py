"""Everything a plain ``read_committed`` consumer sees, read once into memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from processor.core.stream.step import Headers

READ_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Seen:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: Headers = ()


@dataclass
class Contents:
    """The records of every topic by partition, in order of offset."""

    records: dict[tuple[str, int], list[Seen]] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> list[Seen]:
        return self.records.get((topic, partition), [])

    def all(self, topic: str) -> list[tuple[int, Seen]]:
        return [(p, one) for (name, p), found in sorted(self.records.items()) if name == topic for one in found]


def read_all(bootstrap: str, topics: Sequence[str], partitions: int) -> Contents:
    """Read every partition from its beginning to its stable end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-verification",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    places = [KafkaTopicPartition(topic, p, 0) for topic in topics for p in range(partitions)]
    contents = Contents({(at.topic, at.partition): [] for at in places})
    try:
        consumer.assign(places)
        _drain(consumer, contents)
    finally:
        consumer.close()
    return contents


def _drain(consumer: Consumer, contents: Contents) -> None:
    left = set(contents.records)
    deadline = time.monotonic() + READ_SECONDS
    while left:
        if time.monotonic() > deadline:
            raise RuntimeError(f"could not read to the end of {sorted(left)} within {READ_SECONDS:.0f} s")
        for message in consumer.consume(5000, 0.2):
            at = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                contents.records[at].append(
                    Seen(
                        message.offset() or 0,
                        message.timestamp()[1],
                        message.key(),
                        message.value() or b"",
                        tuple(message.headers() or ()),  # type: ignore[arg-type]  # bytes, as read
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(at)
            else:
                raise KafkaException(error)
