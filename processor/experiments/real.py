"""Adult, COMPAS and German with five trained experts, on fresh random splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from processor.core import Policy
from processor.core.exact import Floats
from processor.core.metrics.attainable import least_gap
from producers.datasets import Dataset, load
from producers.synthetic import Cases

from . import figures, lineup
from .experts import EXPERTS, expert_fairness, predictions
from .parallel import in_parallel
from .report import save_figure, table, write_json
from .scores import Figure, Scores, expert_errors, running_gap, score, short
from .simulate import run_draws, simulate

POLICIES = (lineup.GAP, lineup.MIXTURE, lineup.PAPER, lineup.GROUPAWARE, lineup.MW)
SPLITS = {"adult": 4, "compas": 20, "german": 40}
ORDERS = 8
"""Arrival orders per split: training experts is what takes time, another order of the same people is cheap."""

PUBLISHED = {
    ("adult", "groupaware"): (0.05, 0.17),
    ("adult", "gforce"): (0.04, 0.08),
    ("compas", "groupaware"): (0.20, 0.27),
    ("compas", "gforce"): (0.18, 0.25),
    ("german", "groupaware"): (0.40, 0.21),
    ("german", "gforce"): (0.32, 0.18),
}


class RealRow(msgspec.Struct, frozen=True):
    """One policy on one data set, averaged over splits."""

    dataset: str
    policy: str
    objective: str | None
    splits: int
    fpr_gap: Figure
    fnr_gap: Figure
    worst_gap: Figure
    error_rate_gap: Figure
    loss: Figure
    regret: Figure
    published: tuple[float, float] | None


class Expert(msgspec.Struct, frozen=True):
    """The fairness of one expert by itself."""

    dataset: str
    expert: str
    fpr_gap: Figure
    fnr_gap: Figure
    error_rate_gap: Figure
    loss: Figure


@dataclass(frozen=True)
class RealTask:
    dataset: Dataset
    split: int
    seed: int
    points: tuple[int, ...]


@dataclass(frozen=True)
class SplitOutcome:
    """One split: per policy the mean scores over arrival orders and the gap over time."""

    gaps: Floats
    """[policy, y]"""
    error_gap: Floats
    """[policy]"""
    loss: Floats
    regret: Floats
    curves: Floats
    """[policy, point, y]"""
    attainable: float
    experts: Floats
    """[expert, (fpr gap, fnr gap, error rate gap, loss)]"""


def work(task: RealTask) -> SplitOutcome:
    split = predictions(task.dataset, seed=1_000 * task.seed + task.split)
    rng = np.random.default_rng([task.seed, task.split])
    order = np.stack([rng.permutation(len(split.label)) for _ in range(ORDERS)])
    cases = Cases(split.group[order], split.label[order], split.predictions[order])
    uniforms = run_draws(task.seed, range(task.split * ORDERS, (task.split + 1) * ORDERS), cases.rounds)
    runs = [simulate(cases, policy, uniforms) for policy in POLICIES]
    scores = [score(cases, run) for run in runs]
    fairness = expert_fairness(split)
    loss = (split.predictions != split.label[:, None]).mean(axis=0)
    return SplitOutcome(
        gaps=np.stack([s.gap_by_label.mean(axis=0) for s in scores]),
        error_gap=np.array([_error_rate_gap(cases, s).mean() for s in scores]),
        loss=np.array([s.loss.mean() for s in scores]),
        regret=np.array([s.regret.mean() for s in scores]),
        curves=np.stack([np.nanmean(running_gap(cases, run, task.points), axis=1) for run in runs]),
        attainable=least_gap(expert_errors(cases)).figure,
        experts=np.column_stack(
            [
                fairness.false_positive_rate_difference,
                fairness.false_negative_rate_difference,
                fairness.error_rate_difference,
                loss,
            ]
        ),
    )


def _error_rate_gap(cases: Cases, scores: Scores) -> Floats:
    """|P(wrong | A) − P(wrong | B)| from the cell rates and each run's own base rates."""
    per_group = []
    for g in range(2):
        member = cases.group == g
        positive = (member & (cases.label == 1)).sum(axis=1) / member.sum(axis=1)
        per_group.append(scores.rate[:, g, 1] * positive + scores.rate[:, g, 0] * (1 - positive))
    gap: Floats = np.abs(per_group[0] - per_group[1])
    return gap


