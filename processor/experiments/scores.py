"""From what a policy did to the figures of a table: one score per run, then mean and deviation."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan

import msgspec
import numpy as np

from processor.core.exact import Floats
from processor.core.learner.counters import ABSENT
from processor.core.settings import Prior
from producers.synthetic import Cases

from .simulate import SimulatedRun


class Figure(msgspec.Struct, frozen=True):
    """Mean and standard deviation over the runs that have such cases; NaN where there is none, or only one to vary."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: Floats) -> Figure:
        known = values[~np.isnan(values)]
        spread = float(known.std()) if len(known) > 1 else nan
        return cls(float(known.mean()), spread) if len(known) else cls(nan, nan)

    def __format__(self, _: str) -> str:
        return short(self.mean) if isnan(self.std) else f"{short(self.mean)} ± {short(self.std)}"


def short(figure: float) -> str:
    """A rate as tables show it; without cases there is none.

    >>> short(0.0123), short(-0.5), short(float("nan"))
    ('.012', '−.500', '–')
    """
    if isnan(figure):
        return "–"
    sign = "−" if figure < 0 else ""
    return sign + f"{abs(figure):.3f}".removeprefix("0")


class Scores(msgspec.Struct, frozen=True):
    """One entry per run."""

    gap_by_label: Floats
    """[run, y]: worst pair of groups; for labels 0 and 1 these are the FPR and FNR gaps"""
    realised_gap_by_label: Floats
    """the same, counted by the decisions that were drawn and not by their probabilities"""
    rate: Floats
    """[run, g, y]"""
    loss: Floats
    regret: Floats
    """loss minus that of the best single expert in hindsight"""

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in cls.__struct_fields__))


def score(cases: Cases, run: SimulatedRun, start: int = 0, stop: int | None = None) -> Scores:
    """The scores of rounds ``start`` to ``stop``.

    Error rates are expected ones: the probability the policy gave to a wrong decision, averaged over a cell. The
    draw itself adds only noise (the paper's published deviations, too, are those of expected rates).
    """
    part = slice(start, stop)
    cut = Cases(cases.group[:, part], cases.label[:, part], cases.predictions[:, part])
    wrong = run.wrong[:, part]
    drawn = (run.decided[:, part] != cut.label).astype(np.float64)
    rate = cell_means(cut, wrong)
    return Scores(
        gap_by_label=_worst_pair(rate),
        realised_gap_by_label=_worst_pair(cell_means(cut, drawn)),
        rate=rate,
        loss=wrong.mean(axis=1),
        regret=wrong.mean(axis=1) - _best_expert_loss(cut),
    )


def cell_means(cases: Cases, values: Floats) -> Floats:
    """[run, g, y]: the mean of ``values[run, round]`` over each cell; NaN where a run has no such case."""
    groups, labels = int(cases.group.max()) + 1, int(cases.label.max()) + 1
    cell = (np.arange(cases.runs)[:, None] * groups + cases.group) * labels + cases.label
    size = cases.runs * groups * labels
    total = np.bincount(cell.ravel(), weights=values.ravel(), minlength=size)
    count = np.bincount(cell.ravel(), minlength=size)
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means.reshape(cases.runs, groups, labels)


def running_gap(cases: Cases, run: SimulatedRun, at: Sequence[int]) -> Floats:
    """[len(at), run, y]: the gap over all rounds up to each point."""
    return np.stack([score(cases, run, 0, stop).gap_by_label for stop in at])


def expert_errors(cases: Cases) -> Floats:
    """error[f, g, y] of every expert over all runs, measured."""
    rates = []
    for f in range(cases.predictions.shape[2]):
        wrong = (cases.predictions[:, :, f] != cases.label).astype(np.float64)
        rates.append(np.nanmean(cell_means(cases, wrong), axis=0))
    return np.stack(rates)


def _worst_pair(rate: Floats) -> Floats:
    gap: Floats = rate.max(axis=1) - rate.min(axis=1)
    return gap


def _best_expert_loss(cases: Cases) -> Floats:
    asked = cases.predictions != ABSENT
    wrong = asked & (cases.predictions != cases.label[:, :, None])
    tried, lost = asked.sum(axis=1), wrong.sum(axis=1)
    mean = lost.sum(axis=1, keepdims=True) / np.maximum(tried.sum(axis=1, keepdims=True), 1)
    weight = np.where(tried == asked.shape[1], 0.0, Prior().abstain)  # as ``metrics.regret_per_round`` has it
    loss: Floats = ((lost + weight * mean) / (tried + weight)).min(axis=1)
    return loss
