"""What is derived from the counters at the moment it is needed, and never stored.

Axes of the arrays, always in this order: b learner, g group, k instance, f expert, y true label.
An *instance* (g, k) is one set of weights over the experts, learnt from group g's cases of true label k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from processor.core.exact import LN2, Floats, Ints, Mask, exp_minus, ln_of, ordered_sum, power
from processor.core.learner.counters import Counters
from processor.core.settings import Prior


@dataclass(frozen=True)
class Estimates:
    """Point estimates from the counters of a batch of learners."""

    exponents: Ints
    """[b, g, k, f] rounded number of losses, the exponent of each weight"""
    error: Floats
    """[b, f, g, y] error rate of each expert"""
    labels: Floats
    """[b, g, y] labels, in ones"""
    group_share: Floats
    """[b, g] p"""
    base_rate: Floats
    """[b, g, y] μ"""

    @cached_property
    def without_instances(self) -> tuple[Ints, Floats]:
        """[b, g, 1, f] exponents and [b, g, 1] labels of each group, whatever the true label."""
        return self.exponents.sum(axis=2, keepdims=True), ordered_sum(self.labels, axis=2)[:, :, None]


def estimate(counters: Counters, prior: Prior) -> Estimates:
    labels = _in_ones(counters.labels, counters.unit)
    trials = _in_ones(counters.trials, counters.unit)
    losses = _in_ones(counters.losses, counters.unit)
    arrivals = counters.arrivals.astype(np.float64)
    return Estimates(
        exponents=_exponents(labels, trials, losses, prior.abstain),
        error=_error_rates(trials, losses, prior.error),
        labels=labels,
        group_share=_dirichlet(arrivals, prior.group),
        base_rate=_dirichlet(labels, prior.label),
    )


def _in_ones(counts: Ints, unit: int) -> Floats:
    return counts.astype(np.float64) / float(unit)


def _dirichlet(counts: Floats, strength: float) -> Floats:
    smoothed = counts + strength
    return smoothed / ordered_sum(smoothed, axis=-1)[..., None]


def _mean_over_known(values: Floats, known: Mask, default: float) -> Floats:
    """The mean over the experts (axis 1) that have trials; ``default`` where nobody has."""
    total = ordered_sum(np.where(known, values, 0.0), axis=1)
    count = known.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), default)[:, None]


def _error_rates(trials: Floats, losses: Floats, strength: float) -> Floats:
    known = trials > 0
    smoothed = (losses + strength / 2.0) / (trials + strength)
    if known.all():
        return smoothed
    return np.where(known, smoothed, _mean_over_known(smoothed, known, default=0.5))


def _exponents(labels: Floats, trials: Floats, losses: Floats, pull: float) -> Ints:
    """An expert's losses, had it predicted for every label; drawn to the mean where it did not."""
    every = labels[:, None]
    always = trials == every
    expected = losses
    if not always.all():
        known = trials > 0
        rate = losses / np.where(known, trials, 1.0)
        mean = _mean_over_known(rate, known, default=0.0)
        expected = np.where(always, losses, every * ((losses + pull * mean) / (trials + pull)))
    return np.rint(expected).astype(np.int64).transpose(0, 2, 3, 1)


def keep_rate(eta: float | Literal["auto"], labels: Floats, experts: int) -> Floats:
    """1 − η of each instance: what one loss leaves of a weight. ``labels`` is [b, g, k]."""
    if eta != "auto":
        return np.full(labels.shape, 1.0 - eta)
    beta = np.sqrt(8.0 * ln_of(max(experts, 2)) / np.maximum(labels, 1.0))
    rate = 1.0 - exp_minus(np.minimum(beta, LN2))
    return 1.0 - np.rint(rate * 65536.0) / 65536.0


def weights(exponents: Ints, keep: Floats, present: Mask | None = None) -> Floats:
    """Normalised weights π over the last axis, among the experts present; None is everyone.

    The smallest exponent *among those present* is subtracted first: relative to an absent best expert all
    weights could underflow to 0/0.
    """
    if present is None:
        raw = power(keep[..., None], exponents - exponents.min(axis=-1, keepdims=True))
    else:
        lowest = np.where(present, exponents, np.iinfo(np.int64).max).min(axis=-1, keepdims=True)
        raw = np.where(present, power(keep[..., None], np.where(present, exponents - lowest, 0)), 0.0)
    return raw / ordered_sum(raw, axis=-1)[..., None]


def cross_instance(pi: Floats, error: Floats) -> Floats:
    """c[b, g, k, y]: the expected error on true label y when instance (g, k) is used.

    ``pi`` is [b, g, k, f], ``error`` [b, f, g, y].
    """
    total = np.zeros((*pi.shape[:3], error.shape[3]))
    for f in range(pi.shape[3]):
        total += pi[:, :, :, f, None] * error[:, f, :, None, :]
    return total
