"""A stream with everything in it, run through the real processor on the in-memory log, and kept as a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.adapters.memory.store import MemoryStore
from processor.audit.sources.source import ROLES, Role
from processor.config import Config
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.partitioner import partition_of
from processor.ports.log import Committed, Record, TopicPartition
from processor.run.assembly import stream_settings, topics_of
from processor.service.worker import LoopSettings, Worker

START = 1_700_000_000_000
GROUP = "gforce"


@dataclass
class MemorySource:
    """A ``Source`` in memory, to be tampered with."""

    records: dict[tuple[Role, int], list[Record]]
    topics: dict[Role, str]
    limits: dict[tuple[Role, int], tuple[int, int]] = field(default_factory=dict)
    anchors: dict[int, str] = field(default_factory=dict)
    holes: dict[tuple[Role, int], list[tuple[int, int]]] = field(default_factory=dict)

    def partitions(self, role: Role = "journal") -> list[int]:
        return sorted(number for there, number in self.records if there == role)

    def read(self, role: Role, partition: int, start: int = 0) -> Iterator[Record]:
        return (record for record in self.records.get((role, partition), ()) if record.offset >= start)

    def has(self, role: Role) -> bool:
        return any(there == role for there, _ in self.records)

    def topic(self, role: Role) -> str:
        return self.topics[role]

    def bounds(self, role: Role, partition: int) -> tuple[int, int] | None:
        return self.limits.get((role, partition))

    def gaps(self, role: Role, partition: int) -> list[tuple[int, int]] | None:
        return self.holes.get((role, partition), [])

    def anchor(self, partition: int) -> str | None:
        return self.anchors.get(partition)


@dataclass(frozen=True)
class Event:
    at: int
    role: Role
    tenant: str
    value: bytes


@dataclass(frozen=True)
class Shape:
    """Of one tenant's stream."""

    labels: tuple[str, ...]
    groups: tuple[str, ...]
    experts: int = 3
    late: tuple[int, ...] = (-2_000, 500, 4_000, 30_000, 400_000)
    """delays of labels in milliseconds; some come before their request, some after their decision expired"""
    labelled: float = 0.9
    skew: float = 0.0
    """how much more often experts are wrong about the last group"""
    weight: int = 1
    """how many requests come for each of another tenant"""


def events(shapes: dict[str, Shape], count: int, seed: int, step: int = 100) -> list[Event]:
    """``count`` requests, one every ``step`` milliseconds, with their labels and everything that goes wrong."""
    rng = Random(seed)
    found: list[Event] = []

    def add(at: int, role: Role, tenant: str, payload: Any) -> None:
        value = payload if isinstance(payload, bytes) else json.dumps(payload, separators=(",", ":")).encode()
        found.append(Event(START + max(at, 0), role, tenant, value))

    names = [name for name, shape in shapes.items() for _ in range(shape.weight)]
    for i in range(count):
        tenant = rng.choice(names)
        shape, at = shapes[tenant], i * step
        group, truth = rng.choice(shape.groups), rng.choice(shape.labels)
        wrong = 0.2 + (shape.skew if group == shape.groups[-1] else 0.0)
        said = {
            f"e{f}": rng.choice([y for y in shape.labels if y != truth]) if rng.random() < wrong else truth
            for f in range(shape.experts)
            if f == 0 or rng.random() < 0.9
        }
        request = {"tenant": tenant, "decision_id": f"d{i}", "group": group, "predictions": said}
        if rng.random() < 0.2:
            request["context"] = {"case": i}
        add(at, "requests", tenant, request)
        if rng.random() < 0.03:
            add(at + 900, "requests", tenant, request)
        if rng.random() < 0.02:
            add(at + 900, "requests", tenant, {**request, "group": "other"})
        if rng.random() < shape.labelled:
            late = rng.choice(shape.late)
            feedback = {"tenant": tenant, "decision_id": f"d{i}", "label": truth}
            add(at + late, "feedback", tenant, feedback)
            if rng.random() < 0.03:
                add(at + late + 700, "feedback", tenant, feedback)
            if rng.random() < 0.02:
                other = next(y for y in shape.labels if y != truth)
                add(at + late + 700, "feedback", tenant, {**feedback, "label": other})
        if rng.random() < 0.01:
            add(at, rng.choice(["requests", "feedback"]), tenant, b"\xff not json")
        if rng.random() < 0.01:
            add(at, "feedback", tenant, {"tenant": tenant, "decision_id": f"nobody{i}", "label": truth})
    return sorted(found, key=lambda event: event.at)


