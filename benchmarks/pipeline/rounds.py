"""Rounds in which every line has its turn, so that noise hits all alike; medians and spread of what they gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .timing import Measured, Span, StuckError

K = TypeVar("K")
T = TypeVar("T")


@dataclass
class Collected:
    """The runs of one line, and why there are none if there are none."""

    runs: list[Measured] = field(default_factory=list)
    failure: str = ""

    @property
    def rates(self) -> list[float]:
        return [one.rate for one in self.runs]

    @property
    def rate(self) -> float:
        return median(self.rates) if self.runs else float("nan")

    def middle(self, of: Callable[[Measured], float]) -> float:
        return median(map(of, self.runs)) if self.runs else float("nan")

    @property
    def steady(self) -> list[Span]:
        """The steady parts of the runs, or none if one of them has none."""
        found = [one.steady for one in self.runs if one.steady is not None]
        return found if len(found) == len(self.runs) else []

    @property
    def cpu_each(self) -> float:
        """Microseconds of the process' own CPU time for each record: noise of other processes hits it less."""
        return self.middle(lambda one: one.cpu / one.records * 1e6)

    def server_cpu_each(self, server: str) -> float | None:
        """Microseconds of a server's CPU time for each record; None where it is not known."""
        found = [one.server_cpu[server] / one.records * 1e6 for one in self.runs if server in one.server_cpu]
        return median(found) if found else None

    def note(self, name: str) -> float | None:
        found = [one.notes[name] for one in self.runs if name in one.notes]
        return median(found) if found else None


def ratio(ours: Collected, others: Collected) -> tuple[float, float, float]:
    """Median, least and greatest of the rounds' own ratios: two neighbours in time share their noise."""
    return ratio_of_rates(ours.rates, others.rates)


def ratio_of_rates(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """The same of rates round by round."""
    pairs = [a / b for a, b in zip(ours, others, strict=False)]
    return (median(pairs), min(pairs), max(pairs)) if pairs else (float("nan"),) * 3


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def in_turn(
    keys: Sequence[K],
    rounds: int,
    run: Callable[[K, int, Callable[[int], None]], Measured],
    title: Callable[[K], str],
    total: int,
    console: Console,
) -> dict[K, Collected]:
    """``rounds`` times each of them, in turn; one that fails is told and left out of the rounds after."""
    found = {key: Collected() for key in keys}
    with progress_bar(console) as progress:
        for number in range(rounds):
            # Every second round backwards: nobody always comes after the same neighbour.
            for key in keys if number % 2 == 0 else list(reversed(keys)):
                if found[key].failure:
                    continue
                task = progress.add_task(f"round {number + 1}/{rounds}  {title(key)}", total=total)

                def told(done: int, task: int = task) -> None:
                    progress.update(task, completed=done)  # type: ignore[arg-type]

                try:
                    found[key].runs.append(run(key, number, told))
                except StuckError as problem:
                    found[key].failure = str(problem)
                    progress.console.print(f"{title(key)}: {problem}", style="red", highlight=False, markup=False)
                progress.remove_task(task)
    return found
