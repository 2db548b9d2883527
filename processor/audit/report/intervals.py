"""Figures over time, from the counters of some moments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from processor.core.learner.counters import Counters
from processor.core.stream.tenant import Tenant
from processor.telemetry.window_figures import window_figures

from .collecting import TenantCollection
from .data import Moment

MOST_SO_FAR = 80
MOST_STRETCHES = 12
LABELS_PER_STRETCH = 80
LEAST_LABELS = 30
"""Before these the gap of all labels so far says nothing."""


def cumulative(seen: TenantCollection) -> list[Moment]:
    """All labels until then, at up to ``MOST_SO_FAR`` moments."""
    tenant, points = seen.tenant, _aligned(seen)
    if tenant is None or not points:
        return []
    enough = [one for one in points if int(one[1].seen.sum()) >= LEAST_LABELS]
    points = enough or points
    chosen = sorted({round(i) for i in np.linspace(0, len(points) - 1, min(MOST_SO_FAR, len(points)))})
    start = seen.first or points[0][0]
    return _moments(tenant, [(start, points[i][0], points[i][1].outcomes, points[i][1].seen) for i in chosen])


def intervals(seen: TenantCollection) -> list[Moment]:
    """The time cut into stretches with about as many labels each."""
    tenant, points = seen.tenant, _aligned(seen)
    if tenant is None or not points:
        return []
    joined = np.array([int(counters.seen.sum()) for _, counters in points])
    count = int(max(1, min(MOST_STRETCHES, joined[-1] // LABELS_PER_STRETCH)))
    ends = sorted({int(np.searchsorted(joined, joined[-1] * (k + 1) / count)) for k in range(count)})
    parts, since, before = [], seen.first or points[0][0], None
    for end in ends:
        until, counters = points[end]
        outcomes = counters.outcomes - (before.outcomes if before is not None else 0)
        labels = counters.seen - (before.seen if before is not None else 0)
        parts.append((since, until, outcomes, labels))
        since, before = until, counters
    return _moments(tenant, parts)


def _aligned(seen: TenantCollection) -> list[tuple[int, Counters]]:
    """Counters of all moments under the names of the last."""
    if seen.tenant is None:
        return []
    axes = seen.tenant.learner.state.axes
    return [(at, counters.regrown(old, axes)) for at, old, counters in seen.points]


def _moments(tenant: Tenant, parts: Sequence[tuple[int, int, np.ndarray, np.ndarray]]) -> list[Moment]:
    outcomes = np.stack([one for _, _, one, _ in parts])
    seen = np.stack([one for _, _, _, one in parts])
    found = window_figures([tenant], outcomes, seen, [[("", since) for since, *_ in parts]])
    return [
        Moment(
            since=since,
            until=until,
            labels=figures[0].labels,
            gaps=figures[0].gaps,
            rates=figures[0].rates,
            group_error=figures[0].group_error,
        )
        for (since, until, _, _), figures in zip(parts, found, strict=True)
    ]
