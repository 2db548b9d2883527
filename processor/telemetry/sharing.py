"""Many who ask at once are given the same answer, made once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")

KEPT_FOR = 9
"""How many times as long as it took to make an answer is kept: a tenth of the time goes into it, however many ask."""
KEPT_AT_MOST = 5.0
"""Seconds. With 200 tenants the metrics take half a second to render, and nobody scrapes more often than this."""


class Shared(Generic[T]):
    """What ``make`` returns, made in a thread. To be asked in one event loop."""

    def __init__(self, make: Callable[[], T], monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._make, self._monotonic_s = make, monotonic_s
        self._making: asyncio.Task[tuple[T, float]] | None = None
        self._made: tuple[T, float] | None = None
        """with the time until which it is kept"""

    async def get(self) -> T:
        if self._made is not None and self._monotonic_s() < self._made[1]:
            return self._made[0]
        if self._making is None:
            self._making = asyncio.create_task(run_in_threadpool(self._timed))
            self._making.add_done_callback(self._done)
        # Whoever goes away must not take it along from those who stay.
        return (await asyncio.shield(self._making))[0]

    def _timed(self) -> tuple[T, float]:
        begun = self._monotonic_s()
        made = self._make()
        done = self._monotonic_s()
        return made, done + min((done - begun) * KEPT_FOR, KEPT_AT_MOST)

    def _done(self, task: asyncio.Task[tuple[T, float]]) -> None:
        self._making = None
        self._made = None if task.cancelled() or task.exception() else task.result()
