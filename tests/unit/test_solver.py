"""The fast solver is exact: never worse than SLSQP, and optimal by its own conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core import Balance, Counters, Policy
from processor.core.exact import FEW, Floats, power
from processor.core.learner import objectives, solver
from processor.core.learner.estimates import cross_instance, estimate, keep_rate, weights
from processor.core.learner.objectives import Problem
from processor.core.learner.policies import rule_of
from processor.core.learner.slsqp import solve_slsqp
from processor.core.learner.solver import kkt_residual, solve
from processor.core.settings import ObjectiveName, Prior
from processor.experiments.abstention import long_run
from producers.synthetic import paper_population

from .strategies import axes, random_counters, random_problem, seeds

SHAPES = [(2, 2, 1_000), (2, 3, 200), (3, 3, 300), (4, 2, 200), (5, 4, 200), (3, 9, 40)]


@pytest.mark.parametrize(("groups", "choices", "count"), SHAPES)
def test_it_is_never_worse_than_slsqp_and_meets_the_optimality_conditions(
    groups: int, choices: int, count: int
) -> None:
    problem = random_problem(np.random.default_rng([groups, choices]), count, groups, choices)
    x = solve(problem)
    assert (problem.value(x) - problem.value(solve_slsqp(problem))).max() <= 1e-8
    assert kkt_residual(problem, x).max() <= 1e-9


@given(seed=seeds, groups=st.integers(1, 5), labels=st.integers(2, 4), experts=st.integers(1, 6))
def test_it_is_optimal_for_the_problems_that_counters_give(seed: int, groups: int, labels: int, experts: int) -> None:
    rng = np.random.default_rng(seed)
    counters = random_counters(rng, axes(groups, labels, experts), batch=4)
    estimates = estimate(counters, Prior())
    keep = keep_rate(0.35, estimates.labels, experts)
    cross = cross_instance(weights(estimates.exponents, keep), estimates.error)
    fairness, regret = rng.uniform(0, 1, size=(4, labels)), rng.uniform(0, 1, size=4)
    for problem in (
        objectives.gap(estimates, cross, fairness, regret),
        objectives.mixture(estimates, fairness, regret),
    ):
        assert kkt_residual(problem, solve(problem)).max() <= 1e-9


@given(seed=seeds, objective=st.sampled_from(["bound", "paper"]))
def test_it_is_optimal_for_the_binary_objectives(seed: int, objective: str) -> None:
    counters = random_counters(np.random.default_rng(seed), axes(), batch=4)
    estimates = estimate(counters, Prior())
    pi = weights(estimates.exponents, keep_rate("auto", estimates.labels, 3))
    build = {"bound": objectives.bound, "paper": objectives.paper}[objective]
    problem = build(estimates, cross_instance(pi, estimates.error), np.ones((4, 2)), np.ones(4))
    assert kkt_residual(problem, solve(problem)).max() <= 1e-9


@given(seed=seeds, groups=st.integers(1, 4), choices=st.integers(2, 4))
def test_the_answer_does_not_depend_on_what_else_is_in_the_batch(seed: int, groups: int, choices: int) -> None:
    problem = random_problem(np.random.default_rng(seed), 5, groups, choices)
    together = solve(problem)
    for i in range(5):
        alone = solve(Problem(problem.rows[i : i + 1], problem.linear[i : i + 1], problem.centre[i : i + 1]))
        assert alone[0].tobytes() == together[i].tobytes()


def test_a_cell_of_which_hardly_anything_is_known_does_not_hide_the_best_point() -> None:
    counters = Counters.zeros(axes(experts=4))
    counters.labels[0] = counters.seen[0] = counters.trials[0] = counters.decisions[0] = [[0, 8102], [2, 7529]]
    losses = [[[0, 4324], [0, 4835]], [[0, 5688], [1, 0]], [[0, 6121], [0, 0]], [[0, 0], [0, 397]]]
    counters.losses[0] = losses
    selection = rule_of(Policy(objective="paper"), counters, ("y0", "y1")).selection[0]
    # in rational arithmetic; the rows are up to 4 000 times as large as each other
    assert selection.ravel() == pytest.approx([0.05653, 0.94347, 0.47708, 0.52292], abs=1e-5)


@given(seed=seeds)
def test_it_is_the_best_of_many_points_whatever_is_known_of_which_cell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counters = random_counters(rng, axes(experts=4), batch=8)
    thin = rng.integers(0, 2, size=(8, 2, 2)) * rng.choice([1, 1_000], size=(8, 2, 2))
    counters.labels[...] = counters.seen[...] = thin
    counters.trials[...] = thin[:, None]
    counters.losses[...] = rng.binomial(counters.trials, rng.random(counters.trials.shape))
    estimates = estimate(counters, Prior())
    pi = weights(estimates.exponents, keep_rate(0.35, estimates.labels, 4))
    problem = objectives.paper(estimates, cross_instance(pi, estimates.error), np.ones((8, 2)), np.ones(8))
    found = problem.value(solve(problem))
    for t in rng.random((40, 2)):
        there = np.broadcast_to(np.stack([1 - t, t], axis=1), (8, 2, 2))
        assert (found - problem.value(there) <= 1e-8 * np.maximum(1, found)).all()


def awkward_problems(rng: np.random.Generator, count: int) -> Problem:
    """Two-by-two problems at the edges: zeros of both signs, equal rows and columns, numbers far apart in size."""
    whole = rng.random((count, 1, 1)) < 0.3
    rows = np.where(whole, rng.integers(-2, 3, size=(count, 5, 4)), rng.normal(size=(count, 5, 4)))
    reach = rng.choice([0.0, 3.0, 8.0, 200.0], size=(count, 1, 1))
    rows *= 10.0 ** (reach * rng.uniform(-1, 1, size=(count, 5, 1)))
    rows[rng.random(rows.shape) < 0.2] = 0.0
    rows[rng.random(rows.shape) < 0.1] = -0.0
    rows = np.where(rng.random((count, 1, 1)) < 0.2, rows[:, :1], rows)
    rows = np.where(rng.random((count, 1, 1)) < 0.2, rows[:, :, [0, 0, 2, 2]], rows)
    linear = rng.normal(size=(count, 4)) * rng.choice([0.0, 1e-9, 1.0, 1e9], size=(count, 1))
    centre = np.where(rng.random((count, 1, 1)) < 0.2, [1.0, 0.0], rng.dirichlet(np.ones(2), size=(count, 2)))
    return Problem(rows, linear, centre)


def bits(x: Floats) -> bytes:
    """All bits, but every NaN alike."""
    return np.where(np.isnan(x), np.nan, x).tobytes()


@given(seed=seeds)
def test_a_problem_alone_is_solved_to_the_bit_as_in_a_batch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for problem in (random_problem(rng, 20, 2, 2), awkward_problems(rng, 100)):
        with np.errstate(all="ignore"):  # the largest overflow
            together = solve(problem)
            parts = zip(problem.rows, problem.linear, problem.centre, strict=True)
            alone = [solve(Problem(*(part[None] for part in parts_of_one))) for parts_of_one in parts]
        assert bits(np.concatenate(alone)) == bits(together)


def test_the_edges_are_met_alone_too() -> None:
    """Where the ridge is lost beside huge rows, plain floats cannot divide and arrays take over."""
    flat = Problem(np.full((2, 1, 4), 1e9), np.zeros((2, 4)), np.full((2, 2, 2), 0.5))
    one = Problem(flat.rows[:1], flat.linear[:1], flat.centre[:1])
    with pytest.raises(ZeroDivisionError):
        solver._two_by_two_alone(one)
    with np.errstate(all="ignore"):
        assert bits(solve(one)) == bits(solve(flat)[:1])


def only(counters: Counters, b: int) -> Counters:
    return counters.row(b)


@given(seed=seeds, experts=st.integers(3, 6))
def test_a_rule_alone_is_to_the_bit_the_rule_in_a_batch(seed: int, experts: int) -> None:
    counters = random_counters(np.random.default_rng(seed), axes(experts=experts), batch=8)
    for policy in (Policy(), Policy(objective="bound"), Policy(objective="paper"), Policy(policy="mw")):
        together = rule_of(policy, counters, ("y0", "y1"))
        for b in range(8):
            alone = rule_of(policy, only(counters, b), ("y0", "y1"))
            assert alone.selection.tobytes() == together.selection[b : b + 1].tobytes()
            assert alone.expert_parts.tobytes() == together.expert_parts[b : b + 1].tobytes()


@given(seed=seeds)
def test_few_powers_are_to_the_bit_those_of_many(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = rng.choice([0.0, 0.5, 0.65, 1.0, *rng.random(4)], size=3 * FEW)
    exponent = rng.integers(0, 10 ** rng.integers(1, 10, size=base.size))
    few = [power(base[i : i + 3], exponent[i : i + 3]) for i in range(0, base.size, 3)]
    assert np.concatenate(few).tobytes() == power(base, exponent).tobytes()


def test_where_the_minimiser_is_not_unique_the_base_rates_decide() -> None:
    counters = random_counters(np.random.default_rng(0), axes(), batch=1)
    for array in counters.arrays():
        array[...] = 0
    counters.labels[0] = counters.seen[0] = [[30, 10], [5, 15]]
    counters.trials[0] = np.broadcast_to(counters.labels[0], (3, 2, 2))
    counters.losses[0] = counters.trials[0] // 5 * 2  # all experts alike: every rule is as good as any other
    q = rule_of(Policy(), counters, ("y0", "y1")).selection[0]
    assert q == pytest.approx(estimate(counters, Prior()).base_rate[0], abs=1e-6)


@pytest.mark.parametrize("objective", ["gap", "mixture"])
@pytest.mark.parametrize("fairness", [1.0, 10.0, 1_000.0, 10_000.0])
def test_of_the_fair_choices_the_most_accurate_is_taken_however_large_lambda_is(
    objective: ObjectiveName, fairness: float
) -> None:
    policy = Policy(objective=objective, balance=(Balance(fairness=fairness),))
    assert long_run(paper_population(0.3), policy).loss == pytest.approx(0.17, abs=0.001)


def test_the_scale_of_lambda_does_not_matter_only_the_balance() -> None:
    counters = random_counters(np.random.default_rng(5), axes(), batch=3)
    small, large = (
        rule_of(Policy(balance=(Balance(fairness=s, regret=2 * s),)), counters, ("y0", "y1")).selection
        for s in (1.0, 1e3)
    )
    assert small == pytest.approx(large, abs=1e-9)
