"""How fast is an audit, as a ratio to reading and parsing the same recording, and does its memory stay flat?

    python -m benchmarks.audit 100000 400000

Makes a recording of so many events (requests and labels) with the real processor on the in-memory log, then reads it,
and audits it, each in a process of its own. One partition, one core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from processor.audit.audit import audit
from processor.audit.partition_result import Options
from processor.audit.rules import Secrets
from processor.audit.sources import ROLES, open_source
from processor.core.events import Limits, Rejected, decode_decision, decode_feedback, decode_request
from processor.core.journal import ChangelogRecord, JournalRecord
from processor.runtime import config as configuration
from processor.runtime.worker import Pace
from tests.recordings.stream import Running, Shape, events
from tests.recordings.writing import write_recording

CONFIG = """
[processing]
seed = "0badc0de0badc0de0badc0de0badc0de"
slot_ms = 1000
[tenants.default]
labels = ["deny", "grant"]
positive = "grant"
expiry = "20s"
parking = "5s"
duplicate_horizon = "20s"
bucket = "1h"
"""
# A request every two milliseconds that waits for twenty seconds at most: the state stops growing after 20 000 events.
TENANTS = 20
BATCH = 5_000


def make(count: int, folder: Path) -> None:
    path = folder / "gforce.toml"
    path.write_text(CONFIG)
    config = configuration.load(path, {})
    shape = Shape(("deny", "grant"), ("A", "B"), experts=4, late=(500, 4_000, 15_000, 60_000), labelled=0.95)
    running = Running(config, 1, Pace(commit_interval=0, most_records=BATCH))
    running.feed(events({f"tenant-{i}": shape for i in range(TENANTS)}, count // 2, 1, step=2), between=BATCH)
    source = running.source()
    del source.records["changelog", 0]  # as a recording is made unless it is asked for
    write_recording(source, folder / "recording", "zstd")


def parse(folder: Path) -> int:
    """Everything the audit reads, and what any reader makes of it; nothing is learnt or compared."""
    limits, inputs = Limits(), 0
    with open_source([folder / "recording"]) as source:
        for role in ROLES:
            for number in source.partitions(role):
                for record in source.read(role, number):
                    value = record.value or b""
                    try:
                        if role == "requests":
                            decode_request(value, limits)
                        elif role == "feedback":
                            decode_feedback(value, limits)
                        elif role == "decisions":
                            decode_decision(value)
                        elif role == "journal":
                            JournalRecord.decode(value)
                        elif role == "changelog":
                            ChangelogRecord.decode(value)
                    except Rejected:
                        pass
                    inputs += role in ("requests", "feedback")
    return inputs


def recompute(folder: Path) -> int:
    config = configuration.load(folder / "gforce.toml", {})
    with open_source([folder / "recording"]) as source:
        found = audit(source, Options(Secrets.of_config(config)), processes=1)
    if found.verdict != "verified":
        sys.exit(f"{found.findings} {found.reasons}")
    return found.requests + found.labels


def measured(what: str, folder: Path) -> dict[str, float]:
    """In a fresh process, so that its memory is its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit", what, str(folder)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _peak_megabytes() -> float:
    """Not from getrusage: that begins with the peak of the process that started this one."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def _piece(what: str, folder: Path) -> None:
    """One measurement, in the process that was started for it."""
    start, cpu = time.perf_counter(), time.process_time()
    count = {"parse": parse, "recompute": recompute}[what](folder)
    peak = _peak_megabytes()
    seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"events": count, "seconds": seconds, "cpu": busy, "megabytes": peak}))


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Events in each recording. [default: 100000]")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Audit against reading and parsing the same recording: events per second of processor time, and peak memory."""
    figures = []
    print(f"{'events':>9} {'parse/s':>9} {'audit/s':>9} {'ratio':>6} {'parse MB':>9} {'audit MB':>9}")
    for count in sizes or [100_000]:
        with TemporaryDirectory() as name:
            folder = Path(name)
            make(count, folder)
            read, done = measured("parse", folder), measured("recompute", folder)
        # By processor time: what else runs on the machine must not count.
        fast, slow = read["events"] / read["cpu"], done["events"] / done["cpu"]
        figures.append({"ratio": slow / fast, "parse": read, "audit": done})
        print(
            f"{int(done['events']):>9} {fast:>9.0f} {slow:>9.0f} {slow / fast:>6.2f} "
            f"{read['megabytes']:>9.0f} {done['megabytes']:>9.0f}",
            flush=True,
        )
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] in (["parse"], ["recompute"]):
        _piece(sys.argv[1], Path(sys.argv[2]))
    else:
        typer.run(main)
