"""How fast a lost Redis is filled again from Kafka, beside a plain loader of the same entries."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from redis import Redis
from rich.console import Console
from rich.table import Table

from . import report
from .preloaded import Preloaded
from .rounds import progress_bar
from .stage import Stage
from .timing import StuckError, peak_bytes, tail
from .workload import Shape

FIELDS, COMMANDS = 1_000, 20
"""of one HSET, and in one pipeline"""
LIMIT = 900.0

Entries = list[list[list[bytes]]]
"""of each partition: the arguments of its HSETs"""


def measure(
    sizes: Annotated[str, typer.Option(help="pending decisions, with commas between")] = "10000,100000,1000000",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    tenants: int = 100,
    partitions: int = 4,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    chart: Annotated[Path | None, typer.Option(help="draw them: NAME.png and NAME.svg")] = None,
) -> None:
    """FLUSHALL, then start the processor: entries per second until every pending decision is back, and seconds until
    it is ready. In turn with it, a loader that has the same entries in memory and sends them by pipelined HSETs of
    a thousand fields. Aim: at least half the loader's rate at 1,000,000.

    Entries are counted by HLEN from outside, from the first that are seen to the last, so starting up is left out
    of the rate; it is in the seconds until ready, which are also given for a Redis that has lost nothing.
    Quick: --sizes 10000 --rounds 1.
    """
    console = report.terminal()
    wanted = [int(size) for size in sizes.split(",")]
    rows = []
    for size in wanted:
        with Stage() as stage, progress_bar(console) as progress:
            where = {**report.machine(), "servers": stage.servers()}
            task = progress.add_task(f"{size:,} pending: deciding", total=size)
            point = Preloaded(stage, f"recovery-{size}", Shape(tenants=tenants), size, partitions)
            point.prepare(lambda done, task=task: progress.update(task, completed=done))  # type: ignore[misc]
            point.settled()
            runs = []
            for number in range(rounds):
                progress.update(task, description=f"{size:,} pending: round {number + 1}/{rounds}")
                runs.append(_round(stage, point))
            rows.append(_row(size, runs))
    _show(rows, where, rounds, console)
    if chart is not None:
        series = {"gforce, from Kafka": [(r["size"], r["rate"], *r["rate spread"]) for r in rows]}
        series["plain loader"] = [(r["size"], r["loader"], *r["loader spread"]) for r in rows]
        report.curves(series, chart, ("pending decisions", "entries per second", "after FLUSHALL"))
    report.write_json(json_file, {**where, "rounds": rounds, "rows": rows})


def _round(stage: Stage, point: Preloaded) -> dict[str, float]:
    """A start with everything there, one after FLUSHALL, and the loader into an empty server."""
    with stage.redis.client() as client:
        intact, _ = _started(client, point, 0)
        entries = _dumped(client, point)
        count = sum(len(fields) // 2 for some in entries for fields in some)
        client.flushall()
        ready, (restored, seconds, memory) = _started(client, point, count)
    found = {"intact": intact, "ready": ready, "rate": restored / seconds, "peak_bytes": memory}
    with Redis.from_url(stage.redis.url, protocol=2) as client:
        began = time.perf_counter()
        for number, some in enumerate(entries):
            _load(client, f"loader:{number}", some)
        found["loader"] = count / (time.perf_counter() - began)
        for number in range(len(entries)):
            client.unlink(f"loader:{number}")
    found["entries"] = count
    return found


def _started(client: Redis, point: Preloaded, wanted: int) -> tuple[float, tuple[int, float, int]]:
    """Seconds until it was ready; of the entries that came: how many after the first seen, in how long; memory."""
    process = point.deployment.processes[0]
    began, deadline = time.perf_counter(), time.monotonic() + LIMIT
    running = process.start()
    first: tuple[float, int] | None = None
    seen, now = 0, began
    try:
        while seen < wanted:
            seen, now = _count(client, point), time.perf_counter()
            if first is None and seen:
                first = (now, seen)
            if running.poll() is not None or time.monotonic() > deadline:
                raise StuckError(f"only {seen} of {wanted} entries were restored: {tail(process.log)}")
            time.sleep(0.005)
        point.deployment.wait_ready()
        ready = time.perf_counter() - began
        memory = peak_bytes(running.pid)
    finally:
        process.stop()
    if first is None:
        return ready, (0, 1.0, memory)
    return ready, (seen - first[1], max(now - first[0], 1e-9), memory)


def _keys(point: Preloaded) -> list[str]:
    return [f"{{{point.deployment.group}:{number}}}:entries" for number in range(point.partitions)]


def _count(client: Redis, point: Preloaded) -> int:
    """Entries in the store: one round trip on a connection that is kept, as it is asked for all the time."""
    with client.pipeline(transaction=False) as pipeline:
        for key in _keys(point):
            pipeline.hlen(key)
        return sum(pipeline.execute())


def _dumped(client: Redis, point: Preloaded) -> Entries:
    """Sorted by id: in the order of HSCAN they would go back into the server's table from one end to the other."""
    found = []
    for key in _keys(point):
        fields = list(chain.from_iterable(sorted(dict(client.hscan_iter(key, count=10_000)).items())))
        found.append([fields[at : at + 2 * FIELDS] for at in range(0, len(fields), 2 * FIELDS)])
    return found


def _load(client: Redis, key: str, commands: list[list[bytes]]) -> None:
    for at in range(0, len(commands), COMMANDS):
        with client.pipeline(transaction=False) as pipeline:
            for fields in commands[at : at + COMMANDS]:
                pipeline.hset(key, items=fields)
            pipeline.execute()


def _row(size: int, runs: list[dict[str, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"size": size}
    for name in runs[0]:
        values = [one[name] for one in runs]
        row[name], row[f"{name} spread"] = median(values), [min(values), max(values)]
    shares = [one["rate"] / one["loader"] for one in runs]
    return {**row, "of loader": median(shares), "of loader spread": [min(shares), max(shares)]}


def _show(rows: list[dict[str, Any]], where: dict[str, Any], rounds: int, console: Console) -> None:
    title = f"after FLUSHALL; medians of {rounds} rounds in turn; {where['servers']}, {where['machine']}"
    table = Table(title=f"{title}, load {where['load']}", title_justify="left")
    columns = (
        "pending",
        "of the loader",
        "spread",
        "entries/s",
        "loader's",
        "s until ready",
        "with Redis intact",
        "MB",
    )
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        least, most = row["of loader spread"]
        table.add_row(
            f"{row['size']:,}",
            f"{row['of loader']:.2f}",
            f"{least:.2f}–{most:.2f}",
            f"{row['rate']:,.0f}",
            f"{row['loader']:,.0f}",
            f"{row['ready']:.1f}",
            f"{row['intact']:.1f}",
            f"{row['peak_bytes'] / 1e6:,.0f}",
        )
    console.print(table)
    report.said(
        console, f"· {rows[-1]['size']:,} pending: {rows[-1]['of loader']:.2f} of the loader (aim: at least 0.5)"
    )
