"""What goes wrong in practice: more groups and labels, experts that abstain, join late or change, hidden labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from processor.core import Policy
from processor.core.metrics.attainable import least_fair_loss
from producers.synthetic import Cases, Population, one_cell_experts, paper_population

from . import figures, lineup
from .abstention import LongRun, long_run, uniform_fallback
from .parallel import chunks, in_parallel
from .report import runs_of, save_figure, table, write_json
from .scores import Figure, Scores, score, short
from .simulate import PositiveOnly, run_draws, simulate

AFTER_SHIFT = 2_000
"""Rounds after a shift that are reported apart."""
AFTER_JOINING = (100, 200)
"""Rounds after an expert joined, between which its effect is read."""
WINDOW = 1_000
UNIFORM = "uniform fallback"
"""A reading of ``mixture`` that is not the product's: see ``abstention``."""


class StressRow(msgspec.Struct, frozen=True):
    """One scenario under one policy, or one part of its rounds."""

    scenario: str
    part: str
    policy: str
    objective: str | None
    gaps: list[Figure]
    """per true label, worst pair of groups"""
    worst_gap: float
    loss: Figure
    expected: str
    """what two independent simulations of the same formulas gave, made before this code"""


@dataclass(frozen=True)
class StressTask:
    scenario: str
    policy: Policy
    runs: range
    rounds: int
    seed: int


Parts = dict[str, Scores]


def three_by_three() -> Population:
    """Three groups, three labels, nine experts, each perfect on one cell and wrong half the time elsewhere."""
    return Population(
        share=np.array([0.6, 0.3, 0.1]),
        base_rate=np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]]),
        error=one_cell_experts(3, 3),
    )


def abstaining() -> Population:
    """The paper's experts, each absent from every fifth case."""
    return replace(paper_population(0.3), abstain=0.2)


def ordinary_experts() -> Population:
    """Nobody is perfect: an error rate of .2 on the own cell and .4 elsewhere."""
    paper = paper_population(0.3)
    return paper.with_error(np.where(paper.error == 0.0, 0.2, 0.4))


def skewed_experts() -> Population:
    """Four experts whose errors differ between groups, searched for so that what is not seen biases what is learnt."""
    return Population(
        share=np.array([0.5, 0.5]),
        base_rate=np.array([[0.4, 0.6], [0.7, 0.3]]),
        error=np.array(
            [
                [[0.45, 0.15], [0.50, 0.05]],
                [[0.25, 0.50], [0.20, 0.35]],
                [[0.45, 0.10], [0.50, 0.20]],
                [[0.35, 0.10], [0.25, 0.25]],
            ]
        ),
    )


def work(task: StressTask) -> Parts:
    rng = np.random.default_rng([task.seed, task.runs.start, sorted(SCENARIOS).index(task.scenario)])
    uniforms = run_draws(task.seed, task.runs, task.rounds)
    runs, rounds, half = len(task.runs), task.rounds, task.rounds // 2
    match task.scenario:
        case "3 groups × 3 labels":
            cases = three_by_three().draw(rng, runs, rounds)
            return {"all": score(cases, simulate(cases, task.policy, uniforms))}
        case "20 % abstention":
            cases = abstaining().draw(rng, runs, rounds)
            parts = {"all": score(cases, simulate(cases, task.policy, uniforms))}
            if task.policy == lineup.MIXTURE:
                parts[UNIFORM] = score(cases, simulate(cases, task.policy, uniforms, make_rule=uniform_fallback))
            return parts
        case "a good expert joins at T/2":
            cases = _joining(rng, runs, half)
            run = simulate(cases, task.policy, uniforms)
            start, stop = (half + after for after in AFTER_JOINING)
            return {
                "last 1 000 before": score(cases, run, half - 1_000, half),
                "rounds 100–200 after": score(cases, run, start, stop),
            }
        case "experts swap groups at T/2":
            cases = _swapping(rng, runs, half)
            run = simulate(cases, task.policy, uniforms)
            return {"second half": score(cases, run, half)}
        case "the same, window of 1 000":
            cases = _swapping(rng, runs, half)
            run = simulate(cases, task.policy, uniforms, window=WINDOW)
            return {
                "first 2 000 after": score(cases, run, half, half + AFTER_SHIFT),
                "from then on": score(cases, run, half + AFTER_SHIFT),
            }
    cases = skewed_experts().draw(rng, runs, rounds)
    return {
        name: score(cases, simulate(cases, task.policy, uniforms, positive_only=how)) for name, how in FEEDBACK.items()
    }


FEEDBACK = {
    "all labels": None,
    "counted naively": PositiveOnly(explore=None, weighted=False),
    "weighted, no floor": PositiveOnly(explore=None),
    "weighted, φ = .05": PositiveOnly(explore=0.05),
}

BOTH = (lineup.GAP, lineup.MIXTURE)
SCENARIOS: dict[str, tuple[Policy, ...]] = {
    "3 groups × 3 labels": BOTH,
    "20 % abstention": BOTH,
    "a good expert joins at T/2": (lineup.GAP,),
    "experts swap groups at T/2": BOTH,
    "the same, window of 1 000": BOTH,
    "labels of positive decisions only": (lineup.GAP,),
}

