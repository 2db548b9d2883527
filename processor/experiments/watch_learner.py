"""The watching of the real learner from its first round: does what it gets wrong while it learns raise alarms?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from processor.core.alerts.monitor import Monitor, MonitorSettings
from producers.delays import Delay
from producers.synthetic import paper_population

from . import lineup
from .parallel import chunks, in_parallel
from .report import table
from .scores import score, short
from .simulate import run_draws, simulate

ROUNDS = 10_000
SETTLED = 5_000
"""The final gap is that from this round on."""

MU_B = (0.3, 0.5)
DELAYS = ("none", "uniform:0-2000")
LEARNING = (50, 0)


class LearnerAlarmRow(msgspec.Struct, frozen=True):
    """Share of runs that raised something."""

    mu_b: float
    delay: str
    learning: int
    runs: int
    tolerance: float
    drift: float
    final_gap: float
    """worst label, mean over runs"""


@dataclass(frozen=True)
class LearnerAlarmTask:
    mu_b: float
    delay: Delay
    runs: range
    seed: int


@dataclass(frozen=True)
class Raised:
    """Runs that raised an alarm, by length of the learning phase; and the final gap of each run."""

    tolerance: dict[int, list[bool]]
    drift: dict[int, list[bool]]
    gaps: list[float]


def work(task: LearnerAlarmTask) -> Raised:
    """Let the learner decide, then show its labels to the watch as they came."""
    rng = np.random.default_rng([task.seed, task.runs.start, round(1e6 * task.mu_b)])
    cases = paper_population(task.mu_b).draw(rng, len(task.runs), ROUNDS)
    late = task.delay.draw(rng, cases.group.shape)
    run = simulate(cases, lineup.GAP, run_draws(task.seed, task.runs, ROUNDS), late)
    gaps = score(cases, run, SETTLED).gap_by_label.max(axis=1)
    tolerance: dict[int, list[bool]] = {learning: [] for learning in LEARNING}
    drift: dict[int, list[bool]] = {learning: [] for learning in LEARNING}
    for i in range(len(task.runs)):
        known = np.arange(ROUNDS) + late[i]
        order = np.argsort(known, kind="stable")
        order = order[known[order] < ROUNDS]
        wrong = run.decided[i] != cases.label[i]
        labels = zip(
            cases.label[i, order].tolist(),
            cases.group[i, order].tolist(),
            wrong[order].tolist(),
            known[order].tolist(),
            strict=True,
        )
        seen = list(labels)
        for learning in LEARNING:
            watch = Monitor.new(MonitorSettings(learning=learning), labels=2, declared_groups=2)
            kinds = {change.kind for change in watch.observe(seen)}
            tolerance[learning].append("tolerance" in kinds)
            drift[learning].append("drift" in kinds)
    return Raised(tolerance, drift, gaps.tolist())


def rows(runs: int, seed: int) -> list[LearnerAlarmRow]:
    settings = [(mu_b, Delay.parse(delay)) for mu_b in MU_B for delay in DELAYS]
    tasks = [LearnerAlarmTask(mu_b, delay, part, seed) for mu_b, delay in settings for part in chunks(runs)]
    results = in_parallel("learner", work, tasks)
    found = []
    for mu_b, delay in settings:
        parts = [r for t, r in zip(tasks, results, strict=True) if (t.mu_b, t.delay) == (mu_b, delay)]
        found += [_row(mu_b, delay, learning, parts) for learning in LEARNING]
    return found


def _row(mu_b: float, delay: Delay, learning: int, parts: Sequence[Raised]) -> LearnerAlarmRow:
    tolerance = [raised for part in parts for raised in part.tolerance[learning]]
    drift = [raised for part in parts for raised in part.drift[learning]]
    return LearnerAlarmRow(
        mu_b=mu_b,
        delay=delay.describe(),
        learning=learning,
        runs=len(tolerance),
        tolerance=float(np.mean(tolerance)),
        drift=float(np.mean(drift)),
        final_gap=float(np.mean([gap for part in parts for gap in part.gaps])),
    )


def show(found: Sequence[LearnerAlarmRow]) -> None:
    table(
        "Alarms of a fair learner, from its first round",
        ["μ_B", "delay in rounds", "learning phase", "tolerance", "drift", "final gap"],
        [
            [
                f"{row.mu_b:g}",
                row.delay,
                f"{row.learning} labels" if row.learning else "none",
                f"{row.tolerance:.1%}",
                f"{row.drift:.1%}",
                short(row.final_gap),
            ]
            for row in found
        ],
        [
            f"{found[0].runs} runs of {ROUNDS} rounds of G-FORCE (gap), watched as in production: two groups 9:1, two "
            "labels.",
            f"final gap: that of the worse label from round {SETTLED} on.",
        ],
    )
