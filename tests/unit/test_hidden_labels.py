"""Labels of positive decisions only: the figures are those of all cases, also of the refused ones."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from processor.core import IN_FORCE, InvalidInputError, Learner, Policy, Request, Settings, fairness
from processor.core.metrics.rates import Hidden, outcomes_of_all, rate_by_label
from processor.experiments.scores import cell_means
from processor.experiments.simulate import PositiveOnly, run_draws, simulate
from processor.experiments.stress import skewed_experts
from processor.telemetry.measuring import TenantSnapshot, measured

from .observed import NOW, binary, settings_for, tenant_of

LABELS = ("deny", "grant")
ROUNDS = 2_000


@pytest.fixture(scope="module")
def lender() -> Learner:
    """A learner that has seen the labels of granted cases only."""
    cases = skewed_experts().draw(np.random.default_rng(8), 1, ROUNDS)
    shadows = (Policy(policy="groupaware"),)
    settings = Settings(labels=LABELS, positive="grant", shadows=shadows, feedback="positive-only", explore=0.05)
    learner = Learner(settings, b"sixteen bytes ok")
    groups, labels = cases.group[0].tolist(), cases.label[0].tolist()
    advice = [{f"e{f}": LABELS[said] for f, said in enumerate(each)} for each in cases.predictions[0].tolist()]
    for start in range(0, ROUNDS, 100):
        some = range(start, start + 100)
        made = learner.decide_batch([Request(f"case-{t}", "AB"[groups[t]], advice[t]) for t in some])
        learner.learn_batch([(d, LABELS[labels[t]]) for d, t in zip(made, some, strict=True) if d.label == "grant"])
    return learner


def test_rates_are_right_on_average_although_much_of_the_truth_is_never_seen() -> None:
    runs, rounds = 60, 3_000
    cases = skewed_experts().draw(np.random.default_rng(9), runs, rounds)
    run = simulate(cases, Policy(), run_draws(3, range(runs), rounds), positive_only=PositiveOnly(explore=0.05))
    counters, hidden = run.counters, Hidden(in_force=0, positive=1)
    everything = outcomes_of_all(counters.outcomes, counters.seen, counters.unit, hidden)
    estimated = rate_by_label(everything[:, 0]).mean(axis=0)
    truth = cell_means(cases, (run.decided != cases.label).astype(float)).mean(axis=0)
    assert estimated == pytest.approx(truth, abs=0.02)
    assert truth.min() > 0.1
    assert truth.max() < 0.9
    as_seen = rate_by_label(counters.outcomes[:, 0]).mean(axis=0)
    assert as_seen.tolist() == [[1, 0], [1, 0]]  # the failure this is about


def test_a_learner_says_what_its_counters_say(lender: Learner) -> None:
    found, counters = lender.fairness(), lender.counters()
    granted = counters.unit * counters.seen[0] / counters.labels[0]
    assert np.array(found.error_rate_by_label) == pytest.approx(np.stack([granted[:, 0], 1 - granted[:, 1]], axis=1))
    assert found.labels == counters.seen.sum() < ROUNDS


def test_a_shadow_has_no_figures_because_its_draws_decide_what_is_seen(lender: Learner) -> None:
    figures = lender.fairness("groupaware")
    assert np.isnan(np.hstack([np.ravel(part) for part in astuple(figures)][:-1])).all()


def test_counted_as_they_are_such_counters_give_no_figures(lender: Learner) -> None:
    with pytest.raises(InvalidInputError, match=r"positive decisions only.* use Learner\.fairness"):
        fairness(lender.counters(), lender.state.axes.policy_index[IN_FORCE])


def test_the_gauges_of_a_tenant_say_the_same() -> None:
    rules = settings_for(binary(feedback="positive-only", explore=0.1))
    tenant = tenant_of(rules=rules)
    shown, figures = measured([TenantSnapshot.of(0, tenant, NOW)])[0], tenant.learner.fairness()
    lifetime = shown.windows[0]
    rates = [rate for group in figures.error_rate_by_label for rate in group]
    assert [cell.rate.value for cell in lifetime.rates] == rates
    assert any(0 < rate < 1 for rate in rates)
    assert lifetime.gaps["fpr"].value == figures.differences_by_label[0]
    assert shown.regret == figures.regret_per_round
    assert all(np.isnan(gap) for by_metric in lifetime.shadows.values() for gap in by_metric.values())
