"""The synthetic setting with labels that come late, which the paper leaves as future work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from processor.core import Policy
from processor.core.exact import Floats
from producers.delays import Delay
from producers.synthetic import paper_population

from . import figures, lineup
from .parallel import chunks, in_parallel
from .report import runs_of, save_figure, table, write_json
from .scores import Figure, Scores, running_gap, score, short
from .simulate import run_draws, simulate

DELAYS = ("none", "uniform:0-2000", "geometric:500", "fixed:3000", "uniform:0-2000,lost:0.5")
POLICIES = (lineup.GAP, lineup.MIXTURE, lineup.GROUPAWARE)


class DelayRow(msgspec.Struct, frozen=True):
    """One policy under one distribution of delays."""

    delay: str
    policy: str
    objective: str | None
    fpr_gap: Figure
    fnr_gap: Figure
    loss: float
    regret: float


@dataclass(frozen=True)
class DelayTask:
    delay: Delay
    mu_b: float
    runs: range
    rounds: int
    seed: int
    points: tuple[int, ...]


def work(task: DelayTask) -> list[tuple[Scores, Floats]]:
    """The scores of each policy, and its gap so far at each point."""
    rng = np.random.default_rng([task.seed, task.runs.start])
    cases = paper_population(task.mu_b).draw(rng, len(task.runs), task.rounds)
    uniforms = run_draws(task.seed, task.runs, task.rounds)
    delays = task.delay.draw(rng, cases.group.shape)
    done = [simulate(cases, policy, uniforms, delays) for policy in POLICIES]
    return [(score(cases, run), running_gap(cases, run, task.points)) for run in done]


def experiment(
    runs: int, rounds: int, seed: int, mu_b: float, delays: Sequence[str], folder: Path, json: Path | None
) -> None:
    """Run, print, draw and write."""
    points = tuple(int(p) for p in np.unique(np.geomspace(min(100, rounds), rounds, 40).round()))
    kinds = [Delay.parse(text) for text in delays]
    tasks = [DelayTask(kind, mu_b, part, rounds, seed, points) for kind in kinds for part in chunks(runs)]
    results = in_parallel("delay", work, tasks)
    rows, curves = [], {}
    for kind in kinds:
        parts = [r for t, r in zip(tasks, results, strict=True) if t.delay == kind]
        for i, policy in enumerate(POLICIES):
            rows.append(_row(kind, policy, Scores.joined([p[i][0] for p in parts])))
        curves[kind.describe()] = np.concatenate([p[0][1] for p in parts], axis=1)
    _print(rows, runs, rounds, mu_b)
    write_json(
        json,
        "delay",
        {"runs": runs, "rounds": rounds, "seed": seed, "mu_b": mu_b, "delays": list(delays)},
        {"rows": rows},
    )
    save_figure(
        figures.gap_over_time(np.array(points), curves, "G-FORCE (gap)", "rounds until labels come"), folder, "delay"
    )


def _row(delay: Delay, policy: Policy, scores: Scores) -> DelayRow:
    return DelayRow(
        delay=delay.describe(),
        policy=policy.policy,
        objective=lineup.objective_of(policy),
        fpr_gap=Figure.of(scores.gap_by_label[:, 0]),
        fnr_gap=Figure.of(scores.gap_by_label[:, 1]),
        loss=float(scores.loss.mean()),
        regret=float(scores.regret.mean()),
    )


def _print(rows: list[DelayRow], runs: int, rounds: int, mu_b: float) -> None:
    table(
        f"Labels that come late, μ_B = {mu_b:g}",
        ["delay in rounds", "policy", "FPR gap", "FNR gap", "loss", "regret"],
        [
            [
                row.delay,
                lineup.SHORT[f"gforce/{row.objective}" if row.objective else row.policy],
                f"{row.fpr_gap}",
                f"{row.fnr_gap}",
                short(row.loss),
                short(row.regret),
            ]
            for row in rows
        ],
        [f"{runs_of(runs, rounds)}. Until the first label comes every expert is as likely as any other."],
    )
