"""Processes of ours. Whatever happens, none outlives the run that started it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.servers.processor_process import clean_environment


@dataclass
class Process:
    """A child of ours with its log; ``stop`` always ends it."""

    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                list(self.command),
                cwd=self.log.parent,
                env={**clean_environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for us, and we stop it in order
            )
        RUNNING.append(self)
        return self.running

    def stop(self) -> None:
        if self.running is not None:
            RUNNING.remove(self)
            ended(self.running)
            self.running = None


RUNNING: list[Process] = []


def end_all() -> None:
    """What an error has left behind."""
    for process in RUNNING:
        process.stop()


def end_in_order() -> None:
    """SIGTERM ends us as Ctrl-C does: through every ``finally``, so that servers and children end too."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def ended(process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    """Let it end in order, or end it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
