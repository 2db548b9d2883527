"""Where the contract of the log is tested: in memory, or on a real broker (``tests/servers/kafka_world.py``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Protocol, TypeVar

from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.ports.log import (
    Input,
    Listener,
    Membership,
    Output,
    PartitionRecords,
    Reader,
    Record,
    RetryableError,
    TopicPartition,
)

DEADLINE = 30.0
T = TypeVar("T")


def flat(pieces: Iterable[PartitionRecords]) -> list[Record]:
    """What a poll brought, record by record; each says where it is from, as ``named`` has it."""
    found = [(at, raw) for at, raws in pieces for raw in raws]
    assert [raw.source for _, raw in found] == [f"as {at.topic}" for at, _ in found]
    return [Record(*at, raw.offset, raw.timestamp, raw.key, raw.value, raw.headers) for at, raw in found]


def named(topics: Iterable[str]) -> dict[str, str]:
    """The inputs of a group."""
    return {topic: f"as {topic}" for topic in topics}


class World(Protocol):
    """A log, and clients of it; ``close`` closes them all."""

    def topics(self, partitions: Mapping[str, int]) -> None: ...

    def input(self, instance: str, group: str, topics: Sequence[str], listener: Listener) -> Input: ...

    def output(self, instance: str) -> Output: ...

    def reader(self) -> Reader: ...

    def produce(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, timestamp: int | None = None
    ) -> object: ...

    def close(self) -> None: ...


class MemoryWorld:
    """The in-memory log; its clock ticks once per record."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker(clock=count(1_700_000_000_000).__next__)

    def topics(self, partitions: Mapping[str, int]) -> None:
        for name, number in partitions.items():
            self.broker.create_topic(name, number)

    def input(self, instance: str, group: str, topics: Sequence[str], listener: Listener) -> MemoryInput:
        return MemoryInput(self.broker, instance, group, named(topics), listener)

    def output(self, instance: str) -> MemoryOutput:
        return MemoryOutput(self.broker, instance)

    def reader(self) -> MemoryReader:
        return MemoryReader(self.broker)

    def produce(self, at: TopicPartition, key: bytes | None, value: bytes | None, timestamp: int | None = None) -> None:
        self.broker.produce(at, key, value, timestamp=timestamp)

    def close(self) -> None:
        """Nothing to give back."""


class Diary:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.membership = Membership(-1, "")
        self.owned: frozenset[TopicPartition] = frozenset()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def assigned(self, partitions: Sequence[TopicPartition], membership: Membership) -> None:
        self._note("assigned", partitions, frozenset(partitions))
        self.membership = membership

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("revoked", partitions, frozenset())

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("lost", partitions, frozenset())

    def _note(self, event: str, partitions: Sequence[TopicPartition], owned: frozenset[TopicPartition]) -> None:
        self.events.append((event, tuple(sorted(partitions))))
        self.owned = owned


def eventually(attempt: Callable[[], T], wanted: Callable[[T], bool] = bool, what: str = "") -> T:
    """Try until the answer is the wanted one; Retry counts as not yet. A real broker is asynchronous."""
    deadline = time.monotonic() + DEADLINE
    seen: object = None
    while time.monotonic() < deadline:
        try:
            answer = attempt()
        except RetryableError as error:
            seen = error
        else:
            if wanted(answer):
                return answer
            seen = answer
        time.sleep(0.005)
    raise AssertionError(f"{what or 'it'} did not happen within {DEADLINE:.0f} s; last seen: {seen!r}")


def poll_until(done: Callable[[list[Record]], bool], *inputs: Input) -> list[Record]:
    """Poll all the inputs in turn until what they gave so far is enough."""
    records: list[Record] = []

    def attempt() -> bool:
        for each in inputs:
            records.extend(flat(each.poll(100, 0.05)))
        return done(records)

    eventually(attempt, what=f"what the polls were for, after {len(records)} records,")
    return records
