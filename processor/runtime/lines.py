"""JSON lines through the embedded processor: from a file or a pipe, and what comes out in the same shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from select import select
from typing import Any, BinaryIO

import msgspec

from processor.adapters.log import Record
from processor.core.errors import InvalidInput

from .assembly import wall
from .config import Config
from .embedded import Embedded, embedded

A_MOMENT = 0.2
"""Seconds without a line after which what has come through a pipe is processed."""
AT_ONCE = 1 << 16
"""Bytes."""


def as_they_come(stream: BinaryIO, told_to_stop: Callable[[], bool] = lambda: False) -> Iterator[bytes | None]:
    """The lines of a file or a pipe, up to its end or until told to stop, and None whenever none has come for a
    moment: somebody waits for what was decided.

    Read past Python's buffers: whoever waits in one of them cannot be told anything, and holds its lock.
    """
    begun: list[bytes] = []
    quiet = False
    while not told_to_stop():
        if not select([stream], [], [], A_MOMENT)[0]:
            if not quiet:
                yield None
            quiet = True
            continue
        quiet = False
        piece = os.read(stream.fileno(), AT_ONCE)
        if not piece:
            yield from filter(None, [b"".join(begun)])
            return
        whole, newline, rest = piece.rpartition(b"\n")
        if newline:
            yield from b"".join([*begun, whole]).split(b"\n")
            begun = []
        begun.append(rest)


def run_lines(config: Config, lines: Iterable[bytes | None], write: Callable[[bytes], None]) -> dict[str, int]:
    """Read records as JSON lines, process them, and write what comes out, some lines at a time. Returns the totals.

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


def _flush(running: Embedded, outputs: Iterable[str], write: Callable[[bytes], None]) -> None:
    running.run_until_idle()
    if made := b"".join(_line(record) for topic in outputs for record in running.new_records(topic)):
        write(made)


def _parse(number: int, line: bytes, inputs: tuple[str, str]) -> tuple[str, bytes | None, bytes | None, int | None]:
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


def _line(record: Record) -> bytes:
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
    return msgspec.json.encode(document) + b"\n"
