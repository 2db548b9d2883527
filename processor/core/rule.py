"""A rule is a policy made concrete by the counters of the moment: who is asked, how likely.

It holds for a whole batch of learners and until their counters change. Deciding is integer arithmetic only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .counters import ABSENT
from .errors import InvalidInput
from .estimates import weights
from .exact import ONE, Floats, Ints, Mask, Parts, ordered_sum, quantise, times


@dataclass(frozen=True)
class Decided:
    """What a rule decided for a batch of requests, one entry each."""

    label: Ints
    instance: Ints
    """index of the instance, or ``ABSENT`` where exploration decided"""
    expert: Ints
    """index of the expert, or ``ABSENT`` where exploration decided"""
    probabilities: Parts
    """[n, label]: how likely each label was, out of 2³²; no columns for a shadow"""


@dataclass(frozen=True)
class Questions:
    """Requests to a batch of learners, one entry each."""

    learner: Ints
    group: Ints
    predictions: Ints
    """[n, f]: label indices, or ``ABSENT``"""
    draws: Parts
    """[n, 3]"""

    @cached_property
    def present(self) -> Mask:
        """[n, f]"""
        asked: Mask = self.predictions != ABSENT
        return asked

    @cached_property
    def complete(self) -> bool:
        """Every expert said something about every case."""
        return bool(self.present.all())

    @cached_property
    def incomplete(self) -> tuple[Ints, Ints, Ints]:
        """The rows where somebody is missing, one row of each kind among them, and which kind each is of.

        They are of one kind if they have the same learner, the same group and the same experts.
        """
        rows: Ints = np.nonzero(~self.present.all(axis=1))[0]
        present = self.present[rows]
        packed = np.packbits(present, axis=1).astype(np.int64)
        place = self.learner[rows] * (int(self.group.max(initial=0)) + 1) + self.group[rows]
        for byte in packed.T:
            _, place = np.unique(place * 256 + byte, return_inverse=True)
        _, first, which = np.unique(place, return_index=True, return_inverse=True)
        return rows, rows[first], which.ravel()


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
    """r[b, g, f] of a mixture"""
    everyone: Floats | None = None
    """π[b, g, i, f] with every expert present, if that has been worked out already"""

    @cached_property
    def _selection_parts(self) -> Parts:
        return quantise(self.selection)

    @cached_property
    def expert_parts(self) -> Parts:
        """π[b, g, i, f] out of 2³², with every expert present."""
        if self.everyone is not None:
            return quantise(self.everyone)
        batch, groups = np.indices(self.selection.shape[:2])
        everyone = np.ones((batch.size, self.exponents.shape[3]), dtype=bool)
        return self._parts_among(batch.ravel(), groups.ravel(), everyone).reshape(self.exponents.shape)

    def decide(
        self,
        asked: Questions,
        labels: int,
        explore: tuple[int, float] | None = None,
        *,
        published: bool = True,
    ) -> Decided:
        """Decide requests.

        ``explore`` is (index of the positive label, φ): with probability φ the decision is positive whatever
        the experts say. Probabilities are worked out only for what is ``published``.
        """
        self._check(asked, labels)
        learner, group, draws = asked.learner, asked.group, asked.draws
        rows = np.arange(len(group))
        instance = _pick(np.cumsum(self._selection_parts, axis=2, dtype=np.uint64)[learner, group], draws[:, 0])
        if published or not asked.complete:
            experts = self._expert_parts_for(asked)
            bounds = np.cumsum(experts[rows, instance], axis=1, dtype=np.uint64)
        else:
            bounds = np.cumsum(self.expert_parts, axis=3, dtype=np.uint64)[learner, group, instance]
        expert = _pick(bounds, draws[:, 1])
        label = asked.predictions[rows, expert]
        probabilities = np.empty((len(group), 0), np.uint64)
        if published:
            instances = self._selection_parts[learner, group]
            probabilities = _label_probabilities(instances, experts, asked.predictions, labels)
        if explore is not None:
            positive, floor = explore
            floor_parts = np.uint64(round(floor * ONE))
            explored = draws[:, 2] < floor_parts
            label = np.where(explored, positive, label)
            instance = np.where(explored, ABSENT, instance)
            expert = np.where(explored, ABSENT, expert)
            if published:
                probabilities = _with_floor(probabilities, positive, floor_parts)
        return Decided(label, instance, expert, probabilities)

    def chances(self, group: int, present: Mask, learner: int = 0) -> tuple[Parts, Parts]:
        """How likely each instance was [i], and each expert given the instance [i, f], for one case; out of 2³²."""
        experts = self._parts_among(np.array([learner]), np.array([group]), present[None, :])
        return self._selection_parts[learner, group], experts[0]

    def _check(self, asked: Questions, labels: int) -> None:
        if not asked.complete and not asked.present.any(axis=1).all():
            row = int(np.argmin(asked.present.any(axis=1)))
            raise InvalidInput(f"request {row} has no prediction at all: send at least one expert's advice")
        if asked.predictions.size and (highest := int(asked.predictions.max())) >= labels:
            raise InvalidInput(f"a prediction has label index {highest} but there are {labels} labels")

    def _expert_parts_for(self, asked: Questions) -> Parts:
        """π[n, i, f] for each request, over the experts present in it."""
        parts = self.expert_parts[asked.learner, asked.group]
        if not asked.complete:
            rows, kinds, which = asked.incomplete
            parts[rows] = self._parts_among(asked.learner[kinds], asked.group[kinds], asked.present[kinds])[which]
        return parts

    def _parts_among(self, learner: Ints, group: Ints, present: Mask) -> Parts:
        pi = weights(self.exponents[learner, group], self.keep[learner, group], present[:, None, :])
        if self.shares is not None:
            shares = np.where(present, self.shares[learner, group], 0.0)
            total = ordered_sum(shares, axis=1)[:, None]
            mixed = shares / np.where(total > 0, total, 1.0)
            pi = np.where((total > 0)[:, None], mixed[:, None, :], pi)
        return quantise(pi)


def _pick(bounds: Parts, draw: Parts) -> Ints:
    """The entry that a draw below 2³² falls on; ``bounds`` are the cumulative parts, along the last axis."""
    passed: Ints = (draw[:, None] >= bounds).sum(axis=1)
    return passed


def _label_probabilities(instances: Parts, experts: Parts, predictions: Ints, labels: int) -> Parts:
    """P[n, y] out of 2³²: rounded down, the few units left to the most probable label."""
    parts = np.empty((len(predictions), labels), dtype=np.uint64)
    others = np.full(instances.shape, np.uint64(ONE))
    for y in range(labels):
        if y < labels - 1:
            given_instance = np.where((predictions == y)[:, None, :], experts, np.uint64(0)).sum(
                axis=2, dtype=np.uint64
            )
            others -= given_instance
        else:
            given_instance = others  # the experts' parts add up to one: what is left is the last label's
        parts[:, y] = times(instances, given_instance).sum(axis=1, dtype=np.uint64)
    left = np.uint64(ONE) - parts.sum(axis=1, dtype=np.uint64)
    parts[np.arange(len(parts)), np.argmax(parts, axis=1)] += left
    return parts


def _with_floor(parts: Parts, positive: int, floor: np.uint64) -> Parts:
    """(1 − φ) P + φ for the positive label; the rest shrinks accordingly."""
    raised = times(parts, np.full_like(parts, np.uint64(ONE) - floor))
    others = raised.sum(axis=1, dtype=np.uint64) - raised[:, positive]
    raised[:, positive] = np.uint64(ONE) - others
    return raised
