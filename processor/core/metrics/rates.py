"""Fairness figures from the counters, under the names and with the values of fairlearn.

A *confusion* is ``outcomes[…, g, y, ŷ]``: joined labels by group, true label and decision, for any policy and any
window. Rates that nothing has been seen for are NaN, and comparisons leave such groups out: no data is not the
same as no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processor.core.errors import InvalidInputError
from processor.core.exact import Floats, Ints
from processor.core.learner.counters import Counters
from processor.core.settings import Prior

Confusion = npt.NDArray[np.generic]


class Hidden(NamedTuple):
    """Labels come only for cases that the policy in force decided positively: the indices of both."""

    in_force: int
    positive: int


def outcomes_of_all(outcomes: Ints, seen: Ints, unit: int, hidden: Hidden | None) -> Ints:
    """``outcomes[…, p, g, y, ŷ]`` of all cases, also of those whose label is hidden.

    Of hidden labels none was decided negatively, so that every rate would read 1 or 0 and every gap 0. But the weights
    say how many cases there are: ``seen`` of them were decided positively, the rest was not. Shadows have no such
    figures, because what they would have decided goes by the same draws as whether the label is seen.
    """
    if unit == 1:
        return outcomes
    if hidden is None:
        raise InvalidInputError(
            "these counters are of labels for positive decisions only, and counted as they are they show no gap "
            "whatever the truth is: use Learner.fairness, or say which label and policy that is (Hidden)"
        )
    cases = outcomes[..., hidden.in_force, :, :, :].sum(axis=-1)
    found = np.zeros_like(outcomes)
    found[..., hidden.in_force, :, :, hidden.positive] = unit * seen
    found[..., hidden.in_force, :, :, 1 - hidden.positive] = cases - unit * seen
    return found


def rate_by_label(confusion: Confusion) -> Floats:
    """[…, g, y]: how often a case of group g and true label y was decided wrongly."""
    counts = np.asarray(confusion, dtype=np.float64)
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    total = counts.sum(axis=-1)
    return _divide(total - right, total)


def _binary(confusion: Confusion, positive: int) -> Floats:
    """The rates by label, where one of two is the positive."""
    if np.shape(confusion)[-2:] != (2, 2) or positive not in (0, 1):
        raise InvalidInputError(
            f"positives and negatives are of two labels, and here positive is {positive} and the shape "
            f"{np.shape(confusion)}: give counts [group, truth, decision] of two labels, or use rate_by_label"
        )
    return rate_by_label(confusion)


def false_positive_rate(confusion: Confusion, positive: int) -> Floats:
    """[…, g]: negatives decided positive (binary)."""
    return _binary(confusion, positive)[..., 1 - positive]


def false_negative_rate(confusion: Confusion, positive: int) -> Floats:
    """[…, g]: positives decided negative (binary)."""
    return _binary(confusion, positive)[..., positive]


def true_positive_rate(confusion: Confusion, positive: int) -> Floats:
    return 1.0 - false_negative_rate(confusion, positive)


def true_negative_rate(confusion: Confusion, positive: int) -> Floats:
    return 1.0 - false_positive_rate(confusion, positive)


def zero_one_loss(confusion: Confusion) -> Floats:
    """[…, g]: the error rate."""
    counts = np.asarray(confusion, dtype=np.float64)
    total = counts.sum(axis=(-2, -1))
    return _divide(total - np.trace(counts, axis1=-2, axis2=-1), total)


def selection_rate(confusion: Confusion, positive: int) -> Floats:
    """[…, g]: share of cases with a label that were decided positive."""
    counts = np.asarray(confusion, dtype=np.float64)
    return _divide(counts[..., positive].sum(axis=-1), counts.sum(axis=(-2, -1)))


def difference(by_group: Floats) -> Floats:
    """The largest minus the smallest rate over the groups (last axis): the worst pair.

    >>> float(difference(np.array([0.25, 0.5, np.nan])))
    0.25
    """
    return _comparable(by_group, _largest(by_group) - _smallest(by_group))


def ratio(by_group: Floats) -> Floats:
    """The smallest over the largest rate; NaN where all are 0, as in fairlearn."""
    return _comparable(by_group, _divide(_smallest(by_group), _largest(by_group)))


def equalized_odds_difference(confusion: Confusion) -> Floats:
    """The worst difference between two groups on any true label."""
    by_label = np.swapaxes(rate_by_label(confusion), -1, -2)
    return _largest(difference(by_label))


def equalized_odds_ratio(confusion: Confusion, positive: int) -> Floats:
    """The worse of the ratios of true and of false positive rates (binary)."""
    ratios = [ratio(rate(confusion, positive)) for rate in (true_positive_rate, false_positive_rate)]
    return _smallest(np.stack(ratios, axis=-1))


def regret_per_round(counters: Counters, policy: int, hidden: Hidden | None = None) -> Floats:
    """[b]: the policy's error rate minus that of the best single expert in hindsight.

    An expert that did not advise on every case is drawn to the experts' mean, as where its weight is found: one right
    word does not make the best expert.
    """
    outcomes = _outcomes(counters, policy, hidden).astype(np.float64)
    total = outcomes.sum(axis=(1, 2, 3))
    right = np.trace(outcomes, axis1=2, axis2=3).sum(axis=1)
    tried = counters.trials.sum(axis=(2, 3)).astype(np.float64)
    lost = counters.losses.sum(axis=(2, 3)).astype(np.float64)
    mean = _divide(lost.sum(axis=1), tried.sum(axis=1))[:, None]
    always = tried == counters.labels.sum(axis=(1, 2))[:, None]
    weight = np.where(always | (tried == 0), 0.0, Prior().abstain * counters.unit)
    return _divide(total - right, total) - _smallest(_divide(lost + weight * mean, tried + weight))


@dataclass(frozen=True)
class Fairness:
    """The figures of one policy in one window, for one learner."""

    error_rate: tuple[float, ...]
    """per group"""
    error_rate_by_label: tuple[tuple[float, ...], ...]
    """per group and true label"""
    differences_by_label: tuple[float, ...]
    """worst pair of groups, per true label (the order is that of the axes: sorted by name). Of two labels that of the
    negative one is the FPR difference, that of the positive one the FNR difference."""
    ratios_by_label: tuple[float, ...]
    zero_one_loss_difference: float
    zero_one_loss_ratio: float
    equalized_odds_difference: float
    regret_per_round: float
    labels: int


def fairness(counters: Counters, policy: int, learner: int = 0, hidden: Hidden | None = None) -> Fairness:
    """All figures at once; index ``policy`` and ``learner`` into the counters' axes."""
    if not 0 <= learner < len(counters.flat):
        raise InvalidInputError(f"learner is {learner!r} and there are {len(counters.flat)}: use an index from 0 up")
    confusion = _outcomes(counters, policy, hidden)[learner]
    by_label = rate_by_label(confusion)
    loss = zero_one_loss(confusion)
    return Fairness(
        error_rate=tuple(loss.tolist()),
        error_rate_by_label=tuple(map(tuple, by_label.tolist())),
        differences_by_label=tuple(difference(by_label.T).tolist()),
        ratios_by_label=tuple(ratio(by_label.T).tolist()),
        zero_one_loss_difference=float(difference(loss)),
        zero_one_loss_ratio=float(ratio(loss)),
        equalized_odds_difference=float(equalized_odds_difference(confusion)),
        regret_per_round=float(regret_per_round(counters, policy, hidden)[learner]),
        labels=int(counters.seen[learner].sum()),
    )


def _outcomes(counters: Counters, policy: int, hidden: Hidden | None) -> Ints:
    """[b, g, y, ŷ]"""
    policies = counters.shape.policies
    if isinstance(policy, str) or not 0 <= policy < policies:
        raise InvalidInputError(
            f"policy is {policy!r} and there are {policies}: use an index from 0 up, as Axes.policy_index has it"
        )
    of_policy: Ints = outcomes_of_all(counters.outcomes, counters.seen, counters.unit, hidden)[:, policy]
    return of_policy


def _divide(part: Floats, whole: Floats) -> Floats:
    part, whole = np.asarray(part), np.asarray(whole)
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def _largest(values: Floats) -> Floats:
    known = np.where(np.isnan(values), -np.inf, values).max(axis=-1, initial=-np.inf)
    return np.where(np.isneginf(known), np.nan, known)


def _smallest(values: Floats) -> Floats:
    return -_largest(-values)


def _comparable(by_group: Floats, figure: Floats) -> Floats:
    """A comparison needs two groups with data."""
    return np.where((~np.isnan(by_group)).sum(axis=-1) >= 2, figure, np.nan)
