"""From counts to figures: rates and gaps under each setting, and differences to what was recorded.

Confidence sequences are those of the gauges (``core.figures.confidence``). A difference is between outcomes of the
same cases: cases that both settings decided wrongly, or both rightly, cancel, and what is left is the share that only
the other setting got wrong minus the share that only the recorded one did. Each share has its own confidence sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec
import numpy as np

from processor.core.exact import ONE, Floats, Ints
from processor.core.metrics.confidence import gap_interval, interval
from processor.core.metrics.rates import rate_by_label
from processor.telemetry.figures import EQUALIZED_ODDS, ERROR_RATE, FNR, FPR, Estimate
from processor.telemetry.window_figures import ALPHA, gaps_of

from .outcomes import Cell, PairedCases, TenantRun
from .settings import RECORDED, SettingsChange

NOT_KNOWN = float("nan")
UNKNOWN = Estimate(NOT_KNOWN, NOT_KNOWN, NOT_KNOWN)
Standing = Literal["", "dominates", "dominated", "neither"]


class CellFigures(msgspec.Struct, frozen=True):
    """How often cases of a group and a true label were decided wrongly."""

    group: str
    label: str
    n: int
    rate: Estimate
    expected: float
    """the mean over all draws there might have been"""


class Difference(msgspec.Struct, frozen=True):
    """The other setting minus the recorded one, on cases that have a label under both."""

    cases: int
    loss: Estimate
    gap: Estimate
    """of equalized odds"""
    expected_loss: float
    expected_gap: float


class SettingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant under one setting. *Drawn* figures are what would have happened with the recorded seed; *expected*
    ones are the mean over all draws and have less noise."""

    setting: str
    change: SettingsChange | None
    policy: str
    fairness: float | None
    refused: str = ""
    decided: int
    undecided: int
    labels: int
    alerts: int
    loss: Estimate = UNKNOWN
    expected_loss: float = NOT_KNOWN
    best_expert: str = ""
    regret: float = NOT_KNOWN
    """loss beyond that of the best expert in hindsight, per label"""
    expected_regret: float = NOT_KNOWN
    gaps: dict[str, Estimate] = {}
    expected_gaps: dict[str, float] = {}
    rates: list[CellFigures] = []
    difference: Difference | None = None
    standing: Standing = ""
    """whether it is at least as good in both gap and loss (expected) and better in one, or the other way round"""
    beyond_noise: bool = False
    """the better figure is better, and the other not worse, beyond the confidence sequences of the differences"""

    @property
    def gap(self) -> float:
        return self.expected_gaps.get(EQUALIZED_ODDS, NOT_KNOWN)


class TenantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What other settings would have meant for one tenant."""

    tenant: str
    partition: int
    recorded: SettingFigures
    settings: list[SettingFigures]
    unlabelled: tuple[str, ...] = ()
    """decisions that never got a label as recorded, although the others did"""
    not_valid: str = ""
    """why the figures, as recorded and under every setting, are not valid; empty if they are"""

    @property
    def dominating(self) -> list[SettingFigures]:
        return [one for one in self.settings if one.standing == "dominates"]


def tenant_answers(runs: Sequence[TenantRun], changes: Sequence[SettingsChange]) -> list[TenantAnswer]:
    """One answer for each tenant; its settings in the order they were asked for."""
    order = {change: i for i, change in enumerate(changes)}
    recorded = {run.tenant: run for run in runs if run.change is None}
    found = []
    for tenant, base in sorted(recorded.items()):
        others = sorted(
            (run for run in runs if run.tenant == tenant and run.change is not None and _concerns(run, base)),
            key=lambda run: order[run.change],  # type: ignore[index]
        )
        mine = figures_of(base)
        settings = [_with_difference(figures_of(run), mine, run.pairs) for run in others]
        found.append(
            TenantAnswer(
                tenant=tenant,
                partition=base.partition,
                recorded=mine,
                settings=settings,
                unlabelled=base.unlabelled,
                not_valid=one_sided(base.unlabelled),
            )
        )
    return found


def one_sided(unlabelled: Sequence[str]) -> str:
    """
    >>> one_sided(["deny"])[:60]
    'no case that was decided “deny” has a label, and others have'
    """
    if not unlabelled:
        return ""
    decisions = " or ".join(f"“{label}”" for label in unlabelled)
    return (
        f"no case that was decided {decisions} has a label, and others have: error rates, gaps and losses count one "
        "side only, and another setting would have decided other cases so. If labels cannot come for such decisions, "
        'set feedback = "positive-only"; if they can, send them'
    )


def _concerns(run: TenantRun, recorded: TenantRun) -> bool:
    """Leaving out an expert that a tenant never had is no other setting for it."""
    return run.change is None or set(run.change.without) <= set(recorded.experts)


def figures_of(run: TenantRun) -> SettingFigures:
    confusion, expected = run.confusion(), run.expected()
    plain = SettingFigures(
        setting=run.change.name if run.change else RECORDED,
        change=run.change,
        policy=run.policy,
        fairness=run.fairness,
        refused=run.refused,
        decided=run.decided,
        undecided=run.undecided,
        labels=int(confusion.sum()),
        alerts=run.alerts,
    )
    if run.refused or not plain.labels:
        return plain
    positive = run.labels.index(run.positive) if run.positive in run.labels and len(run.labels) == 2 else None
    trials, errors = _trials(confusion), _errors(confusion)
    total, wrong = float(trials.sum()), float(errors.sum())
    low, high = interval(wrong, total, ALPHA)
    expected_loss = float(_errors(expected).sum() / expected.sum())
    best, least = run.best_expert()
    return msgspec.structs.replace(
        plain,
        loss=Estimate(wrong / total, float(low), float(high)),
        expected_loss=expected_loss,
        best_expert=best,
        regret=wrong / total - least,
        expected_regret=expected_loss - least,
        gaps=_gaps(confusion, positive),
        expected_gaps={metric: float(gap) for metric, gap in gaps_of(expected, positive).items()},  # type: ignore[arg-type]
        rates=_cells(run, confusion, expected),
    )


def _trials(confusion: Floats | Ints) -> Floats:
    return np.asarray(confusion.sum(axis=-1), dtype=np.float64)


def _errors(confusion: Floats | Ints) -> Floats:
    return _trials(confusion) - np.diagonal(confusion, axis1=-2, axis2=-1)


def _gaps(confusion: Ints, positive: int | None) -> dict[str, Estimate]:
    trials, errors = _trials(confusion).T, _errors(confusion).T
    cells = {
        ERROR_RATE: (errors.sum(axis=0, keepdims=True), trials.sum(axis=0, keepdims=True)),
        EQUALIZED_ODDS: (errors, trials),
    }
    if positive is not None:
        for metric, label in ((FPR, 1 - positive), (FNR, positive)):
            cells[metric] = (errors[[label]], trials[[label]])
    found = {}
    for metric, value in gaps_of(confusion, positive).items():
        low, high = gap_interval(*cells[metric], alpha=ALPHA)
        found[metric] = Estimate(float(value), float(low), float(high))
    return found


def _cells(run: TenantRun, confusion: Ints, expected: Floats) -> list[CellFigures]:
    trials, rates, means = _trials(confusion), rate_by_label(confusion), rate_by_label(expected)
    low, high = interval(_errors(confusion), trials, ALPHA)
    return [
        CellFigures(
            group,
            label,
            int(trials[g, y]),
            Estimate(float(rates[g, y]), float(low[g, y]), float(high[g, y])) if trials[g, y] else UNKNOWN,
            float(means[g, y]),
        )
        for g, group in enumerate(run.groups)
        for y, label in enumerate(run.labels)
    ]


# Differences


def _with_difference(other: SettingFigures, recorded: SettingFigures, pairs: PairedCases) -> SettingFigures:
    if other.refused or not other.labels or not recorded.labels:
        return other
    difference = Difference(
        cases=pairs.cases.total(),
        loss=loss_change(pairs),
        gap=gap_change(pairs),
        expected_loss=_expected_loss(pairs.chance_there, pairs) - _expected_loss(pairs.chance, pairs),
        expected_gap=_expected_gap(pairs.chance_there, pairs) - _expected_gap(pairs.chance, pairs),
    )
    standing = standing_of(difference.expected_gap, difference.expected_loss)
    ends = (difference.gap, difference.loss)
    sign = 1.0 if standing == "dominated" else -1.0
    better = [sign * (one.lower if sign > 0 else one.upper) > 0 for one in ends]
    worse = [(one.upper if sign > 0 else one.lower) * sign < 0 for one in ends]
    beyond = standing in ("dominates", "dominated") and any(better) and not any(worse)
    return msgspec.structs.replace(other, difference=difference, standing=standing, beyond_noise=beyond)


def standing_of(gap: float, loss: float) -> Standing:
    """
    >>> standing_of(-0.1, 0.0), standing_of(0.1, 0.2), standing_of(-0.1, 0.2), standing_of(0.0, 0.0)
    ('dominates', 'dominated', 'neither', 'neither')
    """
    if gap <= 0.0 and loss <= 0.0 and min(gap, loss) < 0.0:
        return "dominates"
    if gap >= 0.0 and loss >= 0.0 and max(gap, loss) > 0.0:
        return "dominated"
    return "neither"


def _expected_loss(chance: Mapping[Cell, int], pairs: PairedCases) -> float:
    cases = pairs.cases.total()
    return sum(chance.values()) / ONE / cases if cases else NOT_KNOWN


def _expected_gap(chance: Mapping[Cell, int], pairs: PairedCases) -> float:
    """The worst difference between two groups on any true label, of the cases both settings have a label for."""
    labels = sorted({label for _, label in pairs.cases})
    rates = {cell: chance[cell] / ONE / n for cell, n in pairs.cases.items()}
    by_label = [[rate for (_, y), rate in rates.items() if y == label] for label in labels]
    return max((max(found) - min(found) for found in by_label if len(found) > 1), default=NOT_KNOWN)


def loss_change(pairs: PairedCases, alpha: float = ALPHA) -> Estimate:
    """Of wrong decisions per label."""
    cases, more, fewer = pairs.cases.total(), pairs.only_other.total(), pairs.only_recorded.total()
    if not cases:
        return UNKNOWN
    low, high = interval([more, fewer], cases, alpha / 2)
    return Estimate((more - fewer) / cases, float(low[0] - high[1]), float(high[0] - low[1]))


def gap_change(pairs: PairedCases, alpha: float = ALPHA) -> Estimate:
    """Of the worst difference between two groups on any true label.

    With s the difference of two groups as recorded and δ how much the other setting changes it, the gap changes by
    |s + δ| − |s|; the worst over labels and pairs changes by no less than the least of these and no more than the
    largest. Three confidence sequences in every cell (errors as recorded, errors of either setting only), α shared.
    """
    groups, labels = ({cell[i] for cell in pairs.cases} for i in (0, 1))
    axes = (sorted(labels), sorted(groups))

    def array(counts: dict[tuple[str, str], int]) -> Floats:
        return np.array([[float(counts.get((g, y), 0)) for g in axes[1]] for y in axes[0]])

    n, wrong, more, fewer = map(array, (pairs.cases, pairs.wrong, pairs.only_other, pairs.only_recorded))
    if n.size == 0:
        return UNKNOWN
    (low, more_low, fewer_low), (high, more_high, fewer_high) = interval(
        np.stack([wrong, more, fewer]), n, alpha / (3 * n.size)
    )
    ends, before, after = [], [], []
    for y in range(len(axes[0])):
        for g, h in combinations(np.nonzero(n[y])[0], 2):
            s = (low[y, g] - high[y, h], high[y, g] - low[y, h])
            up = (more_high[y, g] - fewer_low[y, g]) - (more_low[y, h] - fewer_high[y, h])
            down = (more_low[y, g] - fewer_high[y, g]) - (more_high[y, h] - fewer_low[y, h])
            ends.append(_extremes(s, (down, up)))
            rates = wrong[y] / np.maximum(n[y], 1)
            others = (wrong[y] + more[y] - fewer[y]) / np.maximum(n[y], 1)
            before.append(abs(rates[g] - rates[h]))
            after.append(abs(others[g] - others[h]))
    if not ends:
        return UNKNOWN
    value = max(after) - max(before)
    return Estimate(float(value), float(min(low for low, _ in ends)), float(max(high for _, high in ends)))


def _extremes(s: tuple[float, float], delta: tuple[float, float]) -> tuple[float, float]:
    """The least and the largest |s + δ| − |s| over a box, where neither gap is above 1: it bends only where s = 0,
    s = −δ or |s + δ| = 1.

    >>> low, high = _extremes((0.1, 0.2), (-0.05, 0.05))
    >>> round(low, 9), round(high, 9)
    (-0.05, 0.05)
    >>> _extremes((-1.0, 1.0), (-1.0, 0.973))
    (-1.0, 1.0)
    """
    points = [(a, d) for a in s for d in delta]
    points += [(one - d, d) for one in (-1.0, 1.0) for d in delta if s[0] <= one - d <= s[1]]
    points += [(0.0, d) for d in delta if s[0] <= 0.0 <= s[1]]
    points += [(-d, d) for d in delta if s[0] <= -d <= s[1]]
    points += [(a, -a) for a in s if delta[0] <= -a <= delta[1]]
    values = [min(abs(a + d), 1.0) - abs(a) for a, d in points]
    if s[0] <= 0.0 <= s[1] and delta[0] <= 0.0 <= delta[1]:
        values.append(0.0)
    return min(values), max(values)
