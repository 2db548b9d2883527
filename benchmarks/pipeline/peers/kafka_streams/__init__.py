"""Kafka Streams, exactly once: it keeps pending decisions in a store with a changelog and joins late labels to them.

The Java program beside this file is compiled once by Maven into a cache outside the checkout.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.pipeline.children import Process
from benchmarks.pipeline.lines import LIMIT, Inputs, Line, Told, check_decisions
from benchmarks.pipeline.stage import Offsets, Stage
from benchmarks.pipeline.timing import Measured, StuckError, reached, tail, timed
from benchmarks.pipeline.workload import FETCH
from tests.servers.broker import kafka_version

HERE = Path(__file__).parent
MAIN = "gforce.bench.DecideAndJoin"
BUILD_SECONDS = 900
COMMIT_MS = 100
JAVA = 17
REMEDY = "Debian: apt-get install openjdk-17-jdk-headless maven"
JVM = ("-Xms512m", "-Xmx1g", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
LACKS = (
    "follows the expert with the best counts of the group: no fair rule, no draws, no journal and no audit, no alerts, "
    "no dead letters, no expiry; a label that comes twice is not recognized"
)
STORES = {"in-memory": ("memory", "in memory"), "rocksdb": ("rocksdb", "RocksDB")}


def streams_lines(console: Console, only: Collection[str] = (), two_threads: bool = False) -> list[Line]:
    """A line for each store and number of threads; none, with the remedy, where it cannot be built."""
    wanted = [
        (f"kafka-streams-{short}{'-two-threads' if threads == 2 else ''}", store, threads)
        for threads in ((1, 2) if two_threads else (1,))
        for store, (short, _) in STORES.items()
    ]
    wanted = [one for one in wanted if not only or one[0] in only]
    if not wanted:
        return []
    folder = built(console)
    return [] if folder is None else [_line(folder, *one) for one in wanted]


def _line(folder: Path, key: str, store: str, threads: int) -> Line:
    line = StreamsLine(folder, store, threads)
    title = f"Kafka Streams, {STORES[store][1]}{', 2 threads' if threads == 2 else ''}"
    return Line(key, title, "exactly once", line.run, LACKS, line.prepare)


# Building


def missing() -> str | None:
    """What is not here to build or run it with, or None."""
    absent = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if absent:
        return f"{' and '.join(absent)} not found"
    asked = subprocess.run(["javac", "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"javac (\d+)", asked.stdout + asked.stderr)
    if found is None or int(found.group(1)) < JAVA:
        return f"Java {JAVA} or later is needed, and javac is {(asked.stdout + asked.stderr).strip()!r}"
    return None


def cache() -> Path:
    """The folder of this program in this version of Kafka: changed sources are built anew, beside the old."""
    digest = hashlib.sha256()
    for file in (HERE / "pom.xml", *sorted(HERE.rglob("*.java"))):
        digest.update(file.read_bytes())
    root = os.environ.get("GFORCE_CACHE") or Path.home() / ".cache" / "gforce"
    return Path(root) / "peers" / f"kafka-streams-{kafka_version()}-{digest.hexdigest()[:12]}"


def built(console: Console) -> Path | None:
    """The folder with its classes and jars, filled on first use; None, with the reason, if that is not possible."""
    folder = cache()
    reason = missing()
    if reason is None and not (folder / "complete").exists():
        console.print(f"building the Kafka Streams peer in {folder} (once) …", highlight=False, soft_wrap=True)
        reason = _build(folder)
    if reason is not None:
        text = f"Kafka Streams cannot run here: {reason}. {REMEDY}"
        console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)
        return None
    return folder


def _build(folder: Path) -> str | None:
    """Why it failed, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dkafka.version={kafka_version()}"]
    command += [f"-Dbuild.folder={folder}", "compiler:compile", "dependency:copy-dependencies"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"Maven was not done after {BUILD_SECONDS} s"
    if done.returncode:
        return f"Maven failed: {(done.stdout + done.stderr).strip()[-1_500:]}"
    (folder / "complete").touch()
    return None


# Running


class StreamsLine:
    """Progress is what its group has committed, as with the processor."""

    def __init__(self, folder: Path, store: str, threads: int) -> None:
        self._folder, self._store, self._threads = folder, store, threads

    def prepare(self, stage: Stage, inputs: Inputs, name: str) -> None:
        """Decide what is to be pending, and stop."""
        stage.create([_output(stage, name)], inputs.partitions)
        process, offsets = self._process(stage, inputs, name), _offsets(stage, inputs, name)
        try:
            reached(offsets.count, inputs.before, [process.start()], process.log, LIMIT)
        finally:
            process.stop()
            offsets.close()

    def run(self, stage: Stage, inputs: Inputs, name: str, told: Told) -> Measured:
        process, offsets = self._process(stage, inputs, name), _offsets(stage, inputs, name)
        topics = _topics(stage, name)
        had = sum(stage.ends(topics).values())
        try:
            running, servers = [process.start()], stage.server_pids()
            found = timed(offsets.count, inputs.records, running, process.log, LIMIT, inputs.before, told, servers)
            written = (sum(stage.ends(topics).values()) - had) / (inputs.records - inputs.before)
            process.stop()
            check_decisions(stage, inputs, _output(stage, name))
            totals = _totals(process.log)
            if totals["joined"] != inputs.shape.cases:
                raise StuckError(f"{totals['joined']} labels were joined of {inputs.shape.cases}")
        finally:
            process.stop()
            offsets.close()
            stage.delete(topics)
            shutil.rmtree(stage.folder / f"{name}.state", ignore_errors=True)
        return replace(found, written=written, notes={"early": totals["parked"] / inputs.shape.cases})

    def _process(self, stage: Stage, inputs: Inputs, name: str) -> Process:
        settings = {
            "BENCH_BOOTSTRAP": stage.bootstrap,
            "BENCH_REQUESTS": inputs.topics[0],
            "BENCH_FEEDBACK": inputs.topics[1],
            "BENCH_OUTPUT": _output(stage, name),
            "BENCH_GROUP": _group(stage, name),
            "BENCH_STATE": str(stage.folder / f"{name}.state"),
            "BENCH_STORE": self._store,
            "BENCH_THREADS": str(self._threads),
            "BENCH_COMMIT_MS": str(COMMIT_MS),
            "BENCH_FETCH_BYTES": str(FETCH["fetch.message.max.bytes"]),
        }
        path = f"{self._folder / 'classes'}:{self._folder / 'jars'}/*"
        return Process(["java", *JVM, "-cp", path, MAIN], stage.folder / f"{name}.log", settings)


def _group(stage: Stage, name: str) -> str:
    """Its application id, with which the names of its changelogs begin."""
    return f"{stage.run}.{name}"


def _output(stage: Stage, name: str) -> str:
    return f"{_group(stage, name)}.decisions"


def _topics(stage: Stage, name: str) -> list[str]:
    """Its output and the changelogs of its two stores."""
    return [_output(stage, name), *(f"{_group(stage, name)}-{store}-changelog" for store in ("pending", "outcomes"))]


def _offsets(stage: Stage, inputs: Inputs, name: str) -> Offsets:
    return Offsets(stage.bootstrap, _group(stage, name), inputs.topics, inputs.partitions)


def _totals(log: Path) -> dict[str, int]:
    """What it counted, which it prints last."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"requests"')]
    if not lines:
        raise StuckError(f"it did not say what it had done: {tail(log)}")
    return msgspec.json.decode(lines[-1], type=dict[str, int])
