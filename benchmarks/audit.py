"""How fast is an audit, as a ratio to reading and parsing the same recording, and does its memory stay flat?

    python -m benchmarks.audit 100000 2000000

Makes a recording of so many events (requests and labels) with the real processor on the in-memory log. Then, each in a
process of its own, on one core, and one after the other:

    lines   reads the recording and parses its lines, but nothing inside them
    parse   reads and parses all of it: lines, requests, labels, decisions, journal; checks the events, the hashes of
            the inputs and the chain, as the audit does. Everything but the learner and the comparison
    audit   audits it

For 2 000 000 events expect some three gigabytes and three minutes of processor time to make the recording, and a
minute and a half for each round of the three.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from processor import config as configuration
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.replay.replay import Replay, ReplayedBatch
from processor.audit.sources.source import ROLES, Role, open_source
from processor.audit.verify.audit import audit
from processor.audit.verify.partition import rare_garbage_collection
from processor.audit.verify.result import AuditOptions
from processor.core.events import decode_decision
from processor.service.worker import LoopSettings
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
    running = Running(config, 1, LoopSettings(commit_interval=0, most_records=BATCH))
    running.feed(events({f"tenant-{i}": shape for i in range(TENANTS)}, count // 2, 1, step=2), between=BATCH)
    source = running.source()
    del source.records["changelog", 0]  # as a recording is made unless it is asked for
    write_recording(source, folder / "recording", "zstd")


def lines(folder: Path) -> int:
    """Read every line of every topic."""
    counts: Counter[Role] = Counter()
    with open_source([folder / "recording"]) as source, rare_garbage_collection():
        for role in ROLES:
            for number in source.partitions(role):
                counts[role] += sum(1 for _ in source.read(role, number))
    return counts["requests"] + counts["feedback"]


class WithoutLearner(Replay):
    """Reads, hashes and decodes every batch, and leaves it at that."""

    def _recompute(self, batch: ReplayedBatch) -> None:
        batch.decoded = self._decode_inputs(batch)


def parse(folder: Path) -> int:
    """All that the audit makes of the record before it learns anything; outputs are decoded and not compared."""
    inputs = 0
    with open_source([folder / "recording"]) as source, rare_garbage_collection():
        for number in source.partitions():
            replay = WithoutLearner(source, number)
            if any(batch.findings for batch in replay.batches()):
                sys.exit("the recording is damaged")
            inputs += replay.read
        outputs: tuple[Role, ...] = ("decisions", "dead_letters", "alerts")
        for role in outputs:
            for number in source.partitions(role):
                for record in source.read(role, number):
                    if role == "decisions":
                        decode_decision(record.value or b"")
    return inputs


def recompute(folder: Path) -> int:
    config = configuration.load(folder / "gforce.toml", {})
    with open_source([folder / "recording"]) as source:
        found = audit(source, AuditOptions(Secrets.of_config(config)), processes=1)
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


PIECES = {"lines": lines, "parse": parse, "audit": recompute}
Round = dict[str, dict[str, float]]
"""What was measured of each piece, one after the other."""


def _piece(what: str, folder: Path) -> None:
    """One measurement, in the process that was started for it."""
    start, cpu = time.perf_counter(), time.process_time()
    count = PIECES[what](folder)
    seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"events": count, "seconds": seconds, "cpu": busy, "megabytes": _peak_megabytes()}))


def fastest(runs: Sequence[Round], what: str) -> dict[str, float]:
    """The run that took the least processor time: what else runs on the machine can only add to it."""
    return min((run[what] for run in runs), key=lambda one: one["cpu"])


def ratios_of(runs: Sequence[Round], other: str, by: str) -> list[float]:
    """Of each round its own, sorted: a machine that is shared is not as fast in one round as in the next."""
    return sorted(run[other][by] / run["audit"][by] for run in runs)


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Events in each recording. [default: 100000]")] = None,
    rounds: Annotated[int, typer.Option(help="Times each is measured, in turn.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Audit against reading and parsing the same recording: events per second on one core, and peak memory."""
    figures = []
    for count in sizes or [100_000]:
        with TemporaryDirectory() as name:
            folder = Path(name)
            start = time.perf_counter()
            make(count, folder)
            making = time.perf_counter() - start
            runs: list[Round] = [{what: measured(what, folder) for what in PIECES} for _ in range(rounds)]
        found = {what: fastest(runs, what) for what in PIECES}
        cpu = {what: one["cpu"] / one["events"] for what, one in found.items()}
        wall = {what: one["seconds"] / one["events"] for what, one in found.items()}
        print(f"{int(found['audit']['events'])} events (made in {making:.0f} s), one core")
        for what, one in found.items():
            print(
                f"  {what:<6} {1 / cpu[what]:>9.0f} events/s of processor time {1 / wall[what]:>9.0f} events/s "
                f"{cpu[what] * 1e6:>6.1f} µs/event {one['megabytes']:>6.0f} MB at most"
            )
        ratios = {}
        for other in ("parse", "lines"):
            each = ratios[other] = {by: ratios_of(runs, other, by) for by in ("cpu", "seconds")}
            spread = f"{each['cpu'][0]:.2f}–{each['cpu'][-1]:.2f}"
            print(
                f"  audit/{other} {median(each['cpu']):.2f} ({spread}) by processor time, "
                f"{median(each['seconds']):.2f} by the clock; medians of {rounds} rounds",
                flush=True,
            )
        figures.append({"making": making, "ratios": ratios, **found})
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in PIECES:
        _piece(sys.argv[1], Path(sys.argv[2]))
    else:
        typer.run(main)
