"""Many streams of the watching at once: the arithmetic of ``core.watching.bets``, operation for operation, on arrays.

It exists to measure: thousands of streams of ten thousands of pairs. That it gives the same bits is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from processor.core.alerts.alerts import MonitorSettings
from processor.core.alerts.sequential_tests import LARGEST, RATES
from processor.core.exact import Floats, Ints, Mask

BLOCK = 200
"""Pairs drawn at a time."""


@dataclass(frozen=True)
class Pairs:
    """Successive pairs of many streams; everything is [pair, stream]."""

    n_a: Ints
    err_a: Ints
    n_b: Ints
    err_b: Ints

    @property
    def x(self) -> Floats:
        difference: Floats = self.err_a / self.n_a - self.err_b / self.n_b
        return difference


def draw_pairs(
    rng: np.random.Generator, streams: int, pairs: int, share: float, rate_a: float, rate_b: float
) -> Iterator[Pairs]:
    """Labels of A (a share of all) and B in random order, cut into pairs.

    A pair is a run of labels of one group, ended by the first of the other.
    """
    for start in range(0, pairs, BLOCK):
        shape = (min(BLOCK, pairs - start), streams)
        begins_with_a = rng.random(shape) < share
        n_a = np.where(begins_with_a, rng.geometric(1.0 - share, shape), 1)
        n_b = np.where(begins_with_a, 1, rng.geometric(share, shape))
        yield Pairs(n_a, rng.binomial(n_a, rate_a), n_b, rng.binomial(n_b, rate_b))


@dataclass(frozen=True)
class Events:
    """Which streams raised or cleared something at a pair."""

    tolerance: Mask
    drift: Mask
    cleared: Mask


class Streams:
    """The tests of ``Stream`` for many streams; nobody acknowledges anything here."""

    def __init__(self, settings: MonitorSettings, streams: int, share: float | None = None) -> None:
        self.pairs = 0
        self.tolerance, self.drift, self.recovery = (np.zeros((2, len(RATES), streams)) for _ in range(3))
        self.tolerance_wealth, self.drift_wealth = np.ones(streams), np.zeros(streams)
        self.tolerance_raised, self.drift_raised = np.zeros(streams, bool), np.zeros(streams, bool)
        self.limit = 1.0 / settings.alpha if share is None else share
        self.level, self.clear = float(settings.false_alarm_pairs), float(settings.clear)
        self._gap, self._spread = settings.tolerance, 1.0 + settings.tolerance
        self._rates = np.array(RATES)[:, None]

    def pair(self, x: Floats) -> Events:
        """Take one pair of every stream."""
        self.pairs += 1
        n = self.pairs
        outcome = np.stack([(x - self._gap) / self._spread, (-x - self._gap) / self._spread])[:, None, :]
        bets = 1.0 + self._rates * outcome
        stake = 1.0 / (n * (n + 1))
        tolerance = (self.tolerance + stake) * bets
        self.tolerance = np.where(self.tolerance_raised, self.tolerance, tolerance)
        wealth = _mean(self.tolerance.reshape(-1, len(x))) + 1.0 / (n + 1)
        self.tolerance_wealth = np.where(self.tolerance_raised, self.tolerance_wealth, wealth)
        raised_before = self.drift_raised.copy()
        self.drift = np.where(raised_before, self.drift, (self.drift + 1.0) * bets)
        self.drift_wealth = _mean(self.drift.reshape(-1, len(x)))
        cleared = self._recover(outcome, raised_before)
        exceeds = ~self.tolerance_raised & (self.tolerance_wealth >= self.limit)
        drifted = ~raised_before & (self.drift_wealth >= self.level)
        self.tolerance_raised |= exceeds
        self.drift_raised |= drifted
        self.recovery[:, :, drifted] = 0.0
        self.forget_drift(cleared)
        return Events(exceeds, drifted, cleared)

    def forget_drift(self, streams: Mask) -> None:
        """Begin the drift detector of these streams as at first."""
        if streams.any():
            self.drift_raised[streams] = False
            self.drift[:, :, streams] = 0.0
            self.drift_wealth[streams] = 0.0

    def _recover(self, outcome: Floats, raised: Mask) -> Mask:
        cleared = np.zeros(raised.shape, bool)
        if raised.any():
            bets = 1.0 + self._rates * -outcome[:, :, raised]
            recovery = np.minimum((self.recovery[:, :, raised] + 1.0) * bets, LARGEST)
            self.recovery[:, :, raised] = recovery
            cleared[raised] = (_mean(recovery[0]) >= self.clear) & (_mean(recovery[1]) >= self.clear)
        return cleared


def _mean(wealths: Floats) -> Floats:
    """Over the first axis, from the first to the last."""
    total = np.zeros(wealths.shape[1])
    for wealth in wealths:
        total = total + wealth
    return total / len(wealths)


class ZTest:
    """What one would do without thinking: the textbook test of "the rates differ by more than ε" at every pair."""

    def __init__(self, tolerance: float, streams: int, quantile: float = 1.6448536269514722, enough: int = 50) -> None:
        self.raised = np.zeros(streams, bool)
        self._counts = np.zeros((4, streams))
        self._tolerance, self._quantile, self._enough = tolerance, quantile, enough

    def take(self, pairs: Pairs) -> None:
        added = np.stack([pairs.n_a, pairs.err_a, pairs.n_b, pairs.err_b]).astype(np.float64)
        n_a, err_a, n_b, err_b = self._counts[:, None, :] + np.cumsum(added, axis=1)
        self._counts = np.stack([n_a[-1], err_a[-1], n_b[-1], err_b[-1]])
        rate_a, rate_b = err_a / n_a, err_b / n_b
        error = np.sqrt(rate_a * (1.0 - rate_a) / n_a + rate_b * (1.0 - rate_b) / n_b)
        exceeds = np.abs(rate_a - rate_b) - self._tolerance > self._quantile * error
        self.raised |= np.any(exceeds & (n_a >= self._enough) & (n_b >= self._enough), axis=0)
