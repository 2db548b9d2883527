"""The nearest job each peer can do. Each runs in an environment of its own.

Those in Python decode, count by tenant and emit. Kafka Streams also joins late labels and commits exactly once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks.pipeline.children import Process
from benchmarks.pipeline.lines import LIMIT, Inputs, Line, Told
from benchmarks.pipeline.stage import Stage
from benchmarks.pipeline.timing import Measured, timed

from .kafka_streams import streams_lines

INSTALL_SECONDS = 900


@dataclass(frozen=True)
class Peer:
    key: str
    title: str
    packages: tuple[str, ...]
    guarantee: str
    lacks: str
    every_record: bool = True
    """whether it emits one record for each it reads"""


PEERS = (
    Peer(
        "bytewax",
        "Bytewax",
        ("bytewax", "confluent-kafka", "msgspec"),
        "at least once",
        "no transactions; recovery off (it pickles whole states into SQLite); labels are counted, not joined",
    ),
    Peer(
        "quixstreams",
        "Quix Streams",
        ("quixstreams",),
        "at least once",
        "state in RocksDB by key, with a changelog; exactly-once is off (its default); no join of late labels; "
        "one thread, a callback for each record",
    ),
    Peer(
        "pathway",
        "Pathway",
        ("pathway",),
        "at least once",
        "counts change once for each of its own batches and not with every record, so it writes less than it reads; "
        "no exactly-once in the free version; a Rust engine with threads of its own",
        every_record=False,
    ),
)


def peer_lines(console: Console, only: Collection[str] = (), two_threads: bool = False) -> list[Line]:
    """A line for every peer, or for those of ``only``. A peer whose environment cannot be made is reported and left
    out. ``two_threads`` adds Kafka Streams with two stream threads."""
    lines = []
    for peer in PEERS:
        python = installed(peer, console) if not only or peer.key in only else None
        if python is not None:
            lines.append(Line(peer.key, peer.title, peer.guarantee, _runner(peer, python), peer.lacks))
    return lines + streams_lines(console, only, two_threads)


def environment(name: str) -> Path:
    root = os.environ.get("GFORCE_CACHE") or Path.home() / ".cache" / "gforce"
    return Path(root) / "peers" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"


def installed(peer: Peer, console: Console) -> Path | None:
    """Its Python, with everything in it."""
    return with_packages(environment(peer.key), peer.packages, console)


def with_packages(folder: Path, packages: Sequence[str], console: Console) -> Path | None:
    """The Python of a virtual environment with these packages, made on first use; None if that is not possible."""
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    console.print(f"installing {' '.join(packages)} into {folder} (once) …", highlight=False, soft_wrap=True)
    make = [sys.executable, "-m", "venv", "--clear", str(folder)]
    fill = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    for command in (make, fill):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
            problem = done.stderr.strip().splitlines()[-1:] if done.returncode else None
        except subprocess.TimeoutExpired:
            problem = [f"not done after {INSTALL_SECONDS} s"]
        if problem is not None:
            console.print(f"{packages[0]} cannot be installed here: {' '.join(problem)}", style="yellow", markup=False)
            return None
    (folder / "complete").touch()
    return python


def _runner(peer: Peer, python: Path):  # type: ignore[no-untyped-def]
    job = Path(__file__).with_name(f"{peer.key}_job.py")

    def run(stage: Stage, inputs: Inputs, name: str, told: Told) -> Measured:
        output = f"{stage.run}.{name}.out"
        stage.create([output], inputs.partitions)
        log = stage.folder / f"{name}.log"
        done = log.with_suffix(".done")
        settings = {
            "BENCH_BOOTSTRAP": stage.bootstrap,
            "BENCH_INPUT": ",".join(inputs.topics),
            "BENCH_OUTPUT": output,
            "BENCH_GROUP": f"{stage.run}.{name}",
            "BENCH_RECORDS": str(inputs.records),
            "BENCH_DONE": str(done),
            "BENCH_STATE": str(log.with_suffix(".state")),
            "PYTHONPATH": "",
        }
        process = Process([str(python), str(job)], log, settings)
        places = [(output, number) for number in range(inputs.partitions)]
        try:
            count = (lambda: sum(stage.ends_of(places).values())) if peer.every_record else (lambda: _said(done))
            running, servers = [process.start()], stage.server_pids()
            found = timed(count, inputs.records, running, process.log, LIMIT, told=told, servers=servers)
            topics = {output, *(topic for topic in stage.named("changelog__") if f"{stage.run}.{name}" in topic)}
            written = sum(stage.ends(sorted(topics)).values()) / inputs.records
        finally:
            process.stop()
            stage.delete([output, *(t for t in stage.named("changelog__") if f"{stage.run}.{name}" in t)])
        return replace(found, written=written)

    return run


def _said(file: Path) -> int:
    """How far a job says it is, where its output does not tell."""
    try:
        return int(file.read_text() or 0)
    except (OSError, ValueError):
        return 0
