"""What is said about tenants: the same as their counters say by themselves, and only of what is owned now."""

from __future__ import annotations

from itertools import combinations
from math import isnan, log

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core import IN_FORCE, rule_of
from processor.core.alerts.alerts import MonitorSettings
from processor.core.learner.counters import Counters
from processor.core.learner.estimates import estimate
from processor.core.metrics.attainable import least_gap
from processor.core.metrics.bounds import delayed_regret, paper_bounds
from processor.core.metrics.confidence import interval
from processor.core.settings import Policy, Prior, Settings
from processor.core.stream.tenant import Tenant
from processor.telemetry.catalogue import OTHER
from processor.telemetry.figures import Estimate, TenantFigures
from processor.telemetry.measuring import TenantSnapshot, measured
from processor.telemetry.observer import ATTAINABLE_EVERY, Observer, in_order
from processor.telemetry.paper_bounds import bounds_of
from processor.telemetry.status import Status

from .observed import DAY, NOW, binary, partition_of, settings_for, status_with, tenant_of
from .strategies import axes, random_counters, seeds

MULTI = Settings(labels=("a", "b", "c"), positive=None, shadows=(Policy(policy="mw"),))
KINDS = {
    "binary": settings_for(binary()),
    "three labels": settings_for(MULTI),
    "mixture": settings_for(binary(policy=Policy(objective="mixture"))),
    "mw": settings_for(binary(policy=Policy(policy="mw"), shadows=())),
    "positive-only": settings_for(binary(feedback="positive-only", explore=0.1)),
    "learns from a window": settings_for(binary(window=3)),
    "watched": settings_for(binary(), watch=MonitorSettings(learning=5)),
}


def one(tenant: Tenant, clock: int = NOW) -> TenantFigures:
    return measured([TenantSnapshot.of(0, tenant, clock)])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_lifetime_figures_are_those_of_the_counters(kind: str) -> None:
    tenant = tenant_of(rules=KINDS[kind], groups=("A", "B", "C"))
    found = one(tenant)
    lifetime = found.windows[0]
    plain = tenant.learner.fairness()
    assert lifetime.window == "lifetime"
    assert lifetime.labels == plain.labels
    assert lifetime.gaps["equalized_odds"].value == plain.equalized_odds_difference
    assert lifetime.gaps["error_rate"].value == plain.zero_one_loss_difference
    assert [rate.value for rate in lifetime.group_error.values()] == list(plain.error_rate)
    cells = [cell.rate.value for cell in lifetime.rates]
    assert cells == [rate for rates in plain.error_rate_by_label for rate in rates]
    assert found.regret == plain.regret_per_round
    for shadow in tenant.rules.settings.shadows:
        of_shadow = tenant.learner.fairness(shadow.name).equalized_odds_difference
        assert lifetime.shadows[shadow.name]["equalized_odds"] == pytest.approx(of_shadow, abs=0, nan_ok=True)


def test_false_positives_and_negatives_are_told_apart_by_the_positive_label() -> None:
    for positive, (fpr, fnr) in (("grant", (0, 1)), ("deny", (1, 0))):
        tenant = tenant_of(rules=settings_for(binary(positive=positive)))
        plain = tenant.learner.fairness()
        gaps = one(tenant).windows[0].gaps
        assert (gaps["fpr"].value, gaps["fnr"].value) == (
            plain.differences_by_label[fpr],
            plain.differences_by_label[fnr],
        )


