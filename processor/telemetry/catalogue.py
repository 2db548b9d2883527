"""Every metric: its name, type, labels and meaning. Nothing is exported that is not here, or with other labels.

``python -m processor.telemetry.catalogue > docs/metrics.md`` writes the table for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from processor.core.errors import GForceError, nearest

Kind = Literal["counter", "gauge", "histogram"]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

PREFIX = "gforce_"
OTHER = "(other)"
"""The tenant under whose name those beyond the cap are added up."""
MAX_SERIES = 2_000
"""Of one tenant."""
OUTCOMES = {
    "joined": "labels_joined",
    "early": "labels_parked",
    "duplicate": "labels_duplicate",
    "contradicting": "dead_contradicting-label",
    "expired": "decisions_expired",
    "late": "dead_expired-decision",
    "unknown": "dead_unknown-decision",
    "unexpected": "dead_label-not-expected",
}
"""What can become of a label, and under which name a tenant's tally counts it."""


class NotInCatalogueError(GForceError, LookupError):
    """Somebody exports a metric the catalogue does not have, or with other labels."""


@dataclass(frozen=True)
class MetricSpec:
    """One metric; ``name`` without prefix and, for a counter, without ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def exported(self) -> str:
        """The name as Prometheus sees it."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")

    def family(self) -> Family:
        made: type[Family] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }[self.kind]
        return made(PREFIX + self.name, self.help, labels=list(self.labels))


def _counter(name: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, "counter", labels, help_text)


def _gauge(name: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, "gauge", labels, help_text)


TOTALS = (
    _counter("decisions", "Requests decided."),
    _counter("requests_duplicate", "Requests that repeated an earlier one and were not decided again."),
    _counter("labels_joined", "Labels joined to their decision."),
    _counter("labels_duplicate", "Labels that repeated an earlier one."),
    _counter("labels_parked", "Labels that came before their request and were kept for it."),
    _counter("decisions_expired", "Decisions whose label did not come in time."),
    _counter("records", "Input records processed."),
    _counter("batches", "Batches committed."),
    _counter("transactions", "Kafka transactions committed."),
    _counter("transactions_aborted", "Kafka transactions aborted and retried."),
    _counter("commits_unknown", "Commits whose answer was lost; the committed offsets decided."),
    _counter(
        "polls_failed", "Reads that failed and were retried: the broker did not answer, or the group was changing."
    ),
    _counter("recoveries", "Partitions recovered."),
    _counter("batches_replayed", "Batches applied from the changelog during recoveries."),
    _counter("fenced_by_kafka", "Times Kafka refused this process because another one had replaced it."),
    _counter("fenced_by_store", "Times the store refused this process because another one had claimed the partition."),
    _counter("partitions_lost", "Partitions lost without a revocation."),
    _counter("snapshots", "Snapshots of a partition's state completed in the changelog."),
    _counter("breaker_trips", "Partitions stopped because most records were unreadable."),
    _counter("quarantines", "Partitions quarantined: they are stopped until an operator resumes them."),
    _counter("store_damaged", "Times a part of a partition's state was missing from the store and was reconstructed."),
    _counter("alerts_raised", "Alerts raised to the topic `alerts`."),
    _counter("alerts_cleared", "Alerts cleared on the topic `alerts`."),
)
"""Counts of what this process did since it started; each is a total of the worker."""

PROCESS = (
    *TOTALS,
    _counter("dead_letters", "Records sent to dead-letters, by the reason in their header.", "reason"),
    MetricSpec(
        "decision_latency_seconds",
        "histogram",
        (),
        "From the timestamp of a request until the transaction with its decision was committed.",
    ),
    _gauge(
        "ready",
        "1 if this process owns partitions and all of them are recovered, except those that are quarantined for a "
        "cause outside the process.",
    ),
    _gauge("store_unsafe", "1 while the store could silently drop state: its maxmemory-policy is not noeviction."),
    _gauge("build_info", "1, with the version that runs.", "version"),
    _gauge("tenants", "Tenants in the partitions this process owns."),
    _gauge("tenants_unlisted", f'Of those, the ones beyond the cap: they have no series but their part of "{OTHER}".'),
)

