"""From counters to a rule: G-FORCE in its four readings, and the two baselines it is measured against.

All read the same counters; a policy can be in force, in shadow, or tried on a recorded stream.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import problems
from .counters import Counters
from .estimates import Estimates, cross_instance, estimate, keep_rate, weights
from .exact import Floats, ordered_sum
from .rule import Rule
from .settings import Policy, Prior
from .solver import solve


def rules_of(
    policies: Mapping[str, Policy], counters: Counters, labels: tuple[str, ...], prior: Prior = Prior()
) -> dict[str, Rule]:
    """The rules that policies follow at these counters, for the whole batch of learners.

    ``labels`` are the names behind the counters' label axis; λ may differ between them.
    """
    estimates = estimate(counters, prior)
    return {name: _rule(policy, counters, estimates, labels) for name, policy in policies.items()}


def rule_of(policy: Policy, counters: Counters, labels: tuple[str, ...], prior: Prior = Prior()) -> Rule:
    """The rule of one policy."""
    return _rule(policy, counters, estimate(counters, prior), labels)


def _rule(policy: Policy, counters: Counters, estimates: Estimates, labels: tuple[str, ...]) -> Rule:
    if policy.policy == "mw":
        return _without_instances(policy, estimates, per_group=False)
    if policy.policy == "groupaware":
        return _without_instances(policy, estimates, per_group=True)
    fairness, regret = _balance(policy, counters, labels)
    if policy.objective == "mixture":
        return _mixture(policy, estimates, fairness, regret)
    return _gforce(policy, estimates, fairness, regret)


def _gforce(policy: Policy, estimates: Estimates, fairness: Floats, regret: Floats) -> Rule:
    _, groups, kinds, experts = estimates.exponents.shape
    if policy.objective in ("bound", "paper"):
        problems.check_binary(policy.objective, groups, kinds)
    keep = keep_rate(policy.eta, estimates.labels, experts)
    everyone = weights(estimates.exponents, keep, np.ones(experts, dtype=bool))
    cross = cross_instance(everyone, estimates.error)
    build = {"gap": problems.gap, "bound": problems.bound, "paper": problems.paper}[policy.objective]
    scale = np.maximum(fairness.max(axis=1), regret)
    scale = np.where(scale > 0, scale, 1.0)
    problem = build(estimates, cross, fairness / scale[:, None], regret / scale)
    return Rule(solve(problem), estimates.exponents, keep, everyone=everyone)


def _mixture(policy: Policy, estimates: Estimates, fairness: Floats, regret: Floats) -> Rule:
    scale = np.maximum(fairness.max(axis=1), np.sqrt(regret))
    scale = np.where(scale > 0, scale, 1.0)
    problem = problems.mixture(estimates, fairness / scale[:, None], regret / (scale * scale))
    fallback = _without_instances(policy, estimates, per_group=True)
    return Rule(fallback.selection, fallback.exponents, fallback.keep, shares=solve(problem))


def _without_instances(policy: Policy, estimates: Estimates, *, per_group: bool) -> Rule:
    """Plain multiplicative weights: one set for everybody, or one for each group."""
    exponents, labels = estimates.without_instances
    if not per_group:
        exponents = np.broadcast_to(exponents.sum(axis=1, keepdims=True), exponents.shape)
        labels = np.broadcast_to(ordered_sum(labels, axis=1)[:, None], labels.shape)
    keep = keep_rate(policy.eta, labels, exponents.shape[3])
    return Rule(np.ones(keep.shape), exponents, keep)


def _balance(policy: Policy, counters: Counters, labels: tuple[str, ...]) -> tuple[Floats, Floats]:
    """λ of every learner in the batch: per label [b, y] and for regret [b]."""
    starts = [balance.from_labels for balance in policy.balance]
    in_force = np.searchsorted(starts, counters.joined, side="right") - 1
    fairness = np.array([[balance.of_label(label) for label in labels] for balance in policy.balance])
    return fairness[in_force], np.array([balance.regret for balance in policy.balance])[in_force]
