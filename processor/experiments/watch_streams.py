"""Simulated streams through phases of known gaps, and when each alert was raised and cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from processor.core.alerts.alerts import MonitorSettings
from processor.core.exact import Floats, Ints

from .wealth import Streams, ZTest, draw_pairs

LEVEL = 0.2
"""Error rates lie around this: those of the groups are half a gap above and below."""

SHARES = {"1:1": 0.5, "9:1": 0.9}
BOUNDARY_PAIRS = 20_000
FAIR_PAIRS = 10_000
DETECT_PAIRS = 15_000
UNFAIR_PAIRS = 3_000
CLEAR_PAIRS = 8_000
STREAMS_PER_TASK = 500
"""Fixed, so that the same seed gives the same figures on any number of cores."""

NEVER = -1


@dataclass(frozen=True)
class Scenario:
    """Streams through phases of one gap each; what is measured happens in the last."""

    name: str
    share: float
    phases: tuple[tuple[int, float], ...]
    """(pairs, gap)"""
    restart: bool = False
    """begin the drift detector anew at each alarm, to count them"""
    to_the_end: bool = False
    """go on after every stream has raised, or cleared, what was raised"""
    settings: MonitorSettings = field(default_factory=MonitorSettings)

    @property
    def group_sizes(self) -> str:
        return next(name for name, share in SHARES.items() if share == self.share)


@dataclass(frozen=True)
class StreamTask:
    scenario: Scenario
    streams: range
    seed: int


@dataclass
class StreamOutcomes:
    """One entry per stream; pairs are counted from the start of the last phase, and ``NEVER`` if it did not happen."""

    tolerance: Ints
    drift: Ints
    cleared: Ints
    early: Ints
    """the tolerance alert had been raised before the last phase"""
    drifting: Ints
    """drift was raised when the last phase began"""
    alarms: Ints
    """drift alarms in all"""
    z_test: Ints
    """the z-test raised in the last phase"""

    @classmethod
    def nothing(cls, streams: int) -> StreamOutcomes:
        return cls(*(np.full(streams, NEVER) for _ in range(3)), *(np.zeros(streams, np.int64) for _ in range(4)))

    @classmethod
    def joined(cls, parts: Sequence[StreamOutcomes]) -> StreamOutcomes:
        return cls(*(np.concatenate([vars(p)[name] for p in parts]) for name in vars(parts[0])))


def work(task: StreamTask) -> StreamOutcomes:
    """Run all streams of a task, pair by pair."""
    scenario, count = task.scenario, len(task.streams)
    rng = np.random.default_rng([task.seed, task.streams.start, *scenario.name.encode()])
    streams = Streams(scenario.settings, count)
    outcome = StreamOutcomes.nothing(count)
    *earlier, (pairs, gap) = scenario.phases
    for before, its_gap in earlier:
        for drawn in draw_pairs(rng, count, before, scenario.share, *_rates(its_gap)):
            for x in drawn.x:
                streams.pair(x)
    outcome.early[:], outcome.drifting[:] = streams.tolerance_raised, streams.drift_raised
    z_test = ZTest(scenario.settings.tolerance, count)
    start = streams.pairs
    for drawn in draw_pairs(rng, count, pairs, scenario.share, *_rates(gap)):
        z_test.take(drawn)
        for x in drawn.x:
            _note(outcome, streams, x, start, scenario.restart)
        if not scenario.to_the_end and np.all(_seen_enough(outcome, streams)):
            break
    outcome.z_test[:] = z_test.raised
    return outcome


def _note(outcome: StreamOutcomes, streams: Streams, x: Floats, start: int, restart: bool) -> None:
    events = streams.pair(x)
    for happened, when in (
        (events.tolerance, outcome.tolerance),
        (events.drift, outcome.drift),
        (events.cleared, outcome.cleared),
    ):
        if happened.any():
            when[happened & (when == NEVER)] = streams.pairs - start
    outcome.alarms += events.drift
    if restart:
        streams.forget_drift(events.drift)


def _seen_enough(outcome: StreamOutcomes, streams: Streams) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Everything that is measured in the last phase has happened."""
    drift = np.where(outcome.drifting > 0, outcome.cleared != NEVER, outcome.drift != NEVER)
    enough: np.ndarray[Any, np.dtype[np.bool_]] = streams.tolerance_raised & drift
    return enough


def _rates(gap: float) -> tuple[float, float]:
    return LEVEL + gap / 2, LEVEL - gap / 2


def boundary(share: float, gap: float) -> Scenario:
    return Scenario(f"boundary {share} {gap}", share, ((BOUNDARY_PAIRS, gap),), restart=True, to_the_end=True)


def detection(share: float, gap: float, fair: int) -> Scenario:
    return Scenario(f"detection {share} {gap} {fair}", share, ((fair, 0.0), (DETECT_PAIRS, gap)))


def recovery(share: float) -> Scenario:
    return Scenario(f"recovery {share}", share, ((UNFAIR_PAIRS, 0.15), (CLEAR_PAIRS, 0.0)))


def turning(share: float) -> Scenario:
    return Scenario(f"turning {share}", share, ((UNFAIR_PAIRS, 0.15), (UNFAIR_PAIRS, -0.15)), to_the_end=True)
