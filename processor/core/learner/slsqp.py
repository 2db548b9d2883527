"""The paper's solver, SciPy's SLSQP, with tolerances tight enough to be a reference for ours.

Never on the path to a decision: it is slow and its last bits depend on the machine.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from processor.core.exact import Floats

from .objectives import Problem
from .solver import normal_form


def solve_slsqp(problem: Problem) -> Floats:
    """The minimiser x[b, g, m], one problem at a time, each scaled to a largest curvature of 1."""
    return np.stack([_solve_one(*form, problem.centre[b]) for b, form in enumerate(_forms(problem))])


def _forms(problem: Problem) -> list[tuple[Floats, Floats]]:
    return list(zip(*normal_form(problem), strict=True))


def _solve_one(quadratic: Floats, linear: Floats, centre: Floats) -> Floats:
    scale = max(float(np.abs(quadratic).max()), 1e-12)
    quadratic, linear = quadratic / scale, linear / scale
    groups, choices = centre.shape
    belongs = np.kron(np.eye(groups), np.ones(choices))
    answer = minimize(
        lambda x: 0.5 * x @ quadratic @ x - linear @ x,
        centre.ravel(),
        jac=lambda x: quadratic @ x - linear,
        bounds=[(0.0, 1.0)] * centre.size,
        constraints={"type": "eq", "fun": lambda x: belongs @ x - 1.0, "jac": lambda _: belongs},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    x = np.maximum(answer.x, 0.0).reshape(groups, choices)
    return np.asarray(x / x.sum(axis=1, keepdims=True), dtype=np.float64)
