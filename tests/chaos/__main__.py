"""``python -m tests.chaos``: kill everything under load, then compare with what was produced."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from .finish import Report, finish
from .fleet import GFORCE, Fleet
from .havoc import Amounts, Havoc, plan
from .workload import Workload
from .world import PARTITIONS, SNAPSHOT_BYTES, Player, World

CLUSTER_REQUESTS, CLUSTER_KILLS = 10_000, 6


def chaos(
    requests: Annotated[int | None, typer.Option(help="[default: 60000, with --cluster 10000]")] = None,
    kills: Annotated[int | None, typer.Option(help="of processors [default: 25, with --cluster 6]")] = None,
    broker_kills: Annotated[int | None, typer.Option(help="[default: 3, with --cluster 1]")] = None,
    redis_kills: Annotated[int | None, typer.Option(help="[default: 3, with --cluster 1]")] = None,
    flushes: Annotated[int, typer.Option(help="FLUSHALLs")] = 1,
    freezes: Annotated[int, typer.Option(help="SIGSTOPs of 30 s: 0 or 1", max=1)] = 1,
    processors: int = 3,
    rate: Annotated[float, typer.Option(help="requests per second")] = 250.0,
    cluster: Annotated[bool, typer.Option("--cluster", help="on a Redis Cluster of three nodes")] = False,
    seed: int = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    record: Annotated[Path | None, typer.Option(help="record all topics into this folder at the end")] = None,
    snapshot_bytes: Annotated[int, typer.Option(help="changelog between two snapshots")] = SNAPSHOT_BYTES,
    seconds_limit: Annotated[float, typer.Option(help="fail if the load and its chaos take longer")] = 420.0,
) -> None:
    """A real broker, a real Redis and real processes, killed while they work."""
    count = requests if requests is not None else CLUSTER_REQUESTS if cluster else 60_000
    amounts = Amounts(
        kills if kills is not None else CLUSTER_KILLS if cluster else 25,
        broker_kills if broker_kills is not None else 1 if cluster else 3,
        redis_kills if redis_kills is not None else 1 if cluster else 3,
        flushes,
        freezes,
    )
    rate = min(rate, count / 90) if cluster else rate  # a stopped processor alone takes most of a minute
    console = Console()
    with World(cluster, snapshot_bytes=snapshot_bytes) as world:
        report = _run(world, Workload(seed, count, count / rate), amounts, processors, seed, seconds_limit, console)
        if record is not None:
            _record(world, record)
    report.print(console)
    console.print(f"logs: {world.folder}", style="dim")
    if json_file is not None:
        report.write(json_file)
    raise typer.Exit(0 if report.passed else 1)


def _record(world: World, folder: Path) -> None:
    """The topics twice, by our own command and by plain kcat, and the configuration with the seed."""
    command = [GFORCE, "record", "--config", world.config_file, "--with-state", "--out", folder / "recording"]
    subprocess.run([str(word) for word in command], check=True)
    shutil.copy(world.config_file, folder)
    if kcat := shutil.which("kcat"):
        for topic in ("requests", "feedback", "decisions", "journal", "dead-letters", "alerts"):
            reads = [kcat, "-b", world.broker.bootstrap, "-C", "-J", "-e", "-q", "-t", topic]
            with (folder / f"{topic}.json").open("wb") as file:
                subprocess.run([*reads, "-X", "isolation.level=read_committed"], stdout=file, check=True)


def _run(
    world: World, load: Workload, amounts: Amounts, processors: int, seed: int, limit: float, console: Console
) -> Report:
    began = time.monotonic()
    rng = Random(seed)

    def say(what: str) -> None:
        console.print(f"{time.monotonic() - began:6.1f} s  {what}", style="dim", highlight=False)

    report = Report(f"chaos, seed {seed}, Redis {'cluster' if world.cluster else 'alone'}")
    fleet, player = Fleet(world, processors), Player(world.broker.bootstrap, load.events)
    try:
        fleet.start_all()
        if not fleet.wait_ready(PARTITIONS):
            report.differences.append("the processors did not become ready")
            return report
        say(f"{processors} processors ready; {len(load.events)} records in {load.span:.0f} s")
        deadline = time.monotonic() + limit
        player.start()
        havoc = Havoc(world, fleet, rng, say)
        havoc.run(plan(rng, amounts, load.span), deadline)
        while player.is_alive() and time.monotonic() < deadline:
            fleet.tend()
            fleet.look()
            player.join(1.0)
        until = time.time()
        if player.is_alive():
            player.stop()
            report.differences.append(f"only {player.produced} of {len(load.events)} records produced in {limit:.0f} s")
        say("all produced; waiting until all is consumed")
        report.differences += havoc.problems
        finish(report, world, fleet, player, load.expected, until, timeout=120)
    finally:
        player.stop()
        fleet.kill_all()
    report.done |= {**havoc.done, "processor starts": fleet.starts, "after SIGCONT": havoc.fence_figures}
    report.seen["took, s"] = round(time.monotonic() - began)
    return report


if __name__ == "__main__":
    typer.run(chaos)
