"""Every line on the same backlog, in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from . import report
from .lines import LINES, PASS_THROUGH, Inputs, Line
from .rounds import in_turn, progress_bar
from .stage import Stage
from .workload import Shape, backlog, publish, waiting

Prepare = Callable[[Stage, Inputs], None]


def prepared(
    stage: Stage, shape: Shape, partitions: int, console: Console, preparations: Sequence[tuple[str, Prepare]] = ()
) -> Inputs:
    """Topics with a backlog in them, made after everybody has decided what is to be pending before it."""
    topics = stage.inputs("in", partitions)
    with progress_bar(console) as progress:
        task = progress.add_task("producing the requests to be pending", total=shape.late + shape.records)
        before = publish(waiting(shape), stage.bootstrap, topics, partitions, lambda n: progress.advance(task, n))
        inputs = Inputs(topics, partitions, shape, before + shape.records)
        for name, prepare in preparations:
            progress.update(task, description=f"deciding them: {name}")
            prepare(stage, inputs)
        progress.update(task, description="producing the backlog")
        publish(backlog(shape), stage.bootstrap, topics, partitions, lambda n: progress.advance(task, n))
    return inputs


def _preparations(lines: Sequence[Line], rounds: int) -> list[tuple[str, Prepare]]:
    def of(line: Line, name: str) -> Prepare:
        return lambda stage, inputs: line.prepare(stage, inputs, name) if line.prepare else None

    names = [(line, f"{line.key}-{number}") for number in range(rounds) for line in lines if line.prepare]
    return [(name, of(line, name)) for line, name in names]


def measure_lines(
    shape: Shape,
    partitions: int,
    rounds: int,
    extra: Sequence[Line],
    only: Sequence[str],
    json_file: Path | None,
    chart: Path | None,
    console: Console,
) -> None:
    """``extra`` lines always run, those of our own if ``only`` is empty or names them."""
    lines = [line for line in LINES if not only or line.key in only or line.key == PASS_THROUGH] + list(extra)
    with Stage() as stage:
        where = {**report.machine(), "servers": stage.servers()}
        inputs = prepared(stage, shape, partitions, console, _preparations(lines, rounds))
        found = in_turn(
            lines,
            rounds,
            lambda line, number, told: line.run(stage, inputs, f"{line.key}-{number}", told),
            lambda line: line.title,
            inputs.records,
            console,
        )
    where["load_after"] = report.machine()["load"]
    limit = next(found[line] for line in lines if line.key == PASS_THROUGH)
    rows = [report.row(line, found[line], limit) for line in lines]
    title = (
        f"{shape.records:,} records, half labels {shape.late:,} requests late, {shape.tenants} tenants, "
        f"{shape.experts} experts, {partitions} partitions; {rounds} rounds in turn; {where['servers']}, "
        f"{where['machine']}, {where['tier']} tier, load {where['load']}–{where['load_after']}"
    )
    console.print(report.throughput_table(rows, title))
    report.said(
        console, "steady: without the first third of the records, when a virtual machine has compiled its loops"
    )
    report.said(console, "CPU: µs for each record, of the process, of Redis and of the broker")
    report.said(console, "early: labels that were read before their requests and had to be parked")
    for sentence in report.sentences(rows):
        report.said(console, f"· {sentence}")
    if chart is not None:
        report.bars(rows, chart, f"{shape.records:,} records, {rounds} rounds, {where['servers']}")
    report.write_json(json_file, {"shape": vars(shape), "partitions": partitions, **where, "lines": rows})
