"""The four objectives, each as one small least-squares problem on a product of simplices.

    minimise  ½ ‖A x‖² + ℓ·x + ½ ρ ‖x − centre‖²    with  x[g, ·] a probability vector for every group g

A row of A already carries its λ. Columns are (group, choice): the choice is an instance, or for ``mixture`` an
expert. The ridge ρ is far too small to be felt and makes the answer unique where the rows leave it open.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from processor.core.errors import InvalidSettingsError
from processor.core.exact import Floats, ordered_sum

from .estimates import Estimates

RIDGE = 1e-6
LEAST_RIDGE = 1e-12
"""Smaller ones would be lost in rounding."""
FULL_CELL = 10.0
"""A cell of n labels takes part in a fairness row with weight n / (n + this)."""


@dataclass(frozen=True)
class Problem:
    """A batch of problems of one shape."""

    rows: Floats
    """[b, row, g·M + choice]"""
    linear: Floats
    """[b, g·M + choice]"""
    centre: Floats
    """[b, g, M]: where the ridge pulls to"""
    ridge: Floats = field(default_factory=lambda: np.array([RIDGE]))
    """ρ[b], or one for all"""

    @property
    def groups(self) -> int:
        return int(self.centre.shape[1])

    @property
    def choices(self) -> int:
        return int(self.centre.shape[2])

    def value(self, x: Floats) -> Floats:
        """The objective at x[b, g, M]."""
        flat = x.reshape(len(x), -1)
        residual = ordered_sum(self.rows * flat[:, None, :], axis=2)
        away = flat - self.centre.reshape(flat.shape)
        return (
            0.5 * ordered_sum(residual * residual, axis=1)
            + ordered_sum(self.linear * flat, axis=1)
            + 0.5 * self.ridge * ordered_sum(away * away, axis=1)
        )


def equal_error_rates(by_choice: Floats, labels: Floats, fairness: Floats) -> Floats:
    """Rows that ask for the error rate on each true label to be equal across groups.

    ``by_choice[b, g, m, y]`` is the error rate of group g on label y under choice m, ``fairness[b, y]`` is λ.
    Each group is held to the mean over groups; a cell counts by how many labels it has, so that a group nobody
    gets labels for does not drag the others to its prior.
    """
    batch, groups, choices, kinds = by_choice.shape
    trust = labels / (labels + FULL_CELL)
    total = ordered_sum(trust, axis=1)
    share = trust / np.where(total > 0, total, 1.0)[:, None, :]
    scale = fairness[:, :, None] * np.sqrt(groups * np.swapaxes(trust, 1, 2))
    coefficient = scale[..., None] * (np.eye(groups) - np.swapaxes(share, 1, 2)[:, :, None, :])  # [b, y, g, h]
    rows: Floats = coefficient[..., None] * np.moveaxis(by_choice, 3, 1)[:, :, None]
    return rows.reshape(batch, kinds * groups, groups * choices)


def expected_loss(by_choice: Floats, estimates: Estimates) -> Floats:
    """[b, g, m]: share of all cases that are of group g and wrong, were choice m used for all of them."""
    per_label = estimates.base_rate[:, :, None, :] * by_choice
    return estimates.group_share[:, :, None] * ordered_sum(per_label, axis=3)


def gap(estimates: Estimates, cross: Floats, fairness: Floats, regret: Floats) -> Problem:
    """G-FORCE as corrected: the error rates themselves are made equal."""
    rows = equal_error_rates(cross, estimates.labels, fairness)
    return _with_regret_row(estimates, rows, _extra_loss(estimates, cross), regret)


def bound(estimates: Estimates, cross: Floats, fairness: Floats, regret: Floats) -> Problem:
    """The paper's Q terms with the indices of its own Lemma 1: instance + is what costs false positives."""
    cost = _binary_cost(cross)
    rows = _paired_rows(cost, fairness[:, ::-1])
    return _with_regret_row(estimates, rows, _extra_loss(estimates, cross), regret)


def paper(estimates: Estimates, cross: Floats, fairness: Floats, regret: Floats) -> Problem:
    """What reproduces the published figures: instance k is charged to label k, divided by its base rate."""
    cost = _binary_cost(cross)
    rows = _paired_rows(cost / estimates.base_rate, fairness)
    return _with_regret_row(estimates, rows, estimates.group_share[:, :, None] * cost, regret)


def mixture(estimates: Estimates, fairness: Floats, regret: Floats) -> Problem:
    """Beyond the paper: no instances, each group's mixture of experts is chosen directly."""
    by_expert = np.moveaxis(estimates.error, 1, 2)
    batch, groups, experts, _ = by_expert.shape
    rows = equal_error_rates(by_expert, estimates.labels, fairness)
    loss = regret[:, None] * expected_loss(by_expert, estimates).reshape(batch, -1)
    uniform = np.full((batch, groups, experts), 1.0 / experts)
    return Problem(rows, 0.5 * loss, uniform)


def check_binary(objective: str, groups: int, labels: int) -> None:
    """``bound`` and ``paper`` are written for two groups and two labels."""
    if (groups, labels) != (2, 2):
        raise InvalidSettingsError(
            f'objective "{objective}" is for two groups and two labels, and here are {groups} groups and '
            f'{labels} labels: use "gap" or "mixture"'
        )


def _extra_loss(estimates: Estimates, cross: Floats) -> Floats:
    """[b, g, k]: expected loss of always using instance k, beyond that of the right instance."""
    kinds = cross.shape[3]
    right = cross[:, :, np.arange(kinds), np.arange(kinds)]
    return expected_loss(cross - right[:, :, None, :], estimates)


def _binary_cost(cross: Floats) -> Floats:
    """α[b, g, k] = c[g, k, k̄] − c[g, k̄, k̄]: what using instance k costs when the truth is the other label."""
    other = np.array([1, 0])
    return cross[:, :, [0, 1], other] - cross[:, :, other, other]


def _paired_rows(cost: Floats, fairness: Floats) -> Floats:
    """For each instance k the row cost[A, k] x[A, k] − cost[B, k] x[B, k] = 0."""
    rows = np.zeros((len(cost), 2, 2, 2))
    for k in range(2):
        rows[:, k, 0, k] = fairness[:, k] * cost[:, 0, k]
        rows[:, k, 1, k] = -fairness[:, k] * cost[:, 1, k]
    return rows.reshape(len(cost), 2, 4)


def _with_regret_row(estimates: Estimates, rows: Floats, cost: Floats, regret: Floats) -> Problem:
    row = (regret[:, None] * cost.reshape(len(cost), -1))[:, None, :]
    return Problem(
        rows=np.concatenate([rows, row], axis=1),
        linear=np.zeros((len(rows), rows.shape[2])),
        centre=estimates.base_rate,
    )
