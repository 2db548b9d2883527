"""``python -m tests.chaos.rolling``: restart every processor in turn, twice around, under steady load."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .finish import Report, finish
from .fleet import Fleet, Processor
from .workload import Workload
from .world import PARTITIONS, Player, World


def rolling(
    requests: int = 18_000,
    rate: Annotated[float, typer.Option(help="requests per second")] = 200.0,
    processors: int = 3,
    rounds: int = 2,
    seed: int = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """No decision may be lost or doubled; the longest pause of any partition is told."""
    console = Console()
    load = Workload(seed, requests, requests / rate)
    report = Report(f"rolling restart, {rounds} rounds of {processors} processors")
    with World() as world:
        _run(world, load, report, processors, rounds)
    report.print(console)
    console.print(f"logs: {world.folder}", style="dim")
    if json_file is not None:
        report.write(json_file)
    raise typer.Exit(0 if report.passed else 1)


def _run(world: World, load: Workload, report: Report, processors: int, rounds: int) -> None:
    fleet, player = Fleet(world, processors), Player(world.broker.bootstrap, load.events)
    away: list[float] = []
    try:
        fleet.start_all()
        if not fleet.wait_ready(PARTITIONS):
            report.differences.append("the processors did not become ready")
            return
        player.start()
        time.sleep(5)
        away += [_restart(fleet, member, report) for _ in range(rounds) for member in fleet.members]
        during = player.is_alive()
        player.join(load.span + 60)
        until = time.time()
        if not during:
            report.differences.append("the load ended before the last restart: give it more requests")
        verdict = finish(report, world, fleet, player, load.expected, until, timeout=120)
    finally:
        player.stop()
        fleet.kill_all()
    report.done |= {"restarts": len(away), "longest restart until all are ready, s": round(max(away), 1)}
    report.seen["longest pause of any partition, s"] = round(max(verdict.longest_gap.values()), 2)


def _restart(fleet: Fleet, member: Processor, report: Report) -> float:
    """SIGTERM, wait, start again, wait until every partition is served; how long that took."""
    began = time.monotonic()
    member.look()
    if code := member.terminate():
        report.differences.append(f"{member.name} ended with {code} on SIGTERM")
    fleet.start(member)
    # Others may serve every partition already: the one started must be a member again before the next goes.
    deadline = time.monotonic() + 60
    while not member.look() and time.monotonic() < deadline:
        fleet.tend()
        time.sleep(0.2)
    if not member.look() or not fleet.wait_ready(PARTITIONS, timeout=60):
        report.differences.append(f"not all partitions were served again after the restart of {member.name}")
    return time.monotonic() - began


if __name__ == "__main__":
    typer.run(rolling)
