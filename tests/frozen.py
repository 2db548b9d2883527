"""``python -m tests.frozen make|check``: has a change of the code changed a byte of what comes out?

Digests of every record of every topic, of what is stored and of the group's offsets: for some hundred seeds of the
simulation, and for one long run of the processor in memory. Make them before a change of the inside,
check them after each step. A change that is meant to change bytes makes them anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import track

from processor import config as configuration
from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryReader
from processor.adapters.memory.store import MemoryStore
from processor.ports.log import TopicPartition
from tests.recordings.stream import GROUP, SHAPES, Running, events
from tests.simulation.world import GROUP as SIMULATED_GROUP
from tests.simulation.world import TOPICS, World, trial

FILE = Path(__file__).with_name("frozen.json")
SEEDS = 360
CONFIG = Path(__file__).with_name("recordings") / "gforce.toml"
LONG_RUNS = (20_000, 200_000)
"""requests; with their labels they are about twice as many records"""
BETWEEN = 2_000
"""records that are produced before the processor goes on"""


def digest_of(broker: MemoryBroker, store: MemoryStore, topics: Iterable[str], group: str) -> str:
    """Of all that a run has led to."""
    found = blake2b(digest_size=16)
    reader = MemoryReader(broker)
    for topic in topics:
        for number in range(broker.partitions(topic) or 0):
            at = TopicPartition(topic, number)
            first, _ = reader.bounds(at)
            for record in reader.read(at, first):
                found.update(repr((topic, number, record.offset, record.timestamp)).encode())
                found.update(repr((record.key, record.value, record.headers)).encode())
    for at, (_, position) in sorted(broker.group(group).committed.items()):
        found.update(repr((at.topic, at.partition, position.offset, position.metadata)).encode())
        found.update(repr((store.peek(at.partition), sorted(store.entry_ids(at.partition)))).encode())
    return found.hexdigest()


def of_seed(seed: int) -> str:
    world = World(seed)
    broken = trial(world)
    world.broker.hook = None
    return broken or digest_of(world.broker, world.store, vars(TOPICS).values(), SIMULATED_GROUP)


def of_long_run(count: int) -> str:
    config = configuration.load(CONFIG, {})
    running = Running(config, 4)
    running.feed(events(SHAPES, count, seed=11), between=BETWEEN)
    for _ in range(100):
        running.run()
    return digest_of(running.broker, running.store, vars(running.topics).values(), GROUP)


def main(
    action: Annotated[Literal["make", "check"], typer.Argument(help="write the digests, or compare with them")],
    seeds: Annotated[int, typer.Option(help="seeds of the simulation, at most as many as were made")] = SEEDS,
    count: Annotated[int, typer.Option(help="requests of the long run, one of those that were made")] = LONG_RUNS[-1],
    file: Path = FILE,
) -> None:
    """Digests of every output, before and after a change of the inside."""
    counts = LONG_RUNS if action == "make" else (count,)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = {count: pool.submit(of_long_run, count) for count in counts}
        simulated = pool.map(of_seed, range(seeds), chunksize=4)
        now = list(track(simulated, "seeds", total=seeds, console=Console(stderr=True)))
        long_runs = {str(count): run.result() for count, run in runs.items()}
    if action == "make":
        file.write_text(json.dumps({"seeds": now, "long_runs": long_runs}, indent=1) + "\n")
        return
    before = json.loads(file.read_text())
    wrong = [seed for seed, digest in enumerate(now) if before["seeds"][seed] != digest]
    same = before["long_runs"][str(count)] == long_runs[str(count)]
    print(f"{seeds} seeds: {len(wrong)} differ {wrong[:10]}; {count} requests: {'same' if same else 'DIFFER'}")
    raise typer.Exit(0 if same and not wrong else 1)


if __name__ == "__main__":
    typer.run(main)
