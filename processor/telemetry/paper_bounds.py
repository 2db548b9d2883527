"""The paper's guarantees (``core.figures.bounds``) for many tenants at once."""

from __future__ import annotations

from itertools import combinations
from math import log

import numpy as np

from processor.core.exact import Floats
from processor.core.learner.counters import Counters
from processor.core.learner.estimates import cross_instance, estimate, weights
from processor.core.learner.rule import Rule
from processor.core.metrics.bounds import printed_gamma
from processor.core.settings import Prior

REGRET, DELAYED, GAP, GAP_PRINTED = "regret", "delayed_regret", "gap", "gap_printed"


def bounds_of(rule: Rule, counters: Counters, prior: Prior, pending: Floats) -> dict[str, list[float]]:
    """Per learner: the regret so far, and the gap of the worst label and pair of groups with both readings of γ.

    With late labels, ``core.figures.bounds.delayed_regret`` of every instance, each of its labels taken to have come as
    many rounds late as decisions are ``pending``. The others are those of
    ``core.figures.bounds.paper_bounds`` for each learner, and so only for policies with instances.
    """
    estimates = estimate(counters, prior)
    experts = rule.exponents.shape[3]
    pi = weights(rule.exponents, rule.keep)
    cross = cross_instance(pi, estimates.error)
    eta = 1.0 - rule.keep.min(axis=(1, 2))
    right = np.diagonal(cross, axis1=2, axis2=3)
    extra = np.einsum("bgk,bgky->bgy", rule.selection, cross - right[:, :, None, :])
    of_instance = 1.0 - rule.keep
    learning = of_instance * estimates.labels * estimates.error.min(axis=1) + log(max(experts, 2)) / of_instance
    regret = (learning + estimates.labels * extra).sum(axis=(1, 2))
    printed = np.array([printed_gamma(min(float(one), 0.499)) for one in eta])
    return {
        REGRET: regret.tolist(),
        DELAYED: _delayed(-np.log(rule.keep), estimates.labels, experts, pending).tolist(),
        GAP: _gap_bound(eta, np.ones_like(eta), estimates.error, extra).tolist(),
        GAP_PRINTED: _gap_bound(eta, printed, estimates.error, extra).tolist(),
    }


def _delayed(rate: Floats, labels: Floats, experts: int, pending: Floats) -> Floats:
    """Σ ln d / β + β (n/8 + D) over the instances; ``rate`` is β and ``labels`` n, both [b, g, k]."""
    late = 0.125 + pending[:, None, None]
    bound: Floats = (log(max(experts, 2)) / rate + rate * labels * late).sum(axis=(1, 2))
    return bound


def _gap_bound(eta: Floats, gamma: Floats, error: Floats, extra: Floats) -> Floats:
    """(1 + η − γ) rate* + ε (1 + η) + |Q|, the worst over labels and pairs of groups.

    ``error`` is [b, f, g, y], ``extra`` [b, g, y].
    """
    worst = np.zeros_like(eta)
    for a, b in combinations(range(error.shape[2]), 2):
        best_rate = error[:, :, [a, b]].min(axis=(1, 2))
        epsilon = np.abs(error[:, :, a] - error[:, :, b]).max(axis=1)
        apart = np.abs(extra[:, a] - extra[:, b])
        bound = (1.0 + eta - gamma)[:, None] * best_rate + epsilon * (1.0 + eta)[:, None] + apart
        worst = np.maximum(worst, bound.max(axis=1))
    return worst
