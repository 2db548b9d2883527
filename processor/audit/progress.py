"""How far a command on records is: bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from processor.terminal import terminal

from .sources.source import Role, Source

if TYPE_CHECKING:
    from rich.progress import Progress

INPUTS: tuple[Role, ...] = ("requests", "feedback")


@contextmanager
def bars() -> Iterator[Progress]:
    """Room for bars, which are gone at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(stderr=True), transient=True) as progress:
        yield progress


@contextmanager
def advancing(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """One bar; gives what moves it on by so many."""
    with bars() as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def input_records(source: Source, partitions: tuple[int, ...] | None = None) -> Iterator[Callable[[int], None]]:
    """One bar; gives what is told how many input records have been read."""
    with bars() as progress:
        task = progress.add_task("input records", total=inputs_in(source, partitions))
        yield lambda read: progress.update(task, completed=read)


@contextmanager
def steps(source: Source) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """A bar for each step; every step reads all input records."""
    total = inputs_in(source)
    with bars() as progress:

        def step(what: str) -> Callable[[int], None]:
            task = progress.add_task(what, total=total)
            return lambda read: progress.update(task, completed=read)

        yield step


def inputs_in(source: Source, partitions: tuple[int, ...] | None = None) -> int | None:
    """About how many input records there are: offsets covered, where that is known."""
    total = 0
    for role in INPUTS:
        for number in source.partitions(role) if partitions is None else partitions:
            bounds = source.bounds(role, number)
            if bounds is None:
                return None
            total += bounds[1] - bounds[0]
    return total
