"""JSON lines through the embedded processor: from a file or a pipe, and what comes out in the same shape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Queue
from typing import Any, TextIO

import msgspec

from processor.adapters.log import Record
from processor.core.errors import InvalidInput

from .assembly import wall
from .config import Config
from .embedded import Embedded, embedded

A_MOMENT = 0.2
"""Seconds without a line after which what has come through a pipe is processed."""
MOST_WAITING = 20_000
"""Lines that are read ahead."""


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
