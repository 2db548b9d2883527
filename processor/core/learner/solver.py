"""The exact solver: a strictly convex quadratic on a product of probability simplices.

    minimise  ½ x'H x − h'x    with  x[g, m] ≥ 0,  Σ_m x[g, m] = 1 for every group g

Two groups with two choices leave two numbers in a box and a closed form. Everything else goes through a primal
active-set method, which ends at the exact minimiser after finitely many steps. Both work on a whole batch of
problems at once, elementwise, so that a problem's answer does not depend on what else is in its batch, nor on
the machine (see ``exact``). No warm start: the answer must not depend on the path.

A two-by-two problem that comes alone, as every tenant's does, is solved in plain floats by the same operations in
the same order: NumPy's price per call would be twenty times that of the arithmetic. The active-set method has a
native version, one problem after the other; should a pivot not be positive there, arrays solve the problem instead.
"""

from __future__ import annotations

from math import inf

import numpy as np

from processor.core import native
from processor.core.exact import Floats, Ints, Mask, ordered_sum

from .objectives import Problem

MULTIPLIER_TOLERANCE = 1e-12
"""A fixed choice is let in only if that gains more than this per unit."""

VALUE_TOLERANCE = 1e-12
"""Objectives tell two points apart if they differ by more than this part of the numbers they are made of."""

MAX_STEPS_PER_CHOICE = 50
"""A stop for rounding that would cycle; every step is feasible and no worse than the one before."""


def solve(problem: Problem) -> Floats:
    """The minimiser x[b, g, m] of every problem in the batch."""
    if problem.centre.shape == (1, 2, 2):
        try:
            return _two_by_two_alone(problem)
        except ZeroDivisionError:  # rows so large that they swallowed the ridge: arrays divide by 0 quietly
            pass
    quadratic, linear = normal_form(problem)
    if (problem.groups, problem.choices) == (2, 2):
        return _two_by_two(quadratic, linear)
    return _active_set(quadratic, linear, problem.groups, problem.choices, problem.centre)


def normal_form(problem: Problem) -> tuple[Floats, Floats]:
    """H[b, n, n] and h[b, n]."""
    size = problem.rows.shape[2]
    quadratic = np.zeros((len(problem.rows), size, size))
    for r in range(problem.rows.shape[1]):
        row = problem.rows[:, r]
        quadratic += row[:, :, None] * row[:, None, :]
    ridge = problem.ridge[:, None]
    quadratic.reshape(len(quadratic), -1)[:, :: size + 1] += ridge  # the diagonal
    return quadratic, ridge * problem.centre.reshape(-1, size) - problem.linear


def kkt_residual(problem: Problem, x: Floats) -> Floats:
    """How far x[b, g, m] is from optimal: 0 at the minimiser.

    No choice may promise a gain over its group's mean gradient, and no choice in use may stand above it. The
    gradient is measured against the largest curvature where that is above 1.
    """
    quadratic, linear = normal_form(problem)
    scale = np.maximum(np.abs(quadratic).max(axis=(1, 2)), 1.0)[:, None]
    quadratic, linear = quadratic / scale[:, :, None], linear / scale
    gradient = _gradient(quadratic, linear, x.reshape(linear.shape)).reshape(x.shape)
    excess = gradient - ordered_sum(x * gradient, axis=2)[:, :, None]
    infeasible = np.maximum(-x, 0.0).max(axis=(1, 2)) + np.abs(ordered_sum(x, axis=2) - 1.0).max(axis=1)
    residual: Floats = np.maximum(np.maximum(-excess, np.abs(x * excess)).max(axis=(1, 2)), infeasible)
    return residual


def _gradient(quadratic: Floats, linear: Floats, x: Floats) -> Floats:
    used = np.nonzero(x.any(axis=0))[0]  # what is 0 adds nothing, and of many choices few are in use
    return ordered_sum(quadratic[:, :, used] * x[:, None, used], axis=2) - linear


