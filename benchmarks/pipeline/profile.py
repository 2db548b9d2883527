"""Where the time of one run goes, as a picture."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from . import report
from .children import Process
from .lines import LIMIT, ProcessorLine
from .peers import environment, with_packages
from .processes import GFORCE
from .rounds import progress_bar
from .stage import Offsets, Stage
from .throughput import prepared
from .timing import StuckError, tail, timed
from .workload import Shape

FRAME = re.compile(r"^(?P<name>.+?) \((?P<file>.+?)(?::\d+)?\)$")
LEAST = 0.004
"""share of the time below which a frame is not drawn"""
ROOTS = ("Worker.run_once", "run_once")


def measure(
    records: Annotated[int, typer.Option(min=1_000, help="half requests, half labels")] = 400_000,
    late: Annotated[int, typer.Option(help="requests between a request and its label")] = 40_000,
    rate: Annotated[int, typer.Option(help="samples per second")] = 200,
    chart: Annotated[Path, typer.Option(help="NAME.png and NAME.svg")] = Path("docs/figures/profile"),
    json_file: Annotated[Path | None, typer.Option("--json", help="write the times here")] = None,
) -> None:
    """Sample `gforce run` on a backlog with py-spy and draw what its loop was doing: width is time, callees below.

    py-spy is taken from the path or installed into an environment of its own; it may need root or ptrace rights.
    """
    console = report.terminal()
    spy = shutil.which("py-spy") or _installed(console)
    if spy is None:
        raise typer.BadParameter("py-spy cannot be had here: pip install py-spy, and try again")
    shape = Shape(cases=records // 2, late=late)
    with Stage() as stage:
        line = ProcessorLine(*GFORCE)
        inputs = prepared(
            stage, shape, 4, console, [("profile", lambda stage, inputs: line.prepare(stage, inputs, "profile"))]
        )
        raw = stage.folder / "stacks"
        deployment = line.made("profile")
        process = deployment.processes[0]
        offsets = Offsets(stage.bootstrap, deployment.group, inputs.topics, 4)
        with progress_bar(console) as progress:
            task = progress.add_task("profiling", total=inputs.records)
            try:
                running = process.start()
                command = [spy, "record", "--format", "raw", "--rate", str(rate), "-o", str(raw)]
                sampler = Process([*command, "--pid", str(running.pid)], stage.folder / "py-spy.log")
                sampler.start()
                found = timed(
                    offsets.count,
                    inputs.records,
                    [running],
                    process.log,
                    LIMIT,
                    before=inputs.before,
                    told=lambda done: progress.update(task, completed=done),
                )
                deployment.stop()
                _written(sampler)
            finally:
                offsets.close()
                deployment.remove()
        stacks = stacks_of(raw.read_text(errors="replace"))
    title = f"gforce run, {inputs.records:,} records at {found.rate:,.0f}/s while sampled"
    draw(tree_of(stacks), chart, title)
    _show(stacks, title, console)
    report.said(console, f"drawn: {chart.with_suffix('.png')} and {chart.with_suffix('.svg')}")
    own, _ = times(stacks)
    report.write_json(json_file, {"title": title, "samples": sum(stacks.values()), "own": own.most_common(40)})


def _installed(console: Console) -> str | None:
    python = with_packages(environment("py-spy"), ("py-spy",), console)
    return str(python.with_name("py-spy")) if python else None


def _written(sampler: Process) -> None:
    """It writes when what it samples has ended."""
    assert sampler.running is not None
    with contextlib.suppress(subprocess.TimeoutExpired):
        sampler.running.wait(60)
    said, code = tail(sampler.log), sampler.running.poll()
    sampler.stop()
    if code != 0:
        raise StuckError(f"py-spy ended with {code}: {said}. Sampling another process needs root or ptrace_scope 0")


def stacks_of(text: str) -> Counter[tuple[str, ...]]:
    """Samples of the worker's loop by their frames from there on, lines of one function taken together.

    >>> stacks_of("main (cli.py:3);run_once (processor/service/worker.py:9);poll (a.py:1) 7")
    Counter({('run_once (worker.py)', 'poll (a.py)'): 7})
    """
    found: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        names = [_short(frame) for frame in frames.split(";")]
        start = next((at for at, name in enumerate(names) if name.split(" (")[0] in ROOTS), None)
        if start is not None:
            found[tuple(names[start:])] += int(count)
    return found


def _short(frame: str) -> str:
    match = FRAME.match(frame)
    return f"{match['name']} ({Path(match['file']).name})" if match else frame


def times(stacks: Counter[tuple[str, ...]]) -> tuple[Counter[str], Counter[str]]:
    """Samples of each function: its own, and with what it called."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for frames, count in stacks.items():
        own[frames[-1]] += count
        for name in set(frames):
            whole[name] += count
    return own, whole


@dataclass
class Node:
    """A function called from one place."""

    count: int = 0
    calls: dict[str, Node] = field(default_factory=dict)


def tree_of(stacks: Counter[tuple[str, ...]]) -> Node:
    root = Node()
    for frames, count in stacks.items():
        root.count += count
        node = root
        for name in frames:
            node = node.calls.setdefault(name, Node())
            node.count += count
    return root


def draw(root: Node, files: Path, title: str) -> None:
    """Rectangles as wide as the time, callees below their caller."""
    plt = report._pyplot()
    figure, axes = plt.subplots(figsize=(14, 8))
    depth = _draw_below(axes, root, 0.0, 0, max(root.count, 1))
    axes.set_xlim(0, 1)
    axes.set_ylim(depth, 0)
    axes.set_yticks([])
    axes.set_xlabel("share of the samples taken in the loop")
    axes.set_title(title, fontsize=10, loc="left")
    report._save(figure, files)


def _draw_below(axes: Any, node: Node, left: float, level: int, total: int) -> int:
    deepest = level
    palette = ("#9db7d5", "#b9cfe4", "#8fb3a8", "#c9d8b6", "#e2c9a1", "#d9b3a9")
    for name, call in sorted(node.calls.items(), key=lambda item: -item[1].count):
        width = call.count / total
        if width >= LEAST:
            colour = palette[sum(name.split("(")[-1].encode()) % len(palette)]
            axes.barh(level + 0.5, width, 0.96, left, color=colour, edgecolor="white", linewidth=0.5)
            room = int(width * 190)
            if room >= 3:
                text = f"{name} {width:.0%}"
                shown = text if len(text) <= room else name.split(" (")[0][: room - 1]
                axes.text(left + width / 2, level + 0.5, shown, ha="center", va="center", fontsize=6.5, clip_on=True)
            deepest = max(deepest, level + 1, _draw_below(axes, call, left, level + 1, total))
        left += width
    return deepest


def _show(stacks: Counter[tuple[str, ...]], title: str, console: Console) -> None:
    own, whole = times(stacks)
    total = max(sum(own.values()), 1)
    table = Table(title=title, title_justify="left")
    for name in ("function", "itself", "with what it calls"):
        table.add_column(name, justify="left" if name == "function" else "right")
    for name, count in own.most_common(25):
        table.add_row(name, f"{count / total:.1%}", f"{whole[name] / total:.1%}")
    console.print(table)
