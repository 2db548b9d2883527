"""Told to stop: once to finish, again to hurry."""

from __future__ import annotations

import os
import signal
import time

import pytest

from processor.run.stopping import SECOND_SIGNAL_SECONDS, Stopping, stopping, terminated_as_interrupted


def test_the_first_signal_is_noted_and_what_was_there_before_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop:
        assert not stop.told
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.told
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_whoever_started_us_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.told
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_pressed_again_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stop = Stopping()
    stop.hear(signal.SIGINT)
    stop.hear(signal.SIGINT)  # passed on by a program around us, which the terminal has told as well
    now[0] += 2 * SECOND_SIGNAL_SECONDS
    stop.hear(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        stop.hear(signal.SIGINT)


def test_terminated_is_interrupted_but_once() -> None:
    with terminated_as_interrupted():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
