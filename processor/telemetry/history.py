"""How the figures of tenants have gone, for the charts: sampled in memory, so a restart forgets all but the buckets.

Every second for ten minutes (the first tenants, and those somebody looks at), every minute for a day (all that are
listed). A tenant that has not changed gives no new point. A hundred kilobytes or so per tenant and day.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import nan
from threading import Lock

import numpy as np

from processor.core.learner.counters import Counters
from processor.core.stream.tenant import Tenant

from .figures import Estimate, History, TenantFigures, TimeSeries, WindowFigures
from .observer import Observer
from .window_figures import window_figures

FINE_POINTS, COARSE_POINTS = 600, 1_440
COARSE_EVERY = 60_000
FINE_TENANTS = 50
VIEWED_FOR = 600_000
"""Milliseconds for which a tenant somebody has looked at is sampled every second."""

Series = tuple[str, ...]
"""What a series is of: ("gap", metric, end), ("shadow", policy, metric) or ("rate", group)."""


@dataclass
class Track:
    """Points of one tenant in the order of time; a series that begins later is unknown before."""

    most: int
    times: array[int] = field(default_factory=lambda: array("q"))
    series: dict[Series, array[float]] = field(default_factory=dict)

    def add(self, at: int, point: dict[Series, float]) -> None:
        if self.times and at <= self.times[-1]:
            return
        for name in point.keys() - self.series.keys():
            self.series[name] = array("f", [nan]) * len(self.times)
        for name, values in self.series.items():
            values.append(point.get(name, nan))
        self.times.append(at)
        if len(self.times) >= 2 * self.most:  # seldom, so that it costs nothing
            self._keep(self.most)

    def _keep(self, points: int) -> None:
        del self.times[:-points]
        for values in self.series.values():
            del values[:-points]

    def between(self, after: int, before: int) -> Iterator[tuple[int, dict[Series, float]]]:
        """The newest points of those times, both ends excluded."""
        start = max(len(self.times) - self.most, bisect_left(self.times, after + 1))
        for i in range(start, bisect_left(self.times, before)):
            yield self.times[i], {name: values[i] for name, values in self.series.items()}


@dataclass
class _Kept:
    fine: Track = field(default_factory=lambda: Track(FINE_POINTS))
    coarse: Track = field(default_factory=lambda: Track(COARSE_POINTS))
    latest: WindowFigures | None = None
    latest_coarse: WindowFigures | None = None


class Histories:
    """Takes samples of what an observer sees; ``sample`` is called about every second."""

    def __init__(self, observer: Observer, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._observer, self._wall_ms = observer, wall_ms
        self._kept: dict[str, _Kept] = {}
        self._viewed: dict[str, int] = {}
        self._coarse_at = 0
        self._lock = Lock()

    def sample(self) -> None:
        now = self._wall_ms()
        self._viewed = {name: at for name, at in self._viewed.items() if now - at < VIEWED_FOR}
        figures = self._observer.first(FINE_TENANTS, self._viewed)
        with self._lock:
            for one in figures:
                self._take(one, now)
        if now - self._coarse_at >= COARSE_EVERY:
            self._coarse_at = now
            self._sample_all(now)

    def _take(self, figures: TenantFigures, now: int) -> None:
        kept = self._kept.setdefault(figures.name, _Kept())
        if figures.windows and figures.windows[0] is not kept.latest:
            kept.latest = figures.windows[0]
            kept.fine.add(now, _point(kept.latest))

    def _sample_all(self, now: int) -> None:
        """Of tenants that are no longer here nothing is kept."""
        listed = self._observer.figures()
        with self._lock:
            self._kept = {one.name: self._kept.get(one.name, _Kept()) for one in listed}
            for one in listed:
                kept = self._kept[one.name]
                if one.windows and one.windows[0] is not kept.latest_coarse:
                    kept.latest_coarse = one.windows[0]
                    kept.coarse.add(now, _point(one.windows[0]))

    def history(self, name: str) -> History | None:
        """Everything known of one tenant, the present last; None if this process does not have it."""
        figures = self._observer.tenant(name)
        tenant = self._observer.state_of(name)
        if figures is None or tenant is None or not figures.windows:
            return None
        now = self._wall_ms()
        self._viewed[name] = now
        with self._lock:
            kept = self._kept.get(name, _Kept())
            fine = list(kept.fine.between(-1, now))
            coarse = list(kept.coarse.between(-1, fine[0][0] if fine else now))
        sampled = [*coarse, *fine]
        past = past_points(tenant, sampled[0][0] if sampled else now)
        return _history(name, [*past, *sampled, (now, _point(figures.windows[0]))])


def past_points(tenant: Tenant, before: int) -> list[tuple[int, dict[Series, float]]]:
    """The lifetime figures as they were at the end of every kept bucket: the lifetime less what came later."""
    state = tenant.learner.state
    numbers = sorted(state.buckets)
    ended = [number for number in numbers if (number + 1) * state.bucket < before]
    if not ended:
        return []
    later = list(accumulate((state.buckets[number] for number in reversed(numbers)), Counters.__add__))
    # later[i] holds the newest i + 1 buckets; what came after bucket j of n is later[n − j − 2].
    outcomes, seen = [], []
    for i in range(len(ended)):
        left = len(numbers) - i - 2
        outcomes.append(state.lifetime.outcomes - (later[left].outcomes if left >= 0 else 0))
        seen.append(state.lifetime.seen - (later[left].seen if left >= 0 else 0))
    times = [(number + 1) * state.bucket for number in ended]
    spans = [[("", at) for at in times]]
    figures = window_figures([tenant], np.stack(outcomes), np.stack(seen), spans)
    return [(at, _point(by_tenant[0])) for at, by_tenant in zip(times, figures, strict=True)]


def _point(window: WindowFigures) -> dict[Series, float]:
    point: dict[Series, float] = {}
    for metric, gap in window.gaps.items():
        for end in Estimate.__struct_fields__:
            point["gap", metric, end] = getattr(gap, end)
    for policy, gaps in window.shadows.items():
        for metric, value in gaps.items():
            point["shadow", policy, metric] = value
    for group, rate in window.group_error.items():
        point["rate", group] = rate.value
    return point


def _history(name: str, points: Iterable[tuple[int, dict[Series, float]]]) -> History:
    points = list(points)
    known = points[-1][1]  # the present: what it does not have is no longer counted

    def line(*series: str) -> list[float]:
        return [point.get(series, nan) for _, point in points]

    shadows: dict[str, dict[str, list[float]]] = {}
    for kind, *rest in known:
        if kind == "shadow":
            shadows.setdefault(rest[0], {})[rest[1]] = line(kind, *rest)
    metrics = dict.fromkeys(series[1] for series in known if series[0] == "gap")
    return History(
        name=name,
        times=[at for at, _ in points],
        gaps={
            metric: TimeSeries(*(line("gap", metric, end) for end in Estimate.__struct_fields__)) for metric in metrics
        },
        shadows=shadows,
        rates={series[1]: line(*series) for series in known if series[0] == "rate"},
    )
