"""The two ends of a soak: one process that produces at an even pace, one that reads what was decided.

The id of a request holds its number and when it was produced, so the two need not talk.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

STEP = 0.005
"""seconds between two looks at the clock"""
MINUTE = 60.0
ORDINARY_EXPERTS, LARGE_EXPERTS, LARGE_GROUPS = 4, 64, 32
TEMPLATES = 16
"""requests of a tenant that differ, at least one for each group, made before the start"""
DONE = -1
"""the minute that means: this was all"""
LARGE = "tenant-at-the-limits"


@dataclass(frozen=True)
class Plan:
    """What is sent, and where to."""

    bootstrap: str
    requests: str
    feedback: str
    decisions: str
    partitions: int
    began: float
    """``time.time`` of the first request"""
    seconds: float
    rate: int = 3_000
    tenants: int = 200
    large_share: float = 0.01
    """of the requests that are of the tenant at the limits"""
    label_after: float = 5.0
    unlabelled: float = 0.02
    """share of the requests that never get a label"""
    seed: int = 1

    @property
    def total(self) -> int:
        return int(self.rate * self.seconds)


class Sent(NamedTuple):
    minute: int
    requests: int
    labels: int
    failed: int


class Made(NamedTuple):
    """Decisions that were seen in a minute, with their latencies in milliseconds."""

    minute: int
    decisions: int
    p50: float
    p99: float
    longest: float
    once: int = 0
    doubled: int = 0


def produce(plan: Plan, told: multiprocessing.Queue[Sent]) -> None:
    """Requests at an even pace and the label of each some seconds later; a word every minute."""
    producer = Producer(
        {
            "bootstrap.servers": plan.bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 2,
        }
    )
    random, failed = Random(plan.seed), 0

    def reported(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    ordinary = [_templates(f"tenant-{n:03}", 2, ORDINARY_EXPERTS, random) for n in range(plan.tenants - 1)]
    large = _templates(LARGE, LARGE_GROUPS, LARGE_EXPERTS, random)
    large_every = round(1 / plan.large_share)
    waiting: deque[tuple[float, bytes, bytes]] = deque()
    sent = labels = 0
    minute = 0
    while sent < plan.total or waiting:
        now = time.time()
        if now - plan.began >= (minute + 1) * MINUTE:
            told.put(Sent(minute, sent, labels, failed))
            minute += 1
        for number in range(sent, min(int((now - plan.began) * plan.rate), plan.total)):
            templates = large if number % large_every == 0 else ordinary[number % len(ordinary)]
            key, head, rest = templates[number // len(ordinary) % len(templates)]
            identity = f"{number}-{time.time_ns() // 1_000}".encode()
            producer.produce(plan.requests, head + identity + rest, key, on_delivery=reported)
            if random.random() >= plan.unlabelled:
                waiting.append((now + plan.label_after, key, identity))
            sent += 1
        while waiting and waiting[0][0] <= now:
            _, key, identity = waiting.popleft()
            label = b"true" if labels % 3 else b"false"
            value = b'{"tenant":"%b","decision_id":"%b","label":"%b"}' % (key, identity, label)
            producer.produce(plan.feedback, value, key, on_delivery=reported)
            labels += 1
        producer.poll(0)
        time.sleep(STEP)
    failed += producer.flush(60)
    told.put(Sent(DONE, sent, labels, failed))


def _templates(tenant: str, groups: int, experts: int, random: Random) -> list[tuple[bytes, bytes, bytes]]:
    """Key, and what is before and after the id."""
    made = []
    for number in range(max(TEMPLATES, groups)):
        said = ",".join(f'"expert-{e:02}":"{random.choice(("true", "false"))}"' for e in range(experts))
        head = f'{{"tenant":"{tenant}","group":"group-{number % groups:02}","predictions":{{{said}}},"decision_id":"'
        made.append((tenant.encode(), head.encode(), b'"}'))
    return made


def read(plan: Plan, told: multiprocessing.Queue[Made], enough: multiprocessing.Queue[int]) -> None:
    """Every decision a ``read_committed`` consumer sees; a word every minute, the books when ``enough`` says so.

    What is put there is how many seconds stragglers have.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": plan.bootstrap,
            "group.id": "soak",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 5,
            "log_level": 2,
        }
    )
    consumer.assign([KafkaTopicPartition(plan.decisions, p, OFFSET_BEGINNING) for p in range(plan.partitions)])
    times = np.zeros(plan.total, np.uint8)
    latencies: list[float] = []
    minute, stop_at = 0, float("inf")
    while True:
        messages = consumer.consume(5_000, 0.05)
        now = time.time()
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            number, since = _identity(message.value() or b"")
            times[number] += 1
            latencies.append(now * 1_000 - since / 1_000)
        if now - plan.began >= (minute + 1) * MINUTE:
            told.put(_made(minute, latencies))
            minute, latencies = minute + 1, []
        if stop_at == float("inf") and not enough.empty():
            stop_at = now + enough.get()
        if now > stop_at or (stop_at < float("inf") and not messages and bool(times.all())):
            break
    consumer.close()
    last = _made(DONE, latencies)
    told.put(last._replace(once=int((times == 1).sum()), doubled=int((times > 1).sum())))


def _identity(value: bytes) -> tuple[int, int]:
    """Number, and when it was produced in microseconds. Found without parsing the rest."""
    start = value.index(b'"decision_id":"') + 15
    number, since = value[start : value.index(b'"', start)].split(b"-")
    return int(number), int(since)


def _made(minute: int, latencies: list[float]) -> Made:
    if not latencies:
        return Made(minute, 0, float("nan"), float("nan"), float("nan"))
    p50, p99, longest = np.percentile(latencies, [50, 99, 100])
    return Made(minute, len(latencies), round(p50, 1), round(p99, 1), round(longest, 1))
