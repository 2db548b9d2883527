"""The commit log as the processor sees it: a group member that reads, a producer that commits, a plain reader.

Two implementations: ``kafka`` (confluent-kafka) and ``memory`` (embedded use and the simulation). One contract suite
runs on both. Every call may block for a bounded time and raises one of the errors below, which say what the caller
must do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from processor.core.errors import GForceError
from processor.core.stream.decode import Headers as Headers
from processor.core.stream.decode import InputRecord


class LogError(GForceError):
    """Something between us and the log."""


class RetryableError(LogError):
    """Nothing happened; the same call may succeed later."""


class UnreadableBatchError(RetryableError):
    """A batch of the log cannot be taken as it is, and another try would fail too: ``offset`` is its first."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class TransactionAbortedError(LogError):
    """The transaction cannot be committed: abort it, forget the batch, seek back and process it again."""


class CommitUnknownError(LogError):
    """The answer to a commit was lost: only the committed offsets tell whether it happened."""


class FencedError(LogError):
    """Another process has taken our place: give up what is owned and recover, never insist."""


class OperatorActionRequiredError(LogError):
    """A person must act: wrong configuration, missing topic, missing rights, two processes under one name.

    ``partition`` is the number of the one partition that this concerns; None where it concerns the whole process.
    """

    def __init__(self, message: str, partition: int | None = None) -> None:
        super().__init__(message)
        self.partition = partition


class RecordRefusedError(OperatorActionRequiredError):
    """Kafka refuses a record that a batch sends, and would refuse it again: it is too large for its topic."""


class TopicPartition(NamedTuple):
    """A topic partition."""

    topic: str
    partition: int


Sources = Mapping[str, str]
"""The topics of a group, and which of the core's inputs each of them is."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as a ``Reader`` reads it; ``timestamp`` is in milliseconds. A struct is made ten times as fast."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class PartitionRecords(NamedTuple):
    """Records of one partition, at least one, in order of offset, made what the core reads at once."""

    at: TopicPartition
    records: list[InputRecord]


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """Why nothing comes from a partition of an input."""

    offset: int
    """the next that is to be read"""
    why: str
    unreadable: bool
    """the client cannot take the batch that is there: only another client, or to skip it, helps"""


@dataclass(frozen=True, slots=True)
class Membership:
    """Who we were in the consumer group when a batch was read. Opaque but for the two fields that are checked."""

    generation: int
    member_id: str
    raw: object = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed position: the next offset to read, and what was said with it."""

    offset: int
    metadata: str


class Listener(Protocol):
    """Told about rebalances, from inside ``Input.poll`` and ``Input.close`` only."""

    def assigned(self, partitions: Sequence[TopicPartition], membership: Membership) -> None: ...

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Ours until this returns."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Already somebody else's."""


class Input(Protocol):
    """A member of the consumer group, reading ``read_committed``. Newly assigned partitions start paused."""

    def poll(self, most: int, timeout: float) -> list[PartitionRecords]:
        """Up to ``most`` records of the partitions that are not paused; serves rebalances even if all are."""

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """The group's committed positions, waiting until no open transaction could still change them."""

    def start(self, at: TopicPartition, offset: int) -> None:
        """Read this partition from ``offset`` on (seek and resume)."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def ended(self, at: TopicPartition) -> bool:
        """Whether the last thing heard of this partition was its (stable) end."""

    def moved_on(self, at: TopicPartition, ask: bool = False) -> bool:
        """Whether the log goes on after the end that was heard: as last heard, or as the broker says if asked."""

    def failure(self, at: TopicPartition) -> ReadFailure | None:
        """Why this partition gives nothing, if that was said since it last gave something."""

    def lag(self, at: TopicPartition, position: int) -> int | None:
        """How far ``position`` is from the end as last heard, without asking; None if nothing was heard yet."""

    def close(self) -> None:
        """Leave the group."""


class Output(Protocol):
    """A transactional producer. A transaction holds everything between ``begin`` and ``commit``, or nothing."""

    def open(self) -> None:
        """Fence every earlier producer of the same name and abort what it left open."""

    def begin(self) -> None: ...

    def send(
        self,
        at: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        """Add a record to the transaction; ``at.partition`` is −1 to partition by key (murmur2)."""

    def send_all(self, topic: str, records: Iterable[tuple[bytes, bytes, Headers]]) -> None:
        """``send`` many, each with its key, by which it is partitioned, its value and its headers."""

    def send_offsets(self, positions: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        """Add the group's new positions to the transaction, as the member that read the batch."""

    def commit(self) -> dict[TopicPartition, int]:
        """Commit; the last offset on each partition that was sent to by number.

        Raises TransactionAbortedError, CommitUnknownError or FencedError.
        """

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Reader(Protocol):
    """Reads partitions outside any group, ``read_committed``."""

    def bounds(self, at: TopicPartition) -> tuple[int, int]:
        """The first offset kept and the end of what is stable."""

    def read(self, at: TopicPartition, start: int, stop: int | None = None) -> Iterator[Record]:
        """Records from ``start`` up to (not including) ``stop``, or to the stable end as of the call."""

    def unreadable(self, at: TopicPartition, offset: int) -> tuple[int, int] | None:
        """The batch that holds ``offset``, if it cannot be read: its first offset and the next after it, else None."""

    def partitions(self, topic: str) -> int | None:
        """How many partitions the topic has, or None if there is no such topic."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id that the broker gave each of these topics when it was created; a broker without ids gives none."""

    def settled(self, at: TopicPartition) -> bool:
        """Whether no transaction is open on this partition: all that was committed to it can be read now."""

    def close(self) -> None: ...
