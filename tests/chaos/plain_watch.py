"""The sequential tests of alerts once more, written from their definition: no code of the processor is used here."""

from __future__ import annotations

from dataclasses import dataclass, field

BETS = (0.05, 0.1, 0.2, 0.4, 0.7)


@dataclass(frozen=True)
class Terms:
    tolerance: float
    alpha: float
    false_alarm_pairs: int
    clear: int
    learning: int
    declared: int
    """streams known from the start"""


@dataclass
class PlainStream:
    label: str
    groups: tuple[str, str]
    threshold: float
    testing: bool = False
    waiting: dict[str, list[int]] = field(default_factory=dict)
    """labels and errors of each group since the last pair"""
    pairs: int = 0
    wealth: float = 1.0
    """of the tolerance test"""
    tolerance: dict[tuple[float, int], float] = field(default_factory=dict)
    drift: dict[tuple[float, int], float] = field(default_factory=dict)
    recovery: dict[tuple[float, int], float] = field(default_factory=dict)
    tolerance_raised: bool = False
    drift_raised: bool = False

    def take(self, group: str, wrong: bool) -> float | None:
        """The difference, if this label completes a pair."""
        counts = self.waiting.setdefault(group, [0, 0])
        counts[0] += 1
        counts[1] += wrong
        if set(self.waiting) != set(self.groups):
            return None
        (n_a, err_a), (n_b, err_b) = (self.waiting[name] for name in self.groups)
        self.waiting = {}
        return err_a / n_a - err_b / n_b

    def test(self, x: float, terms: Terms) -> None:
        self.pairs += 1
        gap = terms.tolerance
        sides = [(bet, sign) for sign in (1, -1) for bet in BETS]
        if not self.tolerance_raised:
            n = self.pairs
            for bet, sign in sides:
                before = self.tolerance.get((bet, sign), 0.0)
                self.tolerance[bet, sign] = (before + 1 / (n * (n + 1))) * (1 + bet * (sign * x - gap) / (1 + gap))
            self.wealth = sum(self.tolerance.values()) / len(sides) + 1 / (n + 1)
            self.tolerance_raised = self.wealth >= self.threshold
        if not self.drift_raised:
            for bet, sign in sides:
                self.drift[bet, sign] = (self.drift.get((bet, sign), 0.0) + 1) * (
                    1 + bet * (sign * x - gap) / (1 + gap)
                )
            self.drift_raised = self.drift_wealth >= terms.false_alarm_pairs
        else:
            for bet, sign in sides:
                before = self.recovery.get((bet, sign), 0.0)
                self.recovery[bet, sign] = (before + 1) * (1 + bet * (gap - sign * x) / (1 + gap))
            by_side = [sum(self.recovery[bet, sign] for bet in BETS) / len(BETS) for sign in (1, -1)]
            if min(by_side) >= terms.clear:
                self.drift_raised, self.drift, self.recovery = False, {}, {}

    @property
    def drift_wealth(self) -> float:
        return sum(self.drift.values()) / (2 * len(BETS))


class PlainWatch:
    """All streams of a tenant. Acknowledgements are not known here: a run that has some cannot be compared."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.streams: list[PlainStream] = []
        self._met: list[str] = []
        self._cells: dict[tuple[str, str], int] = {}

    def meet(self, group: str) -> None:
        """Groups are numbered in the order of their first accepted request; a pair is told in that order."""
        if group not in self._met:
            self._met.append(group)

    def take(self, label: str, group: str, wrong: bool) -> None:
        cell = (label, group)
        self._cells[cell] = self._cells.get(cell, 0) + 1
        if self._cells[cell] == 1:
            self._begin(label, group)
        for stream in self.streams:
            if stream.label != label or group not in stream.groups:
                continue
            if not stream.testing:
                stream.testing = all(self._cells.get((label, g), 0) >= self.terms.learning for g in stream.groups)
                continue
            x = stream.take(group, wrong)
            if x is not None:
                stream.test(x, self.terms)

    def _begin(self, label: str, group: str) -> None:
        for other in [g for y, g in self._cells if y == label and g != group]:
            number, equal = len(self.streams) + 1, self.terms.declared + 1
            share = (equal if number < equal else number * (number + 1)) / self.terms.alpha
            first, second = sorted((group, other), key=self._met.index)
            self.streams.append(PlainStream(label, (first, second), share))