PARTITIONS = (
    _gauge(
        "partition_state",
        "1 for the state it is in: ready, recovering, unavailable (the store does not answer), stalled (it has work "
        "and makes no progress), broken (the breaker stopped it), quarantined (it waits for an operator).",
        "partition",
        "state",
    ),
    _gauge("partition_lag", "Records of the input that are not committed yet.", "topic", "partition"),
    _gauge("partition_still_seconds", "Seconds since the partition last made progress.", "partition"),
    _gauge("partition_pending_decisions", "Decisions that wait for their label.", "partition"),
    _gauge("parked_labels", "Labels that wait for their request.", "partition"),
    _gauge("batch_sequence", "Number of the last committed batch.", "partition"),
)

_GAP = "Worst difference between two groups' {}, under the policy in force"
TENANTS = (
    _gauge(
        "fairness_gap",
        _GAP.format("error rates")
        + ". metric: fpr, fnr (two labels, one positive), error_rate, equalized_odds (worst true label).",
        "tenant",
        "metric",
        "window",
    ),
    _gauge("fairness_gap_lower", "Lower end of the gap's 95 % confidence sequence.", "tenant", "metric", "window"),
    _gauge("fairness_gap_upper", "Upper end of the gap's 95 % confidence sequence.", "tenant", "metric", "window"),
    _gauge(
        "shadow_fairness_gap",
        "The gap a shadow policy would have had on the same cases.",
        "tenant",
        "policy",
        "metric",
        "window",
    ),
    _gauge(
        "error_rate",
        "Share of a group's cases of a true label decided wrongly.",
        "tenant",
        "group",
        "label",
        "window",
    ),
    _gauge("error_rate_lower", "Lower end of its 95 % confidence sequence.", "tenant", "group", "label", "window"),
    _gauge("error_rate_upper", "Upper end of its 95 % confidence sequence.", "tenant", "group", "label", "window"),
    _gauge("cell_labels", "Labels joined, by group and true label.", "tenant", "group", "label", "window"),
    _gauge("tolerance", "The difference of error rates that the tenant's configuration accepts.", "tenant"),
    _gauge("attainable_gap", "The least gap that any mixture of these experts can have.", "tenant"),
    _gauge("regret_per_round", "Error rate in force minus that of the best single expert in hindsight.", "tenant"),
    _gauge("regret_bound", "The paper's bound on the regret so far, at the current q.", "tenant"),
    _gauge(
        "delayed_regret_bound",
        "Upper bound of the regret from late labels, if each is as many rounds late as decisions are pending now.",
        "tenant",
    ),
    _gauge(
        "gap_bound",
        "The paper's bound on the gap of the worst true label, at the current q. gamma: printed (the paper's), one "
        "(which holds for 0/1 losses).",
        "tenant",
        "gamma",
    ),
    _gauge(
        "selection_probability",
        "q: the probability of an instance for a case of the group.",
        "tenant",
        "group",
        "instance",
    ),
    _gauge(
        "expert_weight",
        'π: the probability of this expert in the instance, if all experts are present. instance: a label; "all" or '
        '"mixture" for policies without instances.',
        "tenant",
        "group",
        "instance",
        "expert",
    ),
    _gauge("pending_decisions", "Decisions that wait for their label.", "tenant"),
    _gauge(
        "oldest_pending_seconds",
        "Upper bound of the age of the oldest of them, by the partition's clock, exact to a 64th of the expiry.",
        "tenant",
    ),
    _gauge(
        "alert", "1 while the alert is open. kind: tolerance, drift, one-sided.", "tenant", "kind", "label", "groups"
    ),
    _gauge(
        "alert_wealth",
        "Evidence for an alert as a share of what raises it.",
        "tenant",
        "kind",
        "label",
        "groups",
    ),
    _gauge("watch_learning", "Pairs of groups with too few labels to be tested yet.", "tenant"),
    _gauge("one_sided_labels", "1 if some decisions never get a label: then every fairness figure is wrong.", "tenant"),
    _gauge("constant_experts", "Experts whose predictions are the same in (nearly) all cases.", "tenant"),
    _gauge("absent_experts", "Experts that advise on fewer than four fifths of a group's cases.", "tenant"),
    _counter("tenant_decisions", "Requests of the tenant decided, since the tenant began.", "tenant"),
    _counter("tenant_requests_duplicate", "Requests that repeated an earlier one.", "tenant"),
    _counter(
        "tenant_labels",
        "Labels by outcome, since the tenant began. outcome: joined; early (came before its request); duplicate; "
        "contradicting; expired (the decision's label did not come in time); late (came after that); unknown (no "
        "request ever came); unexpected (of a decision that gets none).",
        "tenant",
        "outcome",
    ),
    MetricSpec(
        "label_delay_seconds", "histogram", ("tenant",), "From a request to its label, for labels that were joined."
    ),
    _gauge("series_dropped", "Series of the tenant left out because it has more than the cap of a tenant.", "tenant"),
)

