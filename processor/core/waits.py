"""How long a tenant's decisions wait for their labels: delays of those that came, and the age of those that did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .delays import DELAY_BOUNDS, bucket_of

BINS = 64
"""Pending decisions are counted by the time of their request, in bins of about this fraction of the expiry."""


@dataclass
class Waits:
    """All times in whole seconds.

    >>> waits = Waits.new(expiry=64_000)
    >>> waits.asked(100)
    >>> waits.asked(103)
    >>> waits.settled(100)
    >>> waits.pending, waits.oldest
    (1, 103)
    """

    width: int
    """of a bin; it stays as it was when the tenant was first met, whatever the expiry becomes"""
    bins: dict[int, int]
    """pending decisions by the number of the bin of their request"""
    delays: list[int]
    """labels by delay, see ``DELAY_BOUNDS``"""
    delay_sum: int

    @classmethod
    def new(cls, expiry: int) -> Waits:
        """``expiry`` in milliseconds."""
        return cls(max(expiry // (1_000 * BINS), 1), {}, [0] * (len(DELAY_BOUNDS) + 1), 0)

    def clone(self) -> Waits:
        return Waits(self.width, dict(self.bins), list(self.delays), self.delay_sum)

    @property
    def pending(self) -> int:
        return sum(self.bins.values())

    @property
    def oldest(self) -> int | None:
        """The earliest time a pending decision may have been asked for; exact to a bin."""
        return min(self.bins) * self.width if self.bins else None

    def asked(self, at: int) -> None:
        number = at // self.width
        self.bins[number] = self.bins.get(number, 0) + 1

    def settled(self, at: int) -> None:
        """A decision asked for then is labelled or has expired."""
        number = at // self.width
        left = self.bins.get(number, 0) - 1
        if left > 0:
            self.bins[number] = left
        else:
            self.bins.pop(number, None)

    def joined(self, at: int, label_at: int) -> None:
        """A label came; ``at`` in seconds, ``label_at`` in milliseconds. An early label has waited for nothing."""
        delay = max(label_at // 1_000 - at, 0)
        self.delays[bucket_of(delay, DELAY_BOUNDS)] += 1
        self.delay_sum += delay

    def encode(self) -> list[Any]:
        return [self.width, sorted(self.bins.items()), self.delays, self.delay_sum]

    @classmethod
    def decode(cls, stored: list[Any]) -> Waits:
        width, bins, delays, delay_sum = stored
        return cls(width, dict(bins), delays, delay_sum)
