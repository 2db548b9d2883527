"""A rule is a policy made concrete by the counters of the moment: who is asked, how likely.

It holds for a whole batch of learners and until their counters change. Deciding is integer arithmetic only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from processor.core.errors import InvalidInputError
from processor.core.exact import ONE, Floats, Indices, Ints, Mask, Parts, ordered_sum, quantise, times
from processor.core.learner.counters import ABSENT

from .estimates import weights

FEW_NUMBERS = 4_096
"""Up to so many numbers a table is quicker than sorting, however few of them occur."""
AT_ONCE = 8
"""So many experts' numbers for a batch of requests fit into a processor's cache; of more, each pass is slower."""

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class DecisionColumns:
    """What a rule decided for a batch of requests, one entry each."""

    label: Ints
    instance: Ints
    """index of the instance, or ``ABSENT`` where exploration decided"""
    expert: Ints
    """index of the expert, or ``ABSENT`` where exploration decided"""
    probabilities: Parts
    """[n, label]: how likely each label was, out of 2³²; no columns for a shadow"""


class RequestShapes(NamedTuple):
    """Requests are of one kind if they have the same learner, the same group and the same experts."""

    which: Ints
    """[n]: the kind of each request"""
    learner: Ints
    """[k]"""
    group: Ints
    """[k]"""
    present: Mask
    """[k, f]"""


@dataclass(frozen=True)
class RequestColumns:
    """Requests to a batch of learners, one entry each.

    What several rules need to know of them is worked out once. There the requests are along the last axis, which is
    the one that NumPy runs along fast.
    """

    learner: Ints
    group: Ints
    predictions: Indices
    """[n, f]: label indices, or ``ABSENT``"""
    draws: Parts
    """[n, 3]"""

    @cached_property
    def by_expert(self) -> Indices:
        """[f, n]: the predictions"""
        turned: Indices = self.predictions.T.copy()
        return turned

    @cached_property
    def by_draw(self) -> Parts:
        """[3, n]: the draws"""
        return np.ascontiguousarray(self.draws.T)

    @cached_property
    def present(self) -> Mask:
        """[f, n]"""
        asked: Mask = self.by_expert != ABSENT
        return asked

    @cached_property
    def complete(self) -> bool:
        """Every expert said something about every case."""
        return bool(self.present.all())

    @cached_property
    def silent(self) -> Ints:
        """The rows of requests about which nobody said anything."""
        return _NONE if self.complete else np.nonzero(~self.present.any(axis=0))[0]

    @cached_property
    def highest(self) -> int:
        """The highest index of a label."""
        return int(self.predictions.max(initial=ABSENT))

    @cached_property
    def kinds(self) -> RequestShapes:
        groups = int(self.group.max(initial=0)) + 1
        which, count = self.learner * groups + self.group, (int(self.learner.max(initial=0)) + 1) * groups
        experts = self.present[:0] if self.complete else self.present
        for start in range(0, max(len(experts), 1), 8):  # eight at a time, so that the numbers stay small
            for present in experts[start : start + 8]:
                which, count = 2 * which + present, 2 * count
            some, which = distinct(which, count)
            count = len(some)
        return RequestShapes(which, self.learner[some], self.group[some], self.present.T[some])

    @cached_property
    def starts(self) -> Ints:
        """[n]: where each request's predictions begin, had they no axes"""
        experts = self.predictions.shape[1]
        return np.arange(0, self.predictions.size, experts)


def distinct(numbers: Ints, count: int) -> tuple[Ints, Ints]:
    """One place of each number below ``count`` that occurs, and for each place which of these it is like.

    >>> distinct(np.array([7, 3, 7]), 8)[1].tolist()
    [1, 0, 1]
    """
    if count > FEW_NUMBERS + 16 * len(numbers):
        _, some, which = np.unique(numbers, return_index=True, return_inverse=True)
        return some, which
    place = np.full(count, -1)
    place[numbers] = np.arange(len(numbers))
    found = np.nonzero(place >= 0)[0]
    order = np.empty(count, dtype=np.int64)
    order[found] = np.arange(len(found))
    return place[found], order[numbers]


