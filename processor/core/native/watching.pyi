from collections.abc import Callable, Iterable
from typing import Any

from processor.core.alerts.sequential_tests import Stream

Cell = tuple[int, int]
Taking = list[tuple[Stream, bool]]

def observe(
    labels: Iterable[tuple[int, int, bool, int]],
    counts: dict[Cell, int],
    meet: Callable[[Cell, int, dict[Cell, Taking]], Taking],
    judge: Callable[[Stream, int], Any],
) -> None: ...
