"""Many learners decide and learn at once: one solve and one scatter-add for all of the same shape.

A batch touches hundreds of tenants with a few requests each; one by one, NumPy would spend its time on being called.
What is decided does not depend on who is decided with: every operation here is elementwise over the learners.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from .advice import Advice, Piece
from .axes import Axes
from .counters import ABSENT, Counters
from .draws import digests, uniforms
from .exact import Ints
from .policies import rules_of
from .rule import Decided, Questions, distinct

if TYPE_CHECKING:
    from .learner import Drawn, Learner

IN_FORCE = "in-force"
"""The name under which the outcomes of the policy that really decides are counted."""


@dataclass(frozen=True)
class Cases:
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
class Verdicts:
    """What was decided, one entry per case, as indices into the axes of its learner's state."""

    group: Ints
    predictions: Ints
    """[n, f]; ``ABSENT`` where an expert said nothing"""
    by_policy: Mapping[str, Decided]

    @property
    def in_force(self) -> Decided:
        return self.by_policy[IN_FORCE]

    def part(self, which: slice) -> Verdicts:
        return Verdicts(
            self.group[which],
            self.predictions[which],
            {
                name: Decided(made.label[which], made.instance[which], made.expert[which], made.probabilities[which])
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
    predictions: Ints
    decided: Ints
    weight: Ints | None = None


def decide_alike(cases: Cases) -> Verdicts:
    """Decide, and count the decisions."""
    learners = cases.learners
    first = learners[0]
    settings, labels = first.settings, first.state.axes.labels
    group, predictions = _indices(cases)
    draws = uniforms(
        [digests(learner.seed, cases.ids[part]) for learner, part in zip(learners, cases.parts, strict=True)]
    )
    asked = Questions(cases.row, group, predictions, draws)
    counters = Counters.stack([learner.state.window(settings.window) for learner in learners])
    explore = None
    if settings.feedback == "positive-only":
        assert settings.positive is not None
        assert settings.explore is not None
        explore = (labels.index(settings.positive), settings.explore)
    rules = rules_of(first.policies, counters, labels, settings.prior)
    decided = {
        name: rule.decide(asked, len(labels), explore, published=name == IN_FORCE) for name, rule in rules.items()
    }
    verdicts = Verdicts(group, predictions, decided)
    for number, drawn in cases.drawn.items():
        part = cases.parts[number]
        _follow(learners[number].state.axes, cases.ids[part], drawn, verdicts.part(part))
    _add(learners, cases.row, cases.at, lambda delta, rows: delta.add_decisions(rows, group, verdicts.in_force.label))
    return verdicts


def learn_alike(learners: Sequence[Learner], labels: Labels) -> None:
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


def _indices(cases: Cases) -> tuple[Ints, Ints]:
    """Groups [n] and predictions [n, f]. Each piece of advice is looked at once for all learners of the same names."""
    tables: dict[int, tuple[Axes, dict[Advice, int]]] = {}  # by the object: axes with the same names are shared
    numbers: list[int] = []
    fresh = count().__next__
    for learner, part in zip(cases.learners, cases.parts, strict=True):
        axes = learner.state.axes
        if id(axes) not in tables:
            tables[id(axes)] = axes, defaultdict(fresh)
        numbers += map(tables[id(axes)][1].__getitem__, cases.advice[part])
    distinct = fresh()
    group = np.empty(distinct, dtype=np.int64)
    predictions = np.full((distinct, len(axes.experts)), ABSENT, dtype=np.int64)
    for axes, known in tables.values():
        _fill(group, predictions, axes, known)
    places = np.array(numbers)
    return group.take(places), predictions.take(places, axis=0)


def _fill(group: Ints, predictions: Ints, axes: Axes, known: Mapping[Advice, int]) -> None:
    """The rows of advice, by number, for learners of these names."""
    numbers: dict[Piece, int] = defaultdict(count().__next__)
    chosen: list[tuple[Ints, Ints]] = []
    for pieces, rows in _in_pieces(known):
        for place in zip(*pieces, strict=True):
            which = np.fromiter(map(numbers.__getitem__, place), np.int64, len(rows))
            chosen.append((rows, which))
    table = np.zeros((len(numbers), predictions.shape[1]), dtype=np.int64)
    widths = [len(piece.experts) for piece in numbers]
    experts = [axes.expert_index[expert] for piece in numbers for expert in piece.experts]
    said = [axes.label_index[label] for piece in numbers for label in piece.labels]
    table[np.repeat(np.arange(len(widths)), widths), np.array(experts, dtype=np.int64)] = (
        np.array(said, dtype=np.int64) - ABSENT
    )
    # Pieces of one request are from different experts, and who is absent counts 0 here: they add up.
    for rows, which in chosen:
        predictions[rows] += table[which]
    groups = {panel: axes.group_index[panel.group] for panel in {advice.panel for advice in known}}
    group[list(known.values())] = [groups[advice.panel] for advice in known]


def _in_pieces(known: Mapping[Advice, int]) -> Iterator[tuple[list[Sequence[Piece]], Ints]]:
    """The pieces of advice, and its rows, for all that came in equally many of them. Mostly that is all."""
    pieces = [advice.pieces for advice in known]
    rows, counts = np.fromiter(known.values(), np.int64, len(known)), list(map(len, pieces))
    if len(set(counts)) == 1:
        yield pieces, rows
        return
    for number in set(counts):
        mine = [i for i, count_of_one in enumerate(counts) if count_of_one == number]
        yield [pieces[i] for i in mine], rows[mine]


def _follow(axes: Axes, ids: Sequence[str], drawn: Mapping[str, Drawn], verdict: Verdicts) -> None:
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
    """Count into one row for each learner and time bucket, and add these to the learners' states."""
    numbers = at // learners[0].state.bucket
    lowest = int(numbers.min())
    width = int(numbers.max()) - lowest + 1
    places = row * width + (numbers - lowest)
    some, rows = distinct(places, len(learners) * width)
    delta = learners[0].state.lifetime.zeros_like(len(some))
    count(delta, rows)
    for place, counts in zip(places[some].tolist(), delta.flat, strict=True):
        learners[place // width].state.add(place % width + lowest, counts)
