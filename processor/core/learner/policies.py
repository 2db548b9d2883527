"""From counters to a rule: G-FORCE in its four readings, and the two baselines it is measured against.

All read the same counters; a policy can be in force, in shadow, or tried on a recorded stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from processor.core.errors import InvalidInputError
from processor.core.exact import Floats, Ints, ordered_sum
from processor.core.learner.counters import Counters
from processor.core.settings import Policy, Prior

from . import objectives
from .estimates import Estimates, cross_instance, estimate, keep_rate, weights
from .rule import Rule
from .solver import solve


def rules_of(
    policies: Mapping[str, Policy], counters: Counters, labels: tuple[str, ...], prior: Prior = Prior()
) -> dict[str, Rule]:
    """The rules that policies follow at these counters, for the whole batch of learners.

    ``labels`` are the names behind the counters' label axis; λ may differ between them.
    """
    if len(labels) != counters.shape.labels:
        raise InvalidInputError(
            f"{len(labels)} names {list(labels)} were given for {counters.shape.labels} labels: name each"
        )
    estimates = estimate(counters, prior)
    bases = [_base(policy, estimates) for policy in policies.values()]
    exponents, keep = (np.concatenate(each, axis=2) for each in zip(*bases, strict=True))
    everyone = weights(exponents, keep)
    ends = np.cumsum([own.shape[2] for own, _ in bases])
    found = zip(policies.items(), bases, np.split(everyone, ends[:-1], axis=2), strict=True)
    return {name: _rule(policy, *base, own, counters, estimates, labels) for (name, policy), base, own in found}


def rule_of(policy: Policy, counters: Counters, labels: tuple[str, ...], prior: Prior = Prior()) -> Rule:
    """The rule of one policy."""
    return rules_of({"": policy}, counters, labels, prior)[""]


def _base(policy: Policy, estimates: Estimates) -> tuple[Ints, Floats]:
    """The exponents [b, g, i, f] and 1 − η [b, g, i] of a policy's instances.

    Without instances it is plain multiplicative weights: one set for everybody, or one for each group.
    """
    exponents, labels = estimates.exponents, estimates.labels
    if not policy.has_instances:
        exponents, labels = estimates.without_instances
    if policy.policy == "mw":
        exponents = np.broadcast_to(exponents.sum(axis=1, keepdims=True), exponents.shape)
        labels = np.broadcast_to(ordered_sum(labels, axis=1)[:, None], labels.shape)
    return exponents, keep_rate(policy.eta, labels, exponents.shape[3])


def _rule(
    policy: Policy,
    exponents: Ints,
    keep: Floats,
    everyone: Floats,
    counters: Counters,
    estimates: Estimates,
    labels: tuple[str, ...],
) -> Rule:
    if policy.policy != "gforce":
        return Rule(np.ones(keep.shape), exponents, keep, everyone=everyone)
    fairness, regret = _balance(policy, counters, labels)
    if policy.objective == "mixture":
        return Rule(np.ones(keep.shape), exponents, keep, shares=_mixture(estimates, fairness, regret)[:, :, None])
    return Rule(_selection(policy, estimates, everyone, fairness, regret), exponents, keep, everyone=everyone)


def _selection(policy: Policy, estimates: Estimates, everyone: Floats, fairness: Floats, regret: Floats) -> Floats:
    """q[b, g, k]"""
    _, groups, kinds, _ = everyone.shape
    if policy.is_binary:
        objectives.check_binary(policy.objective, groups, kinds)
    build = {"gap": objectives.gap, "bound": objectives.bound, "paper": objectives.paper}[policy.objective]
    scale = _largest(fairness, regret)
    cross = cross_instance(everyone, estimates.error)
    problem = build(estimates, cross, fairness / scale[:, None], regret / scale)
    return solve(replace(problem, ridge=_ridge(regret / scale)))


def _mixture(estimates: Estimates, fairness: Floats, regret: Floats) -> Floats:
    """r[b, g, f]"""
    scale = _largest(fairness, np.sqrt(regret))
    problem = objectives.mixture(estimates, fairness / scale[:, None], regret / (scale * scale))
    return solve(replace(problem, ridge=_ridge(np.sqrt(regret) / scale)))


def _largest(fairness: Floats, regret: Floats) -> Floats:
    """The largest λ [b], by which all are divided: only their ratios matter, and rows of a size are solved well."""
    scale = np.maximum(fairness.max(axis=1), regret)
    return np.where(scale > 0, scale, 1.0)


def _ridge(regret: Floats) -> Floats:
    """ρ [b]: where accuracy counts little beside fairness the ridge must count less still, or it would outweigh it."""
    ridge = np.where(regret > 0, objectives.RIDGE * (regret * regret), objectives.RIDGE)
    return np.maximum(ridge, objectives.LEAST_RIDGE)


def _balance(policy: Policy, counters: Counters, labels: tuple[str, ...]) -> tuple[Floats, Floats]:
    """λ of every learner in the batch: per label [b, y] and for regret [b]."""
    starts = [balance.from_labels for balance in policy.balance]
    in_force = np.searchsorted(starts, counters.joined, side="right") - 1
    fairness = np.array([[balance.of_label(label) for label in labels] for balance in policy.balance])
    return fairness[in_force], np.array([balance.regret for balance in policy.balance])[in_force]
