"""How long a tenant's decisions wait for their labels: delays of those that came, and the age of those that did not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .delays import DELAY_BOUNDS

BINS = 64
"""Pending decisions are counted by the time of their request, in bins of about this fraction of the expiry."""


@dataclass(slots=True)
class PendingAges:
    """All times in whole seconds.

    >>> waits = PendingAges.new(expiry=64_000)
    >>> waits.asked([100, 103])
    >>> waits.settled([100])
    >>> waits.pending, waits.oldest
    (1, 103)
    """

    width: int
    """of a bin; it stays as it was when the tenant was first met, whatever the expiry becomes"""
    bins: dict[int, tuple[int, int]]
    """pending decisions by the number of the bin of their request: how many, and the earliest time met there"""
    delays: list[int]
    """labels by delay, see ``DELAY_BOUNDS``"""
    delay_sum: int

    @classmethod
    def new(cls, expiry: int) -> PendingAges:
        """``expiry`` in milliseconds."""
        return cls(max(expiry // (1_000 * BINS), 1), {}, [0] * (len(DELAY_BOUNDS) + 1), 0)

    def clone(self) -> PendingAges:
        return PendingAges(self.width, self.bins.copy(), self.delays.copy(), self.delay_sum)

    @property
    def pending(self) -> int:
        return sum(count for count, _ in self.bins.values())

    @property
    def oldest(self) -> int | None:
        """The earliest time a pending decision may have been asked for.

        Exact until the first of its bin is settled, which says nothing about the second; then off by a bin at most.
        """
        return self.bins[min(self.bins)][1] if self.bins else None

    def asked(self, at: Sequence[int]) -> None:
        """Decisions were asked for at these times."""
        for number, count, first in self._by_bin(at):
            before, earliest = self.bins.get(number, (0, first))
            self.bins[number] = before + count, min(earliest, first)

    def settled(self, at: Sequence[int]) -> None:
        """Decisions asked for at these times are labelled or have expired."""
        for number, count, _ in self._by_bin(at):
            self.settled_in(number, count)

    def settled_in(self, number: int, count: int) -> None:
        """So many of a bin are."""
        before, earliest = self.bins.get(number, (0, 0))
        if before > count:
            self.bins[number] = before - count, earliest
        else:
            self.bins.pop(number, None)

    def _by_bin(self, at: Sequence[int]) -> list[tuple[int, int, int]]:
        """Numbers of bins, how many of these times are in each, and the first of them. Times mostly come in order."""
        times = sorted(at)
        found, start = [], 0
        while start < len(times):
            number = times[start] // self.width
            end = bisect_left(times, (number + 1) * self.width, start)
            found.append((number, end - start, times[start]))
            start = end
        return found

    def encode(self) -> list[Any]:
        bins = [(number, *self.bins[number]) for number in sorted(self.bins)]
        return [self.width, bins, self.delays, self.delay_sum]

    @classmethod
    def decode(cls, stored: list[Any]) -> PendingAges:
        width, bins, delays, delay_sum = stored
        return cls(width, {number: (count, earliest) for number, count, earliest in bins}, delays, delay_sum)
