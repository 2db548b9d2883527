"""The files of one topic partition: written piece by piece, and gone on with after an interruption."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

from processor.audit.sources.compression import ENDINGS, Compression, compressed
from processor.audit.sources.lines import RecordedLine, encoded
from processor.audit.sources.manifest import FileEntry, RangeEntry, file_hash
from processor.audit.sources.source import RecordingError

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

PIECE_LINES = 4_000
PIECE_BYTES = 1 << 20


class Series:
    """Appends lines to the last file of a range, and begins another when that has the size it should have.

    What the entries of the range say is always on disk after ``sync``; whatever a file holds beyond its entry was
    written by a process that was killed, and is cut off.
    """

    def __init__(self, folder: Path, entry: RangeEntry, compression: Compression, split_size: int) -> None:
        self._folder, self._entry = folder, entry
        self._compression, self._split_size = compression, split_size
        self._lines: list[RecordedLine] = []
        self._held = 0
        self._file: IO[bytes] | None = None
        self._hash: Hash = sha256()

    def add(self, line: RecordedLine, size: int) -> None:
        """Take a line; ``size`` is about what it will weigh."""
        self._lines.append(line)
        self._held += size
        if self._held >= PIECE_BYTES or len(self._lines) >= PIECE_LINES:
            self.write()

    def write(self) -> None:
        """Write what is held."""
        if not self._lines:
            return
        data = compressed(encoded(self._lines), self._compression)
        first, last, count = self._lines[0].offset, self._lines[-1].offset, len(self._lines)
        file, entry = self._open(first)
        file.write(data)
        self._hash.update(data)
        entry.records += count
        entry.bytes += len(data)
        entry.last = last
        self._entry.end = last + 1
        self._lines, self._held = [], 0
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
                self._file = self._again(files[-1])
            else:
                self._file = self._fresh(offset)
        return self._file, files[-1]

    def _fresh(self, offset: int) -> IO[bytes]:
        number = len(self._entry.files)
        name = f"{self._entry.topic}/partition-{self._entry.partition:05}-{number:05}{ENDINGS[self._compression]}"
        self._entry.files.append(FileEntry(name=name, records=0, first=offset, last=offset, bytes=0, sha256=""))
        self._hash = sha256()
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    def _again(self, entry: FileEntry) -> IO[bytes]:
        """The last file of an earlier run, with what came after its last complete piece cut off."""
        path = self._folder / entry.name
        self._hash = file_hash(path, entry.bytes) if path.is_file() else sha256()
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


def trimmed(folder: Path, entry: RangeEntry) -> None:
    """Cut off what a killed run left beyond the entries, whether or not anything is added now."""
    for file in entry.files:
        path = folder / file.name
        if path.is_file() and path.stat().st_size > file.bytes:
            os.truncate(path, file.bytes)
    known = {file.name for file in entry.files}
    for path in (folder / entry.topic).glob(f"partition-{entry.partition:05}-*.jsonl*"):
        if path.relative_to(folder).as_posix() not in known:
            path.unlink()
