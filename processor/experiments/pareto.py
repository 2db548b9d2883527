"""How much accuracy equal error rates cost: the front drawn by the balance λ."""

from __future__ import annotations

from pathlib import Path

import msgspec

from processor.core import Balance, Policy

from . import figures, lineup
from .report import runs_of, save_figure, table, write_json
from .scores import Figure, Scores, short
from .synthetic import Setting, compare, fair_loss

FAIRNESS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 2.0, 5.0, 20.0)


class Point(msgspec.Struct, frozen=True):
    """One balance of one objective."""

    policy: str
    objective: str | None
    lambda_fairness: float | None
    lambda_regret: float | None
    fpr_gap: Figure
    fnr_gap: Figure
    mean_gap: float
    loss: float
    regret: float


def experiment(runs: int, rounds: int, seed: int, mu_b: float, folder: Path, json: Path | None) -> None:
    """Sweep λ_fairness at λ_regret = 1 in the paper's imbalanced setting."""
    setting = Setting(0.9, 0.7, mu_b)
    swept = [
        Policy(objective=objective, balance=(Balance(fairness=weight),))
        for objective in ("gap", "mixture", "paper")
        for weight in FAIRNESS
    ]
    policies = (*swept, lineup.GROUPAWARE, lineup.MW)
    [results] = compare("pareto", [setting], policies, runs, rounds, seed)
    points = [_point(policy, scores) for policy, scores in zip(policies, results, strict=True)]
    limit = fair_loss(setting)
    _print(points, limit, runs, rounds, mu_b)
    write_json(
        json,
        "pareto",
        {"runs": runs, "rounds": rounds, "seed": seed, "p_a": 0.9, "mu_a": 0.7, "mu_b": mu_b},
        {"rows": points, "fair_loss": limit},
    )
    save_figure(figures.pareto_front(points, limit), folder, "pareto")


def _point(policy: Policy, scores: Scores) -> Point:
    objective = lineup.objective_of(policy)
    balance = policy.balance[0]
    weight = balance.fairness if isinstance(balance.fairness, float) else None
    return Point(
        policy=policy.policy,
        objective=objective,
        lambda_fairness=weight if objective else None,
        lambda_regret=balance.regret if objective else None,
        fpr_gap=Figure.of(scores.gap_by_label[:, 0]),
        fnr_gap=Figure.of(scores.gap_by_label[:, 1]),
        mean_gap=float(scores.gap_by_label.mean()),
        loss=float(scores.loss.mean()),
        regret=float(scores.regret.mean()),
    )


def _print(points: list[Point], limit: float, runs: int, rounds: int, mu_b: float) -> None:
    table(
        f"What fairness costs, μ_B = {mu_b:g}",
        ["policy", "λ fairness", "FPR gap", "FNR gap", "loss", "regret"],
        [
            [
                lineup.SHORT[f"gforce/{p.objective}" if p.objective else p.policy],
                "–" if p.lambda_fairness is None else f"{p.lambda_fairness:g}",
                f"{p.fpr_gap}",
                f"{p.fnr_gap}",
                short(p.loss),
                short(p.regret),
            ]
            for p in points
        ],
        [
            f"{runs_of(runs, rounds)}, λ regret = 1.",
            f"No mixture with exactly equal error rates loses less than {limit:.3f}.",
        ],
    )
