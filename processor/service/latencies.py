"""How long requests have waited for their decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from processor.core.stream.delays import LATENCY_BOUNDS

DAY_MS = 86_400_000


@dataclass
class Latencies:
    """Requests committed, by the milliseconds since their timestamp.

    >>> latencies = Latencies()
    >>> latencies.note([990, 1_000, 2_000], now=1_000)
    >>> sum(latencies.counts), latencies.total
    (3, 10)
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    """see ``LATENCY_BOUNDS``"""
    total: int = 0

    def note(self, timestamps: Iterable[int], now: int) -> None:
        """A timestamp in the future has waited no time, one from another age a day: a wrong clock must not be all that
        a mean shows."""
        waited = np.clip(now - np.fromiter(timestamps, np.int64), 0, DAY_MS)
        counts = np.bincount(np.searchsorted(LATENCY_BOUNDS, waited), minlength=len(self.counts)).tolist()
        self.counts = [had + more for had, more in zip(self.counts, counts, strict=True)]
        self.total += int(waited.sum())
