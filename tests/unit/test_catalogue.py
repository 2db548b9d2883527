"""Metrics: all in the catalogue, as documented, capped, and safe whatever the names in the events are."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from processor.core.alerts.alerts import MonitorSettings
from processor.core.stream.delays import DELAY_BOUNDS, LATENCY_BOUNDS
from processor.telemetry import metrics
from processor.telemetry.catalogue import CATALOGUE, OTHER, Families, NotInCatalogueError, document
from processor.telemetry.metrics import StatusCollector
from processor.telemetry.observer import Observer
from processor.telemetry.status import PartitionStatus, Status

from .observed import binary, partition_of, settings_for, status_with, tenant_of

HOSTILE = [
    '"} 1\ngforce_ready 0\n#',
    "<script>alert(1)</script>",
    "\\",
    'back\\slash"quote',
    "Zoë 東京 \u202e",
    "{__name__}",
    "a" * 256,
    " ",
]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(status: Status, cap: int = 500) -> str:
    registry = CollectorRegistry()
    seeing = Observer(lambda: status, cap)
    registry.register(StatusCollector(seeing))
    seeing.figures()
    seeing.refresh_attainable(60)
    return generate_latest(registry).decode()


def families(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))


def samples(text: str) -> Samples:
    found = [(s.name, frozenset(s.labels.items()), s.value) for family in families(text) for s in family.samples]
    assert len({(name, labels) for name, labels, _ in found}) == len(found), "a series twice"
    return {(name, labels): value for name, labels, value in found}


def of(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def everything() -> Status:
    """A status that has something to say of every metric."""
    tenant = tenant_of(rules=settings_for(binary(), watch=MonitorSettings(learning=0)), unlabelled=3)
    assert tenant.watch is not None
    tenant.watch.observe([(1, i % 2, i % 2 == 0, i) for i in range(200)])
    partition = PartitionStatus(0, "ready", "", 7, 1, 3, 2, 0, 1.5, {"requests": 11, "feedback": 0})
    return Status(
        ready=True,
        partitions=(partition,),
        held=(partition_of(tenant),),
        totals={"decisions": 203, "dead_bad-json": 2},
        latencies=(1,) * (len(LATENCY_BOUNDS) + 1),
        latency_sum=1_234,
    )


def test_the_document_is_what_the_catalogue_says() -> None:
    path = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert path.read_text("utf-8") == document(), "run: python -m processor.telemetry.catalogue > docs/metrics.md"


def test_every_metric_of_the_catalogue_is_exported_and_no_other() -> None:
    found = {(family.name, family.type, family.documentation) for family in families(scrape(everything()))}
    wanted = {("gforce_" + entry.name, entry.kind, entry.help) for entry in CATALOGUE.values()}
    assert found == wanted


def test_a_series_has_exactly_the_labels_of_the_catalogue() -> None:
    by_name = {"gforce_" + entry.name: set(entry.labels) for entry in CATALOGUE.values()}
    for family in families(scrape(everything())):
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == by_name[family.name], sample


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("fairness_gaps", (), 'no metric "fairness_gaps".*Did you mean "fairness_gap"'),
        ("fairness_gap", ("tenant", "metric"), r"gforce_fairness_gap has the labels \['tenant', 'metric', 'window'\]"),
        ("ready", ("tenant",), "not"),
    ],
)
def test_what_is_not_in_the_catalogue_cannot_be_exported(name: str, labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(NotInCatalogueError, match=message):
        Families().of(name, *labels)


def test_hostile_names_are_values_of_labels_and_nothing_else() -> None:
    tenants = [
        tenant_of(name, settings_for(binary()), i, count=30, groups=(name, "B"), experts=(name, "e"))
        for i, name in enumerate(HOSTILE)
    ]
    found = samples(scrape(status_with(partition_of(*tenants))))
    for tenant in tenants:
        name = tenant.name
        assert of(found, "gforce_tenant_decisions_total", tenant=name) == 30
        assert of(found, "gforce_cell_labels", tenant=name, group=name, label="deny", window="lifetime") > 0
        assert of(found, "gforce_expert_weight", tenant=name, group="B", instance="deny", expert=name) >= 0
    assert of(found, "gforce_ready") == 1
    assert {dict(labels).get("tenant") for _, labels in found} == {None, *HOSTILE}


def test_what_is_unknown_is_left_out() -> None:
    rules = settings_for(binary(groups=("A", "B", "nobody")))
    lonely = tenant_of("lonely", groups=("A",), number=1)
    found = samples(scrape(status_with(partition_of(tenant_of(rules=rules), lonely))))
    assert not any(isnan(value) for value in found.values())
    cell = {"tenant": "acme", "group": "nobody", "label": "deny", "window": "lifetime"}
    assert of(found, "gforce_cell_labels", **cell) == 0
    assert ("gforce_error_rate", frozenset(cell.items())) not in found
    gaps = {dict(labels)["tenant"] for name, labels in found if name == "gforce_fairness_gap"}
    assert gaps == {"acme"}


def test_beyond_the_cap_there_is_one_series_for_all_others() -> None:
    tenants = [tenant_of(f"t{i}", number=i, count=20, unlabelled=1) for i in range(5)]
    found = samples(scrape(status_with(partition_of(*tenants)), cap=2))
    named = {dict(labels)["tenant"] for _, labels in found if "tenant" in dict(labels)}
    assert named == {"t0", "t1", OTHER}
    assert of(found, "gforce_tenants") == 5
    assert of(found, "gforce_tenants_unlisted") == 3
    assert of(found, "gforce_tenant_decisions_total", tenant=OTHER) == 63
    assert of(found, "gforce_pending_decisions", tenant=OTHER) == 3
    assert of(found, "gforce_tenant_labels_total", tenant=OTHER, outcome="joined") == 60
    assert of(found, "gforce_label_delay_seconds_count", tenant=OTHER) == 60
    assert not any(("tenant", OTHER) in labels for name, labels in found if name == "gforce_fairness_gap")


def test_the_number_of_series_is_bounded_whatever_comes() -> None:
    few = [tenant_of(f"t{i}", number=i, count=20) for i in range(3)]
    many = [tenant_of(f"t{i}", number=i, count=20) for i in range(12)]
    capped = [len(samples(scrape(status_with(partition_of(*those)), cap=3))) for those in (few, many)]
    assert capped[1] - capped[0] < 40


def test_a_tenant_with_very_many_names_has_only_its_more_important_series() -> None:
    wide = tenant_of(
        groups=[f"g{i}" for i in range(32)],
        experts=[f"e{i}" for i in range(40)],
        count=400,
    )
    found = samples(scrape(status_with(partition_of(wide))))
    mine = [name for name, labels in found if ("tenant", "acme") in labels]
    assert len(mine) < metrics.MAX_SERIES + 50
    assert of(found, "gforce_series_dropped", tenant="acme") == 32 * 2 * 40
    assert "gforce_expert_weight" not in mine
    assert {"gforce_fairness_gap", "gforce_error_rate", "gforce_selection_probability"} <= set(mine)
    ordinary = samples(scrape(status_with(partition_of(tenant_of()))))
    assert of(ordinary, "gforce_series_dropped", tenant="acme") == 0


def test_histograms_are_cumulative_and_end_with_all() -> None:
    found = samples(scrape(everything()))
    assert of(found, "gforce_decision_latency_seconds_bucket", le="0.005") == 1
    assert of(found, "gforce_decision_latency_seconds_bucket", le="60.0") == len(LATENCY_BOUNDS)
    assert of(found, "gforce_decision_latency_seconds_bucket", le="+Inf") == len(LATENCY_BOUNDS) + 1
    assert of(found, "gforce_decision_latency_seconds_sum") == 1.234
    assert of(found, "gforce_label_delay_seconds_bucket", tenant="acme", le=str(float(DELAY_BOUNDS[2]))) == 200
    assert of(found, "gforce_label_delay_seconds_sum", tenant="acme") == 200 * 60


def test_partitions_and_the_process_are_told() -> None:
    found = samples(scrape(everything()))
    assert of(found, "gforce_partition_lag", topic="requests", partition="0") == 11
    assert of(found, "gforce_partition_still_seconds", partition="0") == 1.5
    assert of(found, "gforce_partition_state", partition="0", state="ready") == 1
    assert of(found, "gforce_dead_letters_total", reason="bad-json") == 2
    assert of(found, "gforce_decisions_total") == 203
    assert of(found, "gforce_store_unsafe") == 0
    assert of(samples(scrape(replace(everything(), store_unsafe="it evicts"))), "gforce_store_unsafe") == 1
    stalled = replace(everything().partitions[0], state="stalled")
    found = samples(scrape(replace(everything(), partitions=(stalled,))))
    assert ("gforce_partition_state", frozenset({("partition", "0"), ("state", "ready")})) not in found


def test_alerts_are_gauges_and_two_pairs_of_groups_never_share_one() -> None:
    names = ("a / b", "c", "a", "b / c")
    tenant = tenant_of(rules=settings_for(binary(), watch=MonitorSettings(learning=0)), groups=names, count=50)
    assert tenant.watch is not None
    tenant.watch.observe([(1, i % 4, i % 2 == 0, i) for i in range(1_000)])
    found = samples(scrape(status_with(partition_of(tenant))))
    raised = [dict(labels) for name, labels in found if name == "gforce_alert"]
    assert {one["kind"] for one in raised} == {"tolerance", "drift"}
    wealth = [dict(labels)["groups"] for name, labels in found if name == "gforce_alert_wealth"]
    assert len(set(wealth)) == 6