def experiment(
    names: Sequence[str], data_dir: Path, splits: int | None, seed: int, folder: Path, json: Path | None
) -> None:
    """Run, print, draw and write."""
    rows: list[RealRow] = []
    experts: list[Expert] = []
    attainable: dict[str, Figure] = {}
    for name in names:
        dataset = load(name, data_dir)
        points = tuple(int(p) for p in np.unique(np.geomspace(50, dataset.rounds, 60).round()))
        tasks = [RealTask(dataset, i, seed, points) for i in range(splits or SPLITS[name])]
        outcomes = in_parallel(f"{name}: train and decide", work, tasks)
        rows += [_row(name, i, policy, outcomes) for i, policy in enumerate(POLICIES)]
        experts += [_expert(name, i, outcomes) for i in range(len(EXPERTS))]
        attainable[name] = Figure.of(np.array([o.attainable for o in outcomes]))
        if name == "adult":
            curves = {
                lineup.TITLES[policy.name]: np.stack([o.curves[i] for o in outcomes], axis=1)
                for i, policy in enumerate(POLICIES)
                if policy in (lineup.GAP, lineup.GROUPAWARE)
            }
            save_figure(
                figures.gap_over_time(np.array(points), curves, "Adult", "mean over splits, band: ± 1 deviation"),
                folder,
                "adult",
            )
    _print(rows, experts, attainable)
    write_json(
        json,
        "real",
        {"datasets": list(names), "splits": splits or SPLITS, "orders": ORDERS, "seed": seed},
        {"rows": rows, "experts": experts, "attainable": attainable},
    )
    save_figure(figures.real_gaps(rows, attainable), folder, "real")


def _row(name: str, i: int, policy: Policy, outcomes: list[SplitOutcome]) -> RealRow:
    gaps = np.stack([o.gaps[i] for o in outcomes])
    reproduces = lineup.objective_of(policy) in (None, "paper")
    printed = PUBLISHED.get((name, policy.policy)) if reproduces else None
    return RealRow(
        dataset=name,
        policy=policy.policy,
        objective=lineup.objective_of(policy),
        splits=len(outcomes),
        fpr_gap=Figure.of(gaps[:, 0]),
        fnr_gap=Figure.of(gaps[:, 1]),
        worst_gap=Figure.of(gaps.max(axis=1)),
        error_rate_gap=Figure.of(np.array([o.error_gap[i] for o in outcomes])),
        loss=Figure.of(np.array([o.loss[i] for o in outcomes])),
        regret=Figure.of(np.array([o.regret[i] for o in outcomes])),
        published=printed,
    )


def _expert(name: str, i: int, outcomes: list[SplitOutcome]) -> Expert:
    figures_ = [Figure.of(np.array([o.experts[i, k] for o in outcomes])) for k in range(4)]
    return Expert(name, EXPERTS[i], *figures_)


def _splits(rows: list[RealRow]) -> str:
    return ", ".join(f"{splits} ({name})" for name, splits in {row.dataset: row.splits for row in rows}.items())


def _print(rows: list[RealRow], experts: list[Expert], attainable: dict[str, Figure]) -> None:
    table(
        "Real data, five trained experts, fresh random splits",
        ["data set", "policy", "FPR gap", "FNR gap", "worst", "attainable", "published", "loss", "regret"],
        [
            [
                row.dataset,
                lineup.SHORT[f"gforce/{row.objective}" if row.objective else row.policy],
                f"{row.fpr_gap}",
                f"{row.fnr_gap}",
                short(row.worst_gap.mean),
                short(attainable[row.dataset].mean),
                "/".join(f"{p:.2f}"[1:] for p in row.published) if row.published else "",
                short(row.loss.mean),
                short(row.regret.mean),
            ]
            for row in rows
        ],
        [
            f"Mean ± standard deviation over {_splits(rows)} fresh splits, {ORDERS} arrival orders of each.",
            "worst: the larger of the two gaps of a split, averaged over splits.",
            "attainable: the least worst gap any mixture of these experts per group can have.",
            "The paper does not say how its experts were trained, so its figures are context.",
        ],
    )
    table(
        "ε-fairness of the experts by themselves",
        ["data set", "expert", "FPR gap", "FNR gap", "error rate gap", "loss"],
        [[e.dataset, e.expert, *(f"{f}" for f in (e.fpr_gap, e.fnr_gap, e.error_rate_gap, e.loss))] for e in experts],
        [],
    )
