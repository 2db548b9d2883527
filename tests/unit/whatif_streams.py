"""Streams for what-if and report, as recordings on disk; and the learner used by itself on the same cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec
import numpy as np

from processor.audit.recording.record import RangeFiles
from processor.audit.sources import manifest as manifests
from processor.audit.sources.line_files import record_line
from processor.audit.sources.manifest import AnchorEntry, Manifest, RangeEntry, RecordingRequest
from processor.audit.sources.source import ROLES, Source
from processor.config import Config, load
from processor.core import Decision, Learner, Request
from processor.core.events import Limits, decode_feedback, decode_request
from processor.core.settings import Settings
from processor.core.stream.journal import JournalRecord
from processor.core.stream.step import FEW_LABELS, REQUESTS_PER_SOLVE_WHEN_FEW_LABELS
from processor.service.worker import LoopSettings
from tests.recordings.stream import START, Event, MemorySource, Running

SEED = "5eed" * 16
TENANT = "court"
LABELS = ("no", "yes")
GROUPS = ("A", "B")


def config(**settings: str) -> Config:
    """Two labels, watched; ``settings`` are those of every tenant."""
    table = {"LABELS": '["no", "yes"]', "POSITIVE": '"yes"', **settings}
    environment = {f"GFORCE_TENANTS__DEFAULT__{name}": value for name, value in table.items()}
    return load(None, {"GFORCE_PROCESSING__SEED": SEED, **environment})


@dataclass(frozen=True)
class Case:
    group: str
    label: str
    said: Mapping[str, str]


def cases(count: int, seed: int, experts: Sequence[str] = ("lr", "svm", "tree"), skew: float = 0.12) -> list[Case]:
    """Experts that err more on group B, each in its own way: a stand-in for COMPAS."""
    rng = Random(seed)
    found = []
    for _ in range(count):
        group = "A" if rng.random() < 0.6 else "B"
        label = "yes" if rng.random() < (0.45 if group == "A" else 0.35) else "no"
        said = {}
        for i, expert in enumerate(experts):
            chance = 0.22 + 0.04 * i + (skew if group == "B" and label == LABELS[i % 2] else 0.0)
            other = LABELS[1 - LABELS.index(label)]
            said[expert] = other if rng.random() < chance else label
        found.append(Case(group, label, said))
    return found


def events(
    stream: Iterable[Case], late: Sequence[int] = (200, 3_000, 20_000), step: int = 500, tenant: str = TENANT
) -> list[Event]:
    """A request every ``step`` milliseconds; labels come ``late`` in turn."""
    found = []
    for i, case in enumerate(stream):
        head = {"tenant": tenant, "decision_id": f"case-{i:05}"}
        asked = {**head, "group": case.group, "predictions": case.said}
        at = START + i * step
        found.append(Event(at, "requests", tenant, msgspec.json.encode(asked)))
        label = msgspec.json.encode({**head, "label": case.label})
        found.append(Event(at + late[i % len(late)], "feedback", tenant, label))
    return sorted(found, key=lambda event: event.at)


def recorded(stream: list[Event], settings: Config, partitions: int = 1, between: int = 40) -> MemorySource:
    """Run it through the processor."""
    loop_settings = LoopSettings(commit_interval=0, most_records=200, grace=1_000)
    running = Running(settings, partitions, loop_settings)
    running.feed(stream, between)
    running.now += 60_000
    running.run()
    return running.source()


def written(source: MemorySource, folder: Path) -> Path:
    """A record as the folder that ``gforce record`` would leave."""
    manifest = Manifest(
        version="test",
        created="2023-11-14T22:13:20Z",
        finished="2023-11-14T23:13:20Z",
        cluster="memory",
        group="gforce",
        prefix="",
        asked=RecordingRequest(roles=list(ROLES), partitions=None, since=[], until=[], compression="zstd"),
        anchors={number: AnchorEntry(committed=text) for number, text in source.anchors.items()},
    )
    for role in ROLES:
        for number in source.partitions(role):
            start, end = source.bounds(role, number) or (0, 0)
            entry = RangeEntry(
                role=role, topic=source.topic(role), partition=number, start=start, end=start, target=end, files=[]
            )
            series = RangeFiles(folder, entry, "zstd", 1 << 30)
            for record in source.read(role, number):
                series.add(record_line(record), 200)
            series.close()
            entry.end = end
            manifest.ranges.append(entry)
    manifests.save(folder, manifest)
    return folder


# The learner by itself


@dataclass
class Direct:
    """What the learner alone makes of a record: nothing of step, mirror or ledger is used."""

    drawn: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    chances: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    decisions: dict[str, Decision] = field(default_factory=dict)
    learner: Learner | None = None

    @property
    def loss(self) -> float:
        return sum(n for (_, y, d), n in self.drawn.items() if y != d) / self.drawn.total()

    @property
    def expected_loss(self) -> float:
        return sum(n for (_, y, d), n in self.chances.items() if y != d) / self.chances.total()

    def rate(self, group: str, label: str, expected: bool = False) -> float:
        counts = self.chances if expected else self.drawn
        cell = {d: n for (g, y, d), n in counts.items() if (g, y) == (group, label)}
        return sum(n for d, n in cell.items() if d != label) / sum(cell.values())

    def gap(self, groups: Sequence[str], labels: Sequence[str], expected: bool = False) -> float:
        rates = np.array([[self.rate(g, y, expected) for g in groups] for y in labels])
        return float((rates.max(axis=1) - rates.min(axis=1)).max())


def direct(source: Source, settings: Settings, seed: bytes, without: str | None = None) -> Direct:
    """Decide and learn in the order of the journal, with nothing but the learner.

    For streams in which every label comes after its request's batch, once, and nothing expires.
    """
    result, limits = Direct(learner=Learner(settings, seed)), Limits()
    learner = result.learner
    assert learner is not None
    requests = [(r, decode_request(r.value, limits)) for r in source.read("requests", 0)]
    feedback = [(r, decode_feedback(r.value, limits)) for r in source.read("feedback", 0)]
    for record in source.read("journal", 0):
        journal = JournalRecord.decode(record.value or b"")
        labels = [one for one in feedback if journal.feedback.start <= one[0].offset < journal.feedback.next]
        asked = [one for one in requests if journal.requests.start <= one[0].offset < journal.requests.next]
        early = {event.decision_id for _, event in labels} - result.decisions.keys()
        _learn(result, learner, [one for one in labels if one[1].decision_id not in early])
        while asked:
            size = REQUESTS_PER_SOLVE_WHEN_FEW_LABELS if int(learner.counters().joined[0]) < FEW_LABELS else len(asked)
            chunk, asked = asked[:size], asked[size:]
            cases_ = [
                Request(e.decision_id, e.group, {f: y for f, y in e.predictions.items() if f != without})
                for _, e in chunk
            ]
            for decision in learner.decide_batch(cases_, [r.timestamp for r, _ in chunk]):
                result.decisions[decision.decision_id] = decision
            there = {event.decision_id for _, event in chunk}
            _learn(result, learner, [one for one in labels if one[1].decision_id in early & there])
    return result


def _learn(result: Direct, learner: Learner, labels: Sequence[tuple]) -> None:  # type: ignore[type-arg]
    if not labels:
        return
    pairs = [(result.decisions[event.decision_id], event.label) for _, event in labels]
    learner.learn_batch(pairs, [record.timestamp for record, _ in labels])
    for decision, truth in pairs:
        result.drawn[decision.group, truth, decision.label] += 1
        for label, parts in decision.parts.items():
            result.chances[decision.group, truth, label] += parts
