"""The test's own producer and its own ``read_committed`` reader, and what each of them knows."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import uuid4

import msgspec
import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)

from processor.core.stream.partitioner import partition_of

GROUPS, LABELS, EXPERTS = ("A", "B"), ("false", "true"), ("e0", "e1", "e2")
STEP = 0.01
"""seconds between two looks at the clock"""
NUMBERED = "#"
"""An id that begins so is only counted by its number, in one byte: for millions of them."""

Key = tuple[str, str]
"""tenant and decision id"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was sent."""

    group: str
    label: str
    value: bytes


@dataclass
class Books:
    """Everything that was sent."""

    partitions: int
    requests: dict[Key, Asked] = field(default_factory=dict)
    labelled: set[Key] = field(default_factory=set)
    forgotten: set[Key] = field(default_factory=set)
    """of a lineage that a reset has ended: decided, but in no counter any more"""

    def sent_on(self, partitions: Iterable[int]) -> set[Key]:
        wanted = set(partitions)
        return {key for key in self.requests if partition_of(key[0].encode(), self.partitions) in wanted}

    def tenants_on(self, partitions: Iterable[int]) -> list[str]:
        return sorted({tenant for tenant, _ in self.sent_on(partitions)})

    def decisions(self) -> Counter[str]:
        return Counter(key[0] for key in self.requests if key not in self.forgotten)

    def joined(self) -> Counter[tuple[str, str, str]]:
        """By tenant, group and label."""
        counted = self.labelled - self.forgotten
        return Counter((key[0], self.requests[key].group, self.requests[key].label) for key in counted)


class Sender:
    """Produces requests and their labels, by key, with Java's partitioner; notes what it sends."""

    def __init__(self, bootstrap: str, requests: str, feedback: str, partitions: int) -> None:
        self.topics = (requests, feedback)
        self.books = Books(partitions)
        self.failed: list[str] = []
        self._numbers = itertools.count()
        self._bootstrap = bootstrap
        self.connect()

    def connect(self) -> None:
        """A new producer: one that knew topics of before takes those of the same name for the same."""
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "queue.buffering.max.messages": 400_000,
                "log_level": 2,
            }
        )

    def ask(self, tenants: Sequence[str], count: int) -> list[Key]:
        """So many new requests, in turn over the tenants."""
        keys = []
        for _ in range(count):
            number = next(self._numbers)
            tenant, turn = tenants[number % len(tenants)], number // len(tenants)
            group, label = GROUPS[turn % 2], LABELS[turn // 2 % 2]
            said = {expert: LABELS[(number // 2**i) % 2] for i, expert in enumerate(EXPERTS)}
            event = {"tenant": tenant, "decision_id": f"d{number}", "group": group, "predictions": said}
            key = (tenant, f"d{number}")
            self.books.requests[key] = Asked(group, label, json.dumps(event).encode())
            self.repeat([key])
            keys.append(key)
        return keys

    def repeat(self, keys: Iterable[Key]) -> None:
        """The same requests, once more."""
        for key in keys:
            self.produce(self.topics[0], key[0].encode(), self.books.requests[key].value)

    def label(self, keys: Iterable[Key]) -> None:
        for key in keys:
            event = {"tenant": key[0], "decision_id": key[1], "label": self.books.requests[key].label}
            self.books.labelled.add(key)
            self.produce(self.topics[1], key[0].encode(), json.dumps(event).encode())

    def produce(self, topic: str, key: bytes | None, value: bytes, partition: int = -1, timestamp: int = 0) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, self._reported, timestamp=timestamp)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def flush(self) -> None:
        if left := self._producer.flush(60):
            self.failed.append(f"{left} records were not taken by the broker")

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failed.append(str(error))


class Load(threading.Thread):
    """Requests at an even pace, each with its label some seconds later, until it is stopped."""

    def __init__(self, sender: Sender, tenants: Sequence[str], rate: float, label_after: float | None = 1.0) -> None:
        super().__init__(name="load", daemon=True)
        self._sender, self._tenants, self._rate, self._label_after = sender, list(tenants), rate, label_after
        self._halt = threading.Event()
        self.began = time.monotonic()
        self.ended = 0.0

    def run(self) -> None:
        self.began, sent = time.monotonic(), 0
        unlabelled: deque[tuple[float, Key]] = deque()
        while not self._halt.wait(STEP):
            now = time.monotonic()
            due = int((now - self.began) * self._rate) - sent
            keys = self._sender.ask(self._tenants, max(due, 0))
            sent += len(keys)
            if self._label_after is not None:
                unlabelled.extend((now + self._label_after, key) for key in keys)
            while unlabelled and unlabelled[0][0] <= now:
                self._sender.label([unlabelled.popleft()[1]])
        self.ended = time.monotonic()
        self._sender.label(key for _, key in unlabelled)

    def stop(self) -> None:
        self._halt.set()
        self.join(60)
        self._sender.flush()


class _Decision(msgspec.Struct):
    tenant: str
    decision_id: str


class Reader(threading.Thread):
    """Every decision that a ``read_committed`` consumer sees, and when it saw it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, numbered: int = 0) -> None:
        super().__init__(name="reader", daemon=True)
        self._partitions = partitions
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{uuid4().hex[:8]}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": 65_536,
                "log_level": 2,
            }
        )
        self._consumer.assign([KafkaTopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        self._halt = threading.Event()
        self._decoder = msgspec.json.Decoder(_Decision)
        self._homes: dict[str, int] = {}
        self.decided: Counter[Key] = Counter()
        self.numbered = np.zeros(numbered, np.uint8)
        self.times: defaultdict[int, list[float]] = defaultdict(list)
        """by partition of the tenant, ``time.monotonic``; one for all that came together"""
        self.failed: list[str] = []

    def run(self) -> None:
        while not self._halt.is_set():
            messages = self._consumer.consume(2_000, 0.1)
            now = time.monotonic()
            came = set()
            for message in messages:
                if (error := message.error()) is not None:
                    self.failed.append(str(KafkaException(error)))
                    continue
                made = self._decoder.decode(message.value() or b"")
                came.add(self._home(made.tenant))
                if made.decision_id.startswith(NUMBERED):
                    self.numbered[int(made.decision_id[1:])] += 1
                else:
                    self.decided[made.tenant, made.decision_id] += 1
            for partition in came:
                self.times[partition].append(now)
        self._consumer.close()

    def _home(self, tenant: str) -> int:
        if tenant not in self._homes:
            self._homes[tenant] = partition_of(tenant.encode(), self._partitions)
        return self._homes[tenant]

    def stop(self) -> None:
        self._halt.set()
        self.join(30)

    def silence(self, partitions: Iterable[int], since: float, until: float) -> float:
        """The longest time in which one of these partitions decided nothing."""
        longest = 0.0
        for partition in partitions:
            inside = [at for at in list(self.times[partition]) if since < at < until]
            longest = max(longest, *(b - a for a, b in pairwise([since, *inside, until])))
        return longest