CATALOGUE = {entry.name: entry for entry in (*PROCESS, *PARTITIONS, *TENANTS)}


def entry(name: str, labels: tuple[str, ...]) -> MetricSpec:
    """The entry of a metric that is about to be exported with these labels."""
    found = CATALOGUE.get(name)
    if found is None:
        raise NotInCatalogueError(
            f'there is no metric "{name}" in the catalogue: add it there.{nearest(name, CATALOGUE)}'
        )
    if found.labels != labels:
        raise NotInCatalogueError(f"{found.exported} has the labels {list(found.labels)}, not {list(labels)}")
    return found


class Families:
    """The metrics of one scrape, in the order of the catalogue."""

    def __init__(self) -> None:
        self._made: dict[str, Family] = {}

    def of(self, name: str, *labels: str) -> Family:
        """The family to add samples to; an unknown name or a wrong set of labels is an error at once."""
        found = entry(name, labels)
        if name not in self._made:
            self._made[name] = found.family()
        return self._made[name]

    def __iter__(self) -> Iterator[Metric]:
        return (self._made[name] for name in CATALOGUE if name in self._made)


_INTRODUCTION = """\
# Metrics

This page is generated by `python -m processor.telemetry.catalogue` from the list of exported metrics. A test checks
that it is current.

A processor answers `GET /metrics` on its port. Everything about tenants and partitions is computed at the scrape from
the state of the partitions that the process owns at that moment: when a partition moves, its series appear on the new
owner and disappear from the old one. Counters of a tenant are part of its state, so they continue on the new owner.

- **Unknown values are omitted.** A gauge without data (no label in a cell, a group alone) has no series.
- **Windows.** `lifetime`, and those of the setting `windows`, named by their length. A window begins at a fixed
  boundary, a multiple of its length since 1970 (UTC), by the partition's clock, and ends now. Its confidence
  sequence holds for each window separately; a sliding window would not be covered.
- **Confidence sequences** hold at all scrapes together, with 95 %: looking often does not make them wrong. A gap of m
  cells has each of them at 5 %/m. A group that joins later adds cells to what was already shown: over the whole history
  of a tenant that went from two groups to three, read 93 % instead of 95 %.
- **Labels for positive decisions only** (`feedback = "positive-only"`). Rates and gaps are those of all cases,
  estimated with weights for the cases whose label is never seen. They have no confidence sequence, and shadow
  policies have no figures.
- **The attainable gap** is a linear programme per tenant. It is computed again at most every 10 s, only if labels have
  come, and with at most a twentieth of the time. With hundreds of busy tenants it can be some minutes old.
- **Everything else** is at most a second old.
- **The process itself**: on Linux also Prometheus' usual `process_cpu_seconds_total`, `process_resident_memory_bytes`,
  `process_virtual_memory_bytes`, `process_start_time_seconds`, `process_open_fds` and `process_max_fds`.
- **The cap.** The first `metrics.max_tenants` tenants (in the order in which they first appeared) have series of
  their own, and so has any tenant with an open alert (up to as many again). Counters, the delay histogram and pending
  decisions of all others are added up under `tenant="{other}"`; `gforce_tenants_unlisted` says how many
  have no series. That sum changes abruptly when a partition moves: for rates use `gforce_decisions_total`.
- **A tenant with very many groups, labels and experts** has about {most} series at most: expert weights are omitted
  first, then the wealth of its alerts, then the rates of windows. `gforce_series_dropped` says how many are missing.
"""


def _table(entries: tuple[MetricSpec, ...]) -> Iterator[str]:
    yield "| name | type | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for one in entries:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        yield f"| `{one.exported}` | {one.kind} | {labels} | {one.help.replace('|', chr(92) + '|')} |"


def document() -> str:
    """docs/metrics.md."""
    parts = [_INTRODUCTION.format(other=OTHER, most=MAX_SERIES)]
    for title, entries in (("A tenant", TENANTS), ("A partition", PARTITIONS), ("The process", PROCESS)):
        parts.append("\n".join([f"## {title}", "", *_table(entries)]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(document(), end="")
