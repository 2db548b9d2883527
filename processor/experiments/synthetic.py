"""The paper's two appendix tables, and its bars of accuracy per group and label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from processor.core import Policy
from processor.core.metrics.attainable import least_fair_loss
from producers.synthetic import Population, paper_population

from . import figures, lineup
from .parallel import chunks, in_parallel
from .report import runs_of, save_figure, table, write_json
from .scores import Figure, Scores, score, short
from .simulate import run_draws, simulate

MU_B = (0.1, 0.3, 0.4, 0.5, 0.6)
PUBLISHED = {
    "gforce": {
        0.1: (0.305, 0.304),
        0.3: (0.182, 0.194),
        0.4: (0.148, 0.146),
        0.5: (0.110, 0.111),
        0.6: (0.032, 0.046),
    },
    "groupaware": {
        0.1: (0.494, 0.509),
        0.3: (0.487, 0.486),
        0.4: (0.475, 0.488),
        0.5: (0.283, 0.296),
        0.6: (0.019, 0.022),
    },
    "mw": {0.1: (0.016, 0.473), 0.3: (0.018, 0.490), 0.4: (0.026, 0.508), 0.5: (0.024, 0.488), 0.6: (0.011, 0.495)},
}
"""FPR and FNR gaps as printed in the paper, for p_A = 0.9 and μ_A = 0.7."""


class SyntheticRow(msgspec.Struct, frozen=True):
    """One policy in one setting."""

    mu_b: float
    policy: str
    objective: str | None
    fpr_gap: Figure
    fnr_gap: Figure
    loss: float
    loss_std: float
    regret: float
    regret_std: float
    realised_fpr_gap: Figure
    realised_fnr_gap: Figure
    published: tuple[float, float] | None


@dataclass(frozen=True)
class Setting:
    p_a: float
    mu_a: float
    mu_b: float

    @property
    def population(self) -> Population:
        return paper_population(self.mu_b, self.mu_a, self.p_a)


BARS = {"imbalanced": Setting(0.9, 0.7, 0.3), "balanced": Setting(0.5, 0.5, 0.5)}
"""The paper's two pictures of accuracy, whatever else is asked for."""


@dataclass(frozen=True)
class SyntheticTask:
    setting: Setting
    policies: tuple[Policy, ...]
    runs: range
    rounds: int
    seed: int


def work(task: SyntheticTask) -> list[Scores]:
    """All policies on the same cases with the same draws."""
    numbers = [task.seed, task.runs.start, *(round(1e6 * v) for v in vars(task.setting).values())]
    cases = task.setting.population.draw(np.random.default_rng(numbers), len(task.runs), task.rounds)
    uniforms = run_draws(task.seed, task.runs, task.rounds)
    return [score(cases, simulate(cases, policy, uniforms)) for policy in task.policies]


def compare(
    title: str, settings: Sequence[Setting], policies: tuple[Policy, ...], runs: int, rounds: int, seed: int
) -> list[list[Scores]]:
    """[setting][policy]: the scores of all runs."""
    tasks = [SyntheticTask(setting, policies, part, rounds, seed) for setting in settings for part in chunks(runs)]
    results = in_parallel(title, work, tasks)
    return [
        [
            Scores.joined([r[i] for t, r in zip(tasks, results, strict=True) if t.setting == setting])
            for i in range(len(policies))
        ]
        for setting in settings
    ]


def experiment(
    runs: int,
    rounds: int,
    seed: int,
    p_a: float,
    mu_a: float,
    mu_b: Sequence[float],
    folder: Path,
    json: Path | None,
) -> None:
    """Run, print, draw and write."""
    wanted = list(dict.fromkeys(Setting(p_a, mu_a, value) for value in mu_b))
    settings = list(dict.fromkeys([*wanted, *BARS.values()]))
    results = dict(zip(settings, compare("synthetic", settings, lineup.ALL, runs, rounds, seed), strict=True))
    rows = [_row(s, policy, scores) for s in wanted for policy, scores in zip(lineup.ALL, results[s], strict=True)]
    limits = {s.mu_b: fair_loss(s) for s in wanted}
    _print(rows, limits, runs, rounds)
    write_json(
        json,
        "synthetic",
        {"runs": runs, "rounds": rounds, "seed": seed, "p_a": p_a, "mu_a": mu_a, "mu_b": list(mu_b)},
        {"rows": rows, "limits": [{"mu_b": value, "fair_loss": loss} for value, loss in limits.items()]},
    )
    save_figure(figures.gap_against_base_rate(rows, limits), folder, "synthetic")
    accuracy = {rf"{name}: $p_A$ {s.p_a:g}, $\mu_A$ {s.mu_a:g}, $\mu_B$ {s.mu_b:g}": s for name, s in BARS.items()}
    save_figure(
        figures.accuracy_bars(
            {
                name: {
                    policy.name: scores.rate
                    for policy, scores in zip(lineup.ALL, results[s], strict=True)
                    if policy.name in figures.BAR_POLICIES
                }
                for name, s in accuracy.items()
            },
            {name: s.population for name, s in accuracy.items()},
        ),
        folder,
        "accuracy",
    )


def _row(setting: Setting, policy: Policy, scores: Scores) -> SyntheticRow:
    printed = None
    reproduces = lineup.objective_of(policy) in (None, "paper")
    if reproduces and (setting.p_a, setting.mu_a) == (0.9, 0.7):
        printed = PUBLISHED[policy.policy].get(setting.mu_b)
    return SyntheticRow(
        mu_b=setting.mu_b,
        policy=policy.policy,
        objective=lineup.objective_of(policy),
        fpr_gap=Figure.of(scores.gap_by_label[:, 0]),
        fnr_gap=Figure.of(scores.gap_by_label[:, 1]),
        loss=float(scores.loss.mean()),
        loss_std=float(scores.loss.std()),
        regret=float(scores.regret.mean()),
        regret_std=float(scores.regret.std()),
        realised_fpr_gap=Figure.of(scores.realised_gap_by_label[:, 0]),
        realised_fnr_gap=Figure.of(scores.realised_gap_by_label[:, 1]),
        published=printed,
    )


def fair_loss(setting: Setting) -> float:
    population = setting.population
    return least_fair_loss(population.error, population.share, population.base_rate).figure


def _print(rows: list[SyntheticRow], limits: dict[float, float], runs: int, rounds: int) -> None:
    cells = []
    for row in rows:
        name = f"gforce/{row.objective}" if row.objective else row.policy
        published = "/".join(map(short, row.published)) if row.published else ""
        cells.append(
            [
                f"{row.mu_b:g}",
                lineup.SHORT[name],
                f"{row.fpr_gap}",
                f"{row.fnr_gap}",
                published,
                short(row.loss),
                short(limits[row.mu_b]),
                short(row.regret),
            ]
        )
    table(
        "Synthetic experts, each perfect on one (group, label) and a coin elsewhere",
        ["μ_B", "policy", "FPR gap", "FNR gap", "published", "loss", "limit", "regret"],
        cells,
        [
            f"{runs_of(runs, rounds)}; mean ± standard deviation over runs.",
            "limit: the least loss of any mixture with exactly equal error rates, in hindsight.",
            "regret: loss per round minus that of the best single expert.",
        ],
    )
