from collections.abc import Callable, Iterable
from typing import Any

from processor.core.alerts.sequential_tests import SequentialTest

Cell = tuple[int, int]
Taking = list[tuple[SequentialTest, bool]]

def observe(
    labels: Iterable[tuple[int, int, bool, int]],
    counts: dict[Cell, int],
    meet: Callable[[Cell, int, dict[Cell, Taking]], Taking],
    judge: Callable[[SequentialTest, int], Any],
) -> None: ...
