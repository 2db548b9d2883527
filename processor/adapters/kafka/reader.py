"""Reading partitions outside any group, on confluent-kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)
from confluent_kafka.admin import AdminClient

from processor.adapters.kafka.errors import NOT_KEPT, UNREADABLE, create_client, translate_error
from processor.adapters.kafka.input import TRANSIENT_CODES, record_of
from processor.adapters.kafka.settings import Properties, client_properties, reader_properties
from processor.ports.log import (
    OperatorActionRequiredError,
    Record,
    RetryableError,
    TopicPartition,
    UnreadableBatchError,
)


def check_reading(error: KafkaError, at: TopicPartition, offset: int) -> None:
    """Raise what an error at an offset means for who reads outside any group.

    librdkafka looks for the coordinator of a group all the same, and for one that no ACL names it is refused. That is
    no obstacle to reading.
    """
    doing = f"reading {at.topic}[{at.partition}]"
    if error.code() in NOT_KEPT:
        raise OperatorActionRequiredError(
            f"{doing}: records were deleted meanwhile ({error.str()}). Remedy: start again"
        )
    if error.code() in UNREADABLE:
        raise UnreadableBatchError(
            f"{doing} at offset {offset}: {error.str()} ({error.name()}). Remedy: raise receive.message.max.bytes in "
            "the Kafka properties",
            offset,
        )
    if error.code() not in TRANSIENT_CODES and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise translate_error(error, doing)


NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Zero: the broker has no ids of topics."""


class KafkaReader:
    """See ``log.Reader``. Each read in progress has a consumer to itself; idle ones are kept for the next."""

    def __init__(
        self,
        properties: Properties,
        *,
        request_timeout: float = 10.0,
        batch: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = reader_properties(properties)
        self._properties = client_properties(properties)
        self._admin: AdminClient | None = None
        self._uncommitted: Consumer | None = None
        self._timeout = request_timeout
        self._batch = batch
        self._clock = clock
        self._idle: list[Consumer] = []
        self._closed = False

    def bounds(self, at: TopicPartition) -> tuple[int, int]:
        """Under ``read_committed`` librdkafka asks for the last stable offset, not the high watermark."""
        with self._consumer() as consumer:
            try:
                return consumer.get_watermark_offsets(KafkaTopicPartition(*at), timeout=self._timeout)
            except KafkaException as problem:
                raise translate_error(problem, f"asking for the bounds of {at.topic}[{at.partition}]") from problem

    def partitions(self, topic: str) -> int | None:
        with self._consumer() as consumer:
            try:
                found = consumer.list_topics(topic, timeout=self._timeout).topics.get(topic)
            except KafkaException as problem:
                raise translate_error(problem, f"looking for topic {topic}") from problem
        if found is None or (found.error and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
            return None
        if found.error:
            raise translate_error(found.error, f"looking for topic {topic}")
        return len(found.partitions)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """A broker before Kafka 2.8 gives none."""
        if self._admin is None:
            self._admin = create_client(AdminClient, self._properties)
        found = {}
        try:
            answers = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
            for topic, answer in answers.items():
                found[topic] = answer.result(2 * self._timeout).topic_id
        except KafkaException as problem:
            raise translate_error(problem, "asking for the ids of the inputs") from problem
        return {topic: str(id) for topic, id in found.items() if id is not None and str(id) != NO_ID}

    def settled(self, at: TopicPartition) -> bool:
        """The last stable offset is the high watermark, which a reader of uncommitted records is told."""
        _, stable = self.bounds(at)
        if self._uncommitted is None:
            self._uncommitted = create_client(Consumer, {**self._settings, "isolation.level": "read_uncommitted"})
        try:
            _, end = self._uncommitted.get_watermark_offsets(KafkaTopicPartition(*at), timeout=self._timeout)
        except KafkaException as problem:
            raise translate_error(problem, f"asking for the end of {at.topic}[{at.partition}]") from problem
        return bool(stable >= end)

    def read(self, at: TopicPartition, start: int, stop: int | None = None) -> Iterator[Record]:
        first, end = self.bounds(at)
        if start < first:
            raise OperatorActionRequiredError(
                f"{at.topic}[{at.partition}] is kept from offset {first} on, but {start} is needed. "
                "Remedy: restore the topic from a backup; never set a time or size limit on it"
            )
        return self._records(at, start, end if stop is None else min(stop, end))

    def _records(self, at: TopicPartition, start: int, stop: int) -> Iterator[Record]:
        if start >= stop:
            return
        with self._consumer() as consumer:
            consumer.assign([KafkaTopicPartition(at.topic, at.partition, start)])
            deadline = self._clock() + self._timeout
            while self._clock() < deadline:
                messages = consumer.consume(self._batch, 0.01)
                records, reached = self._taken(messages, at, stop)
                yield from records
                if reached:
                    return
                if messages:
                    deadline = self._clock() + self._timeout
        raise RetryableError(f"reading {at.topic}[{at.partition}]: nothing arrived for {self._timeout} s")

    def _taken(self, messages: list[Message], at: TopicPartition, stop: int) -> tuple[list[Record], bool]:
        """The records before ``stop``, and whether it was reached.

        Markers and aborted records are never seen, so past the last record only the end of the partition tells.
        """
        records, reached = [], False
        for message in messages:
            error, offset = message.error(), message.offset() or 0
            if error is None and offset < stop:
                records.append(record_of(message))
            elif error is not None and error.code() in UNREADABLE and records:
                break  # those before it come first; it is said again
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                check_reading(error, at, offset)
                continue
            reached = reached or offset >= stop - (error is None)
        return records, reached

    def unreadable(self, at: TopicPartition, offset: int) -> tuple[int, int] | None:
        """librdkafka names the first offset of a batch that it cannot take, whichever of its offsets is asked for, and
        not the last: so that is searched for."""
        first = self._failing(at, offset)
        if first is None:
            return None
        low, high, step = offset, self.bounds(at)[1], 1
        while high - low > 1:
            probe = low + min(step, (high - low) // 2)
            if self._failing(at, probe) == first:
                low, step = probe, 4 * step
            else:
                high = probe
        return first, high

    def _failing(self, at: TopicPartition, offset: int) -> int | None:
        """The first offset of the batch at an offset, if it cannot be read."""
        try:
            next(self._records(at, offset, offset + 1), None)
        except UnreadableBatchError as problem:
            return problem.offset
        return None

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        try:
            consumer = self._idle.pop()
        except IndexError:
            consumer = create_client(Consumer, self._settings)
        try:
            yield consumer
        finally:
            consumer.unassign()
            if self._closed:
                consumer.close()
            else:
                self._idle.append(consumer)

    def close(self) -> None:
        self._closed = True
        self._admin = None
        if self._uncommitted is not None:
            self._uncommitted.close()
        while self._idle:
            self._idle.pop().close()
