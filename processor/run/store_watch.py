"""Whether the store could silently drop state, asked again and again while the processor runs.

It goes on meanwhile: state that was evicted is noticed and recovered from the changelog. But a person should know.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from processor.config import Config
from processor.ports.store import StoreError
from processor.telemetry.logs import log

from .assembly import store_of

CHECK_INTERVAL_SECONDS = 30.0
"""Seconds."""
STOP_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for an answer when we stop."""


class StoreWatch:
    """``unsafe`` is the reason, as a sentence; empty while nothing is wrong or nothing is known."""

    def __init__(
        self, ask: Callable[[], str], close: Callable[[], None] = lambda: None, every: float = CHECK_INTERVAL_SECONDS
    ) -> None:
        """``ask`` is a store's ``unsafe``; ``close`` is called in the end."""
        self.unsafe = ""
        self._ask, self._close, self._every = ask, close, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="store watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_SECONDS)
        if not self._thread.is_alive():  # else it waits for an answer, and ends with the process
            self._close()

    def look(self) -> None:
        """Ask once, and say so if the answer is another one."""
        try:
            unsafe = self._ask()
        except StoreError:
            return  # the loop says so already
        if unsafe and unsafe != self.unsafe:
            log(logging.ERROR, "store unsafe", why=unsafe)
        elif self.unsafe and not unsafe:
            log(logging.INFO, "store safe", why="no server would drop state any more")
        self.unsafe = unsafe

    def _keep(self) -> None:
        while not self._ended.wait(self._every):
            self.look()


def store_watch_of(config: Config) -> StoreWatch:
    """With a connection of its own: the loop's are busy."""
    store = store_of(config)
    return StoreWatch(store.unsafe, store.close)
