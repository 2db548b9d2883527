"""From a request's being produced to its decision's being visible, beside a transactional echo."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from . import report
from .children import Process
from .processes import Deployment, echo
from .rounds import progress_bar
from .stage import Stage
from .timing import StuckError, tail
from .workload import Shape

SHARES = (50.0, 99.0, 99.9)
NAMES = ("p50", "p99", "p99.9")
OURS, ECHO = "gforce", "transactional echo"


@dataclass(frozen=True)
class Load:
    rate: int
    seconds: float
    warm_up: float
    partitions: int
    commit_interval: int
    linger: int


def measure(
    rates: Annotated[str, typer.Option(help="requests per second, with commas between")] = "1000,10000",
    seconds: Annotated[float, typer.Option(help="of load at each rate")] = 20.0,
    warm_up: Annotated[float, typer.Option(help="seconds of load before that, not counted")] = 5.0,
    rounds: int = 3,
    commit_interval: Annotated[int, typer.Option(help="milliseconds, of the processor and of the echo")] = 100,
    linger: Annotated[int, typer.Option(help="linger.ms of the processor and of the echo")] = 5,
    partitions: int = 4,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    chart: Annotated[Path | None, typer.Option(help="draw them: NAME.png and NAME.svg")] = None,
) -> None:
    """Request produced → decision visible to a read_committed consumer: p50, p99 and p99.9, in milliseconds.

    Every request is followed a second later by its label, so the events are twice as many as the requests. The echo
    forwards both inputs in transactions of the same commit interval and linger, and does nothing else. One process
    produces at an even pace and one reads; the id of every request holds the time at which it was handed to its
    producer. A line that does not keep up is marked: its latency is that of a queue. Quick: --seconds 3 --rounds 1.
    """
    console = report.terminal()
    wanted = [int(rate) for rate in rates.split(",")]
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    with Stage() as stage, progress_bar(console) as progress:
        where = {**report.machine(), "servers": stage.servers()}
        task = progress.add_task("latency", total=rounds * len(wanted) * 2)
        for number in range(rounds):
            for rate in wanted:
                load = Load(rate, seconds, warm_up, partitions, commit_interval, linger)
                for line in (OURS, ECHO) if number % 2 == 0 else (ECHO, OURS):
                    progress.update(task, description=f"round {number + 1}/{rounds}  {line} at {rate:,}/s")
                    one = _one(stage, load, line, f"latency-{rate}-{line.split()[-1]}-{number}")
                    found.setdefault((rate, line), []).append(one)
                    progress.advance(task)
    rows = [_row(rate, line, found[rate, line], found[rate, ECHO]) for rate in wanted for line in (OURS, ECHO)]
    _show(rows, where, rounds, console)
    if chart is not None:
        series = {line: [_point(row) for row in rows if row["line"] == line] for line in (OURS, ECHO)}
        report.curves(series, chart, ("requests per second", "p99, ms", "request produced → decision visible"))
    report.write_json(json_file, {**where, "load": [vars(load)], "rows": rows})


def _one(stage: Stage, load: Load, line: str, name: str) -> dict[str, float]:
    inputs = stage.inputs(name, load.partitions)
    file = stage.folder / f"{name}.latencies"
    deployment: Deployment | None = None
    if line == OURS:
        sections: dict[str, dict[str, object]] = {
            "processing": {"commit_interval_ms": load.commit_interval},
            "kafka": {"producer_properties": {"linger.ms": load.linger}},
        }
        deployment = Deployment(stage, name, inputs, load.partitions, Shape(), sections)
        deployment.create()
        output, process = deployment.outputs[0], deployment.add()
    else:
        output = f"{stage.run}.{name}.out"
        stage.create([output], load.partitions)
        pace = ("--commit-interval", str(load.commit_interval), "--linger", str(load.linger))
        process = echo(stage, name, inputs, output, "--transactional", *pace)
    driver = Process(_driver(stage, load, inputs, output, file), stage.folder / f"{name}-driver.log")
    try:
        process.start()
        if deployment is not None:
            deployment.wait_ready()
        else:
            time.sleep(3.0)  # it has no page that says it is ready; the warm-up covers the rest
        code = driver.start().wait(load.seconds + load.warm_up + 120)
        if code:
            raise StuckError(f"the load ended with {code}: {tail(driver.log)}; {tail(process.log)}")
    finally:
        driver.stop()
        process.stop()
        if deployment is not None:
            deployment.remove()
        else:
            stage.delete([output])
        stage.delete(inputs)
    return _figures(file)


def _driver(stage: Stage, load: Load, inputs: Sequence[str], output: str, file: Path) -> list[str]:
    options = {
        "bootstrap": stage.bootstrap,
        "output": output,
        "rate": load.rate,
        "seconds": load.seconds,
        "warm-up": load.warm_up,
        "partitions": load.partitions,
        "file": file,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "benchmarks.pipeline.load", "--input", *inputs, *words]


def _figures(file: Path) -> dict[str, float]:
    found = msgspec.json.decode(file.with_suffix(".json").read_bytes())
    waits = np.frombuffer(file.read_bytes(), dtype="<i8") / 1e6
    figures = dict(zip(NAMES, np.percentile(waits, SHARES).tolist(), strict=True))
    return {**figures, **found}


def _row(rate: int, line: str, runs: list[dict[str, float]], echoed: list[dict[str, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"rate": rate, "line": line}
    for name in (*NAMES, "offered", "missing", "last"):
        values = [one[name] for one in runs]
        row[name], row[f"{name} spread"] = median(values), [min(values), max(values)]
    row["p99 of echo"] = median(a["p99"] / b["p99"] for a, b in zip(runs, echoed, strict=True))
    # Of the last tenth of a second: whoever does not keep up answers these late or never.
    row["kept up"] = row["missing"] == 0 and row["last"] < 1.0 and row["offered"] > 0.97 * rate
    return row


def _point(row: dict[str, Any]) -> tuple[float, float, float, float]:
    return (row["rate"], row["p99"], *row["p99 spread"])


def _show(rows: list[dict[str, Any]], where: dict[str, Any], rounds: int, console: Console) -> None:
    title = f"milliseconds, medians of {rounds} rounds in turn; {where['servers']}, {where['machine']}"
    table = Table(title=f"{title}, load {where['load']}", title_justify="left")
    for name in ("requests/s", "line", "p99 / echo's", *NAMES, "spread of p99", "kept up"):
        table.add_column(name, justify="left" if name == "line" else "right")
    for row in rows:
        least, most = row["p99 spread"]
        figures = [f"{row[name]:,.1f}" for name in NAMES]
        kept = "yes" if row["kept up"] else f"no: {row['last']:.1f} s behind at the end, {row['offered']:,.0f}/s sent"
        table.add_row(
            f"{row['rate']:,}", row["line"], f"{row['p99 of echo']:.2f}", *figures, f"{least:,.1f}–{most:,.1f}", kept
        )
    console.print(table)
    for row in rows:
        if row["line"] == OURS and row["rate"] == 1_000:
            report.said(
                console, f"· p99 at 1,000 requests/s: {row['p99 of echo']:.2f} times the echo's (aim: at most 3)"
            )
