"""One Kafka transaction for the batches of all partitions that have one, and the ways in which it can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from processor.ports.codec import Codec
from processor.ports.log import (
    Committed,
    CommitUnknownError,
    FencedError,
    LogError,
    Output,
    RecordRefusedError,
    RetryableError,
    TopicPartition,
    TransactionAbortedError,
)

from .batches import PreparedBatch
from .publish import publish, record
from .topics import TopicNames

ENDING_ERRORS = CommitUnknownError, FencedError, TransactionAbortedError, RetryableError, RecordRefusedError
"""They end a transaction and not the process."""


class TransactionFate(Enum):
    """How a transaction ended, and what the batches in it need."""

    COMMITTED = auto()
    """they are in the log"""
    ABORTED = auto()
    """they are not: the same records again"""
    UNKNOWN = auto()
    """only the stable committed offsets can tell: their partitions are recovered"""
    FENCED = auto()
    """another process has taken over this one's name, or the group went on without it: all is recovered"""
    REFUSED = auto()
    """Kafka refuses something that one of them sends, and would refuse it again"""


@dataclass(frozen=True)
class TransactionResult:
    fate: TransactionFate
    batches: list[PreparedBatch]
    why: str = ""


class Transactions:
    """Has a producer, makes another when that is of no use any more, and sends transactions with it.

    ``totals`` counts how they ended. ``retry_after`` is in milliseconds, as ``monotonic_ms`` is.
    """

    def __init__(
        self,
        topics: TopicNames,
        make_output: Callable[[], Output],
        codec: Codec | None,
        monotonic_ms: Callable[[], int],
        retry_after: int,
        totals: Counter[str],
    ) -> None:
        self.topics, self.codec, self.monotonic_ms, self.retry_after, self.totals = (
            topics,
            codec,
            monotonic_ms,
            retry_after,
            totals,
        )
        self.output: Output | None = None
        self.written: dict[TopicPartition, int] = {}
        """the offsets of the last records of the last transaction"""
        self._make_output = make_output
        self._open_at = 0
        self._batches: list[PreparedBatch] = []
        self._failure: tuple[TransactionFate, str] | None = None

    def ensure_producer(self) -> bool:
        """Have a producer. A new one settles what its predecessor under the same name left open."""
        if self.output is None and self.monotonic_ms() >= self._open_at:
            output = self._make_output()
            try:
                output.open()
            except (RetryableError, FencedError):
                output.close()
                self._open_at = self.monotonic_ms() + self.retry_after
            else:
                self.output = output
        return self.output is not None

    def close(self) -> None:
        if self.output is not None:
            self.output.close()
        self.output = None

    def begin(self) -> None:
        """The next transaction. It is opened with its first batch; without one nothing is opened."""
        self._batches, self._failure = [], None

    def add(self, batch: PreparedBatch) -> None:
        """Send what a batch publishes. Raises one of ``ENDING_ERRORS`` where the transaction fails: see ``fail``.

        What the batch before it records is sent here too: its hashes are known by now.
        """
        assert self.output is not None
        if not self._batches:
            self.output.begin()
        publish(self.output, self.topics, batch, self.codec)
        if self._batches:
            record(self.output, self.topics, self._batches[-1])
        self._batches.append(batch)

    def end(self) -> TransactionResult:
        """Commit the batches with the offsets they have reached. Says how it ended, and for which batches."""
        if self._batches and self._failure is None:
            assert self.output is not None
            try:
                record(self.output, self.topics, self._batches[-1])
                self._send_offsets(self.output, self._batches)
                self.written = self.output.commit()
                self.totals["transactions"] += 1
            except ENDING_ERRORS as error:
                self.fail(error)
        if self._failure is None:
            return TransactionResult(TransactionFate.COMMITTED, self._batches)
        return TransactionResult(self._failure[0], self._batches, self._failure[1])

    def fail(self, error: LogError) -> None:
        """The transaction ends with this error. The producer is closed where it is of no use any more."""
        match error:
            case CommitUnknownError():
                self.totals["commits_unknown"] += 1
                self.close()
                fate = TransactionFate.UNKNOWN
            case FencedError():
                self.totals["fenced_by_kafka"] += 1
                self.close()
                fate = TransactionFate.FENCED
            case RecordRefusedError():
                self.totals["transactions_aborted"] += 1
                self.close()
                fate = TransactionFate.REFUSED
            case _:
                self.totals["transactions_aborted"] += 1
                self._abort()
                fate = TransactionFate.ABORTED
        self._failure = fate, str(error)

    # A mutant of the simulation replaces this.
    def _send_offsets(self, output: Output, batches: Sequence[PreparedBatch]) -> None:
        """As the member that read the batches: the broker checks the generation, not who owns what."""
        positions = {}
        for batch in batches:
            for topic, offset in batch.positions.items():
                positions[TopicPartition(topic, batch.owned.number)] = Committed(offset, batch.identity.text())
        output.send_offsets(positions, batches[0].owned.membership)

    def _abort(self) -> None:
        assert self.output is not None
        try:
            self.output.abort()
        except LogError as error:
            self.totals["fenced_by_kafka"] += isinstance(error, FencedError)
            self.close()
