"""Independent pieces of work on a record, as many at a time as there are processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from os import cpu_count
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int], None]

LOOK = 0.2
"""Seconds between two looks at how far the pieces are."""

_READ: Any = None
"""In a process of the pool: how far each piece is, shared with all of them."""


def in_processes(
    work: Callable[[T, Progress], R],
    pieces: Sequence[T],
    processes: int | None = None,
    progress: Progress = lambda records: None,
) -> list[R]:
    """The results in the order of the pieces. ``progress`` is told how many records have been read in all."""
    most = min(processes or cpu_count() or 1, len(pieces))
    if most > 1:
        return _side_by_side(work, pieces, most, progress)
    total = [0]

    def further(records: int) -> None:
        total[0] += records
        progress(total[0])

    return [work(piece, further) for piece in pieces]


def _share(read: Any) -> None:
    global _READ
    _READ = read


def _in_process(work: Callable[[T, Progress], R], piece: T, index: int) -> R:
    def further(records: int) -> None:
        _READ[index] += records

    return work(piece, further)


def _side_by_side(work: Callable[[T, Progress], R], pieces: Sequence[T], most: int, progress: Progress) -> list[R]:
    context = get_context("spawn")  # threads of a Kafka client do not survive a fork
    read = context.Array("q", len(pieces), lock=False)
    with ProcessPoolExecutor(most, mp_context=context, initializer=_share, initargs=(read,)) as pool:
        futures: list[Future[R]] = [pool.submit(_in_process, work, piece, i) for i, piece in enumerate(pieces)]
        waiting: set[Future[R]] = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=LOOK)
                progress(sum(read))
                for one in done:
                    one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
