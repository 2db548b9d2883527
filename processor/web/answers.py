"""The JSON behind the page: what its two views need, and not more, because they ask every second."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from processor import __version__
from processor.core.stream.delays import DELAY_BOUNDS
from processor.telemetry.figures import EQUALIZED_ODDS, Estimate, History, TenantFigures, TimeSeries
from processor.telemetry.status import PartitionStatus, Status

UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


class AlertRow(msgspec.Struct, frozen=True):
    number: int
    kind: str
    since: int
    text: str


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant at a glance."""

    name: str
    partition: int
    policy: str
    gap: Estimate
    """equalized odds, lifetime"""
    attainable: float
    tolerance: float
    labels: int
    pending: int
    awaited: int
    oldest_pending: float
    """seconds, by the clock on the wall"""
    learning: int
    one_sided: bool
    alerts: list[AlertRow]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    ready: bool
    """it owns partitions, and none of them stands still"""
    partitions: tuple[PartitionStatus, ...]
    totals: dict[str, int]
    tenants: list[TenantRow]
    unlisted: int
    """tenants this process has beyond those listed"""


class TenantPage(msgspec.Struct, frozen=True, kw_only=True):
    version: str = __version__
    figures: TenantFigures
    partition: PartitionStatus | None
    oldest_pending: float
    """seconds, by the clock on the wall; that of ``figures`` is by the partition's"""
    delay_bounds: tuple[int, ...] = DELAY_BOUNDS
    """seconds: the upper ends of ``figures.delays``, whose last bucket has none"""


def overview(status: Status, figures: Sequence[TenantFigures], now: int) -> Overview:
    """``now`` is the time on the wall, in milliseconds."""
    slow = _slow(status, now)
    owned = sum(len(partition.tenants) for partition in status.held)
    return Overview(
        version=__version__,
        ready=status.moving,
        partitions=status.partitions,
        totals=status.totals,
        tenants=[_row(tenant, slow) for tenant in figures],
        unlisted=max(owned - len(figures), 0),
    )


def _slow(status: Status, now: int) -> dict[int, float]:
    """Seconds by which each partition's clock is behind. It stands while nothing comes in; decisions grow older."""
    return {partition.number: max(now - partition.clock, 0) / 1_000 for partition in status.held}


def _row(tenant: TenantFigures, slow: dict[int, float]) -> TenantRow:
    lifetime = tenant.windows[0] if tenant.windows else None
    return TenantRow(
        name=tenant.name,
        partition=tenant.partition,
        policy=tenant.policy,
        gap=lifetime.gaps.get(EQUALIZED_ODDS, UNKNOWN) if lifetime else UNKNOWN,
        attainable=tenant.attainable,
        tolerance=tenant.tolerance,
        labels=lifetime.labels if lifetime else 0,
        pending=tenant.pending,
        awaited=tenant.awaited,
        oldest_pending=tenant.oldest_pending + slow.get(tenant.partition, 0.0),
        learning=tenant.learning,
        one_sided=bool(tenant.one_sided),
        alerts=[AlertRow(alert.number, alert.kind, alert.since, alert.text) for alert in tenant.alerts],
    )


def tenant_page(status: Status, figures: TenantFigures, now: int) -> TenantPage:
    partition = next((p for p in status.partitions if p.number == figures.partition), None)
    oldest = figures.oldest_pending + _slow(status, now).get(figures.partition, 0.0)
    return TenantPage(figures=figures, partition=partition, oldest_pending=oldest)


def since(history: History, moment: int) -> History:
    """Only the points after ``moment`` (milliseconds): the page has the rest already.

    >>> whole = History(name="acme", times=[10, 20, 30], gaps={}, shadows={}, rates={"A": [0.1, 0.2, 0.3]})
    >>> later = since(whole, 20)
    >>> later.times, later.rates
    ([30], {'A': [0.3]})
    """
    start = bisect_right(history.times, moment)
    return History(
        name=history.name,
        times=history.times[start:],
        gaps={
            metric: TimeSeries(line.value[start:], line.lower[start:], line.upper[start:])
            for metric, line in history.gaps.items()
        },
        shadows={
            policy: {metric: values[start:] for metric, values in by_metric.items()}
            for policy, by_metric in history.shadows.items()
        },
        rates={group: values[start:] for group, values in history.rates.items()},
    )