def _two_by_two(quadratic: Floats, linear: Floats) -> Floats:
    """Closed form: with x[g] = (1 − t[g], t[g]), the best of the interior point and the four clipped edges.

    Candidates are compared by how well they meet the optimality conditions and not by the objective, which
    near a corner no longer tells them apart. Unless it does: with rows of very different size (a cell hardly any label
    is known of) the least rounding of the right point is the larger miss.
    """
    by_choice = quadratic.reshape(-1, 2, 2, 2, 2)
    at_base = (quadratic[:, :, 0] + quadratic[:, :, 2] - linear).reshape(-1, 2, 2)
    slope = at_base[:, :, 0] - at_base[:, :, 1]
    curve = by_choice[:, :, 1, :, 1] - by_choice[:, :, 1, :, 0] - by_choice[:, :, 0, :, 1] + by_choice[:, :, 0, :, 0]
    a, b, c = curve[:, 0, 0], curve[:, 0, 1], curve[:, 1, 1]
    s0, s1 = slope[:, 0], slope[:, 1]
    determinant = a * c - b * b
    safe = np.where(determinant > 0, determinant, 1.0)
    t = np.empty((2, 5, len(linear)))  # [group, candidate, b]
    t[0, 0], t[1, 0] = (s0 * c - b * s1) / safe, (a * s1 - b * s0) / safe
    ends = np.array([[0.0], [1.0]])
    t[0, 1::2], t[1, 1::2] = ends, (s1 - b * ends) / c
    t[0, 2::2], t[1, 2::2] = (s0 - b * ends) / a, ends
    t = _clip(t)

    downhill = np.empty_like(t)
    downhill[0] = s0 - a * t[0] - b * t[1]
    downhill[1] = s1 - b * t[0] - c * t[1]
    miss = np.abs(t - _clip(t + downhill))
    best = np.fmin(np.maximum(miss[0], miss[1]), np.inf).argmin(axis=0)  # the first of the best; NaN is none
    every = np.arange(len(best))
    value = t[0] * (0.5 * (a * t[0]) + b * t[1] - s0) + t[1] * (0.5 * (c * t[1]) - s1)
    lowest = np.fmin(value, np.inf).argmin(axis=0)
    told_apart = value[best, every] - value[lowest, every] > VALUE_TOLERANCE * (a + c + np.abs(s0) + np.abs(s1))
    chosen = t[:, np.where(told_apart, lowest, best), every].T
    x = np.empty((len(linear), 2, 2))
    x[:, :, 0], x[:, :, 1] = 1.0 - chosen, chosen
    return x


def _clip(t: Floats) -> Floats:
    clipped: Floats = np.minimum(np.maximum(t, 0.0), 1.0)
    return clipped + 0.0  # of 0 and −0 the CPU may return either; −0 + 0 is 0


def _two_by_two_alone(problem: Problem) -> Floats:
    """``normal_form`` and ``_two_by_two`` for a batch of one, to the bit: change them together."""
    h00 = h01 = h02 = h03 = h11 = h12 = h13 = h22 = h23 = h33 = 0.0
    for r0, r1, r2, r3 in problem.rows[0].tolist():
        h00, h01, h02, h03 = h00 + r0 * r0, h01 + r0 * r1, h02 + r0 * r2, h03 + r0 * r3
        h11, h12, h13 = h11 + r1 * r1, h12 + r1 * r2, h13 + r1 * r3
        h22, h23, h33 = h22 + r2 * r2, h23 + r2 * r3, h33 + r3 * r3
    ridge = float(problem.ridge[0])
    h00, h11, h22, h33 = h00 + ridge, h11 + ridge, h22 + ridge, h33 + ridge
    l0, l1, l2, l3 = problem.linear[0].tolist()
    (m0, m1), (m2, m3) = problem.centre[0].tolist()
    s0 = (h00 + h02 - (ridge * m0 - l0)) - (h01 + h12 - (ridge * m1 - l1))
    s1 = (h02 + h22 - (ridge * m2 - l2)) - (h03 + h23 - (ridge * m3 - l3))
    a = h11 - h01 - h01 + h00
    b = h13 - h12 - h03 + h02
    c = h33 - h23 - h23 + h22

    determinant = a * c - b * b
    safe = determinant if determinant > 0 else 1.0
    interior = _clip_one((s0 * c - b * s1) / safe), _clip_one((a * s1 - b * s0) / safe)
    candidates = (
        interior,
        (0.0, _clip_one((s1 - b * 0.0) / c)),
        (_clip_one((s0 - b * 0.0) / a), 0.0),
        (1.0, _clip_one((s1 - b) / c)),
        (_clip_one((s0 - b) / a), 1.0),
    )
    chosen = lowest = interior
    best, best_value, lowest_value = inf, inf, inf
    for t0, t1 in candidates:
        miss0 = abs(t0 - _clip_one(t0 + (s0 - a * t0 - b * t1)))
        miss1 = abs(t1 - _clip_one(t1 + (s1 - b * t0 - c * t1)))
        value = t0 * (0.5 * (a * t0) + b * t1 - s0) + t1 * (0.5 * (c * t1) - s1)
        if miss0 < best and miss1 < best:
            chosen, best, best_value = (t0, t1), max(miss0, miss1), value
        if value < lowest_value:
            lowest, lowest_value = (t0, t1), value
    if best_value - lowest_value > VALUE_TOLERANCE * (a + c + abs(s0) + abs(s1)):
        chosen = lowest
    t0, t1 = chosen
    return np.array([[[1.0 - t0, t0], [1.0 - t1, t1]]])


def _clip_one(t: float) -> float:
    if t <= 0.0:
        return 0.0
    return 1.0 if t >= 1.0 else t


def _active_set(quadratic: Floats, linear: Floats, groups: int, choices: int, centre: Floats) -> Floats:
    batch, size = linear.shape
    x = np.zeros((batch, size))
    np.put_along_axis(x, _best_vertex(quadratic, linear, centre), 1.0, axis=1)
    free = x > 0.0
    group_of = np.repeat(np.arange(groups), choices)

    running = _left_to_arrays(quadratic, linear, x, (groups, choices))
    for _ in range(MAX_STEPS_PER_CHOICE * size):
        if len(running) == 0:
            break
        x_now, free_now, done = _active_set_step(
            quadratic[running], linear[running], x[running], free[running], group_of, groups
        )
        x[running], free[running] = x_now, free_now
        running = running[~done]
    return x.reshape(batch, groups, choices)


