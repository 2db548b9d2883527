"""Run a policy through many streams at once, as the processor would: decide, and learn when labels come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from processor.core import Axes, Counters, Policy, rule_of
from processor.core.exact import ONE, Floats, Ints, Parts
from processor.core.learner.counters import WEIGHT_UNIT
from processor.core.learner.draws import DRAWS, draws
from processor.core.learner.rule import RequestColumns, Rule
from producers.delays import NEVER
from producers.synthetic import Cases

MAX_BLOCK = 50
"""Rounds decided by one rule. Early on, blocks are a twentieth of the rounds so far: learning is fastest there."""

WINDOW_BUCKETS = 10


@dataclass(frozen=True)
class PositiveOnly:
    """Labels come for positive decisions only (label index 1)."""

    explore: float | None
    """φ, or None for no exploration floor"""
    weighted: bool = True
    """count a label by how unlikely it was to be seen; False is the naive way"""


@dataclass(frozen=True)
class SimulatedRun:
    """What a policy did, for every run and round."""

    wrong: Floats
    """[run, round]: the probability it gave to a wrong decision"""
    decided: Ints
    """[run, round]: the label index it decided"""
    counters: Counters
    """at the end"""


def run_draws(seed: int, runs: range, rounds: int) -> Parts:
    """[run, round, 3]: the draws of decisions named ``run/round``."""
    key = seed.to_bytes(16, "big")
    ids = (f"{run}/{t}" for run in runs for t in range(rounds))
    return draws(key, ids).reshape(len(runs), rounds, DRAWS)


def simulate(
    cases: Cases,
    policy: Policy,
    uniforms: Parts,
    delays: Ints | None = None,
    window: int | None = None,
    positive_only: PositiveOnly | None = None,
    make_rule: Callable[[Policy, Counters, tuple[str, ...]], Rule] = rule_of,
) -> SimulatedRun:
    """Decide all cases in order of arrival.

    ``delays[run, round]`` says after how many rounds the label is known (default: before the next case);
    ``window`` learns from the labels of the last so many rounds only; ``make_rule`` tries another reading of a policy.
    """
    axes = _axes(cases)
    unit = WEIGHT_UNIT if positive_only and positive_only.weighted else 1
    total = Counters.zeros(axes, cases.runs, unit)
    ring: deque[Counters] = deque()
    run = SimulatedRun(np.empty(cases.group.shape), np.empty(cases.group.shape, dtype=np.int64), total)
    explore = (1, positive_only.explore) if positive_only and positive_only.explore else None
    propensity = np.zeros(cases.group.shape, dtype=np.uint64)
    known = _labels_by_block(cases, delays)
    for start, stop in blocks(cases.rounds):
        _turn_ring(ring, window, start, axes, total)
        _learn(total, ring, cases, run, known[start], propensity, positive_only)
        learnt_from = total if window is None else sum(ring, Counters.zeros(axes, cases.runs, unit))
        rule = make_rule(policy, learnt_from, axes.labels)
        learner = np.repeat(np.arange(cases.runs), stop - start)
        group = cases.group[:, start:stop].ravel()
        label = cases.label[:, start:stop].ravel()
        predictions = cases.predictions[:, start:stop].reshape(len(group), -1)
        asked = RequestColumns(learner, group, predictions, uniforms[:, start:stop].reshape(-1, DRAWS))
        made = rule.decide(asked, len(axes.labels), explore)
        right = made.probabilities[np.arange(len(label)), label] / ONE
        run.wrong[:, start:stop] = (1.0 - right).reshape(cases.runs, -1)
        run.decided[:, start:stop] = made.label.reshape(cases.runs, -1)
        propensity[:, start:stop] = made.probabilities[:, 1].reshape(cases.runs, -1)
        for counters in (total, *list(ring)[-1:]):
            counters.add_decisions(learner, group, made.label)
    return run


def blocks(rounds: int) -> Iterator[tuple[int, int]]:
    """Rounds decided by one and the same rule: (start, stop)."""
    start = 0
    while start < rounds:
        to_bucket_end = MAX_BLOCK - start % MAX_BLOCK
        size = max(1, min(start // 20, to_bucket_end, rounds - start))
        yield start, start + size
        start += size


def _axes(cases: Cases) -> Axes:
    return numbered_axes(*(int(a.max()) + 1 for a in (cases.group, cases.label, _experts(cases))))


def numbered_axes(groups: int, labels: int, experts: int) -> Axes:
    """So many of each, named by their numbers, and the policy in force."""
    return Axes.of(
        groups=[f"{g:02}" for g in range(groups)],
        labels=[f"{y:02}" for y in range(labels)],
        experts=[f"{f:02}" for f in range(experts)],
        policies=["in-force"],
    )


def _experts(cases: Cases) -> Ints:
    return np.arange(cases.predictions.shape[2])


def _labels_by_block(cases: Cases, delays: Ints | None) -> dict[int, tuple[Ints, Ints]]:
    """For the start of each block the (run, round) of the labels that have come since the last."""
    rounds = np.broadcast_to(np.arange(cases.rounds), cases.group.shape)
    late = np.zeros(cases.group.shape, np.int64) if delays is None else delays
    known_at = np.where(late == NEVER, NEVER, rounds + 1 + np.where(late == NEVER, 0, late)).ravel()
    order = np.argsort(known_at, kind="stable")
    starts = [start for start, _ in blocks(cases.rounds)]
    ends = np.searchsorted(known_at[order], starts, side="right")
    begins = np.concatenate([[0], ends[:-1]])
    return {
        start: (order[a:b] // cases.rounds, order[a:b] % cases.rounds)
        for start, a, b in zip(starts, begins, ends, strict=True)
    }


def _learn(
    total: Counters,
    ring: deque[Counters],
    cases: Cases,
    run: SimulatedRun,
    known: tuple[Ints, Ints],
    propensity: Parts,
    positive_only: PositiveOnly | None,
) -> None:
    learner, rounds = known
    decided = run.decided[learner, rounds]
    weight = None
    if positive_only:
        shown = decided == 1
        learner, rounds, decided = learner[shown], rounds[shown], decided[shown]
        if positive_only.weighted:
            weight = np.rint(WEIGHT_UNIT * (ONE / propensity[learner, rounds])).astype(np.int64)
    labels = (cases.group[learner, rounds], cases.label[learner, rounds], cases.predictions[learner, rounds])
    for counters in (total, *list(ring)[-1:]):
        counters.add_labels(learner, *labels, decided[:, None], weight)


def _turn_ring(ring: deque[Counters], window: int | None, start: int, axes: Axes, total: Counters) -> None:
    if window is None:
        return
    width = window // WINDOW_BUCKETS
    if not ring or start % width == 0:
        ring.append(Counters.zeros(axes, len(total.seen), total.unit))
    while len(ring) > WINDOW_BUCKETS:
        ring.popleft()
