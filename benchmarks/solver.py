"""Our solver against SciPy's SLSQP: how much faster, how exact, in one run. ``make bench`` prints it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from processor.core.learner.objectives import Problem
from processor.core.learner.slsqp import solve_slsqp
from processor.core.learner.solver import kkt_residual, solve
from tests.unit.strategies import random_problem

SHAPES = ((2, 2), (3, 3), (5, 4))
ROUNDS = 3


def measure(groups: int, choices: int, count: int) -> dict[str, Any]:
    """Interleaved rounds of: SLSQP, ours one at a time as a tenant's learner does, ours as one batch."""
    problem = random_problem(np.random.default_rng([groups, choices]), count, groups, choices)
    ones = _ones(problem)
    seconds: dict[str, list[float]] = {"slsqp": [], "single": [], "batch": []}
    with threadpool_limits(1):  # on matrices this small more threads only slow SLSQP down, which would flatter us
        for _ in range(ROUNDS):
            reference = _timed(seconds["slsqp"], lambda: solve_slsqp(problem))
            _timed(seconds["single"], lambda: [solve(one) for one in ones])
            ours = _timed(seconds["batch"], lambda: solve(problem))
    slsqp = median(seconds["slsqp"])
    return {
        "groups": groups,
        "choices": choices,
        "problems": count,
        "faster_in_a_batch": slsqp / median(seconds["batch"]),
        "faster_one_at_a_time": slsqp / median(seconds["single"]),
        "worse_by_at_most": float((problem.value(ours) - problem.value(reference)).max()),
        "kkt_residual": float(kkt_residual(problem, ours).max()),
        "kkt_residual_slsqp": float(kkt_residual(problem, reference).max()),
    }


def _ones(problem: Problem) -> list[Problem]:
    parts = zip(problem.rows, problem.linear, problem.centre, strict=True)
    return [Problem(rows[None], linear[None], centre[None]) for rows, linear, centre in parts]


def _timed(into: list[float], work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    into.append(time.perf_counter() - start)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2_000, help="random problems per shape (default 2000)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    results = [measure(groups, choices, arguments.problems) for groups, choices in SHAPES]
    table = Table(title=f"{arguments.problems} random problems, median of {ROUNDS} rounds", title_justify="left")
    for column in ("groups × choices", "faster in a batch", "one at a time", "worse by", "KKT", "KKT of SLSQP"):
        table.add_column(column, justify="right")
    for row in results:
        table.add_row(
            f"{row['groups']} × {row['choices']}",
            f"{row['faster_in_a_batch']:.3g}×",
            f"{row['faster_one_at_a_time']:.3g}×",
            f"{row['worse_by_at_most']:.0e}",
            f"{row['kkt_residual']:.0e}",
            f"{row['kkt_residual_slsqp']:.0e}",
        )
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
