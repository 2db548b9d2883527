"""Which offsets of which topics to record: what was asked for, held against what there is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from processor.audit.sources.cluster import fetched
from processor.audit.sources.offsets import Extent, KafkaOffsets
from processor.audit.sources.source import RecordingError, Role, role_named
from processor.core.stream.journal import JournalRecord
from processor.ports.log import TopicPartition

MARGIN = 60_000
"""milliseconds before a time from which on results are taken: they are sent a little before their journal record"""
RESULTS: tuple[Role, ...] = ("decisions", "dead_letters", "alerts")
_PLACED = re.compile(r"([A-Za-z_-]+)(?:/(\d+))?=(.+)")


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
        placed = _PLACED.fullmatch(text.strip())
        role = role_named(placed[1]) if placed else None
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
class Stretch:
    """What to record of one topic partition, and the offsets before it that are gone."""

    role: Role
    at: TopicPartition
    start: int
    end: int
    gone: int = 0
    """records below this offset are no longer kept; 0 if all are"""


def planned(
    offsets: KafkaOffsets,
    properties: Mapping[str, str | int],
    places: Mapping[TopicPartition, Role],
    extents: Mapping[TopicPartition, Extent],
    since: Sequence[Limit],
    until: Sequence[Limit],
) -> list[Stretch]:
    """The stretches as asked for. Limits by time are widened so that the journal's batches are whole."""
    plan = [_stretch(offsets, role, at, extents[at], since, until) for at, role in places.items()]
    journals = {one.at.partition: one for one in plan if one.role == "journal"}
    return [
        _widened(one, journals[one.at.partition], properties, extents[one.at], since, until)
        if one.role in ("requests", "feedback") and one.at.partition in journals
        else one
        for one in plan
    ]


def _offset(offsets: KafkaOffsets, at: TopicPartition, limit: Limit, margin: int = 0) -> int | None:
    """The limit as an offset; None for a time after the last record."""
    if limit.time is None:
        return limit.offset
    return offsets.at_time([at], max(0, limit.time - margin))[at]


def _stretch(
    offsets: KafkaOffsets,
    role: Role,
    at: TopicPartition,
    extent: Extent,
    since: Sequence[Limit],
    until: Sequence[Limit],
) -> Stretch:
    first, stable = extent
    begin, finish = limit_for(since, role, at.partition), limit_for(until, role, at.partition)
    if role == "changelog" and begin is not None and begin.role is None:
        begin = None  # the state at the window's start comes from the snapshot before it
    start = first if begin is None else _offset(offsets, at, begin, MARGIN if role in RESULTS else 0)
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
    return Stretch(role, at, start, max(start, end), gone)


def _widened(
    one: Stretch,
    journal: Stretch,
    properties: Mapping[str, str | int],
    extent: Extent,
    since: Sequence[Limit],
    until: Sequence[Limit],
) -> Stretch:
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
    return Stretch(one.role, one.at, start, max(start, end), one.gone)


def _range(batch: JournalRecord, role: Role) -> tuple[int, int]:
    found = batch.requests if role == "requests" else batch.feedback
    return found.start, found.next


def first_batch(properties: Mapping[str, str | int], journal: Stretch) -> JournalRecord | None:
    for messages in fetched(properties, journal.at, journal.start, journal.end):
        for message in messages:
            return _batch(message.value())
    return None


def last_batch(properties: Mapping[str, str | int], journal: Stretch) -> JournalRecord | None:
    """Searched from the end in growing steps: there is a marker beside every record."""
    step = 16
    while True:
        begin = max(journal.start, journal.end - step)
        last = None
        for messages in fetched(properties, journal.at, begin, journal.end):
            last = messages[-1].value()
        if last is not None:
            return _batch(last)
        if begin == journal.start:
            return None
        step *= 8


def _batch(value: bytes | None) -> JournalRecord | None:
    try:
        return msgspec.json.decode(value or b"", type=JournalRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
