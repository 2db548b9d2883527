"""What a processor says about itself: one immutable picture per turn, safe to read from other threads.

It only points to the partitions, which are never changed in place; figures are worked out by whoever asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from processor.core.stream.partition import Partition
from processor.ports.log import TopicPartition
from processor.service.buffers import UnreadableRange
from processor.service.worker import AssignedPartition, Worker


@dataclass(frozen=True)
class PartitionStatus:
    number: int
    state: str
    """ready, recovering, stalled, broken, quarantined or unavailable (the store does not answer)"""
    trouble: str
    sequence: int
    clock: int
    pending: int
    parked: int
    buffered: int
    still: float
    """seconds since it last moved"""
    lag: dict[str, int] = field(default_factory=dict)
    """records that are not committed yet, by topic; what cannot be known is missing"""
    by_process: bool = False
    """it is quarantined for this process' configuration or version"""
    waiting: float = 0.0
    """seconds it has had something to do and has not moved; an idle partition waits for nothing"""
    next: dict[str, int] = field(default_factory=dict)
    """the next offset to be read of each input"""
    unreadable: dict[str, int] = field(default_factory=dict)
    """inputs whose next batch nobody can read, with its offset"""


@dataclass(frozen=True)
class Status:
    ready: bool = False
    partitions: tuple[PartitionStatus, ...] = ()
    held: tuple[Partition, ...] = ()
    """the state of those that are recovered"""
    totals: dict[str, int] = field(default_factory=dict)
    latencies: tuple[int, ...] = ()
    """requests by the time until they were committed, see ``LATENCY_BOUNDS``"""
    latency_sum: int = 0
    """milliseconds"""
    store_unsafe: str = ""
    """why the store could silently drop state, as a sentence; empty if it could not"""

    @property
    def moving(self) -> bool:
        """It owns something, and nothing of it stands still but what waits for a person through no fault of its own:
        to restart this process would not help, and must not be waited for."""
        return self.ready and all(
            partition.state == "ready" or (partition.state == "quarantined" and not partition.by_process)
            for partition in self.partitions
        )


def status_of(worker: Worker, now: int, stall_seconds: float) -> Status:
    in_order = [worker.owned[number] for number in sorted(worker.owned)]
    return Status(
        ready=worker.ready,
        partitions=tuple(_partition(worker, owned, now, stall_seconds) for owned in in_order),
        held=tuple(owned.partition for owned in in_order if owned.partition is not None),
        totals=dict(worker.totals),
        latencies=tuple(worker.latencies.counts),
        latency_sum=worker.latencies.total,
    )


def _partition(worker: Worker, owned: AssignedPartition, now: int, stall_seconds: float) -> PartitionStatus:
    partition = owned.partition
    waiting = (now - _waits_since(owned)) / 1_000 if worker.buffers.has_lag(owned) else 0.0
    unread = worker.buffers.unread(owned, now, round(1_000 * stall_seconds))
    if unread is not None:
        waiting = max(waiting, (now - unread.since) / 1_000)
    names = worker.topics.sources
    unreadable = {names[topic]: worker.buffers.unreadable_at(owned, topic) for topic in owned.buffers}
    return PartitionStatus(
        number=owned.number,
        state=_state(owned, waiting > stall_seconds or (unread is not None and unread.unreadable)),
        trouble=_trouble(owned, unread),
        sequence=partition.identity.sequence if partition else 0,
        clock=partition.clock if partition else 0,
        pending=partition.pending if partition else 0,
        parked=partition.parked if partition else 0,
        buffered=owned.buffered,
        still=(now - owned.progress_at) / 1_000,
        lag=_lag(worker, owned),
        waiting=waiting,
        by_process=owned.quarantine is not None and owned.quarantine.by_process,
        next={names[topic]: held.next for topic, held in owned.buffers.items()},
        unreadable={name: offset for name, offset in unreadable.items() if offset is not None},
    )


def _trouble(owned: AssignedPartition, unread: UnreadableRange | None) -> str:
    if owned.quarantine is not None:
        return owned.quarantine.reason
    return owned.store_error or (unread.why if unread is not None else owned.last_error)


def _state(owned: AssignedPartition, stalled: bool) -> str:
    if owned.quarantine is not None:
        return "quarantined"
    if owned.breaker.open:
        return "broken"
    if stalled:
        return "stalled"
    if owned.store_error:
        return "unavailable"
    return "ready" if owned.ready else "recovering"


def _waits_since(owned: AssignedPartition) -> int:
    """Since when there has been something to do and nothing was done.

    An idle partition is looked after about every second, and not any more once something is read: so that moment is
    known. Of what is not even read it is not; there it is the last move.
    """
    if owned.batch_limit:
        return max(owned.batchable_since, owned.progress_at)
    if owned.buffered or not owned.ready:
        return max(owned.idle_at, owned.progress_at)
    return owned.progress_at


def _lag(worker: Worker, owned: AssignedPartition) -> dict[str, int]:
    found = {}
    for topic, position in owned.positions.items():
        behind = worker.input.lag(TopicPartition(topic, owned.number), position)
        if behind is not None:
            found[topic] = behind
    return found
