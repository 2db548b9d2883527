"""The events every line reads: half requests, half labels that come thousands of events late, 209 bytes each.

Fast and determined by the shape alone, so that a process without the topics (the embedded line) makes the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer

from processor.core.stream.partitioner import partition_of

EVENT_BYTES = 209
CHUNK = 20_000
MIX = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Odd, so that multiplying by it modulo 2^128 gives every case an id of its own that does not compress."""
REQUESTS, FEEDBACK = 0, 1
FETCH = {"fetch.message.max.bytes": 256 << 10}
"""Of every line of ours that reads a backlog. At the processor's 4 MiB a fetch brings tens of thousands of records of
one input before the first of the other, labels overtake their requests, and how many is chance."""


class Event(NamedTuple):
    input: int
    tenant: int
    value: bytes


@dataclass(frozen=True)
class Shape:
    """``cases`` labels from case ``first`` on, and as many requests, which are ``late`` cases ahead of them."""

    cases: int = 100_000
    late: int = 40_000
    tenants: int = 100
    experts: int = 5
    groups: int = 2
    labels: int = 2
    first: int = 0
    seed: int = 1

    @property
    def label_names(self) -> list[str]:
        """The names of the default configuration, where there are two."""
        return ["false", "true"] if self.labels == 2 else [f"label-{number}" for number in range(self.labels)]

    @property
    def records(self) -> int:
        return 2 * self.cases

    def tenant(self, number: int) -> str:
        return f"tenant-{number:05}"


def waiting(shape: Shape) -> Iterator[Event]:
    """The requests whose labels the backlog begins with. They must be decided before it is read: in a backlog both
    inputs are read side by side from their beginnings, so labels would otherwise come together with their requests."""
    return (request(shape, number) for number in range(shape.first, shape.first + shape.late))


def backlog(shape: Shape) -> Iterator[Event]:
    """In turn a request, and the label of the one ``late`` requests before it; as many are pending after as before."""
    for number in range(shape.first, shape.first + shape.cases):
        yield request(shape, number + shape.late)
        yield label(shape, number)


def request(shape: Shape, number: int) -> Event:
    tenant, said, _ = _case(shape, number)
    return Event(REQUESTS, tenant, _value(tenant, number, said))


def label(shape: Shape, number: int) -> Event:
    tenant, _, right = _case(shape, number)
    return Event(FEEDBACK, tenant, _value(tenant, number, right))


def _case(shape: Shape, number: int) -> tuple[int, str, str]:
    drawn = _chunk(shape.seed, shape.tenants, shape.experts, shape.groups, shape.labels, number // CHUNK)
    return drawn[number % CHUNK]


def _value(tenant: int, number: int, rest: str) -> bytes:
    return f'{{"tenant":"tenant-{tenant:05}","decision_id":"{identity(number)}",{rest}'.encode()


def identity(number: int) -> str:
    return f"{(number + 1) * MIX % (1 << 128):032x}"


@lru_cache(maxsize=256)
def _chunk(seed: int, tenants: int, experts: int, groups: int, labels: int, chunk: int) -> list[tuple[int, str, str]]:
    """Of every case: tenant, the end of its request, the end of its label. Experts err on each group differently."""
    rng = np.random.default_rng([seed, chunk])
    names = Shape(labels=labels).label_names
    group, right = rng.integers(0, groups, CHUNK), rng.integers(0, labels, CHUNK)
    error = np.random.default_rng(seed).uniform(0.05, 0.5, (groups, experts))
    wrong = rng.random((CHUNK, experts)) < error[group]
    said = np.where(wrong, (right[:, None] + rng.integers(1, labels, (CHUNK, experts))) % labels, right[:, None])
    keys = [f'"expert-{e}":"' for e in range(experts)]
    labelled = [_padded(f'"label":"{name}"', "note") for name in names]
    of_tenant = rng.integers(0, tenants, CHUNK).tolist()
    return [
        (t, _padded(_advice(g, zip(keys, row, strict=True), names), "context"), labelled[y])
        for t, g, row, y in zip(of_tenant, group.tolist(), said.tolist(), right.tolist(), strict=True)
    ]


def _advice(group: int, said: Iterator[tuple[str, int]], names: list[str]) -> str:
    predictions = ",".join(f'{key}{names[y]}"' for key, y in said)
    return f'"group":"{chr(ord("A") + group)}","predictions":{{{predictions}}}'


def _padded(content: str, field: str) -> str:
    """Filled up to the size of an event by a field that is passed through or ignored."""
    used = len('{"tenant":"tenant-00000","decision_id":"",') + 32 + len(content) + len(f',"{field}":""}}')
    return f'{content},"{field}":"{"x" * max(EVENT_BYTES - used, 0)}"}}'


class Publisher:
    """Puts events where their key belongs."""

    def __init__(self, bootstrap: str, topics: tuple[str, str], partitions: int, **properties: str | int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.num.messages": 500,  # a fetch gives whole batches: large ones would tear the inputs apart
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 2,
                **properties,
            }
        )
        self._topics = topics
        self._place: Callable[[int], tuple[bytes, int]] = lru_cache(maxsize=None)(
            lambda tenant: (key := Shape().tenant(tenant).encode(), partition_of(key, partitions))
        )
        self._count = 0

    def send(self, event: Event) -> None:
        key, partition = self._place(event.tenant)
        while True:
            try:
                self._producer.produce(self._topics[event.input], event.value, key, partition)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._count += 1
        if self._count % 1_000 == 0:
            self._producer.poll(0)

    def poll(self) -> None:
        self._producer.poll(0)

    def flush(self, seconds: float = 120.0) -> None:
        if left := self._producer.flush(seconds):
            raise RuntimeError(f"{left} records could not be delivered in {seconds:.0f} s: is the broker alive?")


def publish(
    stream: Iterator[Event],
    bootstrap: str,
    topics: tuple[str, str],
    partitions: int,
    told: Callable[[int], None] = lambda count: None,
) -> int:
    """Send all of it and wait until the broker has it; how many there were."""
    publisher = Publisher(bootstrap, topics, partitions)
    count = 0
    for event in stream:
        publisher.send(event)
        count += 1
        if count % CHUNK == 0:
            told(CHUNK)
    publisher.flush()
    told(count % CHUNK)
    return count
