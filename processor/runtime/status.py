"""What a processor says about itself: one immutable picture per turn, safe to read from other threads."""

from __future__ import annotations

from dataclasses import dataclass, field

from processor.core.metrics import Fairness, fairness

from .worker import Owned, Worker


@dataclass(frozen=True)
class PartitionStatus:
    number: int
    state: str
    """ready, recovering, stalled or broken"""
    trouble: str
    sequence: int
    clock: int
    pending: int
    parked: int
    buffered: int
    still: float
    """seconds since it last moved"""


@dataclass(frozen=True)
class TenantStatus:
    name: str
    partition: int
    groups: tuple[str, ...]
    labels: tuple[str, ...]
    positive: str | None
    by_policy: dict[str, Fairness]
    tally: dict[str, int]


@dataclass(frozen=True)
class Status:
    ready: bool = False
    partitions: tuple[PartitionStatus, ...] = ()
    tenants: tuple[TenantStatus, ...] = ()
    totals: dict[str, int] = field(default_factory=dict)


def status_of(worker: Worker, now: int, stall_seconds: float, with_tenants: bool) -> Status:
    partitions = tuple(_partition(worker, owned, now, stall_seconds) for owned in _in_order(worker))
    tenants: tuple[TenantStatus, ...] = ()
    if with_tenants:
        tenants = tuple(tenant for owned in _in_order(worker) for tenant in _tenants(owned))
    return Status(worker.ready, partitions, tenants, dict(worker.totals))


def _in_order(worker: Worker) -> list[Owned]:
    return [worker.owned[number] for number in sorted(worker.owned)]


def _partition(worker: Worker, owned: Owned, now: int, stall_seconds: float) -> PartitionStatus:
    partition = owned.partition
    still = (now - owned.progress_at) / 1_000
    state = "broken" if owned.broken else "ready" if owned.ready else "recovering"
    if state != "broken" and still > stall_seconds and worker.has_lag(owned):
        state = "stalled"
    return PartitionStatus(
        number=owned.number,
        state=state,
        trouble=owned.trouble,
        sequence=partition.identity.sequence if partition else 0,
        clock=partition.clock if partition else 0,
        pending=partition.pending if partition else 0,
        parked=partition.parked if partition else 0,
        buffered=owned.buffered,
        still=still,
    )


def _tenants(owned: Owned) -> list[TenantStatus]:
    if owned.partition is None:
        return []
    return [
        TenantStatus(
            name=tenant.name,
            partition=owned.number,
            groups=tenant.learner.state.axes.groups,
            labels=tenant.learner.state.axes.labels,
            positive=tenant.rules.settings.positive,
            by_policy={
                policy: fairness(tenant.learner.counters(), index)
                for policy, index in tenant.learner.state.axes.policy_index.items()
            },
            tally=dict(tenant.tally),
        )
        for tenant in owned.partition.tenants.values()
        if tenant.learner.state.axes.groups and tenant.learner.state.axes.experts  # else only labels came yet
    ]
