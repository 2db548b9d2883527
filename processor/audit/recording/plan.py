"""Which offsets of which topics to record, given the options, the cluster and what the folder already holds."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from processor import __version__
from processor.adapters.kafka.group import describe_cluster
from processor.audit.sources import manifest as manifests
from processor.audit.sources.cluster import (
    Extent,
    KafkaOffsets,
    committed_identities,
    fetch,
    list_settled_extents,
    partition_counts,
)
from processor.audit.sources.line_files import Compression
from processor.audit.sources.manifest import AnchorEntry, Manifest, RangeEntry, RecordingRequest
from processor.audit.sources.source import MANIFEST, RecordingError, Role, parse_role
from processor.core.stream.journal import JournalRecord
from processor.ports.log import TopicPartition

RESULT_MARGIN_MS = 60_000
"""milliseconds before a time from which on results are taken: they are sent a little before their journal record"""
RESULTS: tuple[Role, ...] = ("decisions", "dead_letters", "alerts")
_LIMIT_PATTERN = re.compile(r"([A-Za-z_-]+)(?:/(\d+))?=(.+)")
Properties = Mapping[str, str | int]
DEFAULT_ROLES: tuple[Role, ...] = ("requests", "feedback", "decisions", "journal", "dead_letters", "alerts")


class RecordingRefusedError(RecordingError):
    """What was asked for cannot be had, and a person must decide what to do instead."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One ``--from`` or ``--to``: an offset, or a time in milliseconds, of a topic partition, a topic, or of all."""

    role: Role | None
    partition: int | None
    offset: int | None = None
    time: int | None = None

    @classmethod
    def parse(cls, text: str) -> Limit:
        """
        >>> Limit.parse("requests/1=500")
        Limit(role='requests', partition=1, offset=500, time=None)
        >>> Limit.parse("2026-01-02T03:04:05Z").time
        1767323045000
        """
        placed = _LIMIT_PATTERN.fullmatch(text.strip())
        role = parse_role(placed[1]) if placed else None
        partition = int(placed[2]) if placed and placed[2] else None
        value = placed[3].strip() if placed else text.strip()
        if value.isdigit():
            return cls(role, partition, offset=int(value))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise RecordingError(
                f'"{text}" is neither an offset nor a time: write 1500, 2026-01-31, 2026-01-31T18:00:00Z, or for one '
                "topic requests=1500, or for one partition of it requests/0=1500"
            ) from None
        known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls(role, partition, time=round(known.timestamp() * 1000))


def limit_for(limits: Sequence[Limit], role: Role, partition: int) -> Limit | None:
    """The one that says most about this topic partition.

    >>> limits = [Limit.parse("5"), Limit.parse("requests=7")]
    >>> limit_for(limits, "requests", 0).offset, limit_for(limits, "feedback", 0).offset
    (7, 5)
    """
    fitting = [one for one in limits if one.role in (None, role) and one.partition in (None, partition)]
    return max(fitting, key=lambda one: (one.role is not None) + (one.partition is not None), default=None)


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """What to record of one topic partition, and the offsets before it that are gone."""

    role: Role
    at: TopicPartition
    start: int
    end: int
    gone: int = 0
    """records below this offset are no longer kept; 0 if all are"""


def plan_ranges(
    offsets: KafkaOffsets,
    properties: Mapping[str, str | int],
    places: Mapping[TopicPartition, Role],
    extents: Mapping[TopicPartition, Extent],
    since: Sequence[Limit],
    until: Sequence[Limit],
) -> list[PlannedRange]:
    """The ranges as asked for. Limits by time are widened so that the journal's batches are whole."""
    plan = [_plan_range(offsets, role, at, extents[at], since, until) for at, role in places.items()]
    journals = {one.at.partition: one for one in plan if one.role == "journal"}
    return [
        _widen(one, journals[one.at.partition], properties, extents[one.at], since, until)
        if one.role in ("requests", "feedback") and one.at.partition in journals
        else one
        for one in plan
    ]


def _offset(offsets: KafkaOffsets, at: TopicPartition, limit: Limit, margin: int = 0) -> int | None:
    """The limit as an offset; None for a time after the last record."""
    if limit.time is None:
        return limit.offset
    return offsets.at_time([at], max(0, limit.time - margin))[at]


def _plan_range(
    offsets: KafkaOffsets,
    role: Role,
    at: TopicPartition,
    extent: Extent,
    since: Sequence[Limit],
    until: Sequence[Limit],
) -> PlannedRange:
    first, stable = extent
    begin, finish = limit_for(since, role, at.partition), limit_for(until, role, at.partition)
    if role == "changelog" and begin is not None and begin.role is None:
        begin = None  # the state at the window's start comes from the snapshot before it
    start = first if begin is None else _offset(offsets, at, begin, RESULT_MARGIN_MS if role in RESULTS else 0)
    end = None if finish is None else _offset(offsets, at, finish)
    if begin is not None and begin.offset is not None and begin.offset < first:
        raise RecordingRefusedError(
            f"{at.topic}[{at.partition}]: offsets {begin.offset} to {first - 1} are gone, the topic keeps what is from "
            f"{first} on (retention). Remedy: start at {first}, or record what another copy of the topic still has",
            topic=at.topic,
            partition=at.partition,
            offset=begin.offset,
        )
    start = stable if start is None else min(start, stable)
    end = stable if end is None else min(end, stable)
    gone = first if begin is None and role != "changelog" else 0
    return PlannedRange(role, at, start, max(start, end), gone)


