"""When a label comes: rounds (or milliseconds) after its decision, or never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from processor.core.errors import InvalidInputError
from processor.core.exact import Ints

NEVER = np.iinfo(np.int64).max

Kind = Literal["none", "fixed", "uniform", "geometric"]


@dataclass(frozen=True)
class Delay:
    """A distribution of label delays.

    >>> Delay.parse("uniform:0-2000")
    Delay(kind='uniform', low=0, high=2000, lost=0.0)
    >>> Delay.parse("geometric:500,lost:0.1").describe()
    'geometric, mean 500, 10 % never'
    """

    kind: Kind = "none"
    low: int = 0
    high: int = 0
    lost: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Delay:
        """Read ``none``, ``fixed:N``, ``uniform:LOW-HIGH`` or ``geometric:MEAN``, each with ``,lost:P``."""
        shape, _, rest = text.partition(",")
        kind, _, numbers = shape.partition(":")
        try:
            lost = float(rest.removeprefix("lost:")) if rest else 0.0
            match kind:
                case "none":
                    return cls(lost=lost)
                case "fixed" | "geometric":
                    return cls(kind, int(numbers), int(numbers), lost)
                case "uniform":
                    low, _, high = numbers.partition("-")
                    return cls(kind, int(low), int(high), lost)
        except ValueError:
            pass
        raise InvalidInputError(
            f'"{text}" is not a delay: use none, fixed:3000, uniform:0-2000 or geometric:500, '
            "and add ,lost:0.1 for labels that never come"
        )

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high or not 0.0 <= self.lost <= 1.0:
            raise InvalidInputError(
                f"a delay from {self.low} to {self.high} with {self.lost} lost is impossible: use 0 ≤ low ≤ high "
                "and a share of lost labels from 0 to 1"
            )

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Delays, ``NEVER`` for labels that do not come."""
        match self.kind:
            case "uniform":
                delays = rng.integers(self.low, self.high, size=shape, endpoint=True)
            case "geometric":
                delays = rng.geometric(1.0 / (self.low + 1), size=shape) - 1
            case _:
                delays = np.full(shape, self.low, dtype=np.int64)
        return np.where(rng.random(shape) < self.lost, NEVER, delays)

    def describe(self) -> str:
        shapes = {
            "none": "at once",
            "fixed": f"always {self.low}",
            "uniform": f"uniform {self.low}–{self.high}",
            "geometric": f"geometric, mean {self.low}",
        }
        return shapes[self.kind] + (f", {self.lost:.0%} never".replace("%", " %") if self.lost else "")
