"""How fast something moves, seen from outside: from the first progress that can be seen to the last record."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

EVERY = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


class StuckError(RuntimeError):
    """A line that ended early or got nowhere; the message has its last words."""


@dataclass(frozen=True)
class Measured:
    """One run of one line."""

    records: int
    """after the first that were seen"""
    seconds: float
    cpu: float = 0.0
    """of the process, in seconds, over the same time"""
    peak_bytes: int = 0
    written: float = 0.0
    """records written for each one read, transaction markers included"""
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def timed(
    count: Callable[[], int],
    total: int,
    processes: list[subprocess.Popen[bytes]],
    log: Path,
    limit: float,
    before: int = 0,
    told: Callable[[int], None] = lambda done: None,
) -> Measured:
    """Look at the count until it is ``total``. What was there before the first look with progress is not counted."""
    first: list[tuple[float, int, float]] = []

    def look() -> int:
        seen = count()
        told(seen)
        if not first and seen > before:
            first.append((time.perf_counter(), seen, _cpu(processes)))
        return seen

    seen = reached(look, total, processes, log, limit)
    now = time.perf_counter()
    began, had, cpu = first[0]
    if seen - had < (total - before) / 4:
        raise StuckError(f"{had - before} of {total - before} records were done at the first look: use more records")
    return Measured(seen - had, now - began, _cpu(processes) - cpu, sum(peak_bytes(p.pid) for p in processes))


def reached(
    look: Callable[[], int], total: int, processes: list[subprocess.Popen[bytes]], log: Path, limit: float
) -> int:
    """Look until there are ``total``; StuckError if a process fails or the time is up."""
    deadline = time.monotonic() + limit
    while (seen := look()) < total:
        if any(process.poll() not in (None, 0) for process in processes):
            raise StuckError(f"it ended after {seen} of {total} records: {tail(log)}")
        if time.monotonic() > deadline:
            raise StuckError(f"only {seen} of {total} records after {limit:.0f} s: {tail(log)}")
        time.sleep(EVERY)
    return seen


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1_500:] if log.exists() else "it said nothing"


def _cpu(processes: list[subprocess.Popen[bytes]]) -> float:
    return sum(cpu_seconds(process.pid) for process in processes)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process. Linux only; 0 elsewhere or when it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_bytes(pid: int) -> int:
    """The most memory it has held."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
