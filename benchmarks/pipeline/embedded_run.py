"""The embedded processor on the same events, as a process of its own: ``… embedded_run SHAPE-AS-JSON``.

Prints one JSON line for the run: records and seconds from the first commit to the last, and what was written.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import msgspec

from processor.adapters.memory.log import MemoryReader
from processor.embedded.embedded import PARTITIONS, Embedded, embedded
from processor.ports.log import TopicPartition
from processor.run.run_command import load_embedded

from .timing import Measured, Sample, Watch, cpu_seconds, peak_bytes
from .workload import Event, Shape, backlog, waiting

LIMIT = 1_800.0


def measured(running: Embedded, before: int, total: int) -> Measured:
    """Turn the loop until everything is committed."""
    worker = running.worker
    watch = Watch(before, total, lambda seen: Sample(time.perf_counter(), seen, cpu_seconds(os.getpid()), {}))
    deadline = time.monotonic() + LIMIT
    while (seen := worker.totals["records"]) < total:
        worker.run_once(0.0)
        watch.look(worker.totals["records"])
        if time.monotonic() > deadline:
            raise SystemExit(f"only {seen} of {total} records after {LIMIT:.0f} s")
    return watch.end(total, peak_bytes(os.getpid()))


def main() -> None:
    shape = msgspec.json.decode(sys.argv[1], type=Shape)
    config, _ = load_embedded(None)
    with embedded(config) as running:
        topics = running.worker.topics
        names = [name.encode() for name in map(shape.tenant, range(shape.tenants))]

        def put(stream: Iterator[Event]) -> int:
            count = 0
            for count, event in enumerate(stream, start=1):  # noqa: B007
                running.produce(topics.inputs[event.input], names[event.tenant], event.value)
            return count

        reader = MemoryReader(running.broker)
        outputs = set(vars(topics).values()) - set(topics.inputs)

        def written() -> int:
            return sum(
                reader.bounds(TopicPartition(topic, number))[1] for topic in outputs for number in range(PARTITIONS)
            )

        before = put(waiting(shape))
        running.run_until_idle()
        had = written()
        total = before + put(backlog(shape))
        found = asdict(replace(measured(running, before, total), written=(written() - had) / (total - before)))
        found |= {"early": running.worker.totals["labels_parked"]}
        del found["notes"]
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
