"""The native active-set method gives the bits of the one that works on arrays, whatever the problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core import native
from processor.core.exact import Floats
from processor.core.learner import objectives, solver
from processor.core.learner.estimates import cross_instance, estimate, keep_rate, weights
from processor.core.learner.objectives import Problem
from processor.core.settings import Prior

from .strategies import axes, random_counters, random_problem, seeds
from .tiers import in_tier
from .tiers import native_tier as native_tier

pytestmark = pytest.mark.usefixtures("native_tier")


def both_ways(problem: Problem) -> tuple[bytes, bytes]:
    found = solver.solve(problem)
    with in_tier("reference"):
        return found.tobytes(), solver.solve(problem).tobytes()


@given(seed=seeds, groups=st.integers(1, 8), choices=st.integers(2, 8), ridge=st.integers(-12, -1))
def test_random_problems_are_solved_alike_to_the_bit(seed: int, groups: int, choices: int, ridge: int) -> None:
    problem = random_problem(np.random.default_rng(seed), 5, groups, choices)
    native_, arrays = both_ways(replace(problem, ridge=np.full(5, 10.0**ridge)))
    assert native_ == arrays


@given(
    seed=seeds,
    groups=st.integers(1, 8),
    labels=st.integers(2, 4),
    experts=st.integers(1, 8),
    most=st.sampled_from([1, 3, 2_000]),
    faint=st.sampled_from([1.0, 1e-3, 1e-6]),
)
def test_problems_that_counters_give_are_solved_alike_to_the_bit(
    seed: int, groups: int, labels: int, experts: int, most: int, faint: float
) -> None:
    rng = np.random.default_rng(seed)
    estimates = estimate(random_counters(rng, axes(groups, labels, experts), batch=3, most=most), Prior())
    cross = cross_instance(weights(estimates.exponents, keep_rate(0.35, estimates.labels, experts)), estimates.error)
    fairness, regret = rng.uniform(0, 1, size=(3, labels)), faint * rng.uniform(0, 1, size=3)
    for problem in (
        objectives.gap(estimates, cross, fairness, regret),
        objectives.mixture(estimates, fairness, regret),
    ):
        native_, arrays = both_ways(problem)
        assert native_ == arrays


def test_what_no_label_is_known_of_is_solved_alike_to_the_bit_at_the_largest_default_shape() -> None:
    estimates = estimate(random_counters(np.random.default_rng(1), axes(32, 2, 64), batch=1, most=1), Prior())
    cross = cross_instance(weights(estimates.exponents, keep_rate(0.35, estimates.labels, 64)), estimates.error)
    native_, arrays = both_ways(objectives.gap(estimates, cross, np.ones((1, 2)), np.ones(1)))
    assert native_ == arrays


def test_a_problem_without_a_positive_pivot_is_left_to_the_arrays() -> None:
    quadratic: Floats = np.zeros((4, 4))
    linear, x = np.array([0.0, 1.0, 0.0, 1.0]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert not native.active_set(quadratic, linear, x, 100, solver.MULTIPLIER_TOLERANCE)
    flat = Problem(np.zeros((2, 1, 6)), -linear[None, [0, 1, 0, 1, 0, 0]].repeat(2, 0), np.full((2, 2, 3), 1 / 3))
    with np.errstate(all="ignore"):
        native_, arrays = both_ways(replace(flat, ridge=np.zeros(2)))
    assert native_ == arrays
