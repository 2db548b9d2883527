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
LONG_RUN = 200_000
"""requests; with their labels they are about 400,000 records"""
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


def computed(seeds: int, count: int) -> dict[str, object]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        long_run = pool.submit(of_long_run, count)
        digests = pool.map(of_seed, range(seeds), chunksize=4)
        return {
            "seeds": list(track(digests, "seeds", total=seeds, console=Console(stderr=True))),
            "long_run": {"requests": count, "digest": long_run.result()},
        }


def main(
    action: Annotated[Literal["make", "check"], typer.Argument(help="write the digests, or compare with them")],
    seeds: int = SEEDS,
    count: Annotated[int, typer.Option(help="requests of the long run")] = LONG_RUN,
    file: Path = FILE,
) -> None:
    """Digests of every output, before and after a change of the inside."""
    now = computed(seeds, count)
    if action == "make":
        file.write_text(json.dumps(now, indent=1) + "\n")
        return
    before = json.loads(file.read_text())
    wrong = [seed for seed, pair in enumerate(zip(before["seeds"], now["seeds"], strict=False)) if len(set(pair)) > 1]
    same_run = before["long_run"] == now["long_run"] or before["long_run"]["requests"] != count
    print(f"{seeds} seeds: {len(wrong)} differ {wrong[:10]}; long run: {'same' if same_run else 'DIFFERS'}")
    raise typer.Exit(1 if wrong or not same_run else 0)


if __name__ == "__main__":
    typer.run(main)
