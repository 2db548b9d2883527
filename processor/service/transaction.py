"""One Kafka transaction for the batches of all partitions that have one, and the three ways in which it can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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

    def open(self) -> bool:
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

    def send(self, batches: Iterable[PreparedBatch]) -> TransactionResult:
        """Send all of these in one transaction, each while the next one is worked out; none at all opens none."""
        output, sent = self.output, list[PreparedBatch]()
        assert output is not None
        try:
            for batch in batches:
                if not sent:
                    output.begin()
                publish(output, self.topics, batch, self.codec)
                if sent:
                    record(output, self.topics, sent[-1])  # later than it could be: now its hashes are known
                sent.append(batch)
            if sent:
                record(output, self.topics, sent[-1])
                self._send_offsets(output, sent)
                self.written = output.commit()
                self.totals["transactions"] += 1
            return TransactionResult(TransactionFate.COMMITTED, sent)
        except CommitUnknownError as error:
            self.totals["commits_unknown"] += 1
            self.close()
            return TransactionResult(TransactionFate.UNKNOWN, sent, str(error))
        except FencedError as error:
            self.totals["fenced_by_kafka"] += 1
            self.close()
            return TransactionResult(TransactionFate.FENCED, sent, str(error))
        except (TransactionAbortedError, RetryableError) as error:
            self.totals["transactions_aborted"] += 1
            self._abort(output)
            return TransactionResult(TransactionFate.ABORTED, sent, str(error))
        except RecordRefusedError as error:
            self.totals["transactions_aborted"] += 1
            self.close()
            return TransactionResult(TransactionFate.REFUSED, sent, str(error))

    def _send_offsets(self, output: Output, batches: Sequence[PreparedBatch]) -> None:
        """As the member that read the batches: the broker checks the generation, not who owns what."""
        positions = {}
        for batch in batches:
            for topic, offset in batch.positions.items():
                positions[TopicPartition(topic, batch.owned.number)] = Committed(offset, batch.identity.text())
        output.send_offsets(positions, batches[0].owned.membership)

    def _abort(self, output: Output) -> None:
        try:
            output.abort()
        except LogError as error:
            self.totals["fenced_by_kafka"] += isinstance(error, FencedError)
            self.close()