SHAPES = {
    "bank": Shape(("deny", "grant"), ("A", "B"), skew=0.5),
    "shop": Shape(("low", "mid", "high"), ("x", "y", "z")),
    "lender": Shape(("no", "yes"), ("A", "B")),
    "clinic": Shape(("false", "true"), ("f", "m"), experts=2),
    "stranger": Shape(("a", "b"), ("A", "B"), labelled=0.2),
}
"""The tenants of ``gforce.toml``, and one it does not know."""

PACE = LoopSettings(commit_interval=0, most_records=60, grace=1_000, snapshot_bytes=5_000, slice_bytes=3_000)


class Running:
    """A processor and its log; a restart may bring another configuration."""

    def __init__(self, config: Config, partitions: int, loop_settings: LoopSettings = PACE) -> None:
        self.now = START
        self.seen: set[tuple[str, str, int]] = set()
        """alerts somebody has looked at"""
        self._tick = 0
        self.topics = topics_of(config)
        self.broker = MemoryBroker(lambda: self.now)
        self.partitions, self.loop_settings, self.store = partitions, loop_settings, MemoryStore()
        for topic in vars(self.topics).values():
            self.broker.create_topic(topic, partitions)
        self._drawn = 0
        self.start(config)

    def start(self, config: Config) -> None:
        self.worker = Worker(
            topics=self.topics,
            make_input=lambda listener: MemoryInput(self.broker, "one", GROUP, self.topics.sources, listener),
            make_output=lambda: MemoryOutput(self.broker, "one"),
            reader=MemoryReader(self.broker),
            store=self.store,
            stream_settings=stream_settings(config),
            loop_settings=self.loop_settings,
            wall_ms=lambda: self.now,
            monotonic_ms=self._time,
            entropy=self._entropy,
        )

    def restart(self, config: Config) -> None:
        self.worker.drain()
        self.worker.close()
        self.start(config)

    def reset(self, config: Config, lineage: str, earliest: bool) -> None:
        """Begin a new lineage, as ``gforce reset`` does, where the group was or at the first record."""
        self.worker.drain()
        self.worker.close()
        self.broker.land_markers()
        committed = self.broker.group(GROUP).committed
        for at, (order, was) in committed.items():
            start = Identity(lineage, 0, GENESIS)
            committed[at] = (order, Committed(0 if earliest else was.offset, start.text()))
        self.start(config)

    def _time(self) -> int:
        self._tick += 5
        return self._tick

    def _entropy(self, size: int) -> bytes:
        """The same in every run, so that a record can be made again."""
        self._drawn += 1
        return blake2b(self._drawn.to_bytes(8, "big"), digest_size=size).digest()

    def feed(self, stream: list[Event], between: int = 40, each: Callable[[Running], None] = lambda _: None) -> None:
        topics: dict[Role, str] = {"requests": self.topics.requests, "feedback": self.topics.feedback}
        for i, event in enumerate(stream):
            self.now = max(self.now, event.at)
            key = event.tenant.encode()
            at = TopicPartition(topics[event.role], partition_of(key, self.partitions))
            self.broker.produce(at, key, event.value, timestamp=event.at)
            if i % between == 0:
                self.run()
                each(self)
        self.run()

    def run(self, turns: int = 6) -> None:
        for _ in range(turns):
            self.worker.run_once(0.0)

    def source(self) -> MemorySource:
        reader = MemoryReader(self.broker)
        names = {role: getattr(self.topics, role) for role in ROLES}
        records, limits = {}, {}
        for role, topic in names.items():
            for number in range(self.partitions):
                at = TopicPartition(topic, number)
                limits[role, number] = reader.bounds(at)
                records[role, number] = list(reader.read(at, limits[role, number][0]))
        committed = self.worker.input.committed(
            [TopicPartition(self.topics.requests, n) for n in range(self.partitions)]
        )
        anchors = {at.partition: found.metadata for at, found in committed.items() if found}
        return MemorySource(records, names, limits, anchors)  # type: ignore[arg-type]