@dataclass(frozen=True)
class Rule:
    """Probabilities of choosing an instance, and of choosing an expert given the instance.

    Policies without instances have a single one. A mixture names the experts' shares directly and falls back
    to the weights where none of the experts with a share is present.
    """

    selection: Floats
    """q[b, g, i]: probability of instance i for a case of group g"""
    exponents: Ints
    """[b, g, i, f]"""
    keep: Floats
    """[b, g, i]: 1 − η"""
    shares: Floats | None = None
    """r[b, g, i, f] of a mixture; where they are 0 the weights say who is asked"""
    everyone: Floats | None = None
    """π[b, g, i, f] with every expert present, if that has been worked out already"""

    @cached_property
    def selection_parts(self) -> Parts:
        if not (self.selection >= 0).all() or (np.abs(self.selection.sum(axis=2) - 1) > 1e-9).any():
            raise InvalidInputError(
                f"the probabilities of the instances are {self.selection.tolist()}: each must be at least 0, and those "
                "of a group together 1"
            )
        return quantise(self.selection)

    @cached_property
    def _exponents_by_expert(self) -> Ints:
        """[f, i, b·g]"""
        _, _, instances, experts = self.exponents.shape
        return self.exponents.transpose(3, 2, 0, 1).reshape(experts, instances, -1)

    @cached_property
    def expert_parts(self) -> Parts:
        """π[b, g, i, f] out of 2³², with every expert present."""
        if self.everyone is not None:
            return quantise(self.everyone)
        batch, groups = np.indices(self.selection.shape[:2])
        everyone = np.ones((batch.size, self.exponents.shape[3]), dtype=bool)
        return self._parts_among(batch.ravel(), groups.ravel(), everyone).reshape(self.exponents.shape)

    def decide(self, asked: RequestColumns, labels: int, explore: tuple[int, float] | None = None) -> DecisionColumns:
        """Decide requests; see ``decide``."""
        return decide({"": self}, asked, labels, explore)[""]

    def chances(self, group: int, present: Mask, learner: int = 0) -> tuple[Parts, Parts]:
        """How likely each instance was [i], and each expert given the instance [i, f], for one case; out of 2³²."""
        if not present.any():
            raise InvalidInputError("nobody is present: say which experts gave advice, at least one of them")
        experts = self._parts_among(np.array([learner]), np.array([group]), present[None, :])
        return self.selection_parts[learner, group], experts[0]

    def parts_for(self, asked: RequestColumns) -> Parts:
        """π[k, i, f] for each kind of request, over the experts present in it."""
        kinds = asked.kinds
        if asked.complete:
            return self.expert_parts[kinds.learner, kinds.group]
        return self._parts_among(kinds.learner, kinds.group, kinds.present)

    def _parts_among(self, learner: Ints, group: Ints, present: Mask) -> Parts:
        place = learner * self.keep.shape[1] + group
        exponents = self._exponents_by_expert.take(place, axis=2).T  # in memory the kinds are along the last axis
        keep = self.keep.reshape(-1, self.keep.shape[2]).T.take(place, axis=1).T
        pi = weights(exponents, keep, np.asfortranarray(present)[:, None, :])
        if self.shares is not None:
            shares = np.where(present[:, None, :], self.shares[learner, group], 0.0)
            total = ordered_sum(shares, axis=2)[:, :, None]
            pi = np.where(total > 0, shares / np.where(total > 0, total, 1.0), pi)
        return quantise(pi)


def decide(
    rules: Mapping[str, Rule],
    asked: RequestColumns,
    labels: int,
    explore: tuple[int, float] | None = None,
    published: str | None = None,
) -> dict[str, DecisionColumns]:
    """What each of these rules decides, all by the same draws.

    ``explore`` is (index of the positive label, φ): with probability φ the decision is positive whatever the experts
    say. Probabilities are worked out only for the rule that is ``published``, or for all if none is named.
    """
    _check(asked, labels)
    kinds, (first, second, third) = asked.kinds, asked.by_draw
    which, sizes = kinds.which, [rule.selection.shape[2] for rule in rules.values()]
    experts = _side_by_side(list(rules.values())).parts_for(asked)
    starts = np.cumsum([0, *sizes])
    instance = np.zeros((len(rules), len(which)), dtype=np.int64)
    for number, rule in enumerate(rules.values()):
        if sizes[number] > 1:
            instance[number] = _pick(np.cumsum(rule.selection_parts[kinds.learner, kinds.group], axis=1), which, first)
    bounds = np.cumsum(experts, axis=2).reshape(-1, experts.shape[2])
    expert = _pick(bounds, which * experts.shape[1] + starts[:-1, None] + instance, second)
    label = asked.predictions.ravel().take(asked.starts + expert).astype(np.int64)
    if explore is not None:
        positive, floor_parts = explore[0], np.uint64(round(explore[1] * ONE))
        explored = third < floor_parts
        label[:, explored] = positive
        instance[:, explored] = expert[:, explored] = ABSENT
    decided = {}
    for number, (name, rule) in enumerate(rules.items()):
        probabilities = np.empty((len(which), 0), np.uint64)
        if published in (None, name):
            own = experts[:, starts[number] : starts[number + 1]]
            instances = rule.selection_parts[kinds.learner, kinds.group]
            probabilities = _label_probabilities(instances, own, which, asked.by_expert, labels)
            if explore is not None:
                probabilities = _with_floor(probabilities, positive, floor_parts)
        decided[name] = DecisionColumns(label[number], instance[number], expert[number], probabilities)
    return decided