def _widen(
    one: PlannedRange,
    journal: PlannedRange,
    properties: Mapping[str, str | int],
    extent: Extent,
    since: Sequence[Limit],
    until: Sequence[Limit],
) -> PlannedRange:
    """So that the inputs of the first and last batch are whole: events' own times say little about when they came."""
    begin, finish = (limit_for(limits, one.role, one.at.partition) for limits in (since, until))
    start, end = one.start, one.end
    if begin is not None and begin.time is not None and (batch := first_batch(properties, journal)):
        start = min(start, _range(batch, one.role)[0])
        if start < extent[0]:
            raise RecordingRefusedError(
                f"{one.at.topic}[{one.at.partition}]: the first batch of that time ({batch.sequence}) begins at offset "
                f"{start}, and offsets {start} to {extent[0] - 1} are gone (retention). Remedy: ask for a later time",
                topic=one.at.topic,
                partition=one.at.partition,
                offset=start,
            )
    if finish is not None and finish.time is not None and (batch := last_batch(properties, journal)):
        end = min(max(end, _range(batch, one.role)[1]), extent[1])
    return PlannedRange(one.role, one.at, start, max(start, end), one.gone)


def _range(batch: JournalRecord, role: Role) -> tuple[int, int]:
    found = batch.requests if role == "requests" else batch.feedback
    return found.start, found.next


def first_batch(properties: Mapping[str, str | int], journal: PlannedRange) -> JournalRecord | None:
    for messages in fetch(properties, journal.at, journal.start, journal.end):
        for message in messages:
            return _decode_journal(message.value())
    return None


def last_batch(properties: Mapping[str, str | int], journal: PlannedRange) -> JournalRecord | None:
    """Searched from the end in growing steps: there is a marker beside every record."""
    step = 16
    while True:
        begin = max(journal.start, journal.end - step)
        last = None
        for messages in fetch(properties, journal.at, begin, journal.end):
            last = messages[-1].value()
        if last is not None:
            return _decode_journal(last)
        if begin == journal.start:
            return None
        step *= 8


def _decode_journal(value: bytes | None) -> JournalRecord | None:
    try:
        return msgspec.json.decode(value or b"", type=JournalRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, kw_only=True)
class RecordingOrder:
    """What to record, and where to."""

    folder: Path
    topics: Mapping[Role, str]
    """those to record, with their full names"""
    group: str
    prefix: str = ""
    partitions: tuple[int, ...] | None = None
    since: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    compression: Compression = "zstd"
    split_size: int = 256_000_000

    @property
    def asked(self) -> RecordingRequest:
        return RecordingRequest(
            roles=list(self.topics),
            partitions=None if self.partitions is None else list(self.partitions),
            since=list(self.since),
            until=list(self.until),
            compression=self.compression,
        )


class MissingOffsets(msgspec.Struct, frozen=True):
    """Offsets ``since`` to ``until``, not included, of a topic partition that are no longer kept."""

    topic: str
    partition: int
    until: int
    since: int = 0
    why: str = ""
    """if it is not that they are no longer kept"""


@dataclass(frozen=True)
class RecordingWork:
    """A recording with what is still to be written."""

    manifest: Manifest
    left: list[RangeEntry]
    gone: list[MissingOffsets]

    @property
    def offsets(self) -> int:
        return sum(one.target - one.end for one in self.left)


def prepare_work(properties: Properties, order: RecordingOrder) -> RecordingWork:
    """Look at the cluster and at the folder, and settle what is to be recorded. The folder must be ours alone."""
    offsets = KafkaOffsets(properties)
    counts = partition_counts(offsets, order.topics)
    _check_topics(order, counts)
    earlier = _load_earlier(order)
    inputs = [order.topics[role] for role in ("requests", "feedback") if role in order.topics]
    committed = committed_identities(properties, order.group, inputs, min((counts[one] for one in inputs), default=0))
    extents = list_settled_extents(offsets, order.topics, counts)
    since = [] if earlier else [Limit.parse(text) for text in order.since]  # an earlier run has settled where it starts
    until = [Limit.parse(text) for text in order.until]
    plan = plan_ranges(offsets, properties, _partitions_to_record(order, counts), extents, since, until)
    cluster = describe_cluster(properties).name
    work = _resume(earlier, plan, extents, cluster, order) if earlier else _start(plan, cluster, order)
    chosen = {one.at.partition for one in plan if one.role == "journal"}
    for number in chosen:
        anchor = work.manifest.anchors.setdefault(number, AnchorEntry())
        anchor.committed = "" if order.until else committed.get(number, "")
    manifests.save(order.folder, work.manifest)
    return work


