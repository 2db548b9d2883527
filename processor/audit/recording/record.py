"""Record topics of a running cluster into files, so that they can be audited anywhere, years later."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from confluent_kafka import Message

from processor.audit.sources import manifest as manifests
from processor.audit.sources.cluster import fetched
from processor.audit.sources.lines import TSTYPES, RecordedLine, filled
from processor.audit.sources.manifest import AnchorEntry, Manifest, RangeEntry
from processor.audit.sources.passing import after_unreadable
from processor.audit.sources.source import RecordingError
from processor.core.stream.identity import Identity
from processor.core.stream.journal import digest
from processor.ports.log import TopicPartition, UnreadableBatchError

from .plan import Gone, Properties, RecordingOrder, Work, now
from .ranges import RecordingRefusedError
from .series import Series

SAVE_EVERY = 0.5
"""seconds between two saved manifests, beside one for every file: so much is recorded again after a crash"""
LINE_OVERHEAD = 150
"""what a line weighs beside key and payload, about"""


class Recorded(msgspec.Struct, frozen=True):
    """What came of it."""

    manifest: Manifest
    added: int
    gone: list[Gone]


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Two processes that write into one folder would spoil it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as problem:
        raise RecordingError(f"{folder} cannot be written to: {problem.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise RecordingRefusedError(
            f"another process records into {folder}: wait for it, or choose another folder"
        ) from None
    else:
        yield
    finally:
        os.close(handle)


def carried_out(
    properties: Properties,
    order: RecordingOrder,
    work: Work,
    progress: Callable[[int], None] = lambda offsets: None,
    clock: Callable[[], float] = time.monotonic,
) -> Recorded:
    """Write what is left. ``progress`` hears how many offsets further it is."""
    manifest, before = work.manifest, work.manifest.records
    saved, files = clock(), 0
    for entry in work.left:
        series = Series(order.folder, entry, order.compression, order.split_size)
        try:
            position = entry.end
            for messages in _readable(properties, work, entry):
                for message in messages:
                    series.add(_line(message), LINE_OVERHEAD + len(message))
                if entry.role == "journal":
                    _note_head(manifest, entry.partition, messages[-1].value())
                here = (messages[-1].offset() or 0) + 1
                progress(here - position)
                position = here
                if clock() - saved > SAVE_EVERY or len(entry.files) != files:
                    series.sync()
                    manifests.save(order.folder, manifest)
                    saved, files = clock(), len(entry.files)
            progress(entry.target - position)
        finally:  # also when a person stops us: what is there counts
            series.close()
            manifests.save(order.folder, manifest)
        entry.end = entry.target
    manifest.finished = now()
    manifests.save(order.folder, manifest)
    return Recorded(manifest, manifest.records - before, work.gone)


SKIPPED = "cannot be read and an operator had them skipped: the journal says so, and an audit does not expect them"
NOT_READ = "cannot be read, by the processor neither: the recording ends before them"


def _readable(properties: Properties, work: Work, entry: RangeEntry) -> Iterator[list[Message]]:
    """What is left of a range, but for batches that cannot be read and that the processor has gone past."""
    position = entry.end
    while True:
        try:
            for messages in fetched(properties, TopicPartition(entry.topic, entry.partition), position, entry.target):
                position = (messages[-1].offset() or 0) + 1
                yield messages
        except UnreadableBatchError as problem:
            offset = max(position, problem.offset)
            after = after_unreadable(_journal(properties, work, entry, problem), entry.role, offset, problem)
            work.gone.append(
                Gone(entry.topic, entry.partition, after or entry.target, offset, SKIPPED if after else NOT_READ)
            )
            if after is None:
                entry.target = offset
            else:
                entry.gaps.append((offset, after))
                position = after
                continue
        return


def _journal(
    properties: Properties, work: Work, entry: RangeEntry, problem: UnreadableBatchError
) -> Iterator[list[Message]]:
    for one in work.manifest.ranges:
        if (one.role, one.partition) == ("journal", entry.partition) and entry.role in ("requests", "feedback"):
            return fetched(properties, TopicPartition(one.topic, one.partition), one.start, one.target)
    raise problem


def _line(message: Message) -> RecordedLine:
    kind, timestamp = message.timestamp()
    line = RecordedLine(
        message.topic() or "", message.partition() or 0, message.offset() or 0, TSTYPES[kind], timestamp
    )
    headers = message.headers()
    return filled(line, message.key(), message.value(), tuple(headers) if headers else ())  # type: ignore[arg-type]


class _BatchIdentity(msgspec.Struct):
    lineage: str
    sequence: int


def _note_head(manifest: Manifest, partition: int, value: bytes | None) -> None:
    """The journal is a chain: its last record stands for all before it."""
    try:
        batch = msgspec.json.decode(value or b"", type=_BatchIdentity)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    head = Identity(batch.lineage, batch.sequence, digest(value or b"")).text()
    manifest.anchors.setdefault(partition, AnchorEntry()).head = head
