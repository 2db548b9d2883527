"""A stream with everything that goes wrong in it, and what must come of it, counted while it is made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np

from producers.delays import NEVER, Delay
from producers.synthetic import paper_population

REQUESTS, FEEDBACK = "requests", "feedback"
GROUPS, LABELS = ("A", "B"), ("false", "true")
DELAY = Delay.parse("uniform:200-15000,lost:0.05")
"""milliseconds"""


@dataclass(frozen=True)
class Event:
    """A record to be produced, ``at`` seconds after the start."""

    at: float
    topic: str
    key: bytes
    value: bytes


@dataclass
class Expected:
    """What must be found at the end, known from what was produced alone."""

    requests: dict[tuple[str, str], str] = field(default_factory=dict)
    """the group of every valid request"""
    joined: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """labels that count, by tenant, group and label"""
    duplicate_labels: Counter[str] = field(default_factory=Counter)
    repeated_requests: Counter[str] = field(default_factory=Counter)
    dead: Counter[tuple[str, str, bytes]] = field(default_factory=Counter)
    """by reason, topic and bytes"""
    records: Counter[str] = field(default_factory=Counter)

    def add(self, other: Expected) -> None:
        """For a stream that is produced in several parts, with ids of their own."""
        self.requests |= other.requests
        for name in ("joined", "duplicate_labels", "repeated_requests", "dead", "records"):
            getattr(self, name).update(getattr(other, name))


@dataclass(frozen=True)
class Mix:
    """Shares of what is not ordinary, and times in seconds."""

    early: float = 0.05
    early_by: float = 3.0
    delay: Delay = DELAY
    duplicated: float = 0.02
    contradicting: float = 0.01
    unknown: float = 0.01
    repeated: float = 0.01
    conflicting: float = 0.005
    garbage: float = 0.002


class Workload:
    """``count`` requests of ``tenants`` tenants over ``span`` seconds, with their labels."""

    def __init__(self, seed: int, count: int, span: float, tenants: int = 20, mix: Mix | None = None, part: str = "d"):
        self._random = Random(seed)
        self._mix = mix or Mix()
        self._part = part
        self.span = span
        self.expected = Expected()
        self.events: list[Event] = []
        self._make(np.random.default_rng(seed), count, tenants)
        self.events.sort(key=lambda event: event.at)
        self.expected.records.update(event.topic for event in self.events)

    def _make(self, rng: np.random.Generator, count: int, tenants: int) -> None:
        rounds = -(-count // tenants)
        cases = paper_population(mu_b=0.3).draw(rng, tenants, rounds)
        delays = self._mix.delay.draw(rng, (tenants, rounds))
        for i in range(count):
            t, r = i % tenants, i // tenants
            tenant, decision = f"tenant-{t:02}", f"{self._part}{i}"
            at = self._random.uniform(0, self.span)
            said = {f"e{f}": LABELS[p] for f, p in enumerate(cases.predictions[t, r]) if p >= 0}
            group, label = GROUPS[cases.group[t, r]], LABELS[cases.label[t, r]]
            at = self._request(at, tenant, decision, group, said)
            self._label(at, tenant, decision, group, label, int(delays[t, r]))
            if self._chance(self._mix.unknown):
                nobody = {"tenant": tenant, "decision_id": f"nobody-{decision}", "label": label}
                self._dead("unknown-decision", self._add(at, FEEDBACK, tenant, nobody))
            if self._chance(self._mix.garbage):
                topic = self._random.choice((REQUESTS, FEEDBACK))
                self._dead("bad-json", self._add(at, topic, tenant, f'{{"broken-{decision}"'.encode()))

    def _request(self, at: float, tenant: str, decision: str, group: str, said: Mapping[str, str]) -> float:
        request = {"tenant": tenant, "decision_id": decision, "group": group, "predictions": said}
        self._add(at, REQUESTS, tenant, request)
        self.expected.requests[tenant, decision] = group
        if self._chance(self._mix.repeated):
            self._add(at + self._random.uniform(0.01, 10), REQUESTS, tenant, request)
            self.expected.repeated_requests[tenant] += 1
        if self._chance(self._mix.conflicting):
            other = {**request, "predictions": {**said, "e9": "true"}}
            self._dead("conflicting-request", self._add(at + self._random.uniform(0.01, 10), REQUESTS, tenant, other))
        return at

    def _label(self, at: float, tenant: str, decision: str, group: str, label: str, delay: int) -> None:
        if delay == NEVER:
            return
        mix = self._mix
        when = at + delay / 1000
        if self._chance(mix.early):
            when = max(0.0, at - self._random.uniform(0.05, mix.early_by))
        event = {"tenant": tenant, "decision_id": decision, "label": label}
        self._add(when, FEEDBACK, tenant, event)
        self.expected.joined[tenant, group, label] += 1
        if self._chance(mix.duplicated):
            self._add(when + self._random.uniform(0.01, 5), FEEDBACK, tenant, event)
            self.expected.duplicate_labels[tenant] += 1
        if self._chance(mix.contradicting):
            other = {**event, "label": LABELS[label == LABELS[0]]}
            self._dead("contradicting-label", self._add(when + self._random.uniform(0.01, 5), FEEDBACK, tenant, other))

    def _add(self, at: float, topic: str, tenant: str, value: Mapping[str, object] | bytes) -> Event:
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.events.append(Event(at, topic, tenant.encode(), text))
        return self.events[-1]

    def _dead(self, reason: str, event: Event) -> None:
        self.expected.dead[reason, event.topic, event.value] += 1

    def _chance(self, share: float) -> bool:
        return self._random.random() < share
