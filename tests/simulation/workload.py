"""A small stream with everything that goes wrong in it: labels early, late, twice, contradicting, for nobody."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from processor.core.stream.partitioner import partition_of

LABELS = ("deny", "grant")


@dataclass(frozen=True)
class Event:
    """A record to be produced, and when: in steps of the scheduler."""

    step: int
    topic: str
    partition: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Workload:
    events: list[Event]
    requests: dict[tuple[str, str], dict[str, object]]
    """the first valid request of every (tenant, decision_id)"""


def workload(rng: Random, partitions: int, count: int, span: int) -> Workload:
    """``count`` requests spread over ``span`` scheduler steps, with their labels."""
    events: list[Event] = []
    requests: dict[tuple[str, str], dict[str, object]] = {}

    def add(step: float, topic: str, tenant: str, payload: dict[str, object] | bytes) -> None:
        key = tenant.encode()
        value = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        events.append(Event(max(0, int(step)), topic, partition_of(key, partitions), key, value))

    for i in range(count):
        tenant = f"t{rng.randrange(4)}"
        step = rng.uniform(0, span)
        request: dict[str, object] = {
            "tenant": tenant,
            "decision_id": f"d{i}",
            "group": rng.choice("AB"),
            "predictions": {f"e{f}": rng.choice(LABELS) for f in range(3) if f == 0 or rng.random() < 0.8},
        }
        requests[tenant, f"d{i}"] = request
        add(step, "requests", tenant, request)
        if rng.random() < 0.1:
            add(step + rng.uniform(0, 60), "requests", tenant, request)
        if rng.random() < 0.05:
            add(step + 100, "requests", tenant, {**request, "group": "C"})
        if rng.random() < 0.85:
            label = {"tenant": tenant, "decision_id": f"d{i}", "label": rng.choice(LABELS)}
            late = rng.choice([-30, 5, 20, 80, 200])
            add(step + late, "feedback", tenant, label)
            if rng.random() < 0.15:
                add(step + late + rng.uniform(0, 80), "feedback", tenant, label)
            if rng.random() < 0.1:
                other = LABELS[label["label"] == LABELS[0]]
                add(step + late + rng.uniform(0, 80), "feedback", tenant, {**label, "label": other})
    for i in range(count // 10):
        add(rng.uniform(0, span), "feedback", "t0", {"tenant": "t0", "decision_id": f"nobody{i}", "label": "deny"})
        add(rng.uniform(0, span), rng.choice(["requests", "feedback"]), "t1", b"\xff not json")
    return Workload(sorted(events, key=lambda e: e.step), requests)
