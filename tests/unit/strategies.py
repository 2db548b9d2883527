"""Random counters, labels and problems for property tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from processor.core import ABSENT, Axes, Counters, State
from processor.core.exact import Floats, Ints
from processor.core.learner.objectives import Problem


@dataclass(frozen=True)
class Labels:
    """Joined labels, one entry each, ready for ``State.add_labels``."""

    at: Ints
    group: Ints
    label: Ints
    predictions: Ints
    decided: Ints
    weight: Ints | None = None

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Ints) -> Labels:
        weight = None if self.weight is None else self.weight[rows]
        return Labels(
            self.at[rows], self.group[rows], self.label[rows], self.predictions[rows], self.decided[rows], weight
        )

    def add_to(self, state: State) -> State:
        state.add_decisions(self.at, self.group, self.decided[:, 0])
        state.add_labels(self.at, self.group, self.label, self.predictions, self.decided, self.weight)
        return state


def axes(groups: int = 2, labels: int = 2, experts: int = 3, policies: int = 2) -> Axes:
    return Axes.of(
        groups=[f"g{i}" for i in range(groups)],
        labels=[f"y{i}" for i in range(labels)],
        experts=[f"f{i}" for i in range(experts)],
        policies=[f"p{i}" for i in range(policies)],
    )


def random_labels(rng: np.random.Generator, of: Axes, count: int, unit: int = 1, span: int = 400) -> Labels:
    kinds = len(of.labels)
    predictions = rng.integers(ABSENT, kinds, size=(count, len(of.experts)))
    return Labels(
        at=rng.integers(0, span, size=count),
        group=rng.integers(0, len(of.groups), size=count),
        label=rng.integers(0, kinds, size=count),
        predictions=predictions,
        decided=rng.integers(0, kinds, size=(count, len(of.policies))),
        weight=None if unit == 1 else rng.integers(unit, 20 * unit, size=count),
    )


def random_counters(rng: np.random.Generator, of: Axes, batch: int, most: int = 2_000) -> Counters:
    """Counters as labels would leave them: losses ≤ trials ≤ labels."""
    counters = Counters.zeros(of, batch)
    size = rng.integers(0, most, size=counters.labels.shape) * rng.integers(0, 2, size=counters.labels.shape)
    counters.labels[...] = counters.seen[...] = size
    whole = np.broadcast_to(size[:, None], counters.trials.shape)
    partly = rng.random(counters.trials.shape) < 0.3
    counters.trials[...] = np.where(partly, rng.integers(0, whole + 1), whole)
    counters.losses[...] = rng.integers(0, counters.trials + 1)
    counters.decisions[...] = counters.seen + rng.integers(0, 50, size=counters.seen.shape)
    return counters


def random_problem(rng: np.random.Generator, batch: int, groups: int, choices: int) -> Problem:
    """Least squares with rows of very different size, some of them missing, some with a linear cost."""
    rows = rng.normal(size=(batch, groups * 2 + 1, groups * choices))
    rows *= 10.0 ** rng.uniform(-3, 0, size=(*rows.shape[:2], 1))
    rows[rng.random(rows.shape[:2]) < 0.3] = 0.0
    linear: Floats = rng.uniform(size=(batch, groups * choices)) * (rng.random((batch, 1)) < 0.5)
    return Problem(rows, linear, rng.dirichlet(np.ones(choices), size=(batch, groups)))


seeds = st.integers(0, 2**32 - 1)
