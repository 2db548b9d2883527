"""How throughput changes with the size of things. One command for each size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from . import report
from .preloaded import Preloaded
from .rounds import Collected, in_turn, progress_bar, ratio
from .stage import Stage
from .workload import Shape

app = typer.Typer(
    no_args_is_help=True,
    help="Throughput of the processor against the size of something, everything else as in the throughput benchmark.",
    epilog="All sizes have their turn in every round. The first size is the one the others are compared with. "
    "Quick: --sizes with two small values, --records 80000 --rounds 1.",
)

PENDING = 20_000

Sizes = Annotated[str, typer.Option("--sizes", help="with commas between; the first is what the others are shares of")]
Records = Annotated[int, typer.Option(help="of the backlog in each round, half requests, half labels")]
Rounds = Annotated[int, typer.Option(min=1)]
Pending = Annotated[int, typer.Option(help="decisions that wait for a label all the while")]
Json = Annotated[Path | None, typer.Option("--json", help="write the figures here")]
Chart = Annotated[Path | None, typer.Option(help="draw them: NAME.png and NAME.svg")]

Point = Callable[[Stage, int, Shape], Preloaded]


@app.command()
def pending(
    sizes: Sizes = "10000,100000,1000000",
    records: Records = 200_000,
    rounds: Rounds = 3,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Decisions that wait for their labels. Aim: at 1,000,000 at least 0.8 of the rate at 10,000."""

    def point(stage: Stage, size: int, shape: Shape) -> Preloaded:
        return Preloaded(stage, f"pending-{size}", shape, size)

    _measure("pending decisions", sizes, records, rounds, point, json_file, chart)


@app.command()
def tenants(
    sizes: Sizes = "100,1,10,1000,10000",
    records: Records = 1_000_000,
    rounds: Rounds = 3,
    waiting: Pending = 100_000,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Tenants, each with a learner of its own. Aim: at 10,000 at least 0.5 of the rate at 100."""
    _measure("tenants", sizes, records, rounds, _shaped("tenants", waiting), json_file, chart)


@app.command()
def experts(
    sizes: Sizes = "8,4,16,32,64",
    records: Records = 200_000,
    rounds: Rounds = 3,
    waiting: Pending = PENDING,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Experts in each request, which grows with them. Aim: 16 cost less than 15 % of the rate at 8."""
    _measure("experts", sizes, records, rounds, _shaped("experts", waiting), json_file, chart)


@app.command()
def groups(
    sizes: Sizes = "2,4,8,16",
    records: Records = 200_000,
    rounds: Rounds = 3,
    waiting: Pending = PENDING,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Groups of each tenant."""
    _measure("groups", sizes, records, rounds, _shaped("groups", waiting), json_file, chart)


@app.command()
def labels(
    sizes: Sizes = "2,3,5,10",
    records: Records = 200_000,
    rounds: Rounds = 3,
    waiting: Pending = PENDING,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Labels there are to choose from."""
    _measure("labels", sizes, records, rounds, _shaped("labels", waiting), json_file, chart)


@app.command()
def partitions(
    sizes: Sizes = "4,1,2,8",
    records: Records = 200_000,
    rounds: Rounds = 3,
    waiting: Pending = PENDING,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Partitions of one process."""

    def point(stage: Stage, size: int, shape: Shape) -> Preloaded:
        return Preloaded(stage, f"partitions-{size}", shape, waiting, partitions=size)

    _measure("partitions", sizes, records, rounds, point, json_file, chart)


@app.command()
def processors(
    sizes: Sizes = "1,2",
    records: Records = 400_000,
    rounds: Rounds = 3,
    waiting: Pending = PENDING,
    json_file: Json = None,
    chart: Chart = None,
) -> None:
    """Processes that share four partitions. They share the cores with the broker and Redis too: count those first."""

    def point(stage: Stage, size: int, shape: Shape) -> Preloaded:
        return Preloaded(stage, f"processors-{size}", shape, waiting, processors=size)

    _measure("processors", sizes, records, rounds, point, json_file, chart)


def _shaped(what: str, waiting: int) -> Point:
    def point(stage: Stage, size: int, shape: Shape) -> Preloaded:
        return Preloaded(stage, f"{what}-{size}", replace(shape, **{what: size}), waiting)

    return point


def _measure(
    what: str, sizes: str, records: int, rounds: int, point: Point, json_file: Path | None, chart: Path | None
) -> None:
    console = report.terminal()
    wanted = [int(size) for size in sizes.split(",")]
    cases = records // 2
    shape = Shape(cases=cases)
    with Stage() as stage:
        where = {**report.machine(), "servers": stage.servers()}
        points = {size: point(stage, size, shape) for size in wanted}
        with progress_bar(console) as progress:
            for size, one in points.items():
                task = progress.add_task(f"{what} {size:,}: {one.pending:,} to be pending", total=one.pending)
                one.prepare(lambda done, task=task: progress.update(task, completed=done))  # type: ignore[misc]
        found = in_turn(
            wanted,
            rounds,
            lambda size, number, told: points[size].round(told),
            lambda size: f"{what} {size:,}",
            2 * cases,
            console,
        )
    _report(what, wanted, found, {**where, "records": records, "rounds": rounds}, console, json_file, chart)


def _report(
    what: str,
    wanted: list[int],
    found: dict[int, Collected],
    where: dict[str, Any],
    console: Console,
    json_file: Path | None,
    chart: Path | None,
) -> None:
    first = wanted[0]
    title = f"{where['records']:,} records, {where['rounds']} rounds in turn; {where['servers']}, {where['machine']}"
    table = Table(title=f"{title}, load {where['load']}", title_justify="left")
    for name in (what, f"of {first:,}", "spread", "records/s", "CPU µs/record", "MB", "early labels"):
        table.add_column(name, justify="right")
    rows = []
    for size in sorted(wanted):
        one, (share, least, most) = found[size], ratio(found[size], found[first])
        row: dict[str, Any] = {
            "size": size,
            "share": share,
            "least": least,
            "most": most,
            "rate": one.rate,
            "rates": one.rates,
        }
        row |= {"cpu_us": one.cpu_each, "early": one.note("early"), "failure": one.failure}
        row["peak_bytes"] = one.middle(lambda run: run.peak_bytes)
        if not one.runs:
            table.add_row(f"{size:,}", "–", one.failure[:60])
            continue
        rows.append(row)
        table.add_row(
            f"{size:,}",
            f"{share:.2f}",
            f"{least:.2f}–{most:.2f}",
            f"{one.rate:,.0f}",
            f"{one.cpu_each:.1f}",
            f"{row['peak_bytes'] / 1e6:,.0f}",
            f"{row['early']:.1%}",
        )
    console.print(table)
    if chart is not None and rows:
        points = [(row["size"], row["rate"], min(row["rates"]), max(row["rates"])) for row in rows]
        report.curves({what: points}, chart, (what, "records per second", f"throughput against {what}"))
    report.write_json(json_file, {**where, "what": what, "rows": rows})
