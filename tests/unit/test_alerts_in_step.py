"""Alerts as a batch makes them: raised, published, kept with the tenant, acknowledged; never for weighted labels."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

import schemas
from processor.core.alerts.alert_events import AlertEvent
from processor.core.alerts.alerts import MonitorSettings
from processor.core.settings import Settings
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.partition import partition_from_fields
from processor.core.stream.step import StepResult
from processor.core.stream.tenant import TenantSettings

from .test_step import TOKEN, Bench, rules
from .tiers import tier as tier

EAGER = MonitorSettings(tolerance=0.05, alpha=0.5, false_alarm_pairs=200, clear=50, learning=2)
POSITIVE_ONLY = Settings(labels=("no", "yes"), positive="yes", feedback="positive-only", explore=0.1)


def unfair_batches(bench: Bench, count: int, *, start: int = 0, right: tuple[str, ...] = ("B",)) -> list[AlertEvent]:
    """Requests whose advice is unanimous: always wrong for every group but those in ``right``."""
    alerts: list[AlertEvent] = []
    for i in range(start, start + count):
        group = "AB"[i % 2]
        bench.batch(bench.request(str(i), group, predictions={"e": "yes", "f": "yes"}))
        alerts += bench.batch(bench.label(str(i), "yes" if group in right else "no")).alerts
        alerts += bench.batch(bench.request(f"{i}n", group, predictions={"e": "no", "f": "no"})).alerts
        alerts += bench.batch(bench.label(f"{i}n", "no" if group in right else "yes")).alerts
    return alerts


@pytest.fixture
def unfair() -> tuple[Bench, list[AlertEvent]]:
    bench = Bench(rules(watch=EAGER))
    return bench, unfair_batches(bench, 40)


def test_a_gap_beyond_the_tolerance_is_raised_with_its_evidence(unfair: tuple[Bench, list[AlertEvent]]) -> None:
    _, alerts = unfair
    assert {(a.kind, a.state) for a in alerts} == {("tolerance", "raised"), ("drift", "raised")}
    for alert in alerts:
        assert alert.groups == ("A", "B")
        assert alert.evidence is not None
        assert alert.evidence.whole.rates == (1.0, 0.0)
        assert alert.evidence.wealth >= alert.evidence.threshold
        assert alert.evidence.whole.lower is not None
        assert alert.evidence.whole.lower > alert.tolerance
    assert [a.number for a in alerts] == list(range(1, len(alerts) + 1))


def test_every_alert_is_valid_by_its_schema(unfair: tuple[Bench, list[AlertEvent]]) -> None:
    validator = jsonschema.Draft202012Validator(schemas.load("alert.v1"))
    for alert in unfair[1]:
        validator.validate(json.loads(alert.encode()))
    assert list(schemas.load("alert.v1")["properties"]) == list(AlertEvent.__struct_fields__)


def test_alerts_survive_a_restart(unfair: tuple[Bench, list[AlertEvent]]) -> None:
    bench, alerts = unfair
    before = bench.partition.tenants["t"]
    after = reread(bench)
    assert before.watch is not None
    assert after.watch is not None
    assert after.watch.encode() == before.watch.encode()
    assert [a.number for a in after.watch.alerts] == [a.number for a in alerts]
    assert after.waits == before.waits


def test_drift_clears_by_itself_and_tolerance_only_when_acknowledged(unfair: tuple[Bench, list[AlertEvent]]) -> None:
    bench, raised = unfair
    cleared = unfair_batches(bench, 120, start=40, right=("A", "B"))
    assert {(a.kind, a.state) for a in cleared} == {("drift", "cleared")}
    tolerance = next(a for a in raised if a.kind == "tolerance")
    outcome = acknowledge(bench, tolerance.number)
    [event] = outcome.alerts
    assert (event.kind, event.state, event.number, event.since) == ("tolerance", "cleared", tolerance.number, 1_000)
    assert not acknowledge(bench, tolerance.number).alerts, "it is not open any more"
    assert not acknowledge(bench, 99).alerts


def test_an_alert_of_an_unknown_tenant_cannot_be_acknowledged() -> None:
    bench = Bench(rules(watch=EAGER))
    assert not acknowledge(bench, 1, tenant="nobody").alerts


def test_labels_that_come_for_one_decision_only_are_raised_and_cleared() -> None:
    bench = Bench(rules(watch=EAGER))
    alerts = one_sided_batches(bench, 40)
    assert [(a.kind, a.state, a.decisions) for a in alerts] == [("one-sided", "raised", ("no",))]
    bench.batch(bench.request("late", "A", predictions={"e": "no", "f": "no"}))
    [cleared] = bench.batch(bench.label("late", "no")).alerts
    assert (cleared.kind, cleared.state, cleared.number) == ("one-sided", "cleared", alerts[0].number)


def one_sided_batches(bench: Bench, count: int) -> list[AlertEvent]:
    alerts = []
    for i in range(count):
        bench.batch(
            bench.request(str(i), predictions={"e": "yes", "f": "yes"}),
            bench.request(f"{i}n", predictions={"e": "no", "f": "no"}),
        )
        alerts += bench.batch(bench.label(str(i), "yes")).alerts
    return alerts


def test_a_tenant_whose_labels_are_weighted_is_not_watched() -> None:
    bench = Bench(rules(watch=EAGER, settings=POSITIVE_ONLY))
    assert not unfair_batches(bench, 40)
    assert bench.partition.tenants["t"].watch is None


def test_without_settings_nothing_is_watched() -> None:
    assert not unfair_batches(Bench(rules(watch=None)), 40)


def test_under_other_settings_the_tests_begin_anew_and_open_alerts_stay(unfair: tuple[Bench, list[AlertEvent]]) -> None:
    bench, alerts = unfair
    tenant = bench.partition.tenants["t"]
    stricter = reread(bench, rules(watch=MonitorSettings(tolerance=0.02)))
    assert stricter.watch is not None
    assert [a.number for a in stricter.watch.alerts] == [a.number for a in alerts]
    assert reread(bench, rules(watch=None)).watch is None
    same = reread(bench)
    assert same.watch is not None
    assert tenant.watch is not None
    assert same.watch.encode() == tenant.watch.encode()


def test_delays_and_the_oldest_pending_decision_are_known() -> None:
    bench = Bench(rules(expiry=64_000))
    bench.batch(bench.request("1"), bench.request("2"))
    waits = bench.partition.tenants["t"].waits
    assert (waits.pending, waits.oldest) == (2, 1)
    bench.batch(bench.label("1"))
    waits = bench.partition.tenants["t"].waits
    assert (waits.pending, sum(waits.delays), waits.delay_sum) == (1, 1, 0)
    bench.batch(clock=500 * 3_600_000)
    waits = bench.partition.tenants["t"].waits
    assert (waits.pending, waits.oldest) == (0, None)
    assert sum(waits.delays) == 1, "an expired decision has no delay"


def test_a_label_that_came_first_has_no_negative_delay() -> None:
    bench = Bench(rules())
    bench.batch(replace(bench.label("1"), timestamp=90_000), clock=90_000)
    bench.batch(replace(bench.request("1"), timestamp=100_000), clock=100_000)
    waits = bench.partition.tenants["t"].waits
    assert (waits.delays[0], waits.delay_sum, waits.pending) == (1, 0, 0)


def acknowledge(bench: Bench, number: int, tenant: str = "t") -> StepResult:
    return bench.batch(acknowledged=[(tenant, number)])


def reread(bench: Bench, under: TenantSettings | None = None) -> Any:
    """The tenant as a process that restarts finds it, under other rules or the same."""
    fields, settings_for = dict(bench.store.fields(0, TOKEN)), bench.terms.settings_for
    found = partition_from_fields(0, 1, Identity("l", 1, GENESIS), fields, lambda name: under or settings_for(name))
    return found.tenants["t"]
