"""What the experts themselves allow: two small linear programmes.

No policy can be fairer than the fairest mixture of the experts it has. An operator who sees "of today's gap of
.28, .25 is the experts' own" knows whether to change the policy or the experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from processor.core.errors import InvalidInputError
from processor.core.exact import Floats


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts per group, with what it reaches."""

    figure: float
    """the least gap, or the least loss"""
    shares: Floats
    """[g, f]"""


def least_gap(error: Floats) -> Mixture:
    """The least worst-case gap any mixture of experts per group can have.

    ``error[f, g, y]`` is the error rate of expert f on group g and true label y.

    >>> perfect_on_a_useless_on_b = np.array([[[0.0, 0.0], [0.5, 0.5]]])
    >>> least_gap(perfect_on_a_useless_on_b).figure
    0.5
    """
    experts, groups, kinds = _shape(error)
    shares, bounds = groups * experts, 2 * kinds
    size = shares + bounds + 1  # then the highest and lowest rate of each label, then the gap s
    above, below, gap = [], [], []
    for y in range(kinds):
        high, low = shares + 2 * y, shares + 2 * y + 1
        for g in range(groups):
            rate = _rate_row(error, g, y, size)
            above.append(_minus(rate, high))
            below.append(_minus(-rate, low, sign=-1.0))
        row = np.zeros(size)
        row[high], row[low], row[-1] = 1.0, -1.0, -1.0
        gap.append(row)
    limits = np.stack([*above, *below, *gap])
    cost = np.zeros(size)
    cost[-1] = 1.0
    answer = linprog(cost, A_ub=limits, b_ub=np.zeros(len(limits)), **_simplices(groups, experts, size))
    return _mixture(answer, groups, experts)


def least_fair_loss(error: Floats, group_share: Floats, base_rate: Floats) -> Mixture:
    """The least loss any mixture with exactly equal error rates can have: the limit in hindsight.

    ``group_share[g]`` is p and ``base_rate[g, y]`` is μ. Raises where no mixture is exactly fair.
    """
    experts, groups, kinds = _shape(error)
    size = groups * experts
    share, rate = np.asarray(group_share), np.asarray(base_rate)
    if share.shape != (groups,) or rate.shape != (groups, kinds):
        raise InvalidInputError(
            f"shares of shape {share.shape} and base rates of shape {rate.shape} do not go with {groups} groups and "
            f"{kinds} labels: give one share for each group, and for each group one rate for each label"
        )
    for what, vector in (("group shares", share), ("base rates", rate)):
        if not (vector >= 0).all() or (np.abs(vector.sum(axis=-1) - 1) > 1e-9).any():
            raise InvalidInputError(
                f"{what} {vector.tolist()} are not probabilities: each must be at least 0, together 1"
            )
    weight = share[:, None] * rate
    cost = np.einsum("gy,fgy->gf", weight, error).ravel()
    equal = [
        _rate_row(error, g, y, size) - _rate_row(error, 0, y, size) for y in range(kinds) for g in range(1, groups)
    ]
    simplices = _simplices(groups, experts, size)
    simplices["A_eq"] = np.vstack([simplices["A_eq"], *equal])
    simplices["b_eq"] = np.concatenate([simplices["b_eq"], np.zeros(len(equal))])
    answer = linprog(cost, **simplices)
    if answer.status == 2:
        raise InvalidInputError(
            f"no mixture of these {experts} experts has equal error rates in all {groups} groups: the least gap "
            f"is {least_gap(error).figure:.3f}. Add an expert, or accept that gap."
        )
    return _mixture(answer, groups, experts)


def _shape(error: Floats) -> tuple[int, int, int]:
    if (
        not isinstance(error, np.ndarray)
        or error.ndim != 3
        or not error.size
        or not ((error >= 0) & (error <= 1)).all()
    ):
        raise InvalidInputError(
            "error rates must be an array [expert, group, label] of numbers from 0 to 1, none of these axes empty; got "
            f"{np.asarray(error).tolist()}"
        )
    experts, groups, kinds = error.shape
    return experts, groups, kinds


def _rate_row(error: Floats, group: int, label: int, size: int) -> Floats:
    experts = error.shape[0]
    row = np.zeros(size)
    row[group * experts : (group + 1) * experts] = error[:, group, label]
    return row


def _minus(row: Floats, column: int, sign: float = 1.0) -> Floats:
    row = row.copy()
    row[column] -= sign
    return row


def _simplices(groups: int, experts: int, size: int) -> dict[str, Floats]:
    belongs = np.zeros((groups, size))
    for g in range(groups):
        belongs[g, g * experts : (g + 1) * experts] = 1.0
    return {"A_eq": belongs, "b_eq": np.ones(groups)}


def _mixture(answer: object, groups: int, experts: int) -> Mixture:
    status, x, value = (getattr(answer, name) for name in ("status", "x", "fun"))
    if status != 0:  # pragma: no cover - bounded and feasible by construction
        raise ArithmeticError(f"the linear programme ended with status {status}")
    return Mixture(max(0.0, float(value)), np.asarray(x[: groups * experts]).reshape(groups, experts))
