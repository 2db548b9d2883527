"""What every tenant's figures must be, counted from the topics alone, one event after the other.

Slow and plain on purpose. Of the processor's own code it uses the reading of the configuration and, for what only the
learner can say (the rule: q, weights, what a shadow would have decided; the bounds), the core; nothing of what the
processor measures itself with. Which records were refused is taken from the topic dead-letters.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from processor.core.learner.axes import Axes
from processor.core.learner.counters import ABSENT, Counters
from processor.core.learner.draws import draws
from processor.core.learner.policies import rule_of
from processor.core.learner.rule import RequestColumns
from processor.core.stream.journal import JournalRecord
from processor.core.stream.tenant import TenantSettings
from processor.service.topics import TopicNames

from .plain_watch import PlainWatch, Terms
from .topics import Contents, Seen

IN_FORCE = "in-force"
YOUNG, CHUNK = 1_000, 50
"""A tenant with fewer labels has its rule worked out anew after so many requests."""


@dataclass
class Case:
    """A decision and what has become of it."""

    group: str
    said: dict[str, str]
    at: int
    decided: dict[str, str]
    """by policy"""
    label: str | None = None
    label_at: int = 0


@dataclass
class Book:
    """One tenant."""

    name: str
    partition: int
    rules: TenantSettings
    cases: dict[str, Case] = field(default_factory=dict)
    early: dict[str, tuple[str, int]] = field(default_factory=dict)
    """labels that wait for their request: label and time"""
    tally: Counter[str] = field(default_factory=Counter)
    joined: list[Case] = field(default_factory=list)
    """in the order in which the labels counted"""
    experts: set[str] = field(default_factory=set)
    watch: PlainWatch | None = None
    groups: set[str] = field(default_factory=set)
    pending: Counter[int] = field(default_factory=Counter)
    """by 64th of the expiry in which they were asked for"""
    earliest: dict[int, int] = field(default_factory=dict)
    """second of the first of those, since there were none"""
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """by kind: trials and losses of an expert, labels seen, and decisions; then by group and label"""

    def __post_init__(self) -> None:
        settings, watch = self.rules.settings, self.rules.watch
        self.groups.update(settings.groups)
        self.experts.update(settings.experts)
        assert settings.feedback == "all", "weighted labels are not counted here"
        if watch is not None:
            pairs = len(settings.groups) * (len(settings.groups) - 1) // 2
            self.watch = PlainWatch(
                Terms(
                    watch.tolerance,
                    watch.alpha,
                    watch.false_alarm_pairs,
                    watch.clear,
                    watch.learning,
                    len(settings.labels) * pairs,
                )
            )

    @property
    def labels(self) -> list[str]:
        return sorted(self.rules.settings.labels)

    def _bin(self, at: int) -> int:
        return at // 1_000 // max(self.rules.expiry // 64_000, 1)

    # What happens

    def decide(self, chunk: list[tuple[dict[str, Any], int, str]]) -> None:
        """Requests of one solve: event, time, and what the topic says was decided."""
        for event, _, _ in chunk:
            self.groups.add(event["group"])
            self.experts.update(event["predictions"])
            if self.watch is not None:
                self.watch.meet(event["group"])
        shadows = self._shadow_decisions([event for event, _, _ in chunk])
        for i, (event, at, decision) in enumerate(chunk):
            decided = {IN_FORCE: decision, **{name: made[i] for name, made in shadows.items()}}
            self.cases[event["decision_id"]] = Case(event["group"], event["predictions"], at, decided)
            bin_ = self._bin(at)
            self.earliest[bin_] = min(self.earliest[bin_], at // 1_000) if self.pending[bin_] else at // 1_000
            self.pending[bin_] += 1
            self.counts["decisions", event["group"], decision] += 1
            self.tally["decisions"] += 1

    def _shadow_decisions(self, events: list[dict[str, Any]]) -> dict[str, list[str]]:
        groups, labels, experts = sorted(self.groups), self.labels, sorted(self.experts)
        group = np.array([groups.index(event["group"]) for event in events])
        said = np.full((len(events), len(experts)), ABSENT)
        for i, event in enumerate(events):
            for expert, label in event["predictions"].items():
                said[i, experts.index(expert)] = labels.index(label)
        uniforms = draws(self.rules.seed, [event["decision_id"] for event in events])
        settings, counters, made = self.rules.settings, self.counters(), {}
        for shadow in settings.shadows:
            rule = rule_of(shadow, counters, tuple(labels), settings.prior)
            asked = RequestColumns(np.zeros(len(events), np.int64), group, said, uniforms)
            decided = rule.decide(asked, len(labels))
            made[shadow.name] = [labels[i] for i in decided.label]
        return made

    def join(self, decision_id: str, label: str, at: int) -> None:
        case = self.cases[decision_id]
        case.label, case.label_at = label, at
        self.tally["labels_joined"] += 1
        self.pending[self._bin(case.at)] -= 1
        self.joined.append(case)
        self.counts["seen", case.group, label] += 1
        for expert, said in case.said.items():
            self.counts["trials", expert, case.group, label] += 1
            self.counts["losses", expert, case.group, label] += said != label
        if self.watch is not None:
            self.watch.take(label, case.group, case.decided[IN_FORCE] != label)

    # For the learner's rule

    def axes(self) -> Axes:
        shadows = [shadow.name for shadow in self.rules.settings.shadows]
        return Axes.of(groups=self.groups, labels=self.labels, experts=self.experts, policies=[IN_FORCE, *shadows])

    def counters(self) -> Counters:
        axes = self.axes()
        counters = Counters.zeros(axes)
        for (kind, *expert, group, label), count in self.counts.items():
            which = [axes.expert_index[name] for name in expert]
            getattr(counters, kind)[(0, *which, axes.group_index[group], axes.label_index[label])] = count
        counters.labels[:] = counters.seen
        return counters


@dataclass
class Books:
    """Every tenant, and what the partitions themselves say."""

    tenants: dict[str, Book] = field(default_factory=dict)
    clock: dict[int, int] = field(default_factory=dict)
    sequence: dict[int, int] = field(default_factory=dict)
    pending: Counter[int] = field(default_factory=Counter)
    parked: Counter[int] = field(default_factory=Counter)


def keep_books(contents: Contents, topics: TopicNames, partitions: int, settings_for: Any) -> Books:
    books = Books()
    for number in range(partitions):
        _Partition(contents, topics, number, settings_for, books).read()
    return books


class _Partition:
    def __init__(self, contents: Contents, topics: TopicNames, number: int, settings_for: Any, books: Books) -> None:
        self._contents, self._topics, self._number = contents, topics, number
        self._rules_for, self._books = settings_for, books
        self._refused: dict[tuple[str, int], str] = {}
        for _, seen in contents.all(topics.dead_letters):
            said = {name: (value or b"").decode() for name, value in seen.headers}
            if int(said["gforce.partition"]) == number:
                self._refused[said["gforce.topic"], int(said["gforce.offset"])] = said["gforce.reason"]
        self._decided: dict[tuple[str, str], str] = {}
        for seen in contents.of(topics.decisions, number):
            event = json.loads(seen.value)
            self._decided[event["tenant"], event["decision_id"]] = event["decision"]

    def read(self) -> None:
        topics, number, books = self._topics, self._number, self._books
        requests = {seen.offset: seen for seen in self._contents.of(topics.requests, number)}
        feedback = {seen.offset: seen for seen in self._contents.of(topics.feedback, number)}
        for entry in self._contents.of(topics.journal, number):
            record = JournalRecord.decode(entry.value)
            labels = [feedback[i] for i in range(record.feedback.start, record.feedback.next) if i in feedback]
            asked = [requests[i] for i in range(record.requests.start, record.requests.next) if i in requests]
            waiting = self._labels_known(labels)
            self._requests(asked, waiting)
            self._set_aside(waiting)
            books.clock[number], books.sequence[number] = record.clock, record.sequence
        for book in books.tenants.values():
            if book.partition == number:
                books.pending[number] += sum(case.label is None for case in book.cases.values())
                books.parked[number] += len(book.early)

    def _event(self, topic: str, seen: Seen) -> tuple[Book | None, dict[str, Any] | None]:
        """The event and its tenant's book; no event if it was refused, no book if it had no tenant."""
        reason = self._refused.get((topic, seen.offset))
        try:
            event = json.loads(seen.value)
            name = event["tenant"]
        except (ValueError, TypeError, KeyError):
            assert reason is not None, f"{topic} {seen.offset} is no event and was not refused"
            return None, None
        if name not in self._books.tenants:
            self._books.tenants[name] = Book(name, self._number, self._rules_for(name))
        book = self._books.tenants[name]
        if reason is not None:
            book.tally[f"dead_{reason}"] += 1
            if reason == "unknown-decision":  # it had waited before
                book.tally["labels_parked"] += 1
            return book, None
        return book, event

    def _labels_known(self, labels: list[Seen]) -> dict[tuple[str, str], list[tuple[str, int]]]:
        """Join labels of decisions made in earlier batches; the others wait for a request of this one."""
        waiting: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for seen in labels:
            book, event = self._event(self._topics.feedback, seen)
            if book is None or event is None:
                continue
            key = event["decision_id"]
            if key in book.cases and book.cases[key].label is None:
                book.join(key, event["label"], seen.timestamp)
            elif key in book.cases or key in book.early:
                book.tally["labels_duplicate"] += 1
            else:
                waiting.setdefault((book.name, key), []).append((event["label"], seen.timestamp))
        return waiting

    def _requests(self, asked: list[Seen], waiting: dict[tuple[str, str], list[tuple[str, int]]]) -> None:
        by_tenant: dict[str, list[tuple[dict[str, Any] | None, int]]] = {}
        for seen in asked:
            book, event = self._event(self._topics.requests, seen)
            if book is not None and self._refused.get((self._topics.requests, seen.offset)) != "bad-json":
                by_tenant.setdefault(book.name, []).append((event, seen.timestamp))
        for name, events in by_tenant.items():
            book, start = self._books.tenants[name], 0
            while start < len(events):
                size = CHUNK if len(book.joined) < YOUNG else len(events)
                self._chunk(book, events[start : start + size], waiting)
                start += size

    def _chunk(
        self,
        book: Book,
        events: list[tuple[dict[str, Any] | None, int]],
        waiting: dict[tuple[str, str], list[tuple[str, int]]],
    ) -> None:
        fresh: dict[str, tuple[dict[str, Any], int, str]] = {}
        for event, at in events:
            if event is None:
                continue
            key = event["decision_id"]
            if key in book.cases or key in fresh:
                book.tally["requests_duplicate"] += 1
            else:
                fresh[key] = (event, at, self._decided[book.name, key])
        if fresh:
            book.decide(list(fresh.values()))
        for key in fresh:
            held = [book.early.pop(key)] if key in book.early else []
            for label, at in [*held, *waiting.pop((book.name, key), [])]:
                if book.cases[key].label is None:
                    book.join(key, label, at)
                else:
                    book.tally["labels_duplicate"] += 1

    def _set_aside(self, waiting: dict[tuple[str, str], list[tuple[str, int]]]) -> None:
        for (name, key), labels in waiting.items():
            book = self._books.tenants[name]
            book.early[key] = labels[0]
            book.tally["labels_parked"] += 1
            book.tally["labels_duplicate"] += len(labels) - 1
