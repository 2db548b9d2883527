"""The sources that read files: a recording with a manifest, and plain files in the shape of ``kcat -J``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from processor.ports.log import Record

from . import manifest
from .line_files import TruncatedFileError, UnreadableFileError, compress, line_chunks, read_record_lists
from .source import RecordingError, Role, assign_roles

PLAIN_SUFFIXES = (".jsonl", ".json", ".gz", ".zst", ".ndjson")
MAX_RUNS_PER_PARTITION = 200
"""of one topic partition: all of them are open at once while they are merged"""
_SPOOL_BUFFER_BYTES = 1 << 20
"""bytes of one topic partition that are held before they are written"""
_LINE_START = re.compile(rb'\{"topic":"([A-Za-z0-9._-]+)","partition":(\d{1,9}),"offset":(\d{1,18}),')
"""how kcat begins a line, which saves parsing it"""


class RecordedSource:
    """See ``sources.Source``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = manifest.load(folder)

    def partitions(self, role: Role = "journal") -> list[int]:
        return sorted(one.partition for one in self.manifest.ranges if one.role == role)

    def has(self, role: Role) -> bool:
        return any(one.role == role for one in self.manifest.ranges)

    def topic(self, role: Role) -> str:
        return next((one.topic for one in self.manifest.ranges if one.role == role), role)

    def bounds(self, role: Role, partition: int) -> tuple[int, int] | None:
        found = self.manifest.range_of(role, partition)
        return (found.start, found.end) if found else None

    def gaps(self, role: Role, partition: int) -> list[tuple[int, int]] | None:
        found = self.manifest.range_of(role, partition)
        return found.gaps if found else None

    def anchor(self, partition: int) -> str | None:
        found = self.manifest.anchors.get(partition)
        return (found.committed or found.head or None) if found else None

    def read(self, role: Role, partition: int, start: int = 0) -> Iterator[Record]:
        found = self.manifest.range_of(role, partition)
        if found is None:
            return iter(())
        files = [manifest.file_inside(self.folder, file.name) for file in found.files if file.last >= start]
        return read_ordered(files, found.topic, partition, start)


def read_ordered(files: Iterable[Path], topic: str, partition: int, start: int) -> Iterator[Record]:
    """The records of files that follow each other, with a look at whether they do."""
    return chain.from_iterable(_read_ordered_lists(files, topic, partition, start))


def _read_ordered_lists(files: Iterable[Path], topic: str, partition: int, start: int) -> Iterator[list[Record]]:
    last = -1
    try:
        for path in files:
            for found in read_record_lists(path):
                for i, record in enumerate(found):
                    offset = record.offset
                    if offset <= last or record.partition != partition or record.topic != topic:
                        yield [before for before in found[:i] if before.offset >= start]
                        raise RecordingError(
                            f"{path}: {record.topic}[{record.partition}] offset {offset} is not where it belongs, it "
                            f"comes after {topic}[{partition}] offset {last}",
                            topic=record.topic,
                            partition=record.partition,
                            offset=offset,
                        )
                    last = offset
                yield found if found[0].offset >= start else [one for one in found if one.offset >= start]
    except RecordingError as problem:
        if not problem.topic:
            problem.topic, problem.partition, problem.offset = topic, partition, last + 1
        raise


class FileRun(NamedTuple):
    """A run of a plain file with rising offsets of one topic partition."""

    path: Path
    first: int
    last: int


class SpooledSource:
    """Plain files, taken apart. Nothing is known about them but what they hold."""

    def __init__(self, topics: dict[Role, str], runs: dict[tuple[str, int], list[FileRun]]) -> None:
        self._topics = topics
        self._runs = {place: sorted(found, key=lambda run: run.first) for place, found in runs.items()}

    def partitions(self, role: Role = "journal") -> list[int]:
        return sorted(partition for topic, partition in self._runs if topic == self._topics.get(role))

    def has(self, role: Role) -> bool:
        return role in self._topics

    def topic(self, role: Role) -> str:
        return self._topics.get(role, role)

    def bounds(self, role: Role, partition: int) -> tuple[int, int] | None:
        return None

    def gaps(self, role: Role, partition: int) -> list[tuple[int, int]] | None:
        return None

    def anchor(self, partition: int) -> str | None:
        return None

    def read(self, role: Role, partition: int, start: int = 0) -> Iterator[Record]:
        topic = self._topics.get(role, "")
        runs = [run for run in self._runs.get((topic, partition), ()) if run.last >= start]
        if all(before.last < after.first for before, after in pairwise(runs)):
            return read_ordered([run.path for run in runs], topic, partition, start)
        parts = (read_ordered([run.path], topic, partition, start) for run in runs)
        return _without_repeats(merge(*parts, key=lambda record: record.offset))


