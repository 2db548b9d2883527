"""What is measured side by side: each line reads the same topics from their beginning."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from .children import Process
from .processes import GFORCE, WITHOUT_REDIS, Deployment, echo
from .stage import OUTPUTS, Offsets, Stage
from .timing import Measured, Span, StuckError, reached, timed
from .workload import Shape

LIMIT = 900.0
"""seconds that one run of one line may take"""

Told = Callable[[int], None]


@dataclass(frozen=True)
class Inputs:
    """The topics everybody reads, with everything already in them."""

    topics: tuple[str, str]
    partitions: int
    shape: Shape
    records: int
    """all of them, those to be decided beforehand included"""

    @property
    def before(self) -> int:
        return self.shape.late


@dataclass(frozen=True)
class Line:
    key: str
    title: str
    guarantee: str
    run: Callable[[Stage, Inputs, str, Told], Measured]
    lacks: str = ""
    prepare: Callable[[Stage, Inputs, str], None] | None = None
    """before the backlog is produced: decide what is to be pending"""


def echo_line(*options: str) -> Callable[[Stage, Inputs, str, Told], Measured]:
    """Progress is what can be read from the output; transaction markers are no records."""

    def run(stage: Stage, inputs: Inputs, name: str, told: Told) -> Measured:
        output = f"{stage.run}.{name}.out"
        stage.create([output], inputs.partitions)
        process = echo(stage, name, inputs.topics, output, "--records", str(inputs.records), *options)
        offsets = Offsets(stage.bootstrap, f"{stage.run}.{name}", inputs.topics, inputs.partitions)
        places = [(output, number) for number in range(inputs.partitions)]
        transactional = "--transactional" in options
        count = offsets.count if transactional else lambda: sum(stage.ends_of(places).values())
        try:
            running = [process.start()]
            found = timed(count, inputs.records, running, process.log, LIMIT, told=told, servers=stage.server_pids())
            written = sum(stage.ends([output]).values()) / inputs.records
        finally:
            process.stop()
            offsets.close()
            stage.delete([output])
        return replace(found, written=written)

    return run


class ProcessorLine:
    """Progress is what its group has committed."""

    def __init__(self, *module: str, python: str = sys.executable, path: Path | None = None) -> None:
        """``python`` and ``path`` are those of another version: its interpreter, and its checkout."""
        self._module, self._python = module, python
        self._environment = {} if path is None else {"PYTHONPATH": str(path)}
        self._made: dict[str, Deployment] = {}

    def prepare(self, stage: Stage, inputs: Inputs, name: str) -> None:
        made = Deployment(
            stage,
            name,
            inputs.topics,
            inputs.partitions,
            inputs.shape,
            module=self._module,
            python=self._python,
            environment=self._environment,
        )
        self._made[name] = made
        made.create()
        process, offsets = made.add(), self._offsets(made)
        try:
            reached(offsets.count, inputs.before, [process.start()], process.log, LIMIT)
        finally:
            made.stop()
            offsets.close()

    def run(self, stage: Stage, inputs: Inputs, name: str, told: Told) -> Measured:
        made = self.made(name)
        process, offsets = made.processes[0], self._offsets(made)
        had = sum(stage.ends(made.outputs).values())
        try:
            running = [process.start()]
            servers = stage.server_pids()
            found = timed(offsets.count, inputs.records, running, process.log, LIMIT, inputs.before, told, servers)
            early = made.metric("gforce_labels_parked_total")
            transactions = made.metric("gforce_transactions_total")
            written = (sum(stage.ends(made.outputs).values()) - had) / (inputs.records - inputs.before)
            made.stop()
            check_decisions(stage, inputs, made.outputs[OUTPUTS.index("decisions")])
            notes = {"early": early / inputs.shape.cases, "transactions": transactions}
            notes |= _store_seconds(process.log.parent)
        finally:
            offsets.close()
            made.remove()
        return replace(found, written=written, notes=notes)

    def made(self, name: str) -> Deployment:
        """What was prepared under this name; the caller removes it."""
        return self._made.pop(name)

    def _offsets(self, made: Deployment) -> Offsets:
        return Offsets(made.stage.bootstrap, made.group, made.inputs, made.partitions)


def check_decisions(stage: Stage, inputs: Inputs, topic: str) -> None:
    """StuckError unless there is one decision for each request."""
    wanted = inputs.before + inputs.shape.cases
    if (found := stage.committed(topic)) != wanted:
        raise StuckError(f"{found} decisions for {wanted} requests: the run is not counted")


def old_line(checkout: Path) -> Line:
    """The processor of another checkout, with the interpreter of its ``.venv`` or else with ours."""
    checkout = checkout.resolve()
    file = checkout / "processor" / "__init__.py"
    version = re.search(r'__version__ = "(.+?)"', file.read_text()) if file.exists() else None
    if version is None:
        raise StuckError(f"{checkout} is no checkout of gforce: it has no processor/__init__.py with a version")
    own = checkout / ".venv" / "bin" / "python"
    asked = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    commit = asked.stdout.strip() or checkout.name
    line = ProcessorLine(*GFORCE, python=str(own) if own.exists() else sys.executable, path=checkout)
    title = f"gforce {version.group(1)} at {commit}"
    return Line(f"{OLD}{commit}", title, "exactly once", line.run, prepare=line.prepare)


def _store_seconds(folder: Path) -> dict[str, float]:
    """What the stand-in for Redis took itself, if it was there."""
    file = folder / "store.json"
    return {"store_seconds": sum(msgspec.json.decode(file.read_bytes()).values())} if file.exists() else {}


def embedded_line(stage: Stage, inputs: Inputs, name: str, told: Told) -> Measured:
    """No broker: the log is in its own memory, the store is a Valkey process."""
    command = [sys.executable, "-m", "benchmarks.pipeline.embedded_run"]
    process = Process([*command, msgspec.json.encode(inputs.shape).decode()], stage.folder / f"{name}.log")
    try:
        code = process.start().wait(LIMIT)
    except subprocess.TimeoutExpired:
        raise StuckError(f"the embedded processor did not end in {LIMIT:.0f} s") from None
    finally:
        process.stop()
    said = process.log.read_text(errors="replace")
    if code:
        raise StuckError(f"the embedded processor ended with {code}: {said[-1_500:]}")
    found = msgspec.json.decode(said.splitlines()[-1])
    told(inputs.records)
    notes = {"early": found.pop("early") / inputs.shape.cases}
    steady = found.pop("steady")
    return Measured(**found, steady=Span(**steady) if steady else None, notes=notes)


_WITH, _WITHOUT = ProcessorLine(*GFORCE), ProcessorLine(*WITHOUT_REDIS)
PASS_THROUGH = "pass-through"
PROCESSOR = "processor"
OLD = "old-"
"""begins the keys of other versions"""
LINES = (
    Line(PASS_THROUGH, "(a) pass-through, no parsing", "at least once", echo_line()),
    Line("transactional", "(a′) the same in transactions", "exactly once", echo_line("--transactional")),
    Line("msgspec", "(b) with msgspec", "at least once", echo_line("--parse")),
    Line(PROCESSOR, "(c) gforce", "exactly once", _WITH.run, prepare=_WITH.prepare),
    Line("no-redis", "(d) gforce, dictionaries for Redis", "exactly once", _WITHOUT.run, prepare=_WITHOUT.prepare),
    Line("embedded", "(e) gforce --embedded", "exactly once, in memory", embedded_line),
)
