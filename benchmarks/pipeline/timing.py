"""How fast something moves, seen from outside: from the first progress that can be seen to the last record."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

EVERY = 0.02
TICKS = os.sysconf("SC_CLK_TCK")
UNSTEADY = 1 / 3
"""share of the records that the steady part leaves out: a virtual machine compiles its hot loops meanwhile"""


class StuckError(RuntimeError):
    """A line that ended early or got nowhere; the message has its last words."""


@dataclass(frozen=True)
class Span:
    """Some records of a run, and what they took."""

    records: int
    seconds: float
    cpu: float = 0.0
    """of the process, in seconds, over the same time"""
    server_cpu: Mapping[str, float] = field(default_factory=dict)
    """of each server whose process is ours, in seconds, over the same time"""

    @property
    def rate(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True)
class Measured(Span):
    """One run of one line. Its records are those after the first that were seen."""

    peak_bytes: int = 0
    written: float = 0.0
    """records written for each one read, transaction markers included"""
    steady: Span | None = None
    """the run without the first third of its records; None if it was too short to tell"""
    notes: dict[str, float] = field(default_factory=dict)


class Sample(NamedTuple):
    """What was seen at one look."""

    seconds: float
    records: int
    cpu: float
    server_cpu: dict[str, float]

    def until(self, end: Sample) -> Span:
        servers = {name: end.server_cpu[name] - cpu for name, cpu in self.server_cpu.items()}
        return Span(end.records - self.records, end.seconds - self.seconds, end.cpu - self.cpu, servers)


class Watch:
    """Notes the first look with progress, the first look after a third of the records, and the last look."""

    def __init__(self, before: int, total: int, sample: Callable[[int], Sample]) -> None:
        self._before, self._records = before, total - before
        self._sample = sample
        self._first: Sample | None = None
        self._steady: Sample | None = None

    def look(self, seen: int) -> None:
        if self._first is None and seen > self._before:
            self._first = self._sample(seen)
        if self._steady is None and seen - self._before >= self._records * UNSTEADY:
            self._steady = self._sample(seen)

    def end(self, seen: int, peak: int = 0) -> Measured:
        """StuckError if most of it was done at the first look."""
        last = self._sample(seen)
        assert self._first is not None
        whole = self._first.until(last)
        if whole.records < self._records / 4:
            done = self._first.records - self._before
            raise StuckError(f"{done} of {self._records} records were done at the first look: use more records")
        steady = self._steady.until(last) if self._steady is not None else None
        if steady is not None and steady.records < self._records / 4:
            steady = None
        return Measured(whole.records, whole.seconds, whole.cpu, whole.server_cpu, peak, steady=steady)


def timed(
    count: Callable[[], int],
    total: int,
    processes: list[subprocess.Popen[bytes]],
    log: Path,
    limit: float,
    before: int = 0,
    told: Callable[[int], None] = lambda done: None,
    servers: Mapping[str, int] | None = None,
) -> Measured:
    """Look at the count until it is ``total``. What was there before the first look with progress is not counted.

    ``servers`` are process ids by name, whose CPU time over the run is measured too.
    """

    def sample(seen: int) -> Sample:
        beside = {name: cpu_seconds(pid) for name, pid in (servers or {}).items()}
        return Sample(time.perf_counter(), seen, _cpu(processes), beside)

    watch = Watch(before, total, sample)

    def look() -> int:
        seen = count()
        told(seen)
        watch.look(seen)
        return seen

    seen = reached(look, total, processes, log, limit)
    return watch.end(seen, sum(peak_bytes(process.pid) for process in processes))


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
