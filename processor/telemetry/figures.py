"""What is known about a tenant at a moment, as numbers and names: what gauges, pages and pictures are made of.

Figures nothing is known about yet are NaN (``null`` in JSON): no data is not the same as no error.
"""

from __future__ import annotations

from typing import Any

import msgspec

LIFETIME = "lifetime"
FPR, FNR, ERROR_RATE, EQUALIZED_ODDS = "fpr", "fnr", "error_rate", "equalized_odds"
METRICS = (FPR, FNR, ERROR_RATE, EQUALIZED_ODDS)
"""The first two only where there are two labels, one of them positive."""

ALL, MIXTURE = "all", "mixture"
"""The one "instance" of policies that have none."""


class Estimate(msgspec.Struct, frozen=True):
    """A figure with its confidence sequence; NaN where there is none."""

    value: float
    lower: float
    upper: float


class CellRate(msgspec.Struct, frozen=True):
    """How often cases of a group and a true label were decided wrongly."""

    group: str
    label: str
    n: int
    """labels seen"""
    rate: Estimate


class WindowFigures(msgspec.Struct, frozen=True):
    """The figures of one stretch of time. Windows begin at fixed boundaries and are open at the end."""

    window: str
    """lifetime, or how long it is: 1d, 7d, 1h, 30s"""
    since: int
    """milliseconds; 0 for the lifetime"""
    labels: int
    gaps: dict[str, Estimate]
    """by metric, of the policy in force, worst pair of groups"""
    rates: list[CellRate]
    group_error: dict[str, Estimate]
    shadows: dict[str, dict[str, float]]
    """policy → metric → gap it would have had"""


class AlertFigures(msgspec.Struct, frozen=True):
    number: int
    kind: str
    """tolerance, drift or one-sided"""
    state: str
    label: str
    groups: tuple[str, ...]
    since: int
    """milliseconds"""
    evidence: dict[str, Any]
    """as on the topic ``alerts``"""
    text: str
    """one sentence for a person"""


class StreamFigures(msgspec.Struct, frozen=True):
    """One watched pair of groups on one true label."""

    kind: str
    label: str
    groups: tuple[str, ...]
    state: str
    """learning, watching or raised"""
    wealth: float
    """share of what raises an alert"""
    pairs: int


class TenantFigures(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partition: int
    groups: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """in the order configured"""
    experts: tuple[str, ...] = ()
    positive: str | None = None
    positive_only: bool = False
    """labels come for positive decisions only"""
    policy: str = ""
    tolerance: float = float("nan")
    """the gap above which an alert is raised; NaN where nothing is watched"""
    windows: list[WindowFigures] = []
    """lifetime first; none before the first request"""
    attainable: float = float("nan")
    """the least gap any mixture of these experts can have; may be some seconds old"""
    regret: float = float("nan")
    """per round, against the best single expert in hindsight"""
    bounds: dict[str, float] = {}
    """the paper's, at the current q: regret (in all), gap (γ = 1), gap_printed; empty for policies without instances"""
    selection: dict[str, dict[str, float]] = {}
    """q: group → instance → probability"""
    weights: dict[str, dict[str, dict[str, float]]] = {}
    """π: group → instance → expert → probability"""
    tally: dict[str, int] = {}
    pending: int = 0
    awaited: int = 0
    """of those pending, so many at most can get a label: with feedback "positive-only", the positive ones"""
    oldest_pending: float = float("nan")
    """seconds, by the partition's clock; NaN where nothing is pending"""
    delays: list[int] = []
    """joined labels by delay, one more than ``DELAY_BOUNDS``"""
    delay_sum: int = 0
    """seconds"""
    alerts: list[AlertFigures] = []
    """the open ones"""
    streams: list[StreamFigures] = []
    learning: int = 0
    """streams that have too few labels to be tested yet"""
    one_sided: list[str] = []
    """decisions that never get a label although others do: then every figure here is wrong"""
    constant_experts: list[str] = []
    """experts that all but always say the same"""
    absent_experts: list[str] = []
    """experts that advise on too few cases, as far as is learnt from"""


class TimeSeries(msgspec.Struct, frozen=True):
    """A figure over time, with its band."""

    value: list[float]
    lower: list[float]
    upper: list[float]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Lifetime figures of one tenant as they were at ``times`` (milliseconds, ascending)."""

    name: str
    times: list[int]
    gaps: dict[str, TimeSeries]
    """by metric"""
    shadows: dict[str, dict[str, list[float]]]
    """policy → metric → gap"""
    rates: dict[str, list[float]]
    """error rate by group"""
