"""``python -m tests.chaos.idle``: the group is idle until Kafka forgets its offsets, then it must go on exactly."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .finish import Report, finish, wait_consumed
from .fleet import Fleet
from .workload import Event, Mix, Workload
from .world import PARTITIONS, Lag, Player, World

FORGETFUL = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "transactional.id.expiration.ms": "60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
    "producer.id.expiration.ms": "60000",
}


def idle(
    requests: int = 4_000,
    rate: Annotated[float, typer.Option(help="requests per second")] = 200.0,
    seed: int = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Half of a stream, a pause in which offsets and transactional ids expire, and the other half."""
    console = Console()
    # No early labels: one that waits over the pause for its request would rightly be a dead letter.
    load = Workload(seed, requests, requests / rate, mix=Mix(early=0.0))
    report = Report("idle until the offsets have expired")
    with World(broker=FORGETFUL) as world:
        _run(world, load, report, console)
    report.print(console)
    console.print(f"logs: {world.folder}", style="dim")
    if json_file is not None:
        report.write(json_file)
    raise typer.Exit(0 if report.passed else 1)


def _run(world: World, load: Workload, report: Report, console: Console) -> None:
    fleet = Fleet(world, 1)
    middle = load.span * 0.6
    first = [event for event in load.events if event.at < middle]
    second = [replace(event, at=event.at - middle) for event in load.events if event.at >= middle]
    try:
        fleet.start_all()
        if not fleet.wait_ready(PARTITIONS):
            report.differences.append("the processor did not become ready")
            return
        _play(world, first, report)
        # Labels for nobody may still be parked: they become dead letters after the pause.
        if left := wait_consumed(world, fleet, 60, none_parked=False):
            report.differences.append(left)
        fleet.stop_all()
        console.print("stopped; waiting for the offsets to expire", style="dim")
        report.done["offsets expired after, s"] = _wait_expired(world, report)
        fleet.start_all()
        player = _play(world, second, report)
        finish(report, world, fleet, player, load.expected, time.time(), timeout=120)
    finally:
        fleet.kill_all()
    report.done |= {"records before the pause": len(first), "records after": len(second)}


def _play(world: World, events: list[Event], report: Report) -> Player:
    player = Player(world.broker.bootstrap, events)
    player.start()
    player.join(events[-1].at + 60)
    if player.is_alive():
        player.stop()
        report.differences.append(f"only {player.produced} of {len(events)} records were produced in time")
    return player


def _wait_expired(world: World, report: Report, timeout: float = 240.0) -> float:
    began = time.monotonic()
    lag = Lag(world.broker.bootstrap)
    try:
        if None in lag.committed().values():
            report.differences.append("there were no committed offsets to expire")
        while time.monotonic() < began + timeout:
            if all(offset is None for offset in lag.committed().values()):
                return round(time.monotonic() - began, 1)
            time.sleep(2)
    finally:
        lag.close()
    report.differences.append(f"the offsets had not expired after {timeout:.0f} s: the test shows nothing")
    return timeout


if __name__ == "__main__":
    typer.run(idle)
