"""Straight from a running cluster: the same view of the topics as a recording gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from processor.adapters.kafka.errors import UNREADABLE, create_client
from processor.adapters.kafka.input import record_of
from processor.adapters.kafka.reader import check_reading
from processor.adapters.kafka.settings import Properties, reader_properties
from processor.ports.log import Record, RetryableError, TopicPartition, UnreadableBatchError

from .offsets import Extent, KafkaOffsets, committed_identities, counts_of
from .passing import after_unreadable
from .source import ROLES, Role

# Many partitions are read at once, each by a consumer of its own: little is fetched ahead.
BOUNDED: dict[str, str | int | float | bool] = {
    "queued.max.messages.kbytes": 4 << 10,
    "queued.min.messages": 2_000,
    "fetch.message.max.bytes": 1 << 20,
}
TIMEOUT = 30.0
AT_ONCE_BYTES = 4 << 20
MOST_AT_ONCE = 2_000
FIRST_AT_ONCE = 50
WAIT = 0.1


class KafkaSource:
    """See ``sources.Source``. It ends where the topics were stable when it was made."""

    def __init__(self, properties: Properties, topics: Mapping[Role, str], group: str) -> None:
        self._properties = dict(properties)
        self._topics = dict(topics)
        offsets = KafkaOffsets(properties)
        counts = counts_of(offsets, topics)
        self._counts = {role: counts[topic] for role, topic in topics.items() if topic in counts}
        inputs = [topics[role] for role in ("requests", "feedback") if role in topics and topics[role] in counts]
        least = min((counts[topic] for topic in inputs), default=0)
        self._anchors = committed_identities(properties, group, inputs, least)
        self._extents = settled_extents(offsets, {role: topics[role] for role in self._counts}, counts)

    def partitions(self, role: Role = "journal") -> list[int]:
        return list(range(self._counts.get(role, 0)))

    def has(self, role: Role) -> bool:
        return role in self._counts

    def topic(self, role: Role) -> str:
        return self._topics.get(role, role)

    def bounds(self, role: Role, partition: int) -> tuple[int, int] | None:
        return self._extents.get(TopicPartition(self.topic(role), partition))

    def gaps(self, role: Role, partition: int) -> list[tuple[int, int]] | None:
        return []

    def anchor(self, partition: int) -> str | None:
        return self._anchors.get(partition)

    def read(self, role: Role, partition: int, start: int = 0) -> Iterator[Record]:
        extent = self.bounds(role, partition)
        if extent is None:
            return
        at, position = TopicPartition(self.topic(role), partition), max(start, extent[0])
        while True:
            try:
                for messages in fetched(self._properties, at, position, extent[1]):
                    position = (messages[-1].offset() or 0) + 1
                    yield from map(record_of, messages)
            except UnreadableBatchError as problem:
                after = self._after(role, partition, max(position, problem.offset), problem)
                if after is not None:
                    position = after
                    continue
            return

    def _after(self, role: Role, partition: int, offset: int, problem: UnreadableBatchError) -> int | None:
        """Past a batch that cannot be read, if the processor has gone past it: else this is the end of its input."""
        extent = self.bounds("journal", partition)
        if role not in ("requests", "feedback") or extent is None:
            raise problem
        journal = fetched(self._properties, TopicPartition(self.topic("journal"), partition), *extent)
        return after_unreadable(journal, role, offset, problem)


def settled_extents(
    offsets: KafkaOffsets, topics: Mapping[Role, str], counts: Mapping[str, int]
) -> dict[TopicPartition, Extent]:
    """The journal's first, and then the others': they hold all that the journal speaks of, and perhaps more."""
    first = [role for role in ROLES if role in topics and role == "journal"]
    then = [role for role in ROLES if role in topics and role != "journal"]
    found: dict[TopicPartition, Extent] = {}
    for roles in (first, then):
        places = [TopicPartition(topics[role], number) for role in roles for number in range(counts[topics[role]])]
        found |= offsets.extents(places) if places else {}
    return found


def fetched(
    properties: Properties,
    at: TopicPartition,
    start: int,
    stop: int,
    timeout: float = TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[Message]]:
    """The committed messages of a partition from ``start`` up to ``stop``, some at a time."""
    if start >= stop:
        return
    settings: dict[str, Any] = {**reader_properties(properties), **BOUNDED}
    consumer = create_client(Consumer, settings)
    try:
        consumer.assign([KafkaTopicPartition(at.topic, at.partition, start)])
        deadline, most = clock() + timeout, FIRST_AT_ONCE
        while clock() < deadline:
            heard = consumer.consume(most, WAIT)
            messages, reached = _taken(heard, at, stop)
            if messages:
                most = _next_time(messages)
                yield messages
            if reached:
                return
            if heard:
                deadline = clock() + timeout
    finally:
        consumer.close()
    raise RetryableError(f"reading {at.topic}[{at.partition}]: nothing arrived for {timeout:g} s")


def _taken(heard: list[Message], at: TopicPartition, stop: int) -> tuple[list[Message], bool]:
    """The messages before ``stop``, and whether it was reached: markers are never seen, only what comes after them."""
    messages, reached = [], False
    for message in heard:
        error, offset = message.error(), message.offset() or 0
        if error is None and offset < stop:
            messages.append(message)
        elif error is not None and error.code() in UNREADABLE and messages:
            break  # those before it come first; it is said again
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            check_reading(error, at, offset)
            continue
        reached = reached or offset >= stop - (error is None)
    return messages, reached


def _next_time(messages: list[Message]) -> int:
    """How many to ask for: as many as make a few megabytes, however large the records are."""
    mean = sum(len(message) for message in messages) // len(messages)
    return max(1, min(MOST_AT_ONCE, AT_ONCE_BYTES // max(mean, 1)))