def _without_repeats(records: Iterable[Record]) -> Iterator[Record]:
    """Files that overlap hold some records twice, which is fine if they agree."""
    last: Record | None = None
    for record in records:
        if last is None or record.offset != last.offset:
            yield record
        elif record != last:
            raise RecordingError(
                f"{record.topic}[{record.partition}] offset {record.offset} is there twice with different content",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
        last = record


class LineHead(msgspec.Struct, gc=False):
    """The part of a line that says where it belongs."""

    topic: str
    partition: int
    offset: int


_DECODER = msgspec.json.Decoder(LineHead)


def find_files(paths: Iterable[Path]) -> list[Path]:
    """The files that are meant: those named, and those in the folders named."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.is_file() and one.name.endswith(PLAIN_SUFFIXES))
            if not inside:
                raise RecordingError(
                    f"{path} has no manifest.json and no file that ends in {', '.join(PLAIN_SUFFIXES)}"
                )
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise RecordingError(f"{path} does not exist")
    return found


def spool_files(files: Sequence[Path], folder: Path, topics: Mapping[Role, str] | None = None) -> SpooledSource:
    """Take the files apart into ``folder``."""
    spool = _Spool(folder)
    for path in files:
        spool.take(path)
    runs = spool.runs()
    names = sorted({topic for topic, _ in runs})
    roles = assign_roles(names, topics)
    if not roles:
        raise RecordingError(
            f"none of the topics in these files is known ({', '.join(names) or 'they are empty'}): name them"
        )
    return SpooledSource(roles, runs)


class _RunWriter:
    """The run that is being written."""

    def __init__(self, path: Path, first: int) -> None:
        self.path, self.first, self.last = path, first, first
        self.lines: list[bytes] = []
        self.held = 0

    def write(self) -> None:
        if self.lines:
            with self.path.open("ab") as file:
                file.write(compress(b"\n".join(self.lines) + b"\n", "zstd"))
            self.lines, self.held = [], 0


class _Spool:
    """Writes every line to the file of its topic and partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run_count = 0
        self._runs: dict[tuple[str, int], list[_RunWriter]] = {}

    def take(self, path: Path) -> None:
        number = 0
        fresh: set[tuple[str, int]] = set()
        try:
            for chunk in line_chunks(path):
                for line in chunk.split(b"\n"):
                    number += 1
                    if line and not line.isspace():
                        self._add(line, fresh)
        except (TruncatedFileError, UnreadableFileError) as problem:
            raise RecordingError(f"{path} {problem}, after line {number}") from None
        except (msgspec.MsgspecError, ValueError) as problem:
            raise RecordingError(
                f"{path} line {number} is no record in the shape of `kcat -J`: {problem}. Remedy: record with "
                "`kcat -C -J -e -q`, so that nothing else is among the lines"
            ) from None

    def _add(self, line: bytes, fresh: set[tuple[str, int]]) -> None:
        topic, partition, offset = _locate_line(line)
        place = (topic, partition)
        runs = self._runs.setdefault(place, [])
        if place not in fresh or offset <= runs[-1].last:
            fresh.add(place)
            self._start_run(place, runs, offset)
        run = runs[-1]
        run.last = offset
        run.lines.append(line)
        run.held += len(line)
        if run.held > _SPOOL_BUFFER_BYTES:
            run.write()

    def _start_run(self, place: tuple[str, int], runs: list[_RunWriter], offset: int) -> None:
        if runs:
            runs[-1].write()
        if len(runs) >= MAX_RUNS_PER_PARTITION:
            raise RecordingError(
                f"{place[0]}[{place[1]}] goes back in its offsets more than {MAX_RUNS_PER_PARTITION} times, "
                f"last to {offset}. Remedy: sort the files by offset",
                topic=place[0],
                partition=place[1],
                offset=offset,
            )
        self._run_count += 1
        runs.append(_RunWriter(self._folder / f"{self._run_count:06}.jsonl.zst", offset))

    def runs(self) -> dict[tuple[str, int], list[FileRun]]:
        """What was written, by topic and partition."""
        for run in self._all():
            run.write()
        return {place: [FileRun(one.path, one.first, one.last) for one in runs] for place, runs in self._runs.items()}

    def _all(self) -> Iterator[_RunWriter]:
        for runs in self._runs.values():
            yield from runs


def _locate_line(line: bytes) -> tuple[str, int, int]:
    if head := _LINE_START.match(line):
        return head[1].decode(), int(head[2]), int(head[3])
    try:
        found = _DECODER.decode(line)
    except UnicodeDecodeError:
        found = _DECODER.decode(line.decode("latin-1"))
    return found.topic, found.partition, found.offset