def _left_to_arrays(quadratic: Floats, linear: Floats, x: Floats, shape: tuple[int, int]) -> Ints:
    """Solve those that can be solved without arrays, in x itself; which are left, with x as it was."""
    left = []
    for number, start in enumerate(x):
        found = start.reshape(shape).copy()
        most = MAX_STEPS_PER_CHOICE * found.size
        if native.active_set(quadratic[number], linear[number], found, most, MULTIPLIER_TOLERANCE):
            x[number] = found.ravel()
        else:
            left.append(number)
    return np.array(left, dtype=np.int64)


def _best_vertex(quadratic: Floats, linear: Floats, centre: Floats) -> Ints:
    """Per group the choice that looks best from the centre; index into the flat x."""
    batch, groups, choices = centre.shape
    gradient = _gradient(quadratic, linear, centre.reshape(batch, -1)).reshape(centre.shape)
    vertex: Ints = np.argmin(gradient, axis=2) + choices * np.arange(groups)
    return vertex


def _active_set_step(
    quadratic: Floats, linear: Floats, x: Floats, free: Mask, group_of: Ints, groups: int
) -> tuple[Floats, Mask, Mask]:
    """Move to the best point of the free face, or as far as the first choice that would turn negative.

    At the best point of the face, let in the fixed choice that gains most, or report that there is none.
    """
    rows = np.arange(len(x))
    base = np.argmax(x.reshape(len(x), groups, -1), axis=2) + (x.shape[1] // groups) * np.arange(groups)
    gradient = _gradient(quadratic, linear, x)
    step = _newton_step(quadratic, gradient, free, base, group_of)

    shrinking = step < 0
    room = np.where(shrinking, x / np.where(shrinking, -step, 1.0), np.inf)
    blocking = np.argmin(room, axis=1)
    length = np.minimum(room[rows, blocking], 1.0)
    blocked = room[rows, blocking] < 1.0
    x = np.maximum(x + length[:, None] * step, 0.0)
    x[rows[blocked], blocking[blocked]] = 0.0
    free = free.copy()
    free[rows[blocked], blocking[blocked]] = False

    gradient = _gradient(quadratic, linear, x)
    gain = np.where(free, 0.0, gradient[rows[:, None], base][:, group_of] - gradient)
    entering = np.argmax(gain, axis=1)
    enters = ~blocked & (gain[rows, entering] > MULTIPLIER_TOLERANCE)
    free[rows[enters], entering[enters]] = True
    return x, free, ~blocked & ~enters


def _newton_step(quadratic: Floats, gradient: Floats, free: Mask, base: Ints, group_of: Ints) -> Floats:
    """The step to the minimiser over the free choices that keeps every group's sum.

    Each group's base choice is eliminated (it pays for the others), which leaves a positive definite system.
    """
    rows = np.arange(len(gradient))[:, None]
    base_of = base[:, group_of]
    moved = free & (base_of != np.arange(free.shape[1]))
    used = np.nonzero(moved.any(axis=0))[0]  # of many choices few move
    moved, base_of = moved[:, used], base_of[:, used]
    to_base = quadratic[rows[:, :, None], base_of[:, :, None], used[None, None, :]]
    both_base = quadratic[rows[:, :, None], base_of[:, :, None], base_of[:, None, :]]
    reduced = quadratic[:, used[:, None], used[None, :]] - to_base - np.swapaxes(to_base, 1, 2) + both_base
    reduced = np.where(moved[:, :, None] & moved[:, None, :], reduced, 0.0)
    slope = np.where(moved, gradient[rows, base_of] - gradient[:, used], 0.0)

    diagonal = np.arange(len(used))
    reduced[:, diagonal, diagonal] = np.where(moved, reduced[:, diagonal, diagonal], 1.0)
    step = np.zeros_like(gradient)
    step[:, used] = _solve_positive_definite(reduced, slope)

    step[rows, base] = -ordered_sum(step.reshape(*base.shape, -1), axis=2)
    return step


def _solve_positive_definite(matrix: Floats, right: Floats) -> Floats:
    """Cholesky without a library: elementwise, one column at a time, for the whole batch."""
    size = right.shape[1]
    work = np.concatenate([matrix, right[:, None, :]], axis=1)  # the right side rides along as a last row
    for j in range(size):
        pivot = np.sqrt(work[:, j, j])
        column = work[:, j + 1 :, j] / pivot[:, None]
        work[:, j, j] = pivot
        work[:, j + 1 :, j] = column
        work[:, j + 1 :, j + 1 :] -= column[:, :, None] * column[:, None, : size - j - 1]
    solution = np.zeros_like(right)
    rest = work[:, size, :].copy()
    for j in reversed(range(size)):
        solution[:, j] = rest[:, j] / work[:, j, j]
        rest[:, :j] -= work[:, j, :j] * solution[:, j, None]
    return solution
