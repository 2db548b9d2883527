"""What a recording is to hold: the order, held against the cluster and against what the folder holds already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from processor import __version__
from processor.adapters.kafka.group import describe_cluster
from processor.audit.sources import manifest as manifests
from processor.audit.sources.cluster import settled_extents
from processor.audit.sources.compression import Compression
from processor.audit.sources.manifest import AnchorEntry, Manifest, RangeEntry, RecordingRequest
from processor.audit.sources.offsets import Extent, KafkaOffsets, committed_identities, counts_of
from processor.audit.sources.source import MANIFEST, RecordingError, Role
from processor.ports.log import TopicPartition

from .ranges import RESULTS, Limit, RecordingRefusedError, Stretch, planned
from .series import trimmed

Properties = Mapping[str, str | int]

DEFAULT_ROLES: tuple[Role, ...] = ("requests", "feedback", "decisions", "journal", "dead_letters", "alerts")


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


class Gone(msgspec.Struct, frozen=True):
    """Offsets ``since`` to ``until``, not included, of a topic partition that are no longer kept."""

    topic: str
    partition: int
    until: int
    since: int = 0
    why: str = ""
    """if it is not that they are no longer kept"""


@dataclass(frozen=True)
class Work:
    """A recording with what is still to be written."""

    manifest: Manifest
    left: list[RangeEntry]
    gone: list[Gone]

    @property
    def offsets(self) -> int:
        return sum(one.target - one.end for one in self.left)


def prepared(properties: Properties, order: RecordingOrder) -> Work:
    """Look at the cluster and at the folder, and settle what is to be recorded. The folder must be ours alone."""
    offsets = KafkaOffsets(properties)
    counts = counts_of(offsets, order.topics)
    _check(order, counts)
    earlier = _earlier(order)
    inputs = [order.topics[role] for role in ("requests", "feedback") if role in order.topics]
    committed = committed_identities(properties, order.group, inputs, min((counts[one] for one in inputs), default=0))
    extents = settled_extents(offsets, order.topics, counts)
    since = [] if earlier else [Limit.parse(text) for text in order.since]  # an earlier run has settled where it starts
    until = [Limit.parse(text) for text in order.until]
    plan = planned(offsets, properties, _places(order, counts), extents, since, until)
    cluster = describe_cluster(properties).name
    work = _resumed(earlier, plan, extents, cluster, order) if earlier else _begun(plan, cluster, order)
    chosen = {one.at.partition for one in plan if one.role == "journal"}
    for number in chosen:
        anchor = work.manifest.anchors.setdefault(number, AnchorEntry())
        anchor.committed = "" if order.until else committed.get(number, "")
    manifests.save(order.folder, work.manifest)
    return work


def _places(order: RecordingOrder, counts: Mapping[str, int]) -> dict[TopicPartition, Role]:
    """Results are partitioned by key: with another partition count than the journal's, all of them are needed."""
    journal = counts.get(order.topics.get("journal", ""))
    return {
        TopicPartition(topic, number): role
        for role, topic in order.topics.items()
        for number in range(counts[topic])
        if order.partitions is None or number in order.partitions or (role in RESULTS and counts[topic] != journal)
    }


def _check(order: RecordingOrder, counts: Mapping[str, int]) -> None:
    missing = [topic for topic in order.topics.values() if topic not in counts]
    if missing:
        raise RecordingError(f"there is no topic {missing[0]}: check [topics], or choose others with --topics")
    most = max(counts.values())
    if order.partitions and (beyond := [number for number in order.partitions if number >= most]):
        raise RecordingError(f"there is no partition {beyond[0]}: the topics have 0 to {most - 1}")


def _earlier(order: RecordingOrder) -> Manifest | None:
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


def _begun(plan: list[Stretch], cluster: str, order: RecordingOrder) -> Work:
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
        created=now(),
        finished=None,
        cluster=cluster,
        group=order.group,
        prefix=order.prefix,
        asked=order.asked,
        ranges=ranges,
    )
    gone = [Gone(one.at.topic, one.at.partition, one.gone) for one in plan if one.gone]
    return Work(fresh, [one for one in ranges if one.end < one.target], gone)


def _resumed(
    earlier: Manifest,
    plan: list[Stretch],
    extents: Mapping[TopicPartition, Extent],
    cluster: str,
    order: RecordingOrder,
) -> Work:
    """Go on where the recording ends."""
    if earlier.cluster != cluster:
        raise RecordingRefusedError(
            f"{order.folder} holds a recording of the cluster {earlier.cluster}, and this is {cluster}: choose another "
            "folder"
        )
    known = {TopicPartition(one.topic, one.partition): one for one in earlier.ranges}
    gone: list[Gone] = []
    for stretch in plan:
        at = stretch.at
        entry = known.get(at)
        if entry is None:
            raise RecordingRefusedError(
                f"{at.topic}[{at.partition}] is not in the recording in {order.folder}: choose another folder"
            )
        entry.target = max(entry.end, stretch.end)
        first = extents[at][0]
        if entry.end < min(first, entry.target):
            if entry.role == "changelog":  # trimmed behind a later snapshot, which what is left begins with
                gone.append(Gone(at.topic, at.partition, first, entry.end))
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
        trimmed(order.folder, entry)
    return Work(earlier, [one for one in earlier.ranges if one.end < one.target], gone)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
