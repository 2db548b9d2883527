"""What the alerts of ``docs/alerts.md`` cost and find: false alarms, pairs to detect and to clear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from processor.core.alerts.alerts import MonitorSettings
from processor.core.exact import Ints

from . import watch_figure, watch_learner
from .parallel import in_parallel
from .report import save_figure, table, write_json
from .watch_streams import (
    BOUNDARY_PAIRS,
    FAIR_PAIRS,
    LEVEL,
    NEVER,
    SHARES,
    STREAMS_PER_TASK,
    UNFAIR_PAIRS,
    Scenario,
    StreamOutcomes,
    StreamTask,
    boundary,
    detection,
    recovery,
    turning,
    work,
)


class FalseAlarms(msgspec.Struct, frozen=True):
    groups: str
    gap: float
    streams: int
    tolerance: float
    """share of streams that raised a tolerance alarm"""
    allowed: float
    """α and twice its standard error"""
    z_test: float
    pairs_between_drift_alarms: float
    configured: int


class Detection(msgspec.Struct, frozen=True):
    groups: str
    gap: float
    fair_pairs: int
    streams: int
    tolerance: float
    """median pairs"""
    drift: float
    missed: float
    """share that raised no tolerance alarm in the pairs looked at"""


class RecoveryRow(msgspec.Struct, frozen=True):
    groups: str
    streams: int
    median: float
    ninetieth: float
    never: float
    turned_cleared: float
    """median pairs after which it clears if the gap changes its sign instead of going away"""
    turned_raised: float
    """and after which it is raised again"""


def experiment(runs: int, learner_runs: int, seed: int, folder: Path, json: Path | None) -> None:
    """Run, print, draw and write."""
    few = max(runs // 4, 1)
    plan: dict[Scenario, int] = {}
    for share in SHARES.values():
        plan |= {boundary(share, gap): runs for gap in (0.05, 0.0)}
        plan |= {detection(share, gap, fair): few for gap in (0.10, 0.15) for fair in (0, FAIR_PAIRS)}
        plan |= {recovery(share): few, turning(share): few}
    done = _run(plan, seed)
    false_alarms = [_false_alarms(s, done[s]) for s in plan if s.restart]
    found = [_detection(s, done[s]) for s in plan if s.name.startswith("detection")]
    recovered = [_recovery(share, done) for share in SHARES.values()]
    learner = watch_learner.rows(learner_runs, seed)
    _print(false_alarms, found, recovered)
    watch_learner.show(learner)
    write_json(
        json,
        "watch",
        {"runs": runs, "learner_runs": learner_runs, "seed": seed, "watch": MonitorSettings()},
        {"false_alarms": false_alarms, "detection": found, "recovery": recovered, "learner": learner},
    )
    save_figure(watch_figure.drift_and_recovery(seed), folder, "watch")


def _run(plan: dict[Scenario, int], seed: int) -> dict[Scenario, StreamOutcomes]:
    tasks = [
        StreamTask(scenario, range(start, min(start + STREAMS_PER_TASK, runs)), seed)
        for scenario, runs in plan.items()
        for start in range(0, runs, STREAMS_PER_TASK)
    ]
    results = in_parallel("watch", work, tasks)
    return {
        scenario: StreamOutcomes.joined([r for t, r in zip(tasks, results, strict=True) if t.scenario == scenario])
        for scenario in plan
    }


def _false_alarms(scenario: Scenario, outcome: StreamOutcomes) -> FalseAlarms:
    streams, settings = len(outcome.tolerance), scenario.settings
    ((pairs, gap),) = scenario.phases
    alarms = int(outcome.alarms.sum())
    return FalseAlarms(
        groups=scenario.group_sizes,
        gap=gap,
        streams=streams,
        tolerance=float((outcome.tolerance != NEVER).mean()),
        allowed=settings.alpha + 2 * float(np.sqrt(settings.alpha * (1 - settings.alpha) / streams)),
        z_test=float(outcome.z_test.mean()),
        pairs_between_drift_alarms=pairs * streams / alarms if alarms else float("inf"),
        configured=settings.false_alarm_pairs,
    )


def _detection(scenario: Scenario, outcome: StreamOutcomes) -> Detection:
    (fair, _), (_, gap) = scenario.phases
    clean = outcome.early == 0
    return Detection(
        groups=scenario.group_sizes,
        gap=gap,
        fair_pairs=fair,
        streams=len(clean),
        tolerance=_median(outcome.tolerance[clean]),
        drift=_median(outcome.drift[outcome.drifting == 0]),
        missed=float((outcome.tolerance[clean] == NEVER).mean()),
    )


def _recovery(share: float, done: dict[Scenario, StreamOutcomes]) -> RecoveryRow:
    outcome = done[recovery(share)]
    cleared = outcome.cleared[outcome.drifting == 1]
    turned = done[turning(share)]
    return RecoveryRow(
        groups=recovery(share).group_sizes,
        streams=len(cleared),
        median=_median(cleared),
        ninetieth=_quantile(cleared, 0.9),
        never=float((cleared == NEVER).mean()),
        turned_cleared=_median(turned.cleared[turned.drifting == 1]),
        turned_raised=_median(turned.drift[turned.drifting == 1]),
    )


def _median(when: Ints) -> float:
    return _quantile(when, 0.5)


def _quantile(when: Ints, part: float) -> float:
    """Of the streams where it never happened, it may still: they count as the latest."""
    if not len(when):
        return float("nan")
    return float(np.quantile(np.where(when == NEVER, np.inf, when), part, method="inverted_cdf"))


def _print(false_alarms: Sequence[FalseAlarms], found: Sequence[Detection], recovered: Sequence[RecoveryRow]) -> None:
    percent: Callable[[float], str] = "{:.1%}".format
    table(
        "False alarms",
        ["groups", "true gap", "tolerance", "allowed", "z-test", "pairs between drift alarms", "configured"],
        [
            [
                row.groups,
                f"{row.gap:.2f}",
                percent(row.tolerance),
                percent(row.allowed),
                percent(row.z_test),
                f"{row.pairs_between_drift_alarms:,.0f}",
                f"{row.configured:,}",
            ]
            for row in false_alarms
        ],
        [
            f"{false_alarms[0].streams} streams of {BOUNDARY_PAIRS} pairs, ε = α = 0.05, error rates around {LEVEL}.",
            "allowed: α and twice its standard error. z-test: |difference| − ε > 1.645 standard errors at any pair.",
        ],
    )
    table(
        "Pairs to detect (median)",
        ["groups", "true gap", "fair pairs before", "tolerance", "drift"],
        [
            [row.groups, f"{row.gap:.2f}", f"{row.fair_pairs:,}", f"{row.tolerance:,.0f}", f"{row.drift:,.0f}"]
            for row in found
        ],
        [f"{found[0].streams} streams each, counted from when the gap begins."],
    )
    table(
        "Pairs to clear drift after recovery",
        ["groups", "median", "90th percentile", "changed sign: cleared", "raised again"],
        [
            [
                row.groups,
                f"{row.median:,.0f}",
                f"{row.ninetieth:,.0f}",
                f"{row.turned_cleared:,.0f}",
                f"{row.turned_raised:,.0f}",
            ]
            for row in recovered
        ],
        [f"{UNFAIR_PAIRS} pairs at a gap of 0.15, then none; changed sign: then −0.15 (median pairs)."],
    )
