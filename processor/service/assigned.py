"""What a worker holds: the partitions it owns."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from processor.core.stream.partition import Partition
from processor.ports.log import Membership
from processor.ports.store import Applied

from .breaker import Breaker
from .buffer import InputBuffer
from .poison import Poison
from .snapshot import SnapshotSchedule

if TYPE_CHECKING:
    from .batches import BatchLookup

MAX_BATCH_RECORDS = 10_000
"""of one input in a batch of a partition: Redis takes so many entries in some 20 ms, in which it serves nobody else"""


@dataclass(frozen=True)
class LoopSettings:
    """How often and how much; all times in milliseconds."""

    commit_interval: int = 100
    most_records: int = 20_000
    """so many make a transaction without waiting any longer …"""
    for_each_tenant: int = 0
    """… or so many for each tenant, if that is more: in every batch a tenant costs as much as some records"""
    most_held: int = 20_000
    """an input of a partition is paused when it holds so many records, or two transactions of them if that is more"""
    present: int = 1_000
    """a partition that is no further behind the wall clock has caught up, and nothing of it is held back"""
    grace: int = 1_000
    breaker_records: int = 1_000
    breaker_share: float = 0.5
    retry_after: int = 500
    step_budget: int = 1_000
    """a batch is cut to what can be worked out in about this long"""
    transaction_budget: int = 2_500
    """a transaction takes no further partition once it has been open for so long"""
    snapshot_bytes: int = 8 << 20
    """the changelog grows by at least this much, and by the size of the state, before a snapshot is taken"""
    slice_bytes: int = 256 << 10
    """how much of a snapshot goes along with one batch"""


@dataclass(frozen=True)
class Quarantine:
    """Why a partition stands still until a person says go on, while all others go on."""

    reason: str
    by_process: bool
    """the cause is this process' configuration or version, and not the partition's data: others may do better"""


@dataclass(frozen=True)
class Skip:
    """Offsets of an input that nobody can read, and that an operator wants to be skipped."""

    topic: str
    source: str
    """``requests`` or ``feedback``"""
    first: int
    next: int


@dataclass
class AssignedPartition:
    """A partition this process owns, from the moment both its inputs are assigned."""

    number: int
    membership: Membership
    token: bytes
    partition: Partition | None = None
    positions: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, InputBuffer] = field(default_factory=dict)
    """what is read of each input and not committed"""
    batch_limit: dict[str, int] = field(default_factory=dict)
    """how many of each input the next batch takes; empty if it would take none"""
    batchable_since: int = 0
    last_timestamp: dict[str, int] = field(default_factory=dict)
    retry_at: int = 0
    progress_at: int = 0
    idle_at: int = 0
    breaker: Breaker = field(default_factory=Breaker)
    quarantine: Quarantine | None = None
    suspect: bool = False
    """Kafka has refused a transaction with its batch in it: the next one has no other"""
    snapshots: SnapshotSchedule = field(default_factory=SnapshotSchedule)
    paused: set[str] = field(default_factory=set)
    """inputs not read from until half of what is held is committed"""
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    """alerts acknowledged by a person, which the next batch takes along: tenant and number"""
    skip: Skip | None = None
    """asked for by a person, and not committed yet"""
    heard_at: dict[str, int] = field(default_factory=dict)
    """when an input last gave something, or had nothing to give"""
    applying: Future[Applied] | None = None
    """the store is being told of the last batch"""
    last_error: str = ""
    store_error: str = ""
    """the last call to the store failed, for this reason"""
    damaged: bool = False
    """a part of its stored state is gone: all of it is restored from the changelog"""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Kafka's ids of the inputs, by input"""
    poison: Poison = field(default_factory=set)
    """records found to be at fault and not committed yet: they are looked for once, however often their batch is"""
    at_most: int = MAX_BATCH_RECORDS
    """records of each input that the next batch may take; fewer where the journal could not hold what they lead to, or
    where more would take too long"""
    lookup: BatchLookup | None = None
    """asked of the store, and left out of the last transaction for want of time"""

    @property
    def ready(self) -> bool:
        return self.partition is not None

    @property
    def stopped(self) -> bool:
        """It waits for a person."""
        return self.breaker.open or self.quarantine is not None

    @property
    def buffered(self) -> int:
        return sum(map(len, self.buffers.values()))

    def may_take(self, counts: Mapping[str, int], now: int) -> None:
        """What the next batch takes of each input; the wait for it begins with the first record it could take."""
        if not self.batch_limit:
            self.batchable_since = now
        self.batch_limit = dict(counts) if any(counts.values()) else {}

    def drop_committed(self, taken: Mapping[str, int]) -> None:
        """So many of each input are committed."""
        for topic, buffer in self.buffers.items():
            buffer.drop_committed(taken[topic])
        self.batch_limit = {}
