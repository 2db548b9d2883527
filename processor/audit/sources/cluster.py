"""A running cluster as a source: offsets of its topics, and the records between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from processor.adapters.kafka.errors import UNREADABLE, create_client, translate_error
from processor.adapters.kafka.group import KafkaGroup
from processor.adapters.kafka.input import record_of
from processor.adapters.kafka.reader import check_reading
from processor.adapters.kafka.settings import Properties, client_properties, reader_properties
from processor.core.stream.identity import Identity
from processor.core.stream.journal import Range
from processor.ports.log import (
    OperatorActionRequiredError,
    Record,
    RetryableError,
    TopicPartition,
    UnreadableBatchError,
)

from .source import ROLES, Role

ADMIN_TIMEOUT_S = 15.0
OPEN_TRANSACTION_TIMEOUT_S = 20.0
"""seconds to wait for open transactions; those of a processor time out after ten"""
RETRY_PAUSE_S = 0.05
MAX_PARTITIONS_PER_REQUEST = 500

_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Extent = tuple[int, int]
"""the first offset that is kept, and the end of what is stable"""
# Many partitions are read at once, each by a consumer of its own: little is fetched ahead.
CONSUMER_PROPERTIES: dict[str, str | int | float | bool] = {
    "queued.max.messages.kbytes": 4 << 10,
    "queued.min.messages": 2_000,
    "fetch.message.max.bytes": 1 << 20,
}
READ_TIMEOUT_S = 30.0
FETCH_BYTES = 4 << 20
MAX_FETCH_RECORDS = 2_000
FIRST_FETCH_RECORDS = 50
POLL_TIMEOUT_S = 0.1


class KafkaOffsets:
    """Offsets of topic partitions, from the brokers."""

    def __init__(self, properties: Properties, patience: float = OPEN_TRANSACTION_TIMEOUT_S) -> None:
        self._client = create_client(AdminClient, client_properties(properties))
        self._patience = patience

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Partition count of each topic; topics that do not exist are left out."""
        try:
            found = self._client.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        except KafkaException as problem:
            raise translate_error(problem, "asking for the topics") from problem
        return {topic: len(found[topic].partitions) for topic in topics if topic in found}

    def extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Extent]:
        """Of each partition, once everything that is in it now is settled.

        The markers of one transaction land on its topics one by one. What was under way when we asked is waited for,
        so that whoever asks for the journal first, and then for the rest, gets all that the journal speaks of.
        """
        begin = self._list_offsets(places, _EARLIEST)
        written = self._list_offsets(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._list_offsets(places, _LATEST, IsolationLevel.READ_COMMITTED)
        deadline = time.monotonic() + self._patience
        while (late := [at for at in places if stable[at] < written[at]]) and time.monotonic() < deadline:
            time.sleep(RETRY_PAUSE_S)
            stable |= self._list_offsets(late, _LATEST, IsolationLevel.READ_COMMITTED)
        return {at: (begin[at], max(begin[at], stable[at])) for at in places}

    def at_time(self, places: Sequence[TopicPartition], milliseconds: int) -> dict[TopicPartition, int | None]:
        """The first offset with a timestamp at or after this; None if there is none."""
        found = self._list_offsets(places, OffsetSpec.for_timestamp(milliseconds))
        return {at: offset if offset >= 0 else None for at, offset in found.items()}

    def _list_offsets(
        self, places: Sequence[TopicPartition], what: Any, level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """One offset for each partition. Retries: leaders may move, or not be known yet for a new topic."""
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self._patience
        while left := [at for at in places if at not in found][:MAX_PARTITIONS_PER_REQUEST]:
            asked = {KafkaTopicPartition(*at): what for at in left}
            answers = self._client.list_offsets(asked, isolation_level=level, request_timeout=ADMIN_TIMEOUT_S)
            for place, answer in answers.items():
                try:
                    found[TopicPartition(place.topic, place.partition)] = answer.result(ADMIN_TIMEOUT_S * 2).offset
                except KafkaException as problem:
                    said = translate_error(problem, f"asking for the offsets of {place.topic}[{place.partition}]")
                    if isinstance(said, OperatorActionRequiredError) or time.monotonic() > deadline:
                        raise said from problem
                    time.sleep(RETRY_PAUSE_S)
        return found


def committed_identities(properties: Properties, group: str, inputs: Sequence[str], count: int) -> dict[int, str]:
    """The identity each partition's state had when the group last committed; partitions without one are left out."""
    if not inputs or not count:
        return {}
    texts: dict[int, set[str]] = {number: set() for number in range(count)}
    places = [TopicPartition(topic, number) for topic in inputs for number in range(count)]
    for at, position in KafkaGroup(properties, group, OPEN_TRANSACTION_TIMEOUT_S).committed(places).items():
        texts[at.partition].add(position.metadata if position else "")
    found: dict[int, str] = {}
    for number, said in texts.items():
        identity = Identity.parse(said.pop()) if len(said) == 1 else None
        if identity is not None and identity.sequence > 0:
            found[number] = identity.text()
    return found


def partition_counts(offsets: KafkaOffsets, topics: Mapping[Any, str]) -> dict[str, int]:
    """Partition counts by topic. Raises if none of the topics exists: the configuration is wrong."""
    counts = offsets.partitions(list(topics.values()))
    if not counts:
        names = ", ".join(topics.values())
        raise OperatorActionRequiredError(
            f"none of the topics {names} exists on this cluster: check [topics] and bootstrap_servers"
        )
    return counts


class _BatchRanges(msgspec.Struct):
    """What of a journal record matters here."""

    requests: Range
    feedback: Range
    skipped: list[tuple[str, int, int]] = []


def offset_after_unreadable(
    journal: Iterable[list[Message]], role: Role, offset: int, problem: UnreadableBatchError
) -> int | None:
    """Where an input is read on after an offset that cannot be read; None if the processor has not got past it either.

    Raises the problem again if the processor has processed what is there: then whoever reads now cannot do without it.
    """
    reached = 0
    for messages in journal:
        for batch in filter(None, (_decode_ranges(message.value()) for message in messages)):
            for source, first, after in batch.skipped:
                if source == role and first <= offset < after:
                    return after
            reached = max(reached, (batch.requests if role == "requests" else batch.feedback).next)
    if reached > offset:
        raise problem
    return None


def _decode_ranges(value: bytes | None) -> _BatchRanges | None:
    try:
        return msgspec.json.decode(value or b"", type=_BatchRanges)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # the audit reports it


class KafkaSource:
    """See ``sources.Source``. It ends where the topics were stable when it was made."""

    def __init__(self, properties: Properties, topics: Mapping[Role, str], group: str) -> None:
        self._properties = dict(properties)
        self._topics = dict(topics)
        offsets = KafkaOffsets(properties)
        counts = partition_counts(offsets, topics)
        self._counts = {role: counts[topic] for role, topic in topics.items() if topic in counts}
        inputs = [topics[role] for role in ("requests", "feedback") if role in topics and topics[role] in counts]
        least = min((counts[topic] for topic in inputs), default=0)
        self._anchors = committed_identities(properties, group, inputs, least)
        self._extents = list_settled_extents(offsets, {role: topics[role] for role in self._counts}, counts)

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
                for messages in fetch(self._properties, at, position, extent[1]):
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
        journal = fetch(self._properties, TopicPartition(self.topic("journal"), partition), *extent)
        return offset_after_unreadable(journal, role, offset, problem)


def list_settled_extents(
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


def fetch(
    properties: Properties,
    at: TopicPartition,
    start: int,
    stop: int,
    timeout: float = READ_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[Message]]:
    """The committed messages of a partition from ``start`` up to ``stop``, some at a time."""
    if start >= stop:
        return
    settings: dict[str, Any] = {**reader_properties(properties), **CONSUMER_PROPERTIES}
    consumer = create_client(Consumer, settings)
    try:
        consumer.assign([KafkaTopicPartition(at.topic, at.partition, start)])
        deadline, most = clock() + timeout, FIRST_FETCH_RECORDS
        while clock() < deadline:
            polled = consumer.consume(most, POLL_TIMEOUT_S)
            messages, reached = _messages_before(polled, at, stop)
            if messages:
                most = _next_fetch_count(messages)
                yield messages
            if reached:
                return
            if polled:
                deadline = clock() + timeout
    finally:
        consumer.close()
    raise RetryableError(f"reading {at.topic}[{at.partition}]: nothing arrived for {timeout:g} s")


def _messages_before(polled: list[Message], at: TopicPartition, stop: int) -> tuple[list[Message], bool]:
    """The messages before ``stop``, and whether it was reached: markers are never seen, only what comes after them."""
    messages, reached = [], False
    for message in polled:
        error, offset = message.error(), message.offset() or 0
        if error is None and offset < stop:
            messages.append(message)
        elif error is not None and error.code() in UNREADABLE and messages:
            break  # those before it are returned first; the error comes again
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            check_reading(error, at, offset)
            continue
        reached = reached or offset >= stop - (error is None)
    return messages, reached


def _next_fetch_count(messages: list[Message]) -> int:
    """How many to ask for: as many as make a few megabytes, however large the records are."""
    mean = sum(len(message) for message in messages) // len(messages)
    return max(1, min(MAX_FETCH_RECORDS, FETCH_BYTES // max(mean, 1)))
