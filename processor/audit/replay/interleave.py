"""Several partitions in one process, a batch of each at a time.

A step costs by the call more than by the record, so small batches of several partitions are stepped as one large batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar

from processor.core.stream.step import Given, StepResult

from .replay import stepped

R = TypeVar("R")
Stepping = Generator[Given, StepResult | Exception, R]
"""Goes through a partition: says what is to be stepped next, is told what that leads to, and ends with a result."""

MOST = 4
"""So many partitions at a time: each has its state in memory, and what it reads is open."""
ENOUGH = 2_000
"""A batch of so many records gains nothing from company, and leaves the processor's cache while it waits for some."""


def interleave_partitions(partitions: Iterable[Stepping[R]]) -> list[R]:
    """The results, in order. In memory are the states of ``MOST`` partitions at most, and a batch of each."""
    coming = enumerate(partitions)
    results: dict[int, R] = {}
    under_way: list[tuple[int, Stepping[R], StepResult | Exception | None]] = []
    while True:
        under_way += [(number, one, None) for number, one in islice(coming, MOST - len(under_way))]
        if not under_way:
            return [results[number] for number in sorted(results)]
        waiting: list[tuple[int, Stepping[R], Given]] = []
        for number, one, outcome in under_way:
            try:
                waiting.append((number, one, next(one) if outcome is None else one.send(outcome)))
            except StopIteration as end:
                results[number] = end.value
        outcomes = stepped([given for _, _, given in waiting])
        under_way = [(number, one, outcome) for (number, one, _), outcome in zip(waiting, outcomes, strict=True)]
