"""Every metric, named, typed and explained in one place. The values come from the latest status."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .status import Status

COUNTERS = {
    "decisions": "Requests decided.",
    "requests_duplicate": "Requests that repeated an earlier one and were not decided again.",
    "labels_joined": "Labels joined to their decision.",
    "labels_duplicate": "Labels that repeated an earlier one.",
    "labels_parked": "Labels that came before their request and were kept for it.",
    "decisions_expired": "Decisions whose label did not come in time.",
    "records": "Input records processed.",
    "batches": "Batches committed.",
    "transactions": "Kafka transactions committed.",
    "transactions_aborted": "Kafka transactions aborted and tried again.",
    "commits_unknown": "Commits whose answer was lost; the committed offsets decided.",
    "polls_failed": "Reads that failed and were tried again: the broker was away, or the group was changing.",
    "recoveries": "Partitions recovered.",
    "batches_replayed": "Batches taken from the changelog during recoveries.",
    "fenced_by_kafka": "Times Kafka refused us because another process had taken our place.",
    "fenced_by_store": "Times the store refused us because another process had claimed the partition.",
    "partitions_lost": "Partitions taken from us without asking.",
    "snapshots": "Snapshots of a partition's state completed in the changelog.",
    "breaker_trips": "Partitions stopped because most records were unreadable.",
}
"""One counter each, ``gforce_<name>_total``."""


class StatusCollector(Collector):
    """Turns the latest status into metrics at scrape time."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        for name, help_text in COUNTERS.items():
            yield CounterMetricFamily(f"gforce_{name}", help_text, value=status.totals.get(name, 0))
        dead = CounterMetricFamily("gforce_dead_letters", "Records sent to dead-letters.", labels=["reason"])
        for name, count in sorted(status.totals.items()):
            if name.startswith("dead_"):
                dead.add_metric([name.removeprefix("dead_")], count)
        yield dead
        yield GaugeMetricFamily("gforce_ready", "1 if all owned partitions are recovered.", value=int(status.ready))
        yield from self._partitions(status)
        yield from self._tenants(status)

    def _partitions(self, status: Status) -> Iterator[Metric]:
        gauges = {
            "pending": ("gforce_pending_decisions", "Decisions that wait for their label."),
            "parked": ("gforce_parked_labels", "Labels that wait for their request."),
            "sequence": ("gforce_batch_sequence", "Number of the last committed batch."),
            "still": ("gforce_partition_still_seconds", "Seconds since the partition last moved."),
        }
        for attribute, (name, help_text) in gauges.items():
            family = GaugeMetricFamily(name, help_text, labels=["partition"])
            for partition in status.partitions:
                family.add_metric([str(partition.number)], getattr(partition, attribute))
            yield family
        state = GaugeMetricFamily("gforce_partition_state", "1 for the state it is in.", labels=["partition", "state"])
        for partition in status.partitions:
            state.add_metric([str(partition.number), partition.state], 1)
        yield state

    def _tenants(self, status: Status) -> Iterator[Metric]:
        gap = GaugeMetricFamily(
            "gforce_fairness_gap",
            "Worst difference between two groups' error rates, over the lifetime.",
            labels=["tenant", "policy", "metric"],
        )
        rate = GaugeMetricFamily(
            "gforce_error_rate", "Error rate by group and true label.", labels=["tenant", "group", "label"]
        )
        for tenant in status.tenants:
            for policy, figures in tenant.by_policy.items():
                gap.add_metric([tenant.name, policy, "equalized_odds"], figures.equalized_odds_difference)
                gap.add_metric([tenant.name, policy, "error_rate"], figures.zero_one_loss_difference)
            in_force = tenant.by_policy["in-force"]
            for group, rates in zip(tenant.groups, in_force.error_rate_by_label, strict=True):
                for label, value in zip(tenant.labels, rates, strict=True):
                    rate.add_metric([tenant.name, group, label], value)
        yield gap
        yield rate
