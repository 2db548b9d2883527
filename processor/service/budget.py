"""Which partitions a transaction takes: as many as there is time for, and next time those first that were left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from processor.ports.store import StoreError

from .assigned import AssignedPartition
from .batches import BatchLookup


class TransactionBudget:
    """The partitions of one transaction after the other. All times are in milliseconds, as ``monotonic_ms`` is.

    A transaction that stays open for too long is aborted by the broker, and its producer with it. So it takes further
    partitions only while less than ``budget`` has passed since its first batch was worked out: the store may be slow
    to answer, and steps may be long. The first batch is worked out before the transaction begins and is always taken.
    """

    def __init__(self, monotonic_ms: Callable[[], int], budget: int) -> None:
        self.monotonic_ms, self.budget = monotonic_ms, budget
        self.left_out: list[AssignedPartition] = []
        """those that wait for the next transaction, in their order"""
        self._ends_at: int | None = None

    def order(self, due: Sequence[AssignedPartition]) -> list[AssignedPartition]:
        """A new transaction: who was left out of the last one comes first."""
        waiting = {id(owned): place for place, owned in enumerate(self.left_out)}
        self.left_out, self._ends_at = [], None
        return sorted(due, key=lambda owned: waiting.get(id(owned), len(waiting))) if waiting else list(due)

    def begin(self) -> None:
        """A batch is taken; the time runs from the first."""
        if self._ends_at is None:
            self._ends_at = self.monotonic_ms() + self.budget

    @property
    def over(self) -> bool:
        """Whether there is no time for another partition."""
        return self._ends_at is not None and self.monotonic_ms() >= self._ends_at

    def leave_out(self, owned: AssignedPartition) -> None:
        self.left_out.append(owned)

    def fits(self, lookup: BatchLookup) -> bool:
        """Whether there is time for this one: the store answers soon enough, and it is not a long one by itself.

        For the first there always is, because the transaction is not open before its batch is worked out.
        """
        if self._ends_at is None:
            return True
        if self.over or lookup.cost > self.budget:
            return False
        try:
            lookup.answer.result((self._ends_at - self.monotonic_ms()) / 1_000)
        except TimeoutError:
            return False
        except StoreError:
            pass  # whoever steps it is told
        return True
