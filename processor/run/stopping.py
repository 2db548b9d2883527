"""Told to stop: by SIGTERM, by Ctrl-C, or because the terminal was closed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SECOND_SIGNAL_SECONDS = 1.0
"""Seconds after which a second Ctrl-C is one: some programs pass on what the terminal has sent to all anyway."""

Handler = Callable[[int, FrameType | None], None]


class Stopping:
    """Whether this process was told to stop. Whoever works piece by piece asks between two of them."""

    def __init__(self) -> None:
        self._told_at: float | None = None

    @property
    def told(self) -> bool:
        return self._told_at is not None

    def hear(self, number: int, _: FrameType | None = None) -> None:
        """The first signal is heeded when there is time for it; who presses Ctrl-C again does not want to wait."""
        now = time.monotonic()
        if self._told_at is None:
            self._told_at = now
        elif number == signal.SIGINT and now - self._told_at > SECOND_SIGNAL_SECONDS:
            raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Note meanwhile that somebody wants this process to stop, instead of ending it there and then."""
    told = Stopping()
    with _heard_by(told.hear, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield told


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Meanwhile SIGTERM is what Ctrl-C is: a KeyboardInterrupt, so that whatever was opened is closed."""
    with _heard_by(_interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


def _interrupt(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt the closing
    raise KeyboardInterrupt


@contextmanager
def _heard_by(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Signals that whoever started us had us ignore stay so: `nohup`, or `&` in a script."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


@contextmanager
def unheard_by_children() -> Iterator[None]:
    """Processes started meanwhile never hear that they should stop, and must be killed.

    Ctrl-C in a terminal is for all processes in it, and `timeout` and systemd do the same with SIGTERM: a server would
    be gone before its client has finished.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