def test_without_a_positive_label_there_are_no_false_positives() -> None:
    assert set(one(tenant_of(rules=KINDS["three labels"])).windows[0].gaps) == {"error_rate", "equalized_odds"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tenant_has_the_same_figures_alone_and_among_others(kind: str) -> None:
    others = [tenant_of(f"t{i}", rules, i, seed=i, count=40 * i) for i, rules in enumerate(KINDS.values())]
    mine = tenant_of("mine", KINDS[kind], seed=99)
    together = measured([TenantSnapshot.of(0, tenant, NOW) for tenant in [*others[:3], mine, *others[3:]]])
    assert msgspec.json.encode(together[3]) == msgspec.json.encode(one(mine))


def test_the_rule_shown_is_the_learners_own() -> None:
    for kind in ("binary", "mixture", "mw", "learns from a window"):
        tenant = tenant_of(rules=KINDS[kind])
        rule, found, axes = tenant.learner.rule(), one(tenant), tenant.learner.state.axes
        instances = {"mixture": ["mixture"], "mw": ["all"]}.get(kind, list(axes.labels))
        for g, group in enumerate(axes.groups):
            assert list(found.selection[group]) == instances
            assert list(found.selection[group].values()) == rule.selection[0, g].tolist()
            for i, instance in enumerate(instances):
                weights = found.weights[group][instance]
                assert list(weights) == list(axes.experts)
                assert list(weights.values()) == (rule.expert_parts[0, g, i] / 2**32).tolist()
                assert sum(weights.values()) == pytest.approx(1.0)


@given(seed=seeds, groups=st.integers(1, 4), experts=st.integers(1, 5), auto=st.booleans())
@settings(max_examples=30)
def test_bounds_of_many_are_the_papers_bounds_of_each(seed: int, groups: int, experts: int, auto: bool) -> None:
    policy = Policy(eta="auto") if auto else Policy()
    names = axes(groups, 2, experts)
    many = [random_counters(np.random.default_rng(seed + i), names, 1) for i in range(3)]
    stacked = Counters.stack(many)
    found = bounds_of(rule_of(policy, stacked, names.labels), stacked, Prior(), np.array([0.0, 7.0, 500.0]))
    for i, counters in enumerate(many):
        rule, waiting = rule_of(policy, counters, names.labels), (0, 7, 500)[i]
        plain = paper_bounds(rule, counters)
        instances = zip(rule.keep[0].flat, counters.labels[0].flat, strict=True)
        late = sum(delayed_regret(experts, -log(keep), int(n), int(n) * waiting) for keep, n in instances)
        assert found["delayed_regret"][i] == pytest.approx(late, rel=1e-12)
        assert found["regret"][i] == pytest.approx(plain.regret, rel=1e-12)
        assert found["gap"][i] == pytest.approx(max(plain.gap), rel=1e-12)
        assert found["gap_printed"][i] == pytest.approx(max(plain.gap_printed), rel=1e-12)


# Confidence sequences


def band(cells: list[tuple[int, int]], alpha: float) -> tuple[float, float]:
    """The ends for the worst pair, the plain way."""
    ends = [tuple(float(end) for end in interval(e, n, alpha)) for e, n in cells]
    pairs = [(a, b) for a, b in combinations(ends, 2)]
    lower = max(max(a[0] - b[1], b[0] - a[1], 0.0) for a, b in pairs)
    return lower, max(max(a[1] - b[0], b[1] - a[0]) for a, b in pairs)


def test_a_gap_of_m_cells_has_each_of_them_at_an_mth_of_alpha() -> None:
    tenant = tenant_of(groups=("A", "B", "C"), count=400)
    outcomes = tenant.learner.counters().outcomes[0, tenant.learner.state.axes.policy_index[IN_FORCE]]
    cells = [[(int(o[y].sum() - o[y, y]), int(o[y].sum())) for y in range(2)] for o in outcomes]
    whole = [(sum(e for e, _ in by_label), sum(n for _, n in by_label)) for by_label in cells]
    gaps = one(tenant).windows[0].gaps
    wanted = {
        "fpr": band([by_label[0] for by_label in cells], 0.05 / 3),
        "fnr": band([by_label[1] for by_label in cells], 0.05 / 3),
        "error_rate": band(whole, 0.05 / 3),
        "equalized_odds": tuple(
            max(ends) for ends in zip(*(band([row[y] for row in cells], 0.05 / 6) for y in range(2)), strict=True)
        ),
    }
    for metric, (lower, upper) in wanted.items():
        assert (gaps[metric].lower, gaps[metric].upper) == pytest.approx((lower, upper), abs=1e-12), metric
        assert gaps[metric].lower <= gaps[metric].value <= gaps[metric].upper
    first = one(tenant).windows[0].rates[0]
    assert (first.rate.lower, first.rate.upper) == pytest.approx(tuple(map(float, interval(*cells[0][0], 0.05))))


def test_weighted_counts_have_rates_and_no_band() -> None:
    lifetime = one(tenant_of(rules=KINDS["positive-only"])).windows[0]
    for figure in (*lifetime.gaps.values(), *(cell.rate for cell in lifetime.rates)):
        assert not isnan(figure.value)
        assert isnan(figure.lower)
        assert isnan(figure.upper)


def test_a_group_without_labels_takes_no_part_in_a_gap() -> None:
    rules = settings_for(binary(groups=("A", "B", "nobody")))
    lifetime = one(tenant_of(rules=rules)).windows[0]
    unknown = [cell for cell in lifetime.rates if cell.group == "nobody"]
    assert [cell.n for cell in unknown] == [0, 0]
    assert all(isnan(end) for cell in unknown for end in (cell.rate.value, cell.rate.lower, cell.rate.upper))
    assert 0 <= lifetime.gaps["fpr"].lower <= lifetime.gaps["fpr"].upper < 1


def test_one_group_alone_has_rates_and_no_gap() -> None:
    lifetime = one(tenant_of(groups=("A",))).windows[0]
    assert not isnan(lifetime.group_error["A"].value)
    assert all(isnan(figure.value) and isnan(figure.upper) for figure in lifetime.gaps.values())


# Windows


def test_windows_begin_at_a_multiple_of_their_length() -> None:
    tenant = tenant_of()
    _, day, week = one(tenant).windows
    assert [(day.window, day.since), (week.window, week.since)] == [("1d", 20_003 * DAY), ("7d", 19_999 * DAY)]
    buckets = tenant.learner.state.buckets
    assert day.labels == buckets[20_003].seen.sum()
    assert week.labels == sum(buckets[number].seen.sum() for number in range(19_999, 20_004))
    assert 0 < day.labels < week.labels < one(tenant).windows[0].labels


def test_a_window_that_has_just_begun_knows_nothing() -> None:
    tomorrow = one(tenant_of(), clock=20_004 * DAY).windows[1]
    assert (tomorrow.labels, tomorrow.since) == (0, 20_004 * DAY)
    assert isnan(tomorrow.gaps["equalized_odds"].value)


def test_a_window_is_named_as_people_write_durations() -> None:
    hourly = settings_for(binary(bucket=3_600_000, keep=300), windows=(1, 24, 36))
    assert [window.window for window in one(tenant_of(rules=hourly)).windows] == ["lifetime", "1h", "1d", "36h"]


def test_a_tenant_of_which_only_a_label_came_has_no_windows() -> None:
    found = one(Tenant.new(0, "early", settings_for(binary())))
    assert found.windows == []
    assert found.pending == 0


# Looking again


def observer(*partitions: object, cap: int = 500) -> tuple[Observer, list[Status]]:
    now = [status_with(*partitions)]  # type: ignore[arg-type]
    return Observer(lambda: now[0], cap), now


def test_a_tenant_that_has_not_changed_is_not_worked_out_again() -> None:
    tenant, other = tenant_of("a"), tenant_of("b", number=1)
    seeing, now = observer(partition_of(tenant, other))
    before = seeing.figures()
    now[0] = status_with(partition_of(tenant, other.clone(), clock=NOW + 1))
    after = seeing.figures()
    assert after[0].windows is before[0].windows
    assert after[1].windows is not before[1].windows
    assert after[1].windows == before[1].windows


def test_at_midnight_an_unchanged_tenant_gets_a_new_window() -> None:
    tenant = tenant_of()
    seeing, now = observer(partition_of(tenant))
    assert seeing.figures()[0].windows[1].labels > 0
    now[0] = status_with(partition_of(tenant, clock=20_004 * DAY))
    assert seeing.figures()[0].windows[1].labels == 0


def test_the_oldest_pending_decision_ages_with_the_clock() -> None:
    tenant = tenant_of(unlabelled=5)
    seeing, now = observer(partition_of(tenant))
    young = seeing.figures()[0]
    now[0] = status_with(partition_of(tenant, clock=NOW + 7_000))
    assert young.pending == 5
    assert seeing.figures()[0].oldest_pending == pytest.approx(young.oldest_pending + 7)
    assert isnan(one(tenant_of()).oldest_pending)


def test_nothing_is_left_of_a_partition_that_has_moved_away() -> None:
    stays, goes = partition_of(tenant_of("stays")), partition_of(tenant_of("goes"), number=1)
    seeing, now = observer(stays, goes)
    assert {one.name for one in seeing.figures()} == {"stays", "goes"}
    assert seeing.refresh_attainable(60)
    now[0] = status_with(stays)
    assert [one.name for one in seeing.figures()] == ["stays"]
    assert seeing.tenant("goes") is None
    assert set(seeing._measured) == set(seeing._attainable) == {(0, "stays")}
    now[0] = Status()
    assert seeing.figures() == []


# The attainable gap


def test_the_attainable_gap_is_that_of_the_experts() -> None:
    tenant = tenant_of(groups=("A", "B", "C"))
    seeing, _ = observer(partition_of(tenant))
    assert isnan(seeing.figures()[0].attainable)
    assert seeing.refresh_attainable(60)
    wanted = least_gap(estimate(tenant.learner.counters(), Prior()).error[0]).figure
    assert seeing.figures()[0].attainable == wanted


def test_a_group_without_labels_does_not_count_as_unattainable() -> None:
    tenant = tenant_of(rules=settings_for(binary(groups=("A", "B", "nobody"))))
    seeing, _ = observer(partition_of(tenant))
    seeing.figures()
    seeing.refresh_attainable(60)
    error = estimate(tenant.learner.counters(), Prior()).error[0]
    assert seeing.figures()[0].attainable == least_gap(error[:, :2]).figure


def test_attainable_gaps_are_worked_out_within_a_budget_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, worked_out = [0.0], []

    def slow(tenant: Tenant) -> float:
        clock[0] += 1.0
        worked_out.append(tenant.name)
        return 0.5

    monkeypatch.setattr("processor.telemetry.observer.attainable_gap", slow)
    tenants = [tenant_of(f"t{i}", number=i, count=20) for i in range(3)]
    now = [status_with(partition_of(*tenants))]
    seeing = Observer(lambda: now[0], monotonic_s=lambda: clock[0])
    seeing.figures()
    assert not seeing.refresh_attainable(1.5)
    assert worked_out == ["t0", "t1"]
    assert seeing.refresh_attainable(1.5)
    assert worked_out == ["t0", "t1", "t2"]
    now[0] = status_with(partition_of(*(tenant.clone() for tenant in tenants)))
    seeing.figures()
    assert seeing.refresh_attainable(60)
    assert len(worked_out) == 3, "too early"
    clock[0] += ATTAINABLE_EVERY
    assert seeing.refresh_attainable(60)
    assert worked_out[3:] == ["t0", "t1", "t2"]


# The cap


def alarmed(name: str, number: int) -> Tenant:
    """A tenant whose groups are treated as differently as can be."""
    tenant = tenant_of(name, settings_for(binary(), watch=MonitorSettings(learning=0)), number, count=20)
    assert tenant.watch is not None
    tenant.watch.observe([(1, i % 2, i % 2 == 0, NOW + i) for i in range(200)])
    assert tenant.watch.alerts
    return tenant


def names(seeing: Observer) -> list[str]:
    return [figures.name for figures in seeing.figures()]


def test_the_first_tenants_to_be_met_are_listed_whichever_changes() -> None:
    tenants = [tenant_of(f"t{i}", number=i, count=10) for i in range(5)]
    seeing, now = observer(
        partition_of(*tenants[:3]), partition_of(*(tenant_of("p", count=10), tenants[4]), number=1), cap=3
    )
    first = names(seeing)
    assert first == ["t0", "p", "t1"]
    now[0] = status_with(
        *(partition_of(*(t.clone() for t in reversed(p.tenants.values())), number=p.number) for p in now[0].held)
    )
    assert names(seeing) == first


def test_what_is_beyond_the_cap_is_added_up() -> None:
    tenants = [tenant_of(f"t{i}", number=i, count=10 + i, unlabelled=i) for i in range(6)]
    seeing, _ = observer(partition_of(*tenants), cap=4)
    sight = seeing.sight()
    assert (sight.owned, len(sight.listed)) == (6, 4)
    assert sight.overflow is not None
    assert sight.overflow.tally == {"decisions": 10 + 4 + 4 + 10 + 5 + 5, "labels_joined": 29}
    assert sight.overflow.pending == 9
    assert sum(sight.overflow.delays) == 29
    assert observer(partition_of(*tenants), cap=6)[0].sight().overflow is None


def test_a_tenant_with_an_open_alert_is_always_listed_and_pushes_nobody_out() -> None:
    tenants = [tenant_of(f"t{i}", number=i, count=10) for i in range(4)]
    seeing, _ = observer(partition_of(*tenants, alarmed("alarmed", 9)), cap=2)
    assert names(seeing) == ["t0", "t1", "alarmed"]
    kinds = {alert.kind for alert in seeing.figures()[-1].alerts}
    assert kinds == {"tolerance", "drift"}
    assert seeing.sight().overflow is not None


def test_open_alerts_do_not_lift_the_cap_without_end() -> None:
    seeing, _ = observer(partition_of(*(alarmed(f"t{i}", i) for i in range(7))), cap=2)
    assert names(seeing) == ["t0", "t1", "t2", "t3"]


def test_a_tenant_that_calls_itself_the_others_is_one_of_them() -> None:
    impostor = tenant_of(OTHER, count=10)
    seeing, _ = observer(partition_of(impostor, tenant_of("t1", number=1, count=10)))
    assert names(seeing) == ["t1"]
    overflow = seeing.sight().overflow
    assert overflow is not None
    assert overflow.tally["decisions"] == 10


def test_tenants_of_all_partitions_are_listed_in_turn() -> None:
    many = partition_of(*(tenant_of(f"a{i}", number=i, count=5) for i in range(5)))
    few = partition_of(tenant_of("b0", count=5), number=3)
    assert [tenant.name for _, tenant in in_order([many, few])][:3] == ["a0", "b0", "a1"]


# Alerts and warnings


def test_an_alert_says_in_a_sentence_what_is_wrong() -> None:
    found = one(alarmed("acme", 0))
    assert found.tolerance == 0.05
    alert = found.alerts[0]
    assert alert.groups == ("A", "B")
    assert alert.label == "grant"
    assert alert.evidence["whole"]["labels"]
    assert "above the tolerance of 0.05" in alert.text
    assert "of A 100.0 % were decided wrongly, of B 0.0 %" in alert.text
    streams = {(s.kind, s.label): s for s in found.streams}
    assert streams["tolerance", "grant"].state == "raised"
    assert found.learning == sum(s.state == "learning" for s in found.streams if s.kind == "tolerance")


def test_constant_experts_and_one_sided_labels_are_named() -> None:
    tenant = tenant_of(count=400)
    counters = tenant.learner.state.lifetime
    counters.losses[0, 0, :, 0] = 0
    counters.losses[0, 0, :, 1] = counters.trials[0, 0, :, 1]
    counters.outcomes[..., 0] = 0
    found = one(tenant)
    assert found.constant_experts == ["e0"]
    assert found.one_sided == ["deny"]


def test_figures_become_json_with_null_for_what_is_unknown() -> None:
    text = msgspec.json.encode(one(tenant_of(groups=("A",))))
    assert msgspec.json.decode(text)["windows"][0]["gaps"]["fpr"] == {"value": None, "lower": None, "upper": None}
    assert msgspec.json.decode(msgspec.json.encode(Estimate(1.0, 0.0, float("nan")))) == {
        "value": 1.0,
        "lower": 0.0,
        "upper": None,
    }