def _partitions_to_record(order: RecordingOrder, counts: Mapping[str, int]) -> dict[TopicPartition, Role]:
    """Results are partitioned by key: with another partition count than the journal's, all of them are needed."""
    journal = counts.get(order.topics.get("journal", ""))
    return {
        TopicPartition(topic, number): role
        for role, topic in order.topics.items()
        for number in range(counts[topic])
        if order.partitions is None or number in order.partitions or (role in RESULTS and counts[topic] != journal)
    }


def _check_topics(order: RecordingOrder, counts: Mapping[str, int]) -> None:
    missing = [topic for topic in order.topics.values() if topic not in counts]
    if missing:
        raise RecordingError(f"there is no topic {missing[0]}: check [topics], or choose others with --topics")
    most = max(counts.values())
    if order.partitions and (beyond := [number for number in order.partitions if number >= most]):
        raise RecordingError(f"there is no partition {beyond[0]}: the topics have 0 to {most - 1}")


def _load_earlier(order: RecordingOrder) -> Manifest | None:
    """The recording that is in the folder already."""
    folder = order.folder
    if not (folder / MANIFEST).exists():
        strangers = [path.name for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
        if strangers:
            raise RecordingRefusedError(
                f'{folder} is not empty and holds no recording (there is "{strangers[0]}"): choose another'
            )
        return None
    found = manifests.load(folder)
    was, wanted = found.asked, order.asked
    for name, before, after in (
        ("group", found.group, order.group),
        ("topics", was.roles, wanted.roles),
        ("partitions", was.partitions, wanted.partitions),
        ("from", was.since, wanted.since),
        ("compress", was.compression, wanted.compression),
    ):
        if before != after:
            raise RecordingRefusedError(
                f"{folder} holds a recording that was asked for with another {name} ({before}, now {after}): ask for "
                "the same to go on with it, or choose another folder"
            )
    return found


def _start(plan: list[PlannedRange], cluster: str, order: RecordingOrder) -> RecordingWork:
    ranges = [
        RangeEntry(
            role=one.role,
            topic=one.at.topic,
            partition=one.at.partition,
            start=one.start,
            end=one.start,
            target=one.end,
        )
        for one in plan
    ]
    fresh = Manifest(
        version=__version__,
        created=utc_now(),
        finished=None,
        cluster=cluster,
        group=order.group,
        prefix=order.prefix,
        asked=order.asked,
        ranges=ranges,
    )
    gone = [MissingOffsets(one.at.topic, one.at.partition, one.gone) for one in plan if one.gone]
    return RecordingWork(fresh, [one for one in ranges if one.end < one.target], gone)


def _resume(
    earlier: Manifest,
    plan: list[PlannedRange],
    extents: Mapping[TopicPartition, Extent],
    cluster: str,
    order: RecordingOrder,
) -> RecordingWork:
    """Go on where the recording ends."""
    if earlier.cluster != cluster:
        raise RecordingRefusedError(
            f"{order.folder} holds a recording of the cluster {earlier.cluster}, and this is {cluster}: choose another "
            "folder"
        )
    known = {TopicPartition(one.topic, one.partition): one for one in earlier.ranges}
    gone: list[MissingOffsets] = []
    for planned in plan:
        at = planned.at
        entry = known.get(at)
        if entry is None:
            raise RecordingRefusedError(
                f"{at.topic}[{at.partition}] is not in the recording in {order.folder}: choose another folder"
            )
        entry.target = max(entry.end, planned.end)
        first = extents[at][0]
        if entry.end < min(first, entry.target):
            if entry.role == "changelog":  # trimmed behind a later snapshot, which what is left begins with
                gone.append(MissingOffsets(at.topic, at.partition, first, entry.end))
                entry.gaps.append((entry.end, first))
                entry.end = first
                continue
            raise RecordingRefusedError(
                f"{at.topic}[{at.partition}] was recorded up to {entry.end}, and offsets {entry.end} to {first - 1} "
                "are gone (retention). Remedy: keep this recording as it is, and record the rest into another folder",
                topic=at.topic,
                partition=at.partition,
                offset=entry.end,
            )
    earlier.finished, earlier.version, earlier.asked = None, __version__, order.asked
    for entry in earlier.ranges:
        trim_files(order.folder, entry)
    return RecordingWork(earlier, [one for one in earlier.ranges if one.end < one.target], gone)


def trim_files(folder: Path, entry: RangeEntry) -> None:
    """Cut off what a killed run left beyond the entries, whether or not anything is added now."""
    for file in entry.files:
        path = folder / file.name
        if path.is_file() and path.stat().st_size > file.bytes:
            os.truncate(path, file.bytes)
    known = {file.name for file in entry.files}
    for path in (folder / entry.topic).glob(f"partition-{entry.partition:05}-*.jsonl*"):
        if path.relative_to(folder).as_posix() not in known:
            path.unlink()


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
