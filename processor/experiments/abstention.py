"""Experts that abstain, worked out and not simulated: what a rule leads to once it has settled.

Two readings of ``mixture`` differ only in whom they ask where no expert with a share is present. What each of them must
lead to follows from the population alone, so a simulated figure can be traced to the reading that gave it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np

from processor.core import Counters, Policy, rule_of
from processor.core.exact import ONE, Floats, Mask
from processor.core.learner.rule import Rule
from producers.synthetic import Population

from .simulate import numbered_axes

MANY = 1_000_000
"""Cases after which a rule has settled."""

MakeRule = Callable[[Policy, Counters, tuple[str, ...]], Rule]


class LongRun(msgspec.Struct, frozen=True):
    """Where error rates and loss settle."""

    rates: list[list[float]]
    """[group][label]"""
    gaps: list[float]
    """per true label, between the first group and the last"""
    loss: float


def uniform_fallback(policy: Policy, counters: Counters, labels: tuple[str, ...]) -> Rule:
    """A mixture that asks all experts present alike where none of them has a share, and not by GroupAware's weights.

    A solver that leaves 10⁻¹² of a share everywhere leads to the same.
    """
    rule = rule_of(policy, counters, labels)
    return replace(rule, exponents=np.zeros_like(rule.exponents))


def long_run(population: Population, policy: Policy, make_rule: MakeRule = rule_of) -> LongRun:
    """The rule of a learner that has seen everything as often as it is likely, over all patterns of absence."""
    counters, labels = expected_counters(population)
    rule = make_rule(policy, counters, labels)
    rates: Floats = np.zeros(population.base_rate.shape)
    for present, likely in patterns(len(population.error), population.abstain):
        for group in range(len(rates)):
            instances, experts = rule.chances(group, present)
            asked = (instances[:, None] / ONE * (experts / ONE)).sum(axis=0)
            rates[group] += likely * (asked @ population.error[:, group])
    cells = population.share[:, None] * population.base_rate
    gaps = np.abs(rates[0] - rates[-1])
    return LongRun([rate.tolist() for rate in rates], gaps.tolist(), float((cells * rates).sum()))


def expected_counters(population: Population) -> tuple[Counters, tuple[str, ...]]:
    """Counters in which every cell has its expected number, and the names of the labels."""
    experts, groups, kinds = population.error.shape
    axes = numbered_axes(groups, kinds, experts)
    counters = Counters.zeros(axes)
    cells = MANY * population.share[:, None] * population.base_rate
    present = sum(likely for who, likely in patterns(experts, population.abstain) if who[0])
    counters.seen[0] = counters.labels[0] = counters.decisions[0] = np.rint(cells)
    counters.trials[0] = np.rint(present * cells)
    counters.losses[0] = np.rint(present * cells * population.error)
    return counters, axes.labels


def patterns(experts: int, abstain: float) -> list[tuple[Mask, float]]:
    """Who may be present, and how likely that is. Were all to abstain, one of them, no matter which, does not."""
    found = []
    for who in product([False, True], repeat=experts):
        absent = who.count(False)
        likely = abstain**absent * (1 - abstain) ** (experts - absent)
        if absent == experts - 1:
            likely += abstain**experts / experts
        if absent < experts:
            found.append((np.array(who), likely))
    return found
