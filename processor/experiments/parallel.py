"""Independent pieces of work on all cores, with a progress bar."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
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
            with _interrupts_ignored():
                futures = {pool.submit(work, task): i for i, task in enumerate(tasks)}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = future.result()
                    progress.advance(bar)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in active_children():
                    worker.terminate()
                raise
    return [results[i] for i in range(len(tasks))]


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """What is started meanwhile ignores Ctrl-C for good: it is this process that ends it, without a word of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def chunks(runs: int) -> list[range]:
    """Runs cut into tasks.

    >>> chunks(60)
    [range(0, 25), range(25, 50), range(50, 60)]
    """
    return [range(start, min(start + RUNS_PER_TASK, runs)) for start in range(0, runs, RUNS_PER_TASK)]
