"""Independent pieces of work on all cores, with a progress bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from processor.terminal import terminal

Task = TypeVar("Task")
Result = TypeVar("Result")

RUNS_PER_TASK = 25
"""Fixed, so that the same seed gives the same figures on any number of cores."""


def in_parallel(title: str, work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """The results of ``work`` for every task, in the order of the tasks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: dict[int, Result] = {}
    with Progress(*columns, console=terminal(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=len(tasks))
        # Not forked: a copy of a process with threads (the bar has one) may wait for ever for a lock one of them held.
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(work, task): i for i, task in enumerate(tasks)}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = future.result()
                    progress.advance(bar)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [results[i] for i in range(len(tasks))]


def chunks(runs: int) -> list[range]:
    """Runs cut into tasks.

    >>> chunks(60)
    [range(0, 25), range(25, 50), range(50, 60)]
    """
    return [range(start, min(start + RUNS_PER_TASK, runs)) for start in range(0, runs, RUNS_PER_TASK)]
