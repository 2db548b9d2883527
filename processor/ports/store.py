"""The state of partitions as the processor sees it: a versioned view that can always be restored from the log.

Two implementations: ``redis`` (one Lua script per call) and ``memory``. One contract suite runs on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from processor.core.errors import GForceError
from processor.core.stream.expiry import DueSlot
from processor.core.stream.identity import Identity

__all__ = [
    "Applied",
    "Identity",
    "LookupResult",
    "SnapshotPage",
    "Store",
    "StoreDamagedError",
    "StoreError",
    "StoreFencedError",
    "StoreUnavailableError",
    "StoreUnusableError",
    "verdict",
]


class StoreError(GForceError):
    """Something between us and the store."""


class StoreUnavailableError(StoreError):
    """No answer, or not a usable one; the same call may succeed later. Writes may or may not have happened."""


class StoreFencedError(StoreError):
    """Another process has claimed this partition since."""


class StoreDamagedError(StoreError):
    """A part of a state is gone (deleted, evicted), though the rest is there: it must be restored from the log."""


class StoreUnusableError(StoreError):
    """A person must act: wrong address or password, a memory policy that evicts, a version without what we need.

    ``partition`` is the number of the one partition that this concerns; None where it concerns the whole server.
    """

    def __init__(self, message: str, partition: int | None = None) -> None:
        super().__init__(message)
        self.partition = partition


@dataclass(frozen=True, slots=True)
class LookupResult:
    """What a batch needs to know, read at one moment."""

    identity: Identity | None
    entries: list[bytes | None]
    """one for each id asked for"""
    due: dict[int, DueSlot] = field(default_factory=dict)
    """what a batch takes of the earliest slots that are over"""


class Applied(Enum):
    DONE = "done"
    ALREADY = "already"
    """the state is at this sequence or beyond"""
    GAP = "gap"
    """the state is not at the sequence before: it must catch up first"""


def verdict(stored: Identity | None, before: int, after: Identity) -> Applied:
    """Whether writes that lead from sequence ``before`` to ``after`` are to be taken: DONE if so.

    >>> verdict(None, 0, Identity("ab12", 5, "digest"))
    <Applied.DONE: 'done'>
    """
    sequence = stored.sequence if stored else 0
    if sequence >= after.sequence:
        return Applied.ALREADY
    if sequence != before or (before > 0 and stored and stored.lineage != after.lineage):
        return Applied.GAP
    return Applied.DONE


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """A piece of a whole state: packed writes that would recreate it."""

    cursor: bytes
    """where the next page starts; empty at the end"""
    writes: bytes


class Store(Protocol):
    """Keys of one partition live together, so that every call is one script on one node."""

    def claim(self, partition: int, token: bytes) -> None:
        """From now on only calls with this token are answered."""

    def look_up(
        self, partition: int, token: bytes, ids: Sequence[bytes], due: int, most: int, sweep: int | None = None
    ) -> LookupResult:
        """The identity of the state, the entries asked for, and what a batch takes of up to ``most`` of the earliest
        slots that exist and are not after ``due``: about ``sweep`` entries, see ``core.stream.expiry``.
        Raises StoreFencedError, and StoreDamagedError if the state is not as large as it was left."""

    def apply(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        """Take packed writes (see ``core.stream.writes``) that lead from sequence ``before`` to ``after``.

        The identity is written last, and with it how large the state is now: a call that failed half-way is simply
        made again. Raises StoreFencedError and StoreDamagedError.
        """

    def fill(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        """The same as ``apply``, for as many writes as a restore has."""

    def fields(self, partition: int, token: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All state fields (not the entries) with their values. Raises StoreFencedError and StoreDamagedError."""

    def page(self, partition: int, token: bytes, cursor: bytes, most: int) -> tuple[Identity | None, SnapshotPage]:
        """A piece of the whole state, about ``most`` bytes, for a snapshot.

        Raises StoreFencedError and StoreDamagedError.
        """

    def wipe(self, partition: int, token: bytes) -> None:
        """Forget this partition's state, but not who has claimed it. Raises StoreFencedError."""

    def check(self) -> None:
        """Raise StoreUnusableError if this server must not be used."""

    def close(self) -> None: ...
