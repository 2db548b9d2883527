"""At the end of a run: does what a plain consumer and Redis say agree with what was produced?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from processor.core.stream.journal import JournalRecord
from processor.core.stream.partition import Partition
from processor.core.stream.tenant import Tenant
from processor.ports.store import Store
from processor.run.assembly import store_of, stream_settings, topics_of

from .replay import DiffersError, Replay
from .topics import Contents, read_all
from .workload import Expected
from .world import PARTITIONS, World

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Verdict:
    """Figures, and every difference in words; no difference is a pass."""

    differences: list[str] = field(default_factory=list)
    decisions: int = 0
    labels_joined: int = 0
    labels_duplicate: int = 0
    requests_repeated: int = 0
    pending: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    longest_gap: dict[int, float] = field(default_factory=dict)
    """seconds between two committed batches, by partition"""

    def equal(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.differences.append(f"{what}: {found}, and it should be {wanted}")

    def same_counts(self, what: str, found: Counter[Key], wanted: Counter[Key]) -> None:
        """Both ways round, with a few examples."""
        for word, less, more in (("missing", found, wanted), ("too many", wanted, found)):
            wrong = more - less
            if wrong:
                examples = ", ".join(f"{key!r:.160} ×{n}" for key, n in list(wrong.items())[:3])
                self.differences.append(f"{what}: {sum(wrong.values())} {word}, such as {examples}")


def verify(world: World, expected: Expected, until: float | None = None) -> Verdict:
    """``until``: when the load ended, seconds since the epoch; gaps after that are no matter."""
    topics = topics_of(world.config)
    contents = read_all(world.broker.bootstrap, list(vars(topics).values()), PARTITIONS)
    verdict = Verdict()
    for topic in topics.inputs:
        verdict.equal(f"records of {topic}", len(contents.all(topic)), expected.records[topic])
    _check_decisions(verdict, contents, topics.decisions, expected)
    _check_dead_letters(verdict, contents, topics.dead_letters, expected)
    store = store_of(world.config)
    try:
        _check_state(verdict, world, contents, store, expected)
    finally:
        store.close()
    for number in range(PARTITIONS):
        times = [JournalRecord.decode(seen.value).now / 1000 for seen in contents.of(topics.journal, number)]
        inside = [t for t in times if until is None or t <= until]
        verdict.longest_gap[number] = max((b - a for a, b in pairwise(inside)), default=0.0)
    return verdict


def _check_decisions(verdict: Verdict, contents: Contents, topic: str, expected: Expected) -> None:
    made: Counter[tuple[str, str, str]] = Counter()
    for _, seen in contents.all(topic):
        decision = json.loads(seen.value)
        made[decision["tenant"], decision["decision_id"], decision["group"]] += 1
    wanted = Counter((tenant, decision, group) for (tenant, decision), group in expected.requests.items())
    verdict.decisions = sum(made.values())
    verdict.same_counts("decisions", made, wanted)


def _check_dead_letters(verdict: Verdict, contents: Contents, topic: str, expected: Expected) -> None:
    found: Counter[tuple[str, str, bytes]] = Counter()
    places: Counter[tuple[str, ...]] = Counter()
    reasons: Counter[str] = Counter()
    for _, seen in contents.all(topic):
        headers = {name: (value or b"").decode() for name, value in seen.headers}
        found[headers["gforce.reason"], headers["gforce.topic"], seen.value] += 1
        places[headers["gforce.topic"], headers["gforce.partition"], headers["gforce.offset"]] += 1
        reasons[headers["gforce.reason"]] += 1
    verdict.dead_letters = dict(sorted(reasons.items()))
    verdict.same_counts("dead letters", found, expected.dead)
    twice = [place for place, n in places.items() if n > 1]
    verdict.equal("records that are in dead-letters twice", len(twice), 0)


def _check_state(verdict: Verdict, world: World, contents: Contents, store: Store, expected: Expected) -> None:
    """The state in Redis against the recomputation, and both against the plain count of what was produced."""
    topics, terms = topics_of(world.config), stream_settings(world.config)
    recomputed: list[Partition] = []
    stored: list[Partition] = []
    for number in range(PARTITIONS):
        replay = Replay(contents, topics, terms, number, PARTITIONS)
        try:
            recomputed.append(replay.run())
            stored.append(replay.compare_store(store))
        except DiffersError as difference:
            verdict.differences.append(f"partition {number}: {difference}")
        verdict.batches += replay.batches
    for where, partitions in (("recomputed", recomputed), ("Redis", stored)):
        _check_counters(verdict, where, partitions, expected)
    verdict.pending = sum(partition.pending for partition in stored)
    verdict.labels_joined = sum(_tally(stored, "labels_joined").values())
    verdict.labels_duplicate = sum(_tally(stored, "labels_duplicate").values())
    verdict.requests_repeated = sum(_tally(stored, "requests_duplicate").values())


def _check_counters(verdict: Verdict, where: str, partitions: list[Partition], expected: Expected) -> None:
    decided: Counter[tuple[str, str]] = Counter()
    joined: Counter[tuple[str, str, str]] = Counter()
    for tenant in _tenants(partitions):
        axes, counters = tenant.learner.state.axes, tenant.learner.counters()
        for g, group in enumerate(axes.groups):
            decided[tenant.name, group] = int(counters.arrivals[0, g])
            for k, label in enumerate(axes.labels):
                joined[tenant.name, group, label] = int(counters.seen[0, g, k])
    wanted = Counter((tenant, group) for (tenant, _), group in expected.requests.items())
    verdict.same_counts(f"{where}: decisions per tenant and group", decided, wanted)
    verdict.same_counts(f"{where}: labels per tenant, group and label", joined, expected.joined)
    duplicates, repeated = _tally(partitions, "labels_duplicate"), _tally(partitions, "requests_duplicate")
    verdict.same_counts(f"{where}: duplicate labels", duplicates, expected.duplicate_labels)
    verdict.same_counts(f"{where}: repeated requests", repeated, expected.repeated_requests)
    pending = len(expected.requests) - sum(expected.joined.values())
    verdict.equal(f"{where}: pending decisions", sum(p.pending for p in partitions), pending)
    verdict.equal(f"{where}: labels still parked", sum(p.parked for p in partitions), 0)


def _tenants(partitions: list[Partition]) -> list[Tenant]:
    return [tenant for partition in partitions for tenant in partition.tenants.values()]


def _tally(partitions: list[Partition], name: str) -> Counter[str]:
    return Counter({tenant.name: tenant.tally[name] for tenant in _tenants(partitions)})
