"""Rates and gaps with their confidence sequences, from counts of outcomes, for many windows and tenants at once.

Axes of the arrays, always in this order: w window, b tenant, p policy, g group, y true label, ŷ decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from processor.core import IN_FORCE
from processor.core.exact import Floats, Ints
from processor.core.metrics.confidence import gap_interval, interval
from processor.core.metrics.rates import (
    difference,
    equalized_odds_difference,
    false_negative_rate,
    false_positive_rate,
    outcomes_of_all,
    rate_by_label,
    zero_one_loss,
)
from processor.core.stream.tenant import Tenant

from .figures import EQUALIZED_ODDS, ERROR_RATE, FNR, FPR, CellRate, Estimate, WindowFigures

ALPHA = 0.05
"""One minus the coverage of every confidence sequence."""

Span = tuple[str, int]
"""The name of a window, and when it began (milliseconds)."""


def window_figures(
    tenants: Sequence[Tenant], outcomes: Ints, seen: Ints, spans: Sequence[Sequence[Span]]
) -> list[list[WindowFigures]]:
    """[w][b] from ``outcomes[w, b, p, g, y, ŷ]``, ``seen[w, b, g, y]`` and ``spans[b][w]``.

    The tenants must be alike in labels, policies, number of groups, and unit of their counters.
    """
    state = tenants[0].learner.state
    positive = positive_index(tenants[0])
    force = state.axes.policy_index[IN_FORCE]
    outcomes = outcomes_of_all(outcomes, seen, state.unit, tenants[0].learner.hidden)
    gaps = {metric: gap.tolist() for metric, gap in gaps_of(outcomes, positive).items()}
    bands = _Bands.of(outcomes[:, :, force], positive, weighted=state.unit != 1)
    rates = rate_by_label(outcomes[:, :, force]).tolist()
    losses = zero_one_loss(outcomes[:, :, force]).tolist()
    counts = seen.tolist()

    def one(w: int, b: int) -> WindowFigures:
        axes = tenants[b].learner.state.axes
        name, since = spans[b][w]
        low, high = bands.cells[0][w][b], bands.cells[1][w][b]
        return WindowFigures(
            window=name,
            since=since,
            labels=sum(map(sum, counts[w][b])),
            gaps={
                metric: Estimate(gap[w][b][force], bands.gaps[metric][0][w][b], bands.gaps[metric][1][w][b])
                for metric, gap in gaps.items()
            },
            rates=[
                CellRate(group, label, counts[w][b][g][y], Estimate(rates[w][b][g][y], low[g][y], high[g][y]))
                for g, group in enumerate(axes.groups)
                for y, label in enumerate(axes.labels)
            ],
            group_error={
                group: Estimate(losses[w][b][g], bands.groups[0][w][b][g], bands.groups[1][w][b][g])
                for g, group in enumerate(axes.groups)
            },
            shadows={
                shadow.name: {metric: gap[w][b][axes.policy_index[shadow.name]] for metric, gap in gaps.items()}
                for shadow in tenants[b].rules.settings.shadows
            },
        )

    return [[one(w, b) for b in range(len(tenants))] for w in range(len(outcomes))]


def positive_index(tenant: Tenant) -> int | None:
    """Where false positives and negatives have a meaning: two labels, one of them positive."""
    axes, positive = tenant.learner.state.axes, tenant.rules.settings.positive
    return axes.label_index[positive] if positive is not None and len(axes.labels) == 2 else None


def gaps_of(outcomes: Ints, positive: int | None) -> dict[str, Floats]:
    """By metric, over whatever axes come before [g, y, ŷ]."""
    found = {}
    if positive is not None:
        found[FPR] = difference(false_positive_rate(outcomes, positive))
        found[FNR] = difference(false_negative_rate(outcomes, positive))
    found[ERROR_RATE] = difference(zero_one_loss(outcomes))
    found[EQUALIZED_ODDS] = equalized_odds_difference(outcomes)
    return found


Band = tuple[list, list]  # type: ignore[type-arg]  # lower and upper ends, nested as deep as their axes


@dataclass(frozen=True)
class _Bands:
    """Ends of the confidence sequences: of cells [w][b][g][y], groups [w][b][g], gaps [w][b] by metric."""

    cells: Band
    groups: Band
    gaps: dict[str, Band]

    @classmethod
    def of(cls, confusion: Ints, positive: int | None, weighted: bool) -> _Bands:
        """``confusion`` is [w, b, g, y, ŷ]. Weighted counts are no counts of trials: they have no band."""
        trials = confusion.sum(axis=-1)
        errors = trials - np.diagonal(confusion, axis1=-2, axis2=-1)
        group_trials, group_errors = trials.sum(axis=-1), errors.sum(axis=-1)
        if weighted:
            trials, group_trials = np.zeros_like(trials), np.zeros_like(group_trials)
            errors, group_errors = np.zeros_like(errors), np.zeros_like(group_errors)
        wrong, tried = np.swapaxes(errors, -1, -2), np.swapaxes(trials, -1, -2)  # by label, then by group
        gaps = {ERROR_RATE: gap_interval(group_errors[..., None, :], group_trials[..., None, :], ALPHA)}
        gaps[EQUALIZED_ODDS] = gap_interval(wrong, tried, ALPHA)
        if positive is not None:
            for metric, label in ((FPR, 1 - positive), (FNR, positive)):
                gaps[metric] = gap_interval(wrong[..., [label], :], tried[..., [label], :], ALPHA)
        return cls(
            _lists(_interval(errors, trials, ALPHA)),
            _lists(_interval(group_errors, group_trials, ALPHA)),
            {metric: _lists(band) for metric, band in gaps.items()},
        )


def _lists(band: tuple[Floats, Floats]) -> Band:
    return band[0].tolist(), band[1].tolist()


def _interval(errors: Ints, trials: Ints, alpha: float) -> tuple[Floats, Floats]:
    """NaN where nothing was tried."""
    lower, upper = interval(errors, trials, alpha)
    return np.where(trials > 0, lower, np.nan), np.where(trials > 0, upper, np.nan)
