"""Turns what is known at a scrape into metrics, all of them through the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import isnan

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from processor import __version__
from processor.core.stream.delays import DELAY_BOUNDS, LATENCY_BOUNDS

from .alert_figures import pair_name
from .catalogue import MAX_SERIES, OTHER, OUTCOMES, TOTALS, Families
from .figures import LIFETIME, TenantFigures, WindowFigures
from .observer import Observer
from .paper_bounds import DELAYED, GAP, GAP_PRINTED, REGRET
from .status import Status

Sample = tuple[GaugeMetricFamily, list[str], float]
Waits = tuple[Sequence[int], int]
"""Counts by bucket, and the sum of what was counted."""

COUNTERS = {entry.name: entry.help for entry in TOTALS}
"""The worker's totals, one counter each: ``gforce_<name>_total``."""

_LATENCY = tuple(bound / 1_000 for bound in LATENCY_BOUNDS)


class StatusCollector(Collector):
    """Everything a scrape shows, from what is owned at that moment."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterator[Metric]:
        families = Families()
        status, sight = self._observer.status(), self._observer.sight()
        _process(families, status)
        _gauge(families, "tenants").add_metric([], sight.owned)
        _gauge(families, "tenants_unlisted").add_metric([], sight.owned - len(sight.listed))
        _partitions(families, status)
        _Tenants(families).add(sight.listed)
        if sight.overflow is not None:
            rest = sight.overflow
            _tallies(families, OTHER, rest.tally, rest.pending, (rest.delays, rest.delay_sum))
        return iter(families)


def _gauge(families: Families, name: str, *labels: str) -> GaugeMetricFamily:
    family = families.of(name, *labels)
    assert isinstance(family, GaugeMetricFamily)
    return family


def _counter(families: Families, name: str, *labels: str) -> CounterMetricFamily:
    family = families.of(name, *labels)
    assert isinstance(family, CounterMetricFamily)
    return family


def _histogram(
    families: Families,
    name: str,
    labels: Mapping[str, str],
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
) -> None:
    family = families.of(name, *labels)
    assert isinstance(family, HistogramMetricFamily)
    ends = [*map(floatToGoString, map(float, bounds)), "+Inf"]
    buckets = list(zip(ends, map(float, accumulate(counts)), strict=True))
    family.add_metric(list(labels.values()), buckets, total)


def _process(families: Families, status: Status) -> None:
    for name in COUNTERS:
        _counter(families, name).add_metric([], status.totals.get(name, 0))
    dead = _counter(families, "dead_letters", "reason")
    for name, count in sorted(status.totals.items()):
        if name.startswith("dead_"):
            dead.add_metric([name.removeprefix("dead_")], count)
    if status.latencies:
        _histogram(families, "decision_latency_seconds", {}, _LATENCY, status.latencies, status.latency_sum / 1_000)
    _gauge(families, "ready").add_metric([], int(status.ready))
    _gauge(families, "store_unsafe").add_metric([], int(bool(status.store_unsafe)))
    _gauge(families, "build_info", "version").add_metric([__version__], 1)


def _partitions(families: Families, status: Status) -> None:
    for name, attribute in (
        ("partition_still_seconds", "still"),
        ("partition_pending_decisions", "pending"),
        ("parked_labels", "parked"),
        ("batch_sequence", "sequence"),
    ):
        family = _gauge(families, name, "partition")
        for partition in status.partitions:
            family.add_metric([str(partition.number)], getattr(partition, attribute))
    lag = _gauge(families, "partition_lag", "topic", "partition")
    state = _gauge(families, "partition_state", "partition", "state")
    for partition in status.partitions:
        state.add_metric([str(partition.number), partition.state], 1)
        for topic, behind in partition.lag.items():
            lag.add_metric([topic, str(partition.number)], behind)


def _tallies(families: Families, tenant: str, tally: Mapping[str, int], pending: int, waits: Waits) -> None:
    """What can be added up over tenants."""
    _gauge(families, "pending_decisions", "tenant").add_metric([tenant], pending)
    _counter(families, "tenant_decisions", "tenant").add_metric([tenant], tally.get("decisions", 0))
    repeated = _counter(families, "tenant_requests_duplicate", "tenant")
    repeated.add_metric([tenant], tally.get("requests_duplicate", 0))
    labels = _counter(families, "tenant_labels", "tenant", "outcome")
    for outcome, name in OUTCOMES.items():
        labels.add_metric([tenant, outcome], tally.get(name, 0))
    _histogram(families, "label_delay_seconds", {"tenant": tenant}, DELAY_BOUNDS, *waits)


class _Tenants:
    """The series of tenants; one with very many names has only the more important of them."""

    def __init__(self, families: Families) -> None:
        self._families = families

        def gauge(name: str, *labels: str) -> GaugeMetricFamily:
            return _gauge(families, name, "tenant", *labels)

        self._gap = [gauge(f"fairness_gap{end}", "metric", "window") for end in ("", "_lower", "_upper")]
        self._shadow = gauge("shadow_fairness_gap", "policy", "metric", "window")
        self._rate = [gauge(f"error_rate{end}", "group", "label", "window") for end in ("", "_lower", "_upper")]
        self._labels = gauge("cell_labels", "group", "label", "window")
        self._tolerance = gauge("tolerance")
        self._attainable, self._regret = gauge("attainable_gap"), gauge("regret_per_round")
        self._regret_bound, self._gap_bound = gauge("regret_bound"), gauge("gap_bound", "gamma")
        self._selection = gauge("selection_probability", "group", "instance")
        self._weight = gauge("expert_weight", "group", "instance", "expert")
        self._oldest = gauge("oldest_pending_seconds")
        self._alert = gauge("alert", "kind", "label", "groups")
        self._wealth = gauge("alert_wealth", "kind", "label", "groups")
        self._learning, self._one_sided = gauge("watch_learning"), gauge("one_sided_labels")
        self._constant, self._dropped = gauge("constant_experts"), gauge("series_dropped")
        self._absent, self._delayed = gauge("absent_experts"), gauge("delayed_regret_bound")

    def add(self, tenants: Sequence[TenantFigures]) -> None:
        for figures in tenants:
            waits = (figures.delays, figures.delay_sum)
            _tallies(self._families, figures.name, figures.tally, figures.pending, waits)
            used = dropped = 0
            for tier in self._tiers(figures):
                known = [sample for sample in tier if not isnan(sample[2])]
                if used + len(known) > MAX_SERIES:
                    dropped += len(known)
                    continue
                used += len(known)
                for family, labels, value in known:
                    family.add_metric(labels, value)
            self._dropped.add_metric([figures.name], dropped)

    def _tiers(self, figures: TenantFigures) -> Iterator[list[Sample]]:
        """From what must be there to what can be spared."""
        name = figures.name
        later = [window for window in figures.windows if window.window != LIFETIME]
        yield list(self._essential(figures))
        yield [(self._alert, [name, one.kind, one.label, pair_name(one.groups)], 1.0) for one in figures.alerts]
        yield [sample for window in figures.windows[:1] for sample in self._cells(name, window)]
        yield [
            (self._selection, [name, group, instance], chance)
            for group, by_instance in figures.selection.items()
            for instance, chance in by_instance.items()
        ]
        yield [sample for window in later for sample in self._cells(name, window)]
        yield [
            (self._wealth, [name, one.kind, one.label, pair_name(one.groups)], one.wealth) for one in figures.streams
        ]
        yield [
            (self._weight, [name, group, instance, expert], weight)
            for group, by_instance in figures.weights.items()
            for instance, by_expert in by_instance.items()
            for expert, weight in by_expert.items()
        ]

    def _essential(self, figures: TenantFigures) -> Iterator[Sample]:
        name, bounds = figures.name, figures.bounds
        for window in figures.windows:
            for metric, gap in window.gaps.items():
                for family, value in zip(self._gap, (gap.value, gap.lower, gap.upper), strict=True):
                    yield family, [name, metric, window.window], value
            for policy, gaps in window.shadows.items():
                for metric, value in gaps.items():
                    yield self._shadow, [name, policy, metric, window.window], value
        yield self._tolerance, [name], figures.tolerance
        yield self._attainable, [name], figures.attainable
        yield self._regret, [name], figures.regret
        if bounds:
            yield self._regret_bound, [name], bounds[REGRET]
            yield self._delayed, [name], bounds[DELAYED]
            yield self._gap_bound, [name, "one"], bounds[GAP]
            yield self._gap_bound, [name, "printed"], bounds[GAP_PRINTED]
        yield self._oldest, [name], figures.oldest_pending
        yield self._learning, [name], figures.learning
        yield self._one_sided, [name], 1.0 if figures.one_sided else 0.0
        yield self._constant, [name], len(figures.constant_experts)
        yield self._absent, [name], len(figures.absent_experts)

    def _cells(self, name: str, window: WindowFigures) -> Iterator[Sample]:
        for cell in window.rates:
            labels = [name, cell.group, cell.label, window.window]
            yield self._labels, labels, cell.n
            for family, value in zip(self._rate, (cell.rate.value, cell.rate.lower, cell.rate.upper), strict=True):
                yield family, labels, value
