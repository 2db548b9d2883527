"""Many learners decide and learn at once: one solve and one scatter-add for all of the same shape.

A batch touches hundreds of tenants with a few requests each; one by one, NumPy would spend its time on being called.
What is decided does not depend on who is decided with: every operation here is elementwise over the learners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from .counters import ABSENT, Counters
from .draws import draws
from .exact import Ints, Parts
from .policies import rule_of
from .rule import Decided

if TYPE_CHECKING:
    from .learner import Drawn, Learner

IN_FORCE = "in-force"
"""The name under which the outcomes of the policy that really decides are counted."""


@dataclass(frozen=True, slots=True)
class Cases:
    """Requests to one learner, which knows their groups, experts and labels already."""

    learner: Learner
    ids: Sequence[str]
    groups: Sequence[str]
    predictions: Sequence[Mapping[str, str]]
    at: Sequence[int]
    """times, in the unit of the learner's bucket"""
    drawn: Mapping[str, Drawn] | None = None
    """what was drawn by id, where a record is followed instead of the seed"""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What was decided, one entry per case, as indices into the axes of the learner's state."""

    group: Ints
    predictions: Ints
    """[n, f]; ``ABSENT`` where an expert said nothing"""
    by_policy: Mapping[str, Decided]

    @property
    def in_force(self) -> Decided:
        return self.by_policy[IN_FORCE]


@dataclass(frozen=True, slots=True)
class Labels:
    """Joined labels of one learner, as indices into the axes of its state; see ``Counters.add_labels``."""

    learner: Learner
    at: Ints
    group: Ints
    label: Ints
    predictions: Ints
    decided: Ints
    weight: Ints | None = None


def decide_together(cases: Sequence[Cases]) -> list[Verdicts]:
    """Decide the cases of many learners, each by its rule of this moment, and count the decisions."""
    verdicts: list[Verdicts | None] = [None] * len(cases)
    for alike in _by_kind([one.learner for one in cases]):
        mine = [cases[i] for i in alike]
        for i, verdict in zip(alike, _decide_alike(mine), strict=True):
            verdicts[i] = verdict
    return [verdict for verdict in verdicts if verdict is not None]


def learn_together(labels: Sequence[Labels]) -> None:
    """Join the labels of many learners; the order does not matter."""
    for alike in _by_kind([one.learner for one in labels]):
        mine = [labels[i] for i in alike]
        rows, places = _rows(mine, [one.at for one in mine])
        delta = _zeros_like(mine[0].learner.state.lifetime, len(places))
        weights = [one.weight for one in mine if one.weight is not None]
        delta.add_labels(
            rows,
            np.concatenate([one.group for one in mine]),
            np.concatenate([one.label for one in mine]),
            np.concatenate([one.predictions for one in mine]),
            np.concatenate([one.decided for one in mine]),
            np.concatenate(weights) if weights else None,
        )
        _add(mine, places, delta)


