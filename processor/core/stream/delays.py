"""Buckets for how long things take. Counts in them are integers that only grow, so replays and merges are exact."""

from __future__ import annotations

from bisect import bisect_left

MINUTE, HOUR, DAY = 60, 3_600, 86_400

DELAY_BOUNDS = (
    *(1, 10, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR),
    *(DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 60 * DAY, 90 * DAY, 180 * DAY),
)
"""Seconds from a request to its label: the upper ends of the buckets; one more has no end."""

LATENCY_BOUNDS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""Milliseconds from a request's timestamp until its decision is committed; one more bucket has no end."""


def bucket_of(value: int, bounds: tuple[int, ...]) -> int:
    """Which bucket a value falls into; an upper end belongs to its bucket.

    >>> bucket_of(1, DELAY_BOUNDS), bucket_of(2, DELAY_BOUNDS), bucket_of(10**9, DELAY_BOUNDS) == len(DELAY_BOUNDS)
    (0, 1, True)
    """
    return bisect_left(bounds, value)