EXPECTED = {
    ("3 groups × 3 labels", "all", "gap"): "≤ .04 · .283",
    ("3 groups × 3 labels", "all", "mixture"): "≤ .04 · .275",
    ("20 % abstention", "all", "gap"): ".020 / .013 · .227",
    ("20 % abstention", "all", "mixture"): ".037 / .016 · .222",
    ("20 % abstention", UNIFORM, "mixture"): ".037 / .016 · .222",
    ("a good expert joins at T/2", "last 1 000 before", "gap"): "· .271",
    ("a good expert joins at T/2", "rounds 100–200 after", "gap"): "· .064",
    ("experts swap groups at T/2", "second half", "gap"): "· .495",
    ("experts swap groups at T/2", "second half", "mixture"): "· .489",
    ("the same, window of 1 000", "first 2 000 after", "gap"): ".039",
    ("the same, window of 1 000", "first 2 000 after", "mixture"): ".040",
    ("the same, window of 1 000", "from then on", "gap"): ".025 · .173",
    ("the same, window of 1 000", "from then on", "mixture"): ".031 · .170",
    ("labels of positive decisions only", "all labels", "gap"): ".012 / .014 · .284",
    ("labels of positive decisions only", "counted naively", "gap"): ".063 / .043",
    ("labels of positive decisions only", "weighted, no floor", "gap"): ".045 / .036",
    ("labels of positive decisions only", "weighted, φ = .05", "gap"): ".018 / .015 · .295",
}


def _joining(rng: np.random.Generator, runs: int, half: int) -> Cases:
    before = ordinary_experts()
    newcomer = np.full((1, *before.error.shape[1:]), 0.05)
    after = before.with_error(np.concatenate([before.error, newcomer]))
    return before.draw(rng, runs, half).then(after.draw(rng, runs, half))


def _swapping(rng: np.random.Generator, runs: int, half: int) -> Cases:
    before = paper_population(0.3)
    after = before.with_error(before.error[:, ::-1, :])
    return before.draw(rng, runs, half).then(after.draw(rng, runs, half))


def experiment(runs: int, rounds: int, seed: int, folder: Path, json: Path | None) -> None:
    """Run, print, draw and write."""
    tasks = [
        StressTask(scenario, policy, part, rounds, seed)
        for scenario, policies in SCENARIOS.items()
        for policy in policies
        for part in chunks(runs)
    ]
    results = in_parallel("stress", work, tasks)
    rows = []
    for scenario, policies in SCENARIOS.items():
        for policy in policies:
            mine = [r for t, r in zip(tasks, results, strict=True) if (t.scenario, t.policy) == (scenario, policy)]
            rows += [_row(scenario, part, policy, Scores.joined([m[part] for m in mine])) for part in mine[0]]
    population = three_by_three()
    limit = least_fair_loss(population.error, population.share, population.base_rate).figure
    settled = {
        "all": long_run(abstaining(), lineup.MIXTURE),
        UNIFORM: long_run(abstaining(), lineup.MIXTURE, uniform_fallback),
    }
    _print(rows, limit, settled, runs, rounds)
    settings = {"runs": runs, "rounds": rounds, "seed": seed}
    write_json(
        json, "stress", settings, {"rows": rows, "three_by_three_fair_loss": limit, "mixture_under_abstention": settled}
    )
    save_figure(figures.stress_gaps(rows), folder, "stress")


def _row(scenario: str, part: str, policy: Policy, scores: Scores) -> StressRow:
    gaps = [Figure.of(scores.gap_by_label[:, y]) for y in range(scores.gap_by_label.shape[1])]
    return StressRow(
        scenario=scenario,
        part=part,
        policy=policy.policy,
        objective=lineup.objective_of(policy),
        gaps=gaps,
        worst_gap=max(g.mean for g in gaps),
        loss=Figure.of(scores.loss),
        expected=EXPECTED[(scenario, part, policy.objective)],
    )


def _print(rows: list[StressRow], limit: float, settled: dict[str, LongRun], runs: int, rounds: int) -> None:
    table(
        "Under stress",
        ["scenario", "part", "policy", "gaps by label", "loss", "expected"],
        [
            [
                row.scenario,
                row.part,
                row.objective or row.policy,
                " / ".join(short(g.mean) for g in row.gaps),
                short(row.loss.mean),
                row.expected,
            ]
            for row in rows
        ],
        [
            f"{runs_of(runs, rounds)}; gaps (FPR / FNR where there are two labels) · loss.",
            "Expected: what two independent simulations of the same formulas gave, made before this code; gaps · loss.",
            "Mixture under abstention: where no expert with a share is present, GroupAware's weights say who is asked.",
            "Uniform fallback: all are asked alike. The figure expected is of that kind; it is not what is shipped.",
            f"Worked out, the first settles at {_settled(settled['all'])}, the second at {_settled(settled[UNIFORM])}.",
            f"3 × 3: no mixture with exactly equal error rates loses less than {limit:.3f}.",
        ],
    )


def _settled(run: LongRun) -> str:
    return f"{' / '.join(map(short, run.gaps))} · {short(run.loss)}"
