"""Make a recording to be kept: ``python -m tests.recordings.make tests/recordings/v2``.

Run it once for every version whose format differs, and never again for the same folder: what is kept must go on being
auditable by every later version, as it is. Tests fail if it is not.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from processor import config as configuration

from .stream import SHAPES, MemorySource, Running, events
from .writing import write_recording

CONFIG = Path(__file__).parent / "gforce.toml"
REQUESTS = 640


def made() -> MemorySource:
    """Several tenants, early, late and missing labels, alerts, an acknowledgement, a change of the configuration."""
    running = Running(configuration.load(CONFIG, {}), 2)
    shapes = {**SHAPES, "bank": replace(SHAPES["bank"], late=(-2_000, 500, 4_000), labelled=0.97, weight=4)}
    stream = events(shapes, REQUESTS, seed=1)
    half = 2 * len(stream) // 3
    running.feed(stream[:half], each=_acknowledge)
    running.restart(_changed())
    running.feed(stream[half:], each=_acknowledge)
    return running.source()


def _acknowledge(running: Running) -> None:
    """A person sees the first tolerance alert once it is there."""
    for record in running.source().records["alerts", 0] + running.source().records["alerts", 1]:
        alert = json.loads(record.value or b"")
        if (alert["kind"], alert["state"], alert["number"]) not in running.seen and alert["kind"] == "tolerance":
            running.seen.add((alert["kind"], alert["state"], alert["number"]))
            running.worker.acknowledge(alert["tenant"], alert["number"])


def _changed() -> configuration.Config:
    text = CONFIG.read_text().replace('shadows = ["groupaware", "mw"]', 'shadows = ["groupaware", "mw"]\nlambda = 2.0')
    with TemporaryDirectory() as folder:
        path = Path(folder) / "gforce.toml"
        path.write_text(text)
        return configuration.load(path, {})


def main() -> None:
    folder = Path(sys.argv[1])
    if folder.exists():
        sys.exit(f"{folder} is there already: a recording that is kept is never made again")
    source = made()
    write_recording(source, folder, "zstd")
    for (role, number), records in sorted(source.records.items()):
        print(f"{role} [{number}]: {len(records)} records")


if __name__ == "__main__":
    main()