def _by_kind(learners: Sequence[Learner]) -> list[list[int]]:
    """Indices of learners that can share arrays: same settings, same labels, as many groups, experts, policies."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for i, learner in enumerate(learners):
        axes = learner.state.axes
        shape = (len(axes.groups), len(axes.experts), len(axes.policies))
        kinds.setdefault((learner.kind, axes.labels, shape), []).append(i)
    return list(kinds.values())


def _decide_alike(cases: Sequence[Cases]) -> list[Verdicts]:
    first = cases[0].learner
    settings, labels = first.settings, first.state.axes.labels
    learner = np.repeat(np.arange(len(cases)), [len(one.ids) for one in cases])
    group, predictions = _indices(cases)
    uniforms = np.concatenate([draws(one.learner.seed, one.ids) for one in cases])
    counters = Counters.stack([one.learner.state.window(settings.window) for one in cases])
    explore = None
    if settings.feedback == "positive-only":
        assert settings.positive is not None
        assert settings.explore is not None
        explore = (labels.index(settings.positive), settings.explore)
    decided = {}
    for name, policy in first.policies.items():
        rule = rule_of(policy, counters, labels, settings.prior)
        decided[name] = rule.decide(learner, group, predictions, uniforms, len(labels), explore)
    verdicts = _split(cases, group, predictions, decided)
    for one, verdict in zip(cases, verdicts, strict=True):
        if one.drawn is not None:
            _follow(one, verdict)
    _count(cases, group, np.concatenate([verdict.in_force.label for verdict in verdicts]))
    return verdicts


def _indices(cases: Sequence[Cases]) -> tuple[Ints, Ints]:
    group: list[int] = []
    said: list[int] = []
    for one in cases:
        axes = one.learner.state.axes
        of_group, of_label, experts = axes.group_index, axes.label_index, axes.experts
        group += [of_group[name] for name in one.groups]
        everybody = itemgetter(*experts) if len(experts) > 1 else lambda advice, e=experts[0]: (advice[e],)
        for advice in one.predictions:
            if len(advice) == len(experts):
                said += [of_label[label] for label in everybody(advice)]
            else:
                said += [of_label[advice[e]] if e in advice else ABSENT for e in experts]
    return np.array(group, dtype=np.int64), np.array(said, dtype=np.int64).reshape(len(group), -1)


def _split(cases: Sequence[Cases], group: Ints, predictions: Ints, decided: Mapping[str, Decided]) -> list[Verdicts]:
    if len(cases) == 1:
        return [Verdicts(group, predictions, decided)]
    verdicts, start = [], 0
    for one in cases:
        part = slice(start, start + len(one.ids))
        mine = {
            name: Decided(made.label[part], made.instance[part], made.expert[part], made.probabilities[part])
            for name, made in decided.items()
        }
        verdicts.append(Verdicts(group[part], predictions[part], mine))
        start = part.stop
    return verdicts


def _follow(cases: Cases, verdict: Verdicts) -> None:
    """Put what was drawn according to the record in place of our own draws; shadows then count as in force."""
    axes, made = cases.learner.state.axes, verdict.in_force
    assert cases.drawn is not None
    for i, decision_id in enumerate(cases.ids):
        known = cases.drawn.get(decision_id)
        if known is None:
            continue
        made.label[i] = axes.label(known.label)
        made.expert[i] = ABSENT if known.expert is None else axes.expert_index[known.expert]
        made.instance[i] = ABSENT if known.instance is None else axes.label(known.instance)
        for other in verdict.by_policy.values():
            other.label[i] = made.label[i]


def _count(cases: Sequence[Cases], group: Ints, label: Ints) -> None:
    rows, places = _rows(cases, [np.asarray(one.at, dtype=np.int64) for one in cases])
    delta = _zeros_like(cases[0].learner.state.lifetime, len(places))
    delta.add_decisions(rows, group, label)
    _add(cases, places, delta)


def _rows(parts: Sequence[Cases] | Sequence[Labels], at: Sequence[Ints]) -> tuple[Ints, list[tuple[int, int]]]:
    """A row for each learner and time bucket: the row of every entry, and (learner, bucket) of every row."""
    bucket = parts[0].learner.state.bucket
    numbers = np.concatenate(at) // bucket
    lowest = int(numbers.min())
    width = int(numbers.max()) - lowest + 1
    learner = np.repeat(np.arange(len(parts)), [len(one) for one in at])
    keys, rows = np.unique(learner * width + (numbers - lowest), return_inverse=True)
    return rows.ravel(), [(int(key // width), int(key % width) + lowest) for key in keys]


def _add(parts: Sequence[Cases] | Sequence[Labels], places: Sequence[tuple[int, int]], delta: Counters) -> None:
    for row, (index, number) in enumerate(places):
        parts[index].learner.state.add(number, delta.row(row))


def _zeros_like(counters: Counters, batch: int) -> Counters:
    return Counters.of(
        [np.zeros((batch, *array.shape[1:]), dtype=np.int64) for array in counters.arrays()], counters.unit
    )


__all__ = ["IN_FORCE", "Cases", "Labels", "Parts", "Verdicts", "decide_together", "learn_together"]
