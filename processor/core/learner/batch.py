"""Many learners decide and learn at once: one solve and one scatter-add for all of the same shape.

A batch touches hundreds of tenants with a few requests each; one by one, NumPy would spend its time on being called.
What is decided does not depend on who is decided with: every operation here is elementwise over the learners.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, groupby
from typing import TYPE_CHECKING

import numpy as np

from processor.core.advice import Advice, AdvicePiece, Panel
from processor.core.exact import Indices, Ints

from .axes import Axes
from .cases import Drawn
from .counters import ABSENT, Counters
from .draws import uniforms
from .policies import rules_of
from .rule import DecisionColumns, RequestColumns, decide, distinct

if TYPE_CHECKING:
    from .learner import Learner

IN_FORCE = "in-force"
"""The name under which the outcomes of the policy that really decides are counted."""


MOST = 131_072
"""So many predictions are remembered, as part of the pieces of advice in which they came."""


@dataclass(frozen=True)
class BatchRequests:
    """Requests to learners of one kind, which know their groups, experts and labels already."""

    learners: Sequence[Learner]
    sizes: Sequence[int]
    """how many requests there are to each; those to the first learner come first"""
    ids: Sequence[str]
    advice: Sequence[Advice]
    at: Ints
    """times, in the unit of the learners' bucket"""
    drawn: Mapping[int, Mapping[str, Drawn]] = field(default_factory=dict)
    """what was drawn by id, for learners (by their place) with which a record is followed instead of the seed"""

    @cached_property
    def row(self) -> Ints:
        """Which of the learners each request is to."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def parts(self) -> list[slice]:
        """The requests to each learner."""
        return slices(self.sizes)


@dataclass(frozen=True, slots=True)
class PolicyDecisions:
    """What was decided, one entry per case, as indices into the axes of its learner's state."""

    group: Ints
    predictions: Indices
    """[n, f]; ``ABSENT`` where an expert said nothing"""
    by_policy: Mapping[str, DecisionColumns]

    @property
    def in_force(self) -> DecisionColumns:
        return self.by_policy[IN_FORCE]

    def part(self, which: slice) -> PolicyDecisions:
        return PolicyDecisions(
            self.group[which],
            self.predictions[which],
            {
                name: DecisionColumns(
                    made.label[which], made.instance[which], made.expert[which], made.probabilities[which]
                )
                for name, made in self.by_policy.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Labels:
    """Joined labels of learners that are alike, as indices into the axes of their states.

    See ``Counters.add_labels``.
    """

    row: Ints
    """which of the learners each label is for"""
    at: Ints
    group: Ints
    label: Ints
    predictions: Indices
    decided: Ints
    weight: Ints | None = None


def decide_batch(cases: BatchRequests) -> PolicyDecisions:
    """Decide, and count the decisions."""
    learners = cases.learners
    first = learners[0]
    settings, labels = first.settings, first.state.axes.labels
    group, predictions = _indices(cases)
    draws = uniforms([(learner.seed, cases.ids[part]) for learner, part in zip(learners, cases.parts, strict=True)])
    asked = RequestColumns(cases.row, group, predictions, draws)
    counters = Counters.stack([learner.state.window(settings.window) for learner in learners])
    explore = None
    if settings.feedback == "positive-only":
        assert settings.positive is not None
        assert settings.explore is not None
        explore = (labels.index(settings.positive), settings.explore)
    rules = rules_of(first.policies, counters, labels, settings.prior)
    verdicts = PolicyDecisions(group, predictions, decide(rules, asked, len(labels), explore, published=IN_FORCE))
    for number, drawn in cases.drawn.items():
        part = cases.parts[number]
        _follow(learners[number].state.axes, cases.ids[part], drawn, verdicts.part(part))
    _add(learners, cases.row, cases.at, lambda delta, rows: delta.add_decisions(rows, group, verdicts.in_force.label))
    return verdicts


def learn_batch(learners: Sequence[Learner], labels: Labels) -> None:
    """Join the labels of learners of one kind; the order does not matter."""
    _add(
        learners,
        labels.row,
        labels.at,
        lambda delta, rows: delta.add_labels(
            rows, labels.group, labels.label, labels.predictions, labels.decided, labels.weight
        ),
    )


def slices(lengths: Sequence[int]) -> list[slice]:
    """
    >>> slices([2, 1])
    [slice(0, 2, None), slice(2, 3, None)]
    """
    found, start = [], 0
    for length in lengths:
        found.append(slice(start, start + length))
        start += length
    return found


def _indices(cases: BatchRequests) -> tuple[Ints, Indices]:
    """Groups [n] and predictions [n, f]."""
    group: list[int] = []
    rows: list[bytes] = []
    pieces: list[Sequence[AdvicePiece]] = []
    parts = zip([learner.state.axes for learner in cases.learners], cases.parts, strict=True)
    for _, alike in groupby(parts, lambda part: id(part[0])):  # axes with the same names are shared
        some = list(alike)
        (axes, first), (_, last) = some[0], some[-1]
        known, advice = _known_of(axes), cases.advice[first.start : last.stop]
        group += map(known.groups.__getitem__, [each.panel for each in advice])
        pieces += (came := [each.pieces for each in advice])
        rows += map(known.rows.__getitem__, chain.from_iterable(came))
    said: Indices = np.frombuffer(b"".join(rows), np.int16).reshape(len(rows), -1)
    if len(rows) > len(pieces):
        said = _added(said, list(map(len, pieces)))
    return np.array(group, dtype=np.int64), said + np.int16(ABSENT)


def _added(rows: Indices, counts: Sequence[int]) -> Indices:
    """The sum of the first ``counts[0]`` rows, of the next ``counts[1]``, and so on.

    >>> _added(np.array([[1, 0], [0, 2], [3, 3]]), [2, 1]).tolist()
    [[1, 2], [3, 3]]
    """
    width = counts[0]
    if counts.count(width) < len(counts):
        return np.add.reduceat(rows, np.cumsum([0, *counts[:-1]]), axis=0)
    total = rows[::width]
    for place in range(1, width):
        total = total + rows[place::width]
    return total


class _Known:
    """What was said before, for learners of certain names."""

    def __init__(self, axes: Axes) -> None:
        self.groups, self.rows = _Groups(axes), _Rows(axes)


class _Groups(dict[Panel, int]):
    """The index of the group of a case, each looked up once."""

    def __init__(self, axes: Axes) -> None:
        self._index = axes.group_index

    def __missing__(self, panel: Panel) -> int:
        group = self[panel] = self._index[panel.group]
        return group


class _Rows(dict[AdvicePiece, bytes]):
    """What a piece of advice says, as a row of numbers, each worked out once: the index of the label plus one for each
    of its experts, 0 for others. Pieces of one request are from different experts: their rows add up."""

    remembered = 0
    """predictions, for learners of all names together"""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes

    def __missing__(self, piece: AdvicePiece) -> bytes:
        experts, labels = self._axes.expert_index, self._axes.label_index
        row = [0] * len(experts)
        for expert, label in zip(piece.experts, piece.labels, strict=True):
            row[experts[expert]] = labels[label] - ABSENT
        text = self[piece] = array("h", row).tobytes()
        _Rows.remembered += len(piece.experts)
        if _Rows.remembered >= MOST:
            _Rows.remembered = 0
            _known_of.cache_clear()
        return text


@lru_cache(maxsize=10_000)
def _known_of(axes: Axes) -> _Known:
    return _Known(axes)


def _follow(axes: Axes, ids: Sequence[str], drawn: Mapping[str, Drawn], verdict: PolicyDecisions) -> None:
    """Put what was drawn according to the record in place of our own draws; shadows then count as in force."""
    made = verdict.in_force
    for i, decision_id in enumerate(ids):
        known = drawn.get(decision_id)
        if known is None:
            continue
        made.label[i] = axes.label(known.label)
        made.expert[i] = ABSENT if known.expert is None else axes.expert_index[known.expert]
        made.instance[i] = ABSENT if known.instance is None else axes.label(known.instance)
        for other in verdict.by_policy.values():
            other.label[i] = made.label[i]


def _add(learners: Sequence[Learner], row: Ints, at: Ints, count: Callable[[Counters, Ints], None]) -> None:
    """Count into one row for each learner and time bucket, and add these to the learners' states.

    There is something to count for every learner.
    """
    numbers = at // learners[0].state.bucket
    lowest = int(numbers.min())
    width = int(numbers.max()) - lowest + 1
    places, rows = list(range(len(learners))), row
    if width > 1:
        each = row * width + (numbers - lowest)
        some, rows = distinct(each, len(learners) * width)
        places = each[some].tolist()
    delta = learners[0].state.lifetime.zeros_like(len(places))
    count(delta, rows)
    for place, counts in zip(places, delta.flat, strict=True):
        learners[place // width].state.add(place % width + lowest, counts)
