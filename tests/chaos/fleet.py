"""Processors as processes: started, killed, stopped, asked how they are."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.redis_server import free_port

from .world import World

GFORCE = Path(sys.executable).with_name("gforce")
STARTING = 25.0
"""seconds a process may need to find its servers"""
WRITES_REFUSED = ("fenced_by_kafka", "fenced_by_store")
FENCES = (*WRITES_REFUSED, "partitions_lost")
"""For the figures; only a refused write shows that a zombie cannot write: losing a partition is merely being told."""
_COUNTER = re.compile(r"^gforce_(\w+)_total ([0-9.e+]+)$", re.MULTILINE)


@dataclass
class Exit:
    """A processor that ended without being told to."""

    name: str
    code: int
    up_for: float
    last_words: str
    excused: bool
    """it was starting while a server was away: whoever supervises it starts it again"""

    def __str__(self) -> str:
        return f"{self.name} ended with {self.code} after {self.up_for} s: {self.last_words[-400:]}"


@dataclass
class Processor:
    """One instance; ``start`` again after it has ended is a restart under the same name."""

    name: str
    port: int
    config: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    frozen: bool = False
    totals: Counter[str] = field(default_factory=Counter)
    """the last seen counters of this incarnation"""
    earlier: Counter[str] = field(default_factory=Counter)
    """of the incarnations before"""

    def start(self) -> None:
        self.earlier.update(self.totals)
        self.totals = Counter()
        environment = {
            **os.environ,
            "GFORCE_KAFKA__INSTANCE": self.name,
            "GFORCE_HTTP__PORT": str(self.port),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(GFORCE), "run", "--config", str(self.config)],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # the kernel wakes what is stopped in a group whose parent has gone
            )
        self.started = time.monotonic()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, which: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(which)
        if which == signal.SIGSTOP:
            self.frozen = True
        elif which == signal.SIGCONT:
            self.frozen = False

    def kill(self) -> None:
        assert self.process is not None
        self.signal(signal.SIGKILL)
        self.process.wait(10)
        self.process, self.frozen = None, False

    def terminate(self, timeout: float = 40.0) -> int:
        """SIGTERM; its exit code, or −9 if it had to be killed."""
        if self.process is None:
            return 0
        if self.frozen:
            self.signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            code = -9
        self.process = None
        return code

    def look(self) -> dict[int, dict[str, Any]]:
        """Its partitions by number, and its counters noted; nothing if it does not answer."""
        if not self.alive or self.frozen:
            return {}
        with contextlib.suppress(OSError, ValueError):
            status = json.loads(self._get("/status"))
            seen = {name: int(float(value)) for name, value in _COUNTER.findall(self._get("/metrics"))}
            self.totals = Counter(seen)
            return {p["number"]: p for p in status["partitions"]}
        return {}

    def fences(self) -> int:
        return sum(self.totals[name] for name in WRITES_REFUSED)

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
            text: str = answer.read().decode()
            return text


class Fleet:
    """All processors of a run. ``tend`` starts again what ended by itself, and remembers it."""

    def __init__(self, world: World, count: int) -> None:
        self.members = [
            Processor(f"gforce-{i}", free_port(), world.config_file, world.folder / f"gforce-{i}.log")
            for i in range(count)
        ]
        self.exits: list[Exit] = []
        self.outages: list[tuple[float, float]] = []
        """when a server was away"""
        self.starts = 0
        self._due: dict[str, float] = {}

    def start_all(self) -> None:
        for member in self.members:
            self.start(member)

    def start(self, member: Processor) -> None:
        self._due.pop(member.name, None)
        member.start()
        self.starts += 1

    def start_later(self, member: Processor, seconds: float) -> None:
        self._due[member.name] = time.monotonic() + seconds

    def tend(self) -> None:
        """Start what is due; note what ended by itself, and start it again after a second, as a supervisor would."""
        for member in self.members:
            if member.process is not None and not member.alive:
                self.exits.append(self._exit(member, member.process.returncode))
                member.process = None
                self.start_later(member, 1.0)
            if self._due.get(member.name, float("inf")) <= time.monotonic():
                self.start(member)

    def _exit(self, member: Processor, code: int) -> Exit:
        now = time.monotonic()
        starting = now - member.started < STARTING
        away = any(began <= now and member.started <= ended + 1.0 for began, ended in self.outages)
        return Exit(member.name, code, round(now - member.started, 1), _tail(member.log), starting and away)

    def look(self) -> dict[str, dict[int, dict[str, Any]]]:
        return {member.name: member.look() for member in self.members}

    def wait_ready(self, partitions: int, timeout: float = 90.0) -> bool:
        """Until every partition is owned and recovered."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.tend()
            ready = {n for owned in self.look().values() for n, p in owned.items() if p["state"] == "ready"}
            if len(ready) == partitions:
                return True
            time.sleep(0.3)
        return False

    def stop_all(self) -> list[int]:
        self._due.clear()
        return [member.terminate() for member in self.members]

    def kill_all(self) -> None:
        for member in self.members:
            if member.alive:
                member.kill()

    def total(self, name: str) -> int:
        return sum(member.totals[name] + member.earlier[name] for member in self.members)

    def logged(self, event: str) -> int:
        """How often something is in the logs, which outlive a SIGKILL."""
        mark = f'"event": "{event}"'
        return sum(
            line.count(mark)
            for member in self.members
            if member.log.exists()
            for line in member.log.read_text(errors="replace").splitlines()
        )


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-6:])[-1500:]
