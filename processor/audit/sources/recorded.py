"""A recording with a manifest, and the spool that plain files are taken apart into: both one series per partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from processor.ports.log import Record

from . import manifest
from .lines import read_lists
from .source import RecordingError, Role


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
        files = [manifest.inside(self.folder, file.name) for file in found.files if file.last >= start]
        return ordered(files, found.topic, partition, start)


def ordered(files: Iterable[Path], topic: str, partition: int, start: int) -> Iterator[Record]:
    """The records of files that follow each other, with a look at whether they do."""
    return chain.from_iterable(_ordered_lists(files, topic, partition, start))


def _ordered_lists(files: Iterable[Path], topic: str, partition: int, start: int) -> Iterator[list[Record]]:
    last = -1
    try:
        for path in files:
            for found in read_lists(path):
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
    """A stretch of a plain file with rising offsets of one topic partition."""

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
            return ordered([run.path for run in runs], topic, partition, start)
        pieces = (ordered([run.path], topic, partition, start) for run in runs)
        return _once(merge(*pieces, key=lambda record: record.offset))


def _once(records: Iterable[Record]) -> Iterator[Record]:
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
