"""The figures are fairlearn's, to the last digits."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn import metrics as fairlearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import zero_one_loss

from processor.core import Counters, InvalidInputError, Policy, fairness, rule_of
from processor.core.metrics import rates
from processor.core.metrics.attainable import least_fair_loss, least_gap
from processor.core.metrics.bounds import delayed_regret, paper_bounds, printed_gamma
from processor.core.metrics.diagnosis import absent_experts, constant_experts, unlabelled_decisions
from producers.synthetic import one_cell_experts

from .strategies import axes, random_counters, seeds


def confusion_of(group: np.ndarray, truth: np.ndarray, decided: np.ndarray, groups: int) -> np.ndarray:
    confusion = np.zeros((groups, 2, 2), dtype=np.int64)
    np.add.at(confusion, (group, truth, decided), 1)
    return confusion


@given(seed=seeds, groups=st.integers(2, 4), count=st.integers(40, 400))
def test_rates_differences_and_ratios_equal_fairlearns(seed: int, groups: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    cells = np.array([(g, y, d) for g in range(groups) for y in range(2) for d in range(2)])
    group, truth, decided = np.concatenate([cells, rng.integers(0, [groups, 2, 2], size=(count, 3))]).T
    confusion = confusion_of(group, truth, decided, groups)
    ours = {
        "true_positive_rate": rates.true_positive_rate(confusion, 1),
        "true_negative_rate": rates.true_negative_rate(confusion, 1),
        "false_positive_rate": rates.false_positive_rate(confusion, 1),
        "false_negative_rate": rates.false_negative_rate(confusion, 1),
        "selection_rate": rates.selection_rate(confusion, 1),
    }
    for name, by_group in ours.items():
        frame = fairlearn.MetricFrame(
            metrics=getattr(fairlearn, name), y_true=truth, y_pred=decided, sensitive_features=group
        )
        assert by_group == pytest.approx(frame.by_group.to_numpy(), abs=1e-12)
        assert rates.difference(by_group) == pytest.approx(frame.difference(), abs=1e-12)
        assert rates.ratio(by_group) == pytest.approx(frame.ratio(), abs=1e-12)
    loss = fairlearn.MetricFrame(metrics=zero_one_loss, y_true=truth, y_pred=decided, sensitive_features=group)
    assert rates.zero_one_loss(confusion) == pytest.approx(loss.by_group.to_numpy(), abs=1e-12)
    assert rates.difference(rates.zero_one_loss(confusion)) == pytest.approx(loss.difference(), abs=1e-12)
    arguments = {"y_true": truth, "y_pred": decided, "sensitive_features": group}
    assert rates.equalized_odds_difference(confusion) == pytest.approx(
        fairlearn.equalized_odds_difference(**arguments), abs=1e-12
    )
    assert rates.equalized_odds_ratio(confusion, 1) == pytest.approx(
        fairlearn.equalized_odds_ratio(**arguments), abs=1e-12
    )


def test_a_cell_without_labels_is_unknown_and_left_out_of_comparisons() -> None:
    confusion = np.array([[[8, 2], [0, 0]], [[5, 5], [1, 3]], [[9, 1], [2, 2]]])
    assert np.isnan(rates.false_negative_rate(confusion, 1)[0])
    assert rates.difference(rates.false_negative_rate(confusion, 1)) == pytest.approx(0.25)
    assert np.isnan(rates.difference(rates.false_negative_rate(confusion[:2], 1)))
    assert rates.equalized_odds_difference(confusion[:2]) == pytest.approx(0.3)


def test_all_figures_of_a_policy_come_together_for_any_window() -> None:
    counters = Counters.zeros(axes(experts=2))
    counters.outcomes[0, 1] = [[[8, 2], [3, 7]], [[9, 1], [1, 9]]]
    counters.seen[0] = counters.labels[0] = [[10, 10], [10, 10]]
    counters.trials[0] = 10
    counters.losses[0] = [[[1, 2], [2, 2]], [[5, 5], [5, 5]]]
    figures = fairness(counters, policy=1)
    assert figures.error_rate == (0.25, 0.1)
    assert figures.differences_by_label == pytest.approx((0.1, 0.2))
    assert figures.equalized_odds_difference == pytest.approx(0.2)
    assert figures.regret_per_round == pytest.approx(7 / 40 - 7 / 40)
    assert figures.labels == 40


def test_the_least_gap_is_what_the_experts_themselves_impose() -> None:
    assert least_gap(one_cell_experts(2, 2)).figure == pytest.approx(0.0, abs=1e-9)
    stubborn = np.array([[[0.1, 0.2], [0.4, 0.3]], [[0.1, 0.25], [0.35, 0.3]]])
    best = least_gap(stubborn)
    assert best.figure == pytest.approx(0.25)
    assert best.shares.sum(axis=1) == pytest.approx([1, 1])


def test_the_limit_of_a_fair_mixture_is_the_designs() -> None:
    share, base = np.array([0.9, 0.1]), np.array([[0.3, 0.7], [0.7, 0.3]])
    assert least_fair_loss(one_cell_experts(2, 2), share, base).figure == pytest.approx(0.17)


def test_no_fair_mixture_is_said_with_the_least_gap() -> None:
    with pytest.raises(InvalidInputError, match=r"no mixture .* least gap is 0\.500"):
        least_fair_loss(np.array([[[0.0, 0.0], [0.5, 0.5]]]), np.array([0.5, 0.5]), np.full((2, 2), 0.5))


@pytest.mark.parametrize("bad", [np.zeros((2, 2)), np.full((1, 2, 2), 1.5), np.full((1, 2, 2), np.nan)])
def test_error_rates_that_are_none_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="numbers from 0 to 1"):
        least_gap(bad)


@given(seed=seeds)
def test_the_papers_bounds_hold_at_the_current_rule(seed: int) -> None:
    counters = random_counters(np.random.default_rng(seed), axes(), batch=1)
    rule = rule_of(Policy(), counters, ("y0", "y1"))
    bounds = paper_bounds(rule, counters)
    assert all(0 <= tight <= printed for tight, printed in zip(bounds.gap, bounds.gap_printed, strict=True))
    assert np.isfinite(bounds.regret)


def test_bounds_are_for_policies_with_instances() -> None:
    counters = random_counters(np.random.default_rng(0), axes(), batch=1)
    for policy in (Policy(objective="mixture"), Policy(policy="mw")):
        with pytest.raises(InvalidInputError, match="instances"):
            paper_bounds(rule_of(policy, counters, ("y0", "y1")), counters)


def test_arguments_without_a_bound_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"eta is 0\.7"):
        printed_gamma(0.7)
    with pytest.raises(InvalidInputError, match="positive rate"):
        delayed_regret(4, 0.0, 10, 10)


def test_an_expert_that_always_says_the_same_is_found() -> None:
    counters = Counters.zeros(axes())
    counters.trials[0] = 40
    counters.losses[0, 0] = [[0, 40], [0, 40]]
    counters.losses[0, 1] = 10
    assert constant_experts(counters, axes()) == [("f0", "y0")]


def test_an_expert_that_nearly_always_says_the_same_is_found() -> None:
    counters = Counters.zeros(axes())
    counters.trials[0] = 1_000
    counters.losses[0, 0] = [[15, 985], [15, 985]]
    counters.losses[0, 1] = [[50, 950], [50, 950]]
    assert constant_experts(counters, axes()) == [("f0", "y0")]


def test_an_expert_that_is_often_absent_is_found() -> None:
    counters = Counters.zeros(axes())
    counters.labels[0] = counters.trials[0] = 100
    counters.trials[0, 1, 1] = 79
    assert absent_experts(counters, axes()) == ["f1"]


def test_a_group_of_few_labels_says_nothing_about_who_is_absent() -> None:
    counters = Counters.zeros(axes())
    counters.labels[0] = counters.trials[0] = 100
    counters.labels[0, 1], counters.trials[0, :, 1] = 10, 0
    assert absent_experts(counters, axes()) == []


def test_one_right_word_does_not_make_the_best_expert() -> None:
    counters = Counters.zeros(axes())
    counters.seen[0] = counters.labels[0] = 1_000
    counters.trials[0, :2], counters.losses[0, :2] = 1_000, 200
    counters.outcomes[0, 0] = [[800, 200], [200, 800]]
    before = float(rates.regret_per_round(counters, 0)[0])
    counters.trials[0, 2, 0, 0] = 1
    assert before == 0.0
    assert 0.0 < float(rates.regret_per_round(counters, 0)[0]) < 0.02


def test_decisions_that_never_get_labels_are_found() -> None:
    counters = Counters.zeros(axes())
    counters.decisions[0] = [[100, 100], [100, 100]]
    counters.outcomes[0, 0, :, :, 1] = 20
    assert unlabelled_decisions(counters, axes(), policy=0) == ["y0"]
    counters.outcomes[0, 0, 0, 0, 0] = 1
    assert unlabelled_decisions(counters, axes(), policy=0) == []


def test_under_auto_each_instance_pays_for_its_own_rate() -> None:
    counters = Counters.zeros(axes(experts=2))
    counters.labels[0] = counters.seen[0] = counters.trials[0] = [[100_000, 100_000], [2, 100_000]]
    counters.losses[0] = counters.trials[0] // 10
    bound = paper_bounds(rule_of(Policy(eta="auto"), counters, ("y0", "y1")), counters).regret
    seen_often = np.log(2) / np.sqrt(8 * np.log(2) / 100_000)
    assert bound > 3 * seen_often
