"""Record topics of a running cluster into files, so that they can be audited anywhere, years later."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
from confluent_kafka import Message

from processor.audit.sources import manifest as manifests
from processor.audit.sources.cluster import fetch, offset_after_unreadable
from processor.audit.sources.line_files import (
    FILE_SUFFIXES,
    TSTYPES,
    Compression,
    RecordedLine,
    compress,
    encode_lines,
    fill_line,
)
from processor.audit.sources.manifest import AnchorEntry, FileEntry, Manifest, RangeEntry, hash_file
from processor.audit.sources.source import RecordingError
from processor.core.stream.identity import Identity
from processor.core.stream.journal import digest
from processor.ports.log import TopicPartition, UnreadableBatchError

from .plan import MissingOffsets, Properties, RecordingOrder, RecordingRefusedError, RecordingWork, utc_now

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

MAX_BUFFERED_LINES = 4_000
MAX_BUFFERED_BYTES = 1 << 20
SAVE_INTERVAL_S = 0.5
"""seconds between two saved manifests, beside one for every file: so much is recorded again after a crash"""
LINE_OVERHEAD_BYTES = 150
"""bytes of a line beside key and payload, about"""
SKIPPED_TEXT = "cannot be read and an operator had them skipped: the journal says so, and an audit does not expect them"
NOT_READ_TEXT = "cannot be read, by the processor neither: the recording ends before them"


class RangeFiles:
    """Appends lines to the last file of a range, and begins another when that has the size it should have.

    What the entries of the range say is always on disk after ``sync``; whatever a file holds beyond its entry was
    written by a process that was killed, and is cut off.
    """

    def __init__(self, folder: Path, entry: RangeEntry, compression: Compression, split_size: int) -> None:
        self._folder, self._entry = folder, entry
        self._compression, self._split_size = compression, split_size
        self._lines: list[RecordedLine] = []
        self._buffered_bytes = 0
        self._file: IO[bytes] | None = None
        self._hash: Hash = sha256()

    def add(self, line: RecordedLine, size: int) -> None:
        """Buffer a line; ``size`` is its approximate size in bytes."""
        self._lines.append(line)
        self._buffered_bytes += size
        if self._buffered_bytes >= MAX_BUFFERED_BYTES or len(self._lines) >= MAX_BUFFERED_LINES:
            self.write()

    def write(self) -> None:
        """Write the buffered lines."""
        if not self._lines:
            return
        data = compress(encode_lines(self._lines), self._compression)
        first, last, count = self._lines[0].offset, self._lines[-1].offset, len(self._lines)
        file, entry = self._open(first)
        file.write(data)
        self._hash.update(data)
        entry.records += count
        entry.bytes += len(data)
        entry.last = last
        self._entry.end = last + 1
        self._lines, self._buffered_bytes = [], 0
        if entry.bytes >= self._split_size:
            self.close()

    def sync(self) -> None:
        """Put everything on disk and into the entries."""
        self.write()
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._entry.files[-1].sha256 = self._hash.hexdigest()

    def close(self) -> None:
        self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, offset: int) -> tuple[IO[bytes], FileEntry]:
        files = self._entry.files
        if self._file is None:
            if files and files[-1].bytes < self._split_size:
                self._file = self._reopen(files[-1])
            else:
                self._file = self._create(offset)
        return self._file, files[-1]

    def _create(self, offset: int) -> IO[bytes]:
        number = len(self._entry.files)
        name = f"{self._entry.topic}/partition-{self._entry.partition:05}-{number:05}{FILE_SUFFIXES[self._compression]}"
        self._entry.files.append(FileEntry(name=name, records=0, first=offset, last=offset, bytes=0, sha256=""))
        self._hash = sha256()
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    def _reopen(self, entry: FileEntry) -> IO[bytes]:
        """The last file of an earlier run, with what came after its last complete piece cut off."""
        path = self._folder / entry.name
        self._hash = hash_file(path, entry.bytes) if path.is_file() else sha256()
        if self._hash.hexdigest() != entry.sha256:
            raise RecordingError(
                f"{path} is not as it was left (SHA-256 differs), so this recording cannot go on. Remedy: record anew "
                "into another folder",
                topic=self._entry.topic,
                partition=self._entry.partition,
                offset=entry.first,
            )
        file = path.open("r+b")
        file.truncate(entry.bytes)
        file.seek(entry.bytes)
        return file


class RecordingResult(msgspec.Struct, frozen=True):
    """The result of a recording."""

    manifest: Manifest
    added: int
    gone: list[MissingOffsets]


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


def write_recording(
    properties: Properties,
    order: RecordingOrder,
    work: RecordingWork,
    progress: Callable[[int], None] = lambda offsets: None,
    clock: Callable[[], float] = time.monotonic,
) -> RecordingResult:
    """Write what is left. ``progress`` gets the number of further offsets recorded."""
    manifest, before = work.manifest, work.manifest.records
    saved, file_count = clock(), 0
    for entry in work.left:
        files = RangeFiles(order.folder, entry, order.compression, order.split_size)
        try:
            position = entry.end
            for messages in _read_messages(properties, work, entry):
                for message in messages:
                    files.add(_message_line(message), LINE_OVERHEAD_BYTES + len(message))
                if entry.role == "journal":
                    _note_head(manifest, entry.partition, messages[-1].value())
                here = (messages[-1].offset() or 0) + 1
                progress(here - position)
                position = here
                if clock() - saved > SAVE_INTERVAL_S or len(entry.files) != file_count:
                    files.sync()
                    manifests.save(order.folder, manifest)
                    saved, file_count = clock(), len(entry.files)
            progress(entry.target - position)
        finally:  # also when a person interrupts it: what is written counts
            files.close()
            manifests.save(order.folder, manifest)
        entry.end = entry.target
    manifest.finished = utc_now()
    manifests.save(order.folder, manifest)
    return RecordingResult(manifest, manifest.records - before, work.gone)


def _read_messages(properties: Properties, work: RecordingWork, entry: RangeEntry) -> Iterator[list[Message]]:
    """What is left of a range, but for batches that cannot be read and that the processor has gone past."""
    position = entry.end
    while True:
        try:
            for messages in fetch(properties, TopicPartition(entry.topic, entry.partition), position, entry.target):
                position = (messages[-1].offset() or 0) + 1
                yield messages
        except UnreadableBatchError as problem:
            offset = max(position, problem.offset)
            after = offset_after_unreadable(
                _read_journal(properties, work, entry, problem), entry.role, offset, problem
            )
            work.gone.append(
                MissingOffsets(
                    entry.topic,
                    entry.partition,
                    after or entry.target,
                    offset,
                    SKIPPED_TEXT if after else NOT_READ_TEXT,
                )
            )
            if after is None:
                entry.target = offset
            else:
                entry.gaps.append((offset, after))
                position = after
                continue
        return


def _read_journal(
    properties: Properties, work: RecordingWork, entry: RangeEntry, problem: UnreadableBatchError
) -> Iterator[list[Message]]:
    for one in work.manifest.ranges:
        if (one.role, one.partition) == ("journal", entry.partition) and entry.role in ("requests", "feedback"):
            return fetch(properties, TopicPartition(one.topic, one.partition), one.start, one.target)
    raise problem


def _message_line(message: Message) -> RecordedLine:
    kind, timestamp = message.timestamp()
    line = RecordedLine(
        message.topic() or "", message.partition() or 0, message.offset() or 0, TSTYPES[kind], timestamp
    )
    headers = message.headers()
    return fill_line(line, message.key(), message.value(), tuple(headers) if headers else ())  # type: ignore[arg-type]


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
