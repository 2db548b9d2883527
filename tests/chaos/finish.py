"""The end of every run: wait until all is consumed, stop in order, verify, and say how it went."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .fleet import FENCES, Fleet
from .verify import Verdict, verify
from .workload import Expected
from .world import PARTITIONS, Lag, Player, World


@dataclass
class Report:
    """What a run did and found."""

    title: str
    done: dict[str, Any] = field(default_factory=dict)
    """what was done to it"""
    seen: dict[str, Any] = field(default_factory=dict)
    """what came of it"""
    differences: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.differences

    def print(self, console: Console) -> None:
        table = Table(title=self.title, show_header=False)
        for part in (self.done, self.seen):
            for name, value in part.items():
                table.add_row(name, _shown(value))
            table.add_section()
        console.print(table)
        for difference in self.differences:
            console.print(f"  differs: {difference}", style="red", markup=False, highlight=False)
        console.print("PASSED" if self.passed else "FAILED", style="bold green" if self.passed else "bold red")

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({**asdict(self), "passed": self.passed}, indent=1, default=str) + "\n")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list):
        return "\n".join(map(str, value)) or "none"
    return f"{value:.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def wait_consumed(world: World, fleet: Fleet, timeout: float, none_parked: bool = True) -> str:
    """Until the group has committed both inputs to their end and no label is parked; else what is left."""
    lag = Lag(world.broker.bootstrap)
    deadline = time.monotonic() + timeout
    left = "nothing was looked at"
    try:
        while time.monotonic() < deadline:
            fleet.tend()
            behind = lag.behind()
            owned = [p for partitions in fleet.look().values() for p in partitions.values()]
            parked = sum(p["parked"] for p in owned)
            ready = {p["number"] for p in owned if p["state"] == "ready"}
            left = f"{behind} records behind, {parked} labels parked, partitions {sorted(ready)} ready"
            if behind == 0 and not (none_parked and parked) and len(ready) == PARTITIONS:
                return ""
            time.sleep(0.5)
    finally:
        lag.close()
    trouble = {p["number"]: p["trouble"] for p in owned if p["trouble"]}
    return f"not all was consumed within {timeout:.0f} s: {left}, trouble {trouble}"


def finish(
    report: Report, world: World, fleet: Fleet, player: Player, expected: Expected, until: float, timeout: float
) -> Verdict:
    """Everything from the last record on. The differences go into the report."""
    if left := wait_consumed(world, fleet, timeout):
        report.differences.append(left)
    codes = fleet.stop_all()
    if any(codes):
        report.differences.append(f"processors ended with {codes} on SIGTERM")
    report.differences += [f"a processor ended by itself: {one}" for one in fleet.exits if not one.excused]
    report.differences += [f"the test's own producer: {problem}" for problem in player.failed[:3]]
    began = time.monotonic()
    verdict = verify(world, expected, until)
    report.differences += verdict.differences
    report.seen |= {
        "requests": len(expected.requests),
        "input records": dict(expected.records),
        "decisions": verdict.decisions,
        "labels joined": verdict.labels_joined,
        "duplicate labels": verdict.labels_duplicate,
        "repeated requests": verdict.requests_repeated,
        "dead letters": verdict.dead_letters,
        "pending": verdict.pending,
        "batches in the journal": verdict.batches,
        "recoveries": fleet.logged("recovered"),
        "fences": {name: fleet.total(name) for name in FENCES},
        "transactions aborted": fleet.total("transactions_aborted"),
        "commits unknown": fleet.total("commits_unknown"),
        "longest gap, s": {f"p{n}": round(gap, 1) for n, gap in verdict.longest_gap.items()},
        "ended while starting without a server": sum(one.excused for one in fleet.exits),
        "ended by themselves otherwise": sum(not one.excused for one in fleet.exits),
        "verified in, s": round(time.monotonic() - began, 1),
    }
    return verdict
