"""The learner's whole memory: integers that only ever grow.

Because everything is a sum, labels may come in any order, in any split and on any machine, and two states add.
Nothing here may depend on the path by which the counts were reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from processor.core.errors import IncompatibleStateError, InvalidInputError
from processor.core.exact import Indices, Ints

from .axes import Axes

ABSENT = -1
"""In an array of predictions: this expert gave none."""

WEIGHT_UNIT = 1 << 20
"""What an ordinary label adds where labels are weighted by how likely they were to be seen."""

AT_ONCE = 16_384
"""So many places are counted in at once: the memory for more would take longer than the counting."""


class Shape(NamedTuple):
    """How many groups, labels, experts and policies are counted."""

    groups: int
    labels: int
    experts: int
    policies: int

    @property
    def size(self) -> int:
        return self.bounds[-1]

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the six arrays, without the batch."""
        return _parts(self)

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where each of them begins, and the end."""
        return _bounds(self)


@cache
def _parts(shape: Shape) -> tuple[tuple[int, ...], ...]:
    g, k, f, p = shape
    return ((g, k), (g, k), (g, k), (f, g, k), (f, g, k), (p, g, k, k))


@cache
def _bounds(shape: Shape) -> tuple[int, ...]:
    return tuple(accumulate((prod(part) for part in _parts(shape)), initial=0))


class Counters:
    """Counts over (run or tenant, group, label, expert); the first axis is always the batch of learners.

    One learner is a batch of one. G groups, K labels, F experts, P policies:

    ``decisions[b, g, ŷ]``       requests decided, by what was decided
    ``seen[b, g, y]``            labels joined, each counted as one
    ``labels[b, g, y]``          the same, in units of ``unit``
    ``trials[b, f, g, y]``       joined labels for which the expert had predicted
    ``losses[b, f, g, y]``       of those, the ones it got wrong
    ``outcomes[b, p, g, y, ŷ]``  joined labels by what the policy decided (or would have)

    ``unit`` is 1, or 2²⁰ where a label stands for several that were not seen.

    All six are views into ``flat[b, n]``, so that to copy, add or stack counters is one operation and not six.
    """

    __slots__ = ("__dict__", "flat", "shape", "unit")

    def __init__(self, flat: Ints, shape: Shape, unit: int = 1) -> None:
        self.flat, self.shape, self.unit = flat, shape, unit

    @classmethod
    def zeros(cls, axes: Axes, batch: int = 1, unit: int = 1) -> Counters:
        shape = Shape(len(axes.groups), len(axes.labels), len(axes.experts), len(axes.policies))
        return cls(np.zeros((batch, shape.size), dtype=np.int64), shape, unit)

    @classmethod
    def stack(cls, parts: Sequence[Counters]) -> Counters:
        """Many learners of one shape as one batch."""
        units = {part.unit for part in parts}
        if len(units) != 1:
            raise IncompatibleStateError(f"cannot batch counters of different units {sorted(units)}")
        if len({part.shape for part in parts}) != 1:
            raise IncompatibleStateError("cannot batch counters of different shapes: bring all to the same axes first")
        return cls(np.concatenate([part.flat for part in parts]), parts[0].shape, units.pop())

    def zeros_like(self, batch: int) -> Counters:
        """No counts, for so many learners of this shape."""
        return Counters(np.zeros((batch, self.shape.size), dtype=np.int64), self.shape, self.unit)

    @cached_property
    def decisions(self) -> Ints:
        return self._view(0)

    @cached_property
    def seen(self) -> Ints:
        return self._view(1)

    @cached_property
    def labels(self) -> Ints:
        return self._view(2)

    @cached_property
    def trials(self) -> Ints:
        return self._view(3)

    @cached_property
    def losses(self) -> Ints:
        return self._view(4)

    @cached_property
    def outcomes(self) -> Ints:
        return self._view(5)

    def _view(self, which: int) -> Ints:
        start, end = self.shape.bounds[which : which + 2]
        return self.flat[:, start:end].reshape(len(self.flat), *self.shape.parts[which])

    def arrays(self) -> tuple[Ints, ...]:
        return (self.decisions, self.seen, self.labels, self.trials, self.losses, self.outcomes)

    def row(self, learner: int) -> Counters:
        """One learner of the batch: a view, not a copy."""
        return Counters(self.flat[learner : learner + 1], self.shape, self.unit)

    def __reduce__(self) -> tuple[type[Counters], tuple[Ints, Shape, int]]:
        """Views do not survive pickling as views."""
        return Counters, (self.flat, self.shape, self.unit)

    @property
    def arrivals(self) -> Ints:
        """Requests decided per group."""
        per_group: Ints = self.decisions.sum(axis=2)
        return per_group

    @property
    def joined(self) -> Ints:
        """Labels joined in all, per learner."""
        per_learner: Ints = self.seen.sum(axis=(1, 2))
        return per_learner

    def plus(self, counts: Ints) -> Counters:
        """The same and these, given flat."""
        return Counters(self.flat + counts, self.shape, self.unit)

    def copy(self) -> Counters:
        return Counters(self.flat.copy(), self.shape, self.unit)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Counters)
            and (self.unit, self.shape) == (other.unit, other.shape)
            and np.array_equal(self.flat, other.flat)
        )

    __hash__ = None  # type: ignore[assignment]

    def __iadd__(self, other: Counters) -> Counters:
        self._check_like(other)
        self.flat += other.flat
        return self

    def __add__(self, other: Counters) -> Counters:
        total = self.copy()
        total += other
        return total

    def _check_like(self, other: Counters) -> None:
        if self.unit != other.unit:
            raise IncompatibleStateError(
                f"one state counts labels in units of {self.unit}, the other of {other.unit}: labels of all "
                'decisions and labels = "positive-only" cannot be merged. Rebuild one of them by replay.'
            )
        if self.flat.shape != other.flat.shape or self.shape != other.shape:
            mine, theirs = ([a.shape for a in c.arrays()] for c in (self, other))
            raise IncompatibleStateError(
                f"counters of shapes {mine} and {theirs} cannot be added: bring both to the same axes "
                "first (Counters.regrown, or State.merge, which does it for you)"
            )

    def add_decisions(self, learner: Ints, group: Ints, decided: Ints) -> None:
        """Count requests by group and decision; all arguments have one entry per request."""
        _check_indices("learner", learner, len(self.flat))
        start, *_ = self.shape.bounds
        self._add(learner * self.shape.size + (start + self._cell(group, decided)), 1)

    def _cell(self, group: Ints, label: Ints) -> Ints:
        """Where group and label are found in an array that has these two axes."""
        _check_indices("group", group, self.shape.groups)
        _check_indices("label", label, self.shape.labels)
        cell: Ints = np.multiply(group, self.shape.labels, dtype=np.int64) + label
        return cell

    def _add(self, places: Ints, counts: Ints | int) -> None:
        """Add to places in ``flat``, had it no axes: with a single index NumPy is ten times as fast as with several."""
        assert self.flat.flags.c_contiguous
        np.add.at(self.flat.reshape(-1), places, counts)

    def add_labels(
        self,
        learner: Ints,
        group: Ints,
        label: Ints,
        predictions: Indices,
        decided: Ints,
        weight: Ints | int | None = None,
    ) -> None:
        """Count joined labels: one scatter-add, in any order.

        ``predictions[n, f]`` holds label indices or ``ABSENT``; ``decided[n, p]`` what each policy decided;
        ``weight[n]`` how much each label counts (default: one unit).
        """
        _check_indices("decided label", decided, self.shape.labels)
        _check_indices("learner", learner, len(self.flat))
        self._check_said(predictions, decided)
        cell = self._cell(group, label)
        units = np.empty(len(cell), np.int64)
        units[...] = self.unit if weight is None else weight
        start = learner * self.shape.size
        at_once = AT_ONCE // (2 + 2 * predictions.shape[1] + decided.shape[1]) + 1
        for first in range(0, len(cell), at_once):
            some = slice(first, first + at_once)
            self._add_some(start[some], cell[some], label[some], predictions[some], decided[some], units[some])

    def _check_said(self, predictions: Indices, decided: Ints) -> None:
        """More columns than there are experts or policies would count in other cells."""
        _, labels, experts, policies = self.shape
        if predictions.shape[1] > experts or decided.shape[1] > policies:
            raise InvalidInputError(
                f"{predictions.shape[1]} predictions and {decided.shape[1]} decisions of each case were given for "
                f"{experts} experts and {policies} policies: extend the state first"
            )
        if predictions.size and not ABSENT <= predictions.min() <= predictions.max() < labels:
            raise InvalidInputError(
                f"a prediction has index {predictions.min()} or {predictions.max()} and there are {labels} labels: use "
                f"an index of one of them, or {ABSENT} where an expert was absent"
            )

    def _add_some(self, start: Ints, cell: Ints, label: Ints, predictions: Indices, decided: Ints, units: Ints) -> None:
        experts, policies = predictions.shape[1], decided.shape[1]
        by_cell, by_outcome = _label_places(self.shape, experts, policies)
        others = len(by_cell)
        places = np.empty((others + policies, len(cell)), np.int64)
        np.add(by_cell, start + cell, out=places[:others])
        np.add(by_outcome + (start + cell * self.shape.labels), decided.T, out=places[others:])
        counts, said = np.empty_like(places), predictions.T
        true = label.astype(said.dtype)  # numbers of one size are compared in half the time
        counts[0], counts[1], counts[others:] = 1, units, units
        counted = np.multiply(units, said != ABSENT, out=counts[2 : 2 + experts])
        np.multiply(counted, said != true, out=counts[2 + experts : others])
        self._add(places.ravel(), counts.ravel())

    def regrown(self, old: Axes, new: Axes) -> Counters:
        """The same counts under more names; new names start at zero."""
        if old == new:
            return self
        grown = Counters.zeros(new, batch=len(self.flat), unit=self.unit)
        grown.flat[:, _places(old, new)] = self.flat
        return grown


@lru_cache(maxsize=1_000)
def _label_places(shape: Shape, experts: int, policies: int) -> tuple[Ints, Ints]:
    """Where a label counts, less its cell: seen, labels, trials, losses; outcomes, less the cell and the decision."""
    _, seen, labels, trials, losses, outcomes, _ = shape.bounds
    expert, policy = (np.arange(count) * (shape.groups * shape.labels) for count in (experts, policies))
    by_cell = np.concatenate([[seen, labels], trials + expert, losses + expert])
    return by_cell[:, None], (outcomes + policy * shape.labels)[:, None]


@lru_cache(maxsize=1_000)
def _places(old: Axes, new: Axes) -> Ints:
    """Where counts under some names are among those under more names, both of them flat."""
    g, k, f, p = (
        np.array([index[name] for name in names], dtype=np.intp)
        for names, index in (
            (old.groups, new.group_index),
            (old.labels, new.label_index),
            (old.experts, new.expert_index),
            (old.policies, new.policy_index),
        )
    )
    shape = Counters.zeros(new).shape
    every = Counters(np.arange(shape.size)[None], shape)
    one = np.zeros(1, dtype=np.intp)
    by_cell, by_expert = np.ix_(one, g, k), np.ix_(one, f, g, k)
    indices = (by_cell, by_cell, by_cell, by_expert, by_expert, np.ix_(one, p, g, k, k))
    found = [places[index].ravel() for places, index in zip(every.arrays(), indices, strict=True)]
    return np.concatenate(found)


def _check_indices(what: str, indices: Ints, count: int) -> None:
    """Beyond its axis an index would count in another cell."""
    if indices.size and indices.astype(np.uint64).max() >= count:  # a negative one would be the largest of all
        raise InvalidInputError(f"a {what} has index {indices.max()} and there are {count}: extend the state first")


def label_weight(positive_parts: int) -> int:
    """How much the label of a positive decision counts that was made with probability ``parts``/2³².

    >>> label_weight(1 << 32) == WEIGHT_UNIT, label_weight(1 << 31) == 2 * WEIGHT_UNIT
    (True, True)
    """
    if not 0 < positive_parts <= 1 << 32:
        raise InvalidInputError(
            f"a positive decision of probability {positive_parts}/2³² cannot have been made: its label has no weight. "
            "Check the propensity recorded with the decision."
        )
    return ((WEIGHT_UNIT << 33) // positive_parts + 1) // 2
