"""JSON lines through the embedded processor: from a file or a pipe, and what comes out in the same shape."""

from __future__ import annotations

import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from select import select
from typing import Any, BinaryIO

import msgspec

from processor.config import Config
from processor.core.errors import InvalidInputError
from processor.core.events import RejectedEventError
from processor.ports.log import Record, TopicPartition
from processor.run.assembly import wall_ms

from .embedded import Embedded, embedded
from .line_records import LineRecord, read_line

WAITING = "labels_waiting"
"""The total of labels whose request has not come."""
IDLE_SECONDS = 0.2
"""Seconds without a line after which what has come through a pipe is processed."""
READ_BYTES = 1 << 16
"""Bytes."""
NO_TOPIC = "lines"
"""What a dead letter names as its topic if it was a line and never a record."""


def as_they_come(stream: BinaryIO, told_to_stop: Callable[[], bool] = lambda: False) -> Iterator[bytes | None]:
    """The lines of a file or a pipe, up to its end or until told to stop, and None whenever none has come for a
    moment: somebody waits for what was decided.

    Read past Python's buffers: whoever waits in one of them cannot be told anything, and holds its lock.
    """
    begun: list[bytes] = []
    quiet = False
    while not told_to_stop():
        if not select([stream], [], [], IDLE_SECONDS)[0]:
            if not quiet:
                yield None
            quiet = True
            continue
        quiet = False
        piece = os.read(stream.fileno(), READ_BYTES)
        if not piece:
            yield from filter(None, [b"".join(begun)])
            return
        whole, newline, rest = piece.rpartition(b"\n")
        if newline:
            yield from b"".join([*begun, whole]).split(b"\n")
            begun = []
        begun.append(rest)


@dataclass
class RecordTime:
    """The time of the records: a file of last year does not expire because it is read today."""

    latest: int = 0

    def __call__(self) -> int:
        return self.latest or wall_ms()


def run_lines(config: Config, lines: Iterable[bytes | None], write: Callable[[bytes], None]) -> dict[str, int]:
    """Read records as JSON lines, process them, and write what comes out, some lines at a time. Returns the totals.

    None among the lines is a pause, in which all that has come is processed. A line that is no record becomes a dead
    letter, as a record does that is no event: nothing that is sent stops the processor.
    """
    clock, refused = RecordTime(), Counter[str]()
    with embedded(config, clock) as running:
        for number, line in _numbered(lines):
            if line is None:
                _flush(running, write)
                continue
            try:
                _produce(running, read_line(line, running.worker.topics), clock)
            except RejectedEventError as rejected:
                _refuse(running, number, line, rejected)
                refused.update(["records", f"dead_{rejected.reason}"])
            if number % config.processing.max_batch_records == 0:
                _flush(running, write)
        _flush(running, write)
        waiting = sum(owned.partition.parked for owned in running.worker.owned.values() if owned.partition)
        return dict(running.worker.totals + refused) | {WAITING: waiting}


def _numbered(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """The lines that hold something, with their number as an editor shows it; pauses, with that of the line before."""
    number = 0
    for line in lines:
        if line is None:
            yield number, None
            continue
        number += 1
        if number == 1:
            line = _without_mark(line)
        if stripped := line.strip():
            yield number, stripped


def _without_mark(first: bytes) -> bytes:
    """Without the byte order mark that some editors put before UTF-8."""
    if first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InvalidInputError("the input is UTF-16: save it as UTF-8, or pipe it through iconv -f UTF-16 -t UTF-8")
    return first.removeprefix(BOM_UTF8)


def _produce(running: Embedded, record: LineRecord, clock: RecordTime) -> None:
    clock.latest = max(clock.latest, record.timestamp or 0)
    running.produce(*record)


def _refuse(running: Embedded, number: int, line: bytes, rejected: RejectedEventError) -> None:
    """A dead letter as the processor writes them. The line's number is its offset, as it was on no topic."""
    broker, now = running.broker, str(running.broker.clock())
    facts = {"reason": str(rejected.reason), "detail": rejected.detail, "topic": NO_TOPIC, "partition": "0"}
    facts |= {"offset": str(number), "timestamp": now}
    headers = tuple((f"gforce.{name}", text.encode()) for name, text in facts.items())
    broker.produce(TopicPartition(running.worker.topics.dead_letters, 0), None, line, headers)


def _flush(running: Embedded, write: Callable[[bytes], None]) -> None:
    running.run_until_idle()
    topics = running.worker.topics
    outputs = (topics.decisions, topics.dead_letters, topics.alerts)
    if made := b"".join(line_of(record) for topic in outputs for record in running.new_records(topic)):
        write(made)


def line_of(record: Record) -> bytes:
    """A record as JSON; a payload that is JSON goes into it as it is, any other as text."""
    value = record.value or b"null"
    try:
        value.decode()  # strings that msgspec does not build it does not check
        payload: Any = msgspec.Raw(msgspec.json.format(value, indent=-1))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        payload = value.decode("utf-8", "replace")
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


def summary(totals: Mapping[str, int]) -> str:
    """What has become of all that came, in a line.

    >>> summary({"records": 12, "decisions": 10, "labels_joined": 1, "dead_no-predictions": 1})
    '12 records, 10 decisions, 1 label joined, 1 dead letter (no-predictions)'
    >>> summary({"records": 1, "labels_waiting": 1})
    '1 record, 0 decisions, 0 labels joined, 1 label still waiting for a request'
    """
    duplicates = totals.get("requests_duplicate", 0) + totals.get("labels_duplicate", 0)
    waiting = totals.get(WAITING, 0)
    told = [
        _counted(totals.get("records", 0), "record"),
        _counted(totals.get("decisions", 0), "decision"),
        _counted(totals.get("labels_joined", 0), "label") + " joined",
        _counted(duplicates, "duplicate") if duplicates else "",
        _counted(waiting, "label") + " still waiting for a request" if waiting else "",
        _dead(Counter({name[5:]: count for name, count in totals.items() if name.startswith("dead_")})),
    ]
    return ", ".join(filter(None, told))


def _dead(by_reason: Counter[str]) -> str:
    """
    >>> _dead(Counter({"schema": 1, "bad-json": 2}))
    '3 dead letters (2 bad-json, 1 schema)'
    """
    reasons = [f"{count} {reason}" for reason, count in by_reason.most_common()]
    shown = ", ".join(reasons) if len(by_reason) > 1 else "".join(by_reason)
    return f"{_counted(by_reason.total(), 'dead letter')} ({shown})" if by_reason else ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
