"""Play a recording: send its records to other topics, in the order and at the pace they had."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Protocol

from processor.adapters.kafka.group import describe_cluster
from processor.audit.sources.cluster import KafkaOffsets
from processor.audit.sources.file_sources import RecordedSource
from processor.audit.sources.source import RecordingError, Role, Source, parse_role
from processor.ports.log import Headers, Record

from .plan import RecordingRefusedError

BY_KEY = -1
_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?)x?")


def target_topics(source: Source, roles: Iterable[Role], into: Sequence[str]) -> dict[Role, str]:
    """The topic for each role: named one by one, else the recorded name with the prefix in place of its own."""
    named = {parse_role(text.partition("=")[0]): text.partition("=")[2] for text in into if "=" in text}
    prefixes = [text for text in into if "=" not in text]
    if len(prefixes) > 1:
        raise RecordingError(f'both "{prefixes[0]}" and "{prefixes[1]}" are prefixes to play into: give one')
    found: dict[Role, str] = {}
    for role in roles:
        if not source.has(role):
            raise RecordingError(f"the recording has no {role.replace('_', '-')}: choose others with --topics")
        if role in named:
            found[role] = named[role]
        elif prefixes:
            found[role] = prefixes[0] + _topic_without_prefix(source, role)
        else:
            raise RecordingError(f"where are the {role} to go? Name it: --into {role}=TOPIC")
    return found


def _topic_without_prefix(source: Source, role: Role) -> str:
    """Without the prefix it was recorded with, where that is known; else the role's usual name."""
    if isinstance(source, RecordedSource):
        return source.topic(role).removeprefix(source.manifest.prefix)
    return role.replace("_", "-")


def check_targets(
    properties: Mapping[str, str | int],
    source: Source,
    named: Mapping[Role, str],
    same_partitions: bool,
    into_the_same: bool,
) -> None:
    """The topics exist, can hold the partitions, and are not the recorded ones by mistake."""
    elsewhere = isinstance(source, RecordedSource) and source.manifest.cluster != describe_cluster(properties).name
    recorded = {source.topic(role) for role in named}
    counts = KafkaOffsets(properties).partitions(list(named.values()))
    for role, topic in named.items():
        if topic in recorded and not elsewhere and not into_the_same:
            raise RecordingRefusedError(
                f"{topic} is what was recorded: playing into it would decide everything again. Name other topics with "
                "--into, or say --yes-into-the-same"
            )
        if topic not in counts:
            raise RecordingError(f"there is no topic {topic}: create it, or name others with --into")
        most = max(source.partitions(role), default=-1)
        if same_partitions and most >= counts[topic]:
            raise RecordingRefusedError(
                f"{topic} has {counts[topic]} partitions and the recording goes to number {most}: create the topic "
                f"with {most + 1}, or leave out --same-partitions"
            )


def count_records(source: Source, roles: Iterable[Role]) -> int | None:
    """How many there are, where somebody counted."""
    if not isinstance(source, RecordedSource):
        return None
    wanted = set(roles)
    return sum(one.records for one in source.manifest.ranges if one.role in wanted)


def parse_speed(text: str) -> float:
    """How many times as fast as it was; 0 is as fast as possible.

    >>> parse_speed("original"), parse_speed("20x"), parse_speed("0.5x"), parse_speed("max")
    (1.0, 20.0, 0.5, 0.0)
    """
    if text in ("original", "max"):
        return 1.0 if text == "original" else 0.0
    found = _SPEED.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise RecordingError(f'"{text}" is no pace: write original, max, or how many times as fast, as 20x or 0.5x')
    return float(found[1])


@dataclass(frozen=True, kw_only=True)
class Play:
    """What to play, where to and how."""

    topics: Mapping[Role, str]
    """the topics to send to; roles that are not here are not played"""
    speed: float
    keep_timestamps: bool = True
    same_partitions: bool = False
    """else each record goes where murmur2 puts its key"""


class PlaySender(Protocol):
    """What playing needs of a producer."""

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int
    ) -> None: ...

    def poll(self, timeout: float) -> None: ...

    def flush(self) -> None: ...


def records_by_time(source: Source, roles: Iterable[Role]) -> Iterator[tuple[int, Role, Record]]:
    """All records by their time, each partition in its own order.

    Timestamps may go back within a partition. So a record is due when the latest before it was, and never earlier.
    """

    def due(role: Role, partition: int) -> Iterator[tuple[int, Role, Record]]:
        latest = 0
        for record in source.read(role, partition):
            latest = max(latest, record.timestamp)
            yield latest, role, record

    parts = [due(role, partition) for role in roles for partition in source.partitions(role)]
    return merge(*parts, key=lambda each: each[0])


def play_records(
    source: Source,
    play: Play,
    sender: PlaySender,
    progress: Callable[[Role], None] = lambda role: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Counter[Role]:
    """Send everything; how many records of each role."""
    counts: Counter[Role] = Counter()
    began, first = clock(), 0
    for at, role, record in records_by_time(source, play.topics):
        if play.speed:
            first = first or at
            _wait(sender, began + (at - first) / 1_000 / play.speed, clock, sleep)
        sender.send(
            play.topics[role],
            record.key,
            record.value,
            max(record.timestamp, 0) if play.keep_timestamps else 0,
            record.headers,
            record.partition if play.same_partitions else BY_KEY,
        )
        counts[role] += 1
        progress(role)
    sender.flush()
    return counts


def _wait(sender: PlaySender, until: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    while (left := until - clock()) > 0:
        sender.poll(min(left, 0.1))  # returns at once when something was delivered
        if (left := until - clock()) > 0:
            sleep(min(left, 0.02))
