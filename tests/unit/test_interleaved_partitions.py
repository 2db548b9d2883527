"""Batches of several partitions that are stepped together lead to what each leads to by itself, to the byte."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from processor import config as configuration
from processor.audit.replay import replay as replaying
from processor.audit.replay.memory_state import MemoryState
from processor.audit.replay.replay import MAX_INTERLEAVED_PARTITIONS, Stepping, interleave_partitions
from processor.audit.sources.source import RecordingError, Role
from processor.audit.verify.audit import Audit, audit, share_partitions
from processor.audit.verify.result import AuditOptions
from processor.core.learner.cases import Drawn
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.partition import Partition
from processor.core.stream.partitioner import partition_of
from processor.core.stream.step import (
    REQUESTS_PER_SOLVE_WHEN_FEW_LABELS,
    SLOTS_PER_BATCH,
    InputRecord,
    StepInput,
    StepResult,
    StreamSettings,
    advanced,
    decode,
    due_slot,
    split_by_source,
    steps,
)
from processor.ports.log import Record
from processor.run.assembly import stream_settings
from tests.recordings.stream import SHAPES, MemorySource, Running, events

from .audited import CONFIG, SEEDS, changed, is_request, load
from .tiers import tier as tier

MORE = """
[tenants."NAME"]                  # like each other, and watched as closely as the bank
labels = ["low", "mid", "high"]
positive = "high"
shadows = []
expiry = "20s"
parking = "5s"
tolerance = 0.02
alpha = 0.2
false_alarm_pairs = 50
"""
SOON = (-2_000, 100, 500, 30_000)
STREAMS = {
    **SHAPES,
    "bank": dataclasses.replace(SHAPES["bank"], late=SOON, weight=4),
    "saver": dataclasses.replace(SHAPES["shop"], late=SOON),
    "thrift": dataclasses.replace(SHAPES["shop"], late=SOON, skew=0.7, weight=3),
}


# One step


class SteppedPartition:
    """A partition whose tenants come in an order of its own, at times of its own, in batches of any size."""

    def __init__(self, seed: int, terms: StreamSettings) -> None:
        self._rng, self._seed, self._terms = Random(seed), seed, terms
        names = self._rng.sample(sorted(STREAMS), len(STREAMS))
        self.rest = events({name: STREAMS[name] for name in names}, 1_000, seed)
        self.partition, self.state = Partition(0, 1, Identity("l", seed, GENESIS)), MemoryState()
        self.offsets: Counter[str] = Counter()
        self.open: list[tuple[str, int]] = []
        self.outcomes: list[StepResult] = []
        self.busiest = 0
        """the most requests a tenant had in one batch"""

    def given(self) -> StepInput:
        some = [self.rest.pop(0) for _ in range(min(self._rng.choice((1, 40, 200, 500)), len(self.rest)))]
        clock = some[-1].at + 60_000 * (self._seed % 3)  # the inputs of some are behind
        raws = []
        for event in sorted(some, key=lambda event: event.role == "feedback"):
            at = -1 if self._rng.random() < 0.05 else event.at
            raws.append(InputRecord(event.role, self.offsets[event.role], at, event.tenant.encode(), event.value))
            self.offsets[event.role] += 1
        decoded = decode(*split_by_source(raws), 0, 1, clock, self._terms, set())
        tenants = Counter(event.tenant for _, event, _ in decoded.requests)
        self.busiest = max(self.busiest, *tenants.values(), 0)
        seen = [alert for alert in self.open if self._rng.random() < 0.5]
        drawn = {}
        if self._seed % 2:  # nobody knows the seed of the bank
            said = {event.decision_id: event.predictions["e0"] for _, event, _ in decoded.requests}
            drawn = {"bank": {name: Drawn(label, "e0", None) for name, label in said.items()}}
        due = self.state.due(due_slot(clock, self._terms.slot), SLOTS_PER_BATCH)
        return StepInput(self.partition, decoded, self.state.entries, due, clock, self._terms, seen, drawn)

    def take(self, outcome: StepResult) -> None:
        self.open += [(alert.tenant, alert.number) for alert in outcome.alerts if alert.state == "raised"]
        self.state.follow(outcome)
        after = Identity("l", self.partition.identity.sequence + 1, GENESIS)
        self.partition = advanced(outcome.partition, after)
        self.outcomes.append(dataclasses.replace(outcome, partition=None, rules=list(outcome.rules.items())))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_partitions_stepped_together_lead_to_what_each_leads_to_alone(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "more.toml"
    path.write_text(CONFIG.read_text() + MORE.replace("NAME", "saver") + MORE.replace("NAME", "thrift"))
    plain = stream_settings(configuration.load(path, {}))
    terms = [dataclasses.replace(plain, slot=slot) for slot in (1_000, 1_000, 3_000, 700)]
    alone, together = ([SteppedPartition(10 * seed + i, mine) for i, mine in enumerate(terms)] for _ in range(2))
    for stepped in alone:
        while stepped.rest:
            stepped.take(steps([stepped.given()])[0])
    while going := [stepped for stepped in together if stepped.rest]:
        for stepped, outcome in zip(going, steps([stepped.given() for stepped in going]), strict=True):
            stepped.take(outcome)
    for one, other in zip(alone, together, strict=True):
        assert one.outcomes == other.outcomes
        assert (one.state, one.partition.tenants.keys()) == (other.state, other.partition.tenants.keys())
    assert max(stepped.busiest for stepped in alone) > REQUESTS_PER_SOLVE_WHEN_FEW_LABELS
    fates = Counter[str]()
    for outcome in [outcome for stepped in alone for outcome in stepped.outcomes]:
        fates.update(outcome.tally)
    assert fates.keys() >= {
        "labels_parked",
        "labels_joined",
        "labels_duplicate",
        "decisions_expired",
        "requests_duplicate",
        "alerts_raised",
        "dead_unknown-tenant",
        "dead_unknown-decision",
        "dead_contradicting-label",
        "dead_expired-decision",
    }


def test_no_batch_is_no_trouble() -> None:
    assert steps([]) == []


# A whole audit


@pytest.fixture(scope="module")
def recorded() -> MemorySource:
    running = Running(load(), 4)
    running.feed(events(SHAPES, 400, seed=6))
    return running.source()


class Damaged(MemorySource):
    """One partition of the requests cannot be read to its end."""

    def read(self, role: Role, partition: int, start: int = 0) -> Iterator[Record]:
        for record in super().read(role, partition, start):
            if (role, partition) == ("requests", VICTIM) and record.offset == 30:
                raise RecordingError("the file ends here", topic="requests", partition=partition, offset=30)
            yield record


VICTIM = partition_of(b"bank", 4)
Tampering = Callable[[MemorySource], MemorySource]


def untouched(source: MemorySource) -> MemorySource:
    return source


def one_prediction(source: MemorySource) -> MemorySource:
    """Cannot be had back, so the state is lost."""
    records = source.records["requests", VICTIM]
    index = next(i for i, record in enumerate(records) if i > 20 and is_request(record))
    records[index] = changed(records[index], group="elsewhere", predictions={"z": "deny"})
    return source


def no_request(source: MemorySource) -> MemorySource:
    records = source.records["requests", VICTIM]
    records.remove(next(record for record in records[20:] if is_request(record)))
    return source


def no_beginning(source: MemorySource) -> MemorySource:
    del source.records["journal", VICTIM][:3]
    return source


def unreadable(source: MemorySource) -> MemorySource:
    return Damaged(source.records, source.topics, source.limits, source.anchors)


def other_decision(source: MemorySource) -> MemorySource:
    records = source.records["decisions", VICTIM]
    records[10] = replace(records[10], value=(records[10].value or b"").replace(b'"batch":', b'"batch": '))
    return source


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Tampering:
    """One batch of one partition breaks the step."""

    def fails(given: Sequence[StepInput]) -> list[StepResult]:
        if any((one.partition.number, one.partition.identity.sequence) == (VICTIM, 7) for one in given):
            raise ZeroDivisionError("a fault of ours")
        return steps(given)

    monkeypatch.setattr(replaying, "steps", fails)
    return untouched


def run(source: MemorySource, partitions: Sequence[int] | None = None) -> Audit:
    return audit(source, AuditOptions(SEEDS), partitions, processes=1)


@pytest.mark.parametrize(
    ("tampered", "kinds"),
    [
        (untouched, set()),
        (one_prediction, {"input-changed", "decision"}),
        (no_request, {"input-missing"}),
        (no_beginning, set()),
        (unreadable, {"recording"}),
        (other_decision, {"decision"}),
    ],
)
def test_an_audit_of_interleaved_partitions_finds_what_is_found_in_each_alone(
    recorded: MemorySource, tampered: Tampering, kinds: set[str]
) -> None:
    source = tampered(deepcopy(recorded))
    found = run(source)
    assert found.partitions == [run(source, [number]).partitions[0] for number in range(4)]
    assert {finding.kind for finding in found.findings} >= kinds
    assert {finding.partition for finding in found.findings} == ({VICTIM} if kinds else set())
    assert [bool(one.not_auditable) for one in found.partitions] == [
        tampered is no_beginning and number == VICTIM for number in range(4)
    ]
    others = [one for one in found.partitions if one.partition != VICTIM]
    assert all(one.recomputed == one.batches == one.states > 7 for one in others)


def test_a_batch_that_cannot_be_recomputed_is_the_only_one(recorded: MemorySource, faulty: Tampering) -> None:
    found = run(recorded)
    assert found.partitions == [run(recorded, [number]).partitions[0] for number in range(4)]
    [finding] = found.findings
    assert (finding.kind, finding.partition, finding.batch) == ("recomputation", VICTIM, 8)
    assert "ZeroDivisionError: a fault of ours" in finding.text
    assert [one.recomputed == one.batches for one in found.partitions] == [number != VICTIM for number in range(4)]
    assert found.partitions[VICTIM].recomputed == 7


def test_progress_adds_up_to_all_that_was_read(recorded: MemorySource) -> None:
    told: list[int] = []
    found = audit(recorded, AuditOptions(SEEDS), processes=1, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == found.requests + found.labels


def test_partitions_are_shared_out_by_what_they_hold(recorded: MemorySource) -> None:
    source = deepcopy(recorded)
    source.limits |= {("requests", number): (5, 5 + size) for number, size in enumerate((10, 100, 40, 50))}
    assert share_partitions(source, [0, 1, 2, 3], 2) == [[1], [3, 2, 0]]
    assert share_partitions(source, [0, 1, 2, 3], 9) == [[1], [3], [2], [0]]
    source.limits = {}
    assert share_partitions(source, [0, 1, 2, 3], 2) == [[0, 2], [1, 3]]
    assert share_partitions(source, [], 2) == []


# Many partitions


def test_a_bounded_number_of_partitions_is_interleaved_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []
    at_once: list[int] = []

    def partition(number: int) -> Stepping[int]:
        began.append(number)
        total = 0
        for _ in range(1 + number % 5):
            total += yield number  # type: ignore[misc, operator]
        return total

    def ten_times(given: Sequence[int]) -> list[int]:
        at_once.append(len(given))
        return [10 * one for one in given]

    monkeypatch.setattr(replaying, "run_steps", ten_times)
    assert interleave_partitions(map(partition, range(50))) == [10 * number * (1 + number % 5) for number in range(50)]
    assert began == list(range(50))
    assert max(at_once) == MAX_INTERLEAVED_PARTITIONS
    assert sum(at_once) == sum(1 + number % 5 for number in range(50))
    assert interleave_partitions(map(partition, range(0))) == []
