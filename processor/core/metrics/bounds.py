"""The paper's guarantees, evaluated at the current selection rule, and that for delayed labels.

They are worst-case statements and loose: show them beside the measured figures, not instead of them. Two
readings of γ are given, the printed one and γ = 1, which holds for 0/1 losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import isfinite, log, log1p

import numpy as np

from processor.core.errors import InvalidInputError
from processor.core.exact import Floats
from processor.core.learner.counters import Counters
from processor.core.learner.estimates import cross_instance, estimate, weights
from processor.core.learner.rule import Rule
from processor.core.settings import Prior


@dataclass(frozen=True)
class Bounds:
    """For one learner. ``gap`` has one bound per true label, worst pair of groups."""

    regret: float
    """cumulative, against the best expert of each (group, label) cell"""
    gap_printed: tuple[float, ...]
    """with the paper's γ(η)"""
    gap: tuple[float, ...]
    """with γ = 1"""


def printed_gamma(eta: float) -> float:
    """γ(η) = ln(1 − η) / ln(1 − η(1 + η)).

    >>> round(printed_gamma(0.35), 3)
    0.674
    """
    if not 0.0 < eta < 0.5:
        raise InvalidInputError(f"eta is {eta}: γ(η) is defined for 0 < η < 0.5")
    return log1p(-eta) / log1p(-eta * (1.0 + eta))


def paper_bounds(rule: Rule, counters: Counters, prior: Prior = Prior(), learner: int = 0) -> Bounds:
    """Bounds at the current q; the rule must have instances (objectives gap, bound, paper)."""
    if rule.shares is not None or rule.selection.shape[2] != counters.labels.shape[2]:
        raise InvalidInputError(
            "the paper's bounds speak of instances, which only policy gforce with objective gap, bound "
            "or paper has: ask for the bounds of such a policy"
        )
    if rule.exponents.shape[3] != counters.shape.experts or rule.selection.shape[:2] != counters.labels.shape[:2]:
        raise InvalidInputError(
            f"a rule for {rule.exponents.shape[3]} experts does not go with counters of {counters.shape.experts}, or "
            "groups or learners differ: use the rule of these counters"
        )
    estimates = estimate(counters, prior)
    experts = rule.exponents.shape[3]
    pi = weights(rule.exponents, rule.keep)
    cross = cross_instance(pi, estimates.error)[learner]
    kinds = cross.shape[2]
    error = estimates.error[learner]
    labels = estimates.labels[learner]
    eta = float(1.0 - rule.keep[learner].min())
    right = cross[:, np.arange(kinds), np.arange(kinds)]
    extra = np.einsum("gk,gky->gy", rule.selection[learner], cross - right[:, None, :])

    of_instance = 1.0 - rule.keep[learner]
    learning = of_instance * labels * error.min(axis=0) + log(max(experts, 2)) / of_instance
    regret = float((learning + labels * extra).sum())
    printed, tight = (
        tuple(_gap_bound(eta, gamma, error[:, :, y], extra[:, y]) for y in range(kinds))
        for gamma in (printed_gamma(min(eta, 0.499)), 1.0)
    )
    return Bounds(regret, printed, tight)


def _gap_bound(eta: float, gamma: float, error: Floats, extra: Floats) -> float:
    """(1 + η − γ) rate* + ε (1 + η) + |Q| for the worst pair; ``error`` is [f, g], ``extra`` [g]."""
    worst = 0.0
    for a, b in combinations(range(error.shape[1]), 2):
        best_rate = float(error[:, [a, b]].min())
        epsilon = float(np.abs(error[:, a] - error[:, b]).max())
        bound = (1.0 + eta - gamma) * best_rate + epsilon * (1.0 + eta) + abs(float(extra[a] - extra[b]))
        worst = max(worst, bound)
    return worst


def delayed_regret(experts: int, rate: float, rounds: int, total_delay: int) -> float:
    """Regret ≤ ln d / β + β (T/8 + D): what labels that are D rounds late in all can cost at most.

    >>> round(delayed_regret(4, 0.05, rounds=10_000, total_delay=0), 1)
    90.2
    """
    if not rate > 0.0 or not isfinite(rate) or experts < 1 or rounds < 0 or total_delay < 0:
        raise InvalidInputError(
            f"the bound needs a positive rate, an expert, and no negative counts; got rate {rate}, experts "
            f"{experts}, rounds {rounds}, total_delay {total_delay}"
        )
    return log(max(experts, 2)) / rate + rate * (rounds / 8.0 + total_delay)