def _check(asked: RequestColumns, labels: int) -> None:
    if len(asked.silent):
        row = int(asked.silent[0])
        raise InvalidInputError(f"request {row} has no prediction at all: send at least one expert's advice")
    if asked.highest >= labels:
        raise InvalidInputError(f"a prediction has label index {asked.highest} but there are {labels} labels")


def _side_by_side(rules: Sequence[Rule]) -> Rule:
    """One rule with the instances of all of these, for what is worked out for each instance by itself."""
    if len(rules) == 1:
        return rules[0]
    shares, everyone = None, None
    if any(rule.shares is not None for rule in rules):
        each = [np.zeros(rule.exponents.shape) if rule.shares is None else rule.shares for rule in rules]
        shares = np.concatenate(each, axis=2)
    known = [rule.everyone for rule in rules if rule.everyone is not None]
    if len(known) == len(rules):
        everyone = np.concatenate(known, axis=2)
    return Rule(
        np.concatenate([rule.selection for rule in rules], axis=2),
        np.concatenate([rule.exponents for rule in rules], axis=2),
        np.concatenate([rule.keep for rule in rules], axis=2),
        shares,
        everyone,
    )


def _pick(bounds: Parts, which: Ints, draw: Parts) -> Ints:
    """The entry that a draw below 2³² falls on; ``bounds`` are the cumulative parts, ``which`` the row of each draw.

    The last bound is 2³², which no draw reaches. ``which`` may have several rows, all for the same draws.
    """
    columns = np.ascontiguousarray(bounds.T)[:-1].take(which, axis=1)
    picked = np.zeros(which.shape, dtype=np.int64)
    for passed in draw >= columns:
        picked += passed
    return picked


def _label_probabilities(instances: Parts, experts: Parts, which: Ints, by_expert: Indices, labels: int) -> Parts:
    """P[n, y] out of 2³²: rounded down, the few units left to the most probable label."""
    q = np.ascontiguousarray(instances.T).take(which, axis=1)  # [i, n]
    given_instance = np.zeros((labels - 1, *q.shape), dtype=np.uint64)
    for start in range(0, len(by_expert), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        pi = np.ascontiguousarray(experts.T[some]).take(which, axis=2)  # [f, i, n]
        for y, given in enumerate(given_instance):
            given += (pi * (by_expert[some] == y).astype(np.uint64)[:, None]).sum(axis=0)
    parts = np.empty((labels, len(which)), dtype=np.uint64)
    others = np.full(q.shape, np.uint64(ONE))
    for y, given in enumerate(given_instance):
        others -= given
        parts[y] = times(q, given).sum(axis=0)
    parts[-1] = times(q, others).sum(axis=0)  # the experts' parts add up to one: what is left is the last label's
    left = np.uint64(ONE) - parts.sum(axis=0)
    parts.reshape(-1)[parts.argmax(axis=0) * len(which) + np.arange(len(which))] += left
    return parts.T


def _with_floor(parts: Parts, positive: int, floor: np.uint64) -> Parts:
    """(1 − φ) P + φ for the positive label; the rest shrinks accordingly."""
    raised = times(parts, np.full_like(parts, np.uint64(ONE) - floor))
    others = raised.sum(axis=1, dtype=np.uint64) - raised[:, positive]
    raised[:, positive] = np.uint64(ONE) - others
    return raised
