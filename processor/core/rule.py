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

    @cached_property
    def _selection_parts(self) -> Parts:
        return quantise(self.selection)

    @cached_property
    def expert_parts(self) -> Parts:
        """π[b, g, i, f] out of 2³², with every expert present."""
        batch, groups = np.indices(self.selection.shape[:2])
        everyone = np.ones((batch.size, self.exponents.shape[3]), dtype=bool)
        return self._parts_among(batch.ravel(), groups.ravel(), everyone).reshape(self.exponents.shape)

    def decide(
        self,
        learner: Ints,
        group: Ints,
        predictions: Ints,
        draws: Parts,
        labels: int,
        explore: tuple[int, float] | None = None,
        *,
        published: bool = True,
    ) -> Decided:
        """Decide n requests: ``predictions[n, f]`` are label indices or ``ABSENT``, ``draws`` is [n, 3].

        ``explore`` is (index of the positive label, φ): with probability φ the decision is positive whatever
        the experts say. Probabilities are worked out only for what is ``published``.
        """
        present = predictions != ABSENT
        self._check(present, predictions, labels)
        rows = np.arange(len(group))
        instance = _pick(np.cumsum(self._selection_parts, axis=2, dtype=np.uint64)[learner, group], draws[:, 0])
        if published or not present.all():
            experts = self._expert_parts_for(learner, group, present)
            bounds = np.cumsum(experts[rows, instance], axis=1, dtype=np.uint64)
        else:
            bounds = np.cumsum(self.expert_parts, axis=3, dtype=np.uint64)[learner, group, instance]
        expert = _pick(bounds, draws[:, 1])
        label = predictions[rows, expert]
        probabilities = np.empty((len(group), 0), np.uint64)
        if published:
            probabilities = _label_probabilities(self._selection_parts[learner, group], experts, predictions, labels)
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
        experts = self._expert_parts_for(np.array([learner]), np.array([group]), present[None, :])
        return self._selection_parts[learner, group], experts[0]

    def _check(self, present: Mask, predictions: Ints, labels: int) -> None:
        if not present.any(axis=1).all():
            row = int(np.argmin(present.any(axis=1)))
            raise InvalidInput(f"request {row} has no prediction at all: send at least one expert's advice")
        if predictions.size and predictions.max() >= labels:
            raise InvalidInput(f"a prediction has label index {int(predictions.max())} but there are {labels} labels")

    def _expert_parts_for(self, learner: Ints, group: Ints, present: Mask) -> Parts:
        """π[n, i, f] for each request, over the experts present in it."""
        parts = self.expert_parts[learner, group]
        short = np.nonzero(~present.all(axis=1))[0]
        if len(short):
            key = np.column_stack([learner[short], group[short], present[short]])
            kinds, which = np.unique(key, axis=0, return_inverse=True)
            among = self._parts_among(kinds[:, 0], kinds[:, 1], kinds[:, 2:].astype(bool))
            parts[short] = among[which.ravel()]
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
    for y in range(labels):
        given_instance = np.where((predictions == y)[:, None, :], experts, np.uint64(0)).sum(axis=2, dtype=np.uint64)
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
