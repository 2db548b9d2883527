"""One reading of a partition for what a report shows: figures over time, alerts, who decided, and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec
import numpy as np

from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.replay.replay import Progress, Replay, ReplayedBatch
from processor.audit.sources.source import RecordingError, Role, Source
from processor.audit.verify.decisions import RecordedDraws
from processor.audit.verify.result import PartitionAudit
from processor.audit.whatif.outcomes import LabelledDecision, PendingLabels, RecordedDecision
from processor.core.alerts.alert_events import AlertEvent
from processor.core.learner.axes import Axes
from processor.core.learner.counters import Counters
from processor.core.stream.entries import entry_id
from processor.core.stream.partition import Partition
from processor.core.stream.step import REQUESTS, DecodedBatch
from processor.core.stream.tenant import Tenant
from processor.ports.codec import Codec
from processor.telemetry.window_figures import window_figures

from .data import Coverage, IntervalFigures, LaterAlert

MAX_POINTS = 160
MAX_ALERTS_PER_TENANT = 200
EXAMPLES_PER_TENANT = 4
EXPLORED = "(exploration)"
MAX_CUMULATIVE_POINTS = 80
MAX_INTERVALS = 12
LABELS_PER_INTERVAL = 80
MIN_LABELS = 30
"""Before these the gap of all labels so far says nothing."""
NO_JOURNAL = "there is no journal of it"


@dataclass(frozen=True)
class CollectionTask:
    """One partition to be read; it can be given to another process."""

    source: Source
    number: int
    secrets: Secrets
    tenants: frozenset[str] = frozenset()
    codec: Callable[[], Codec | None] | None = None
    points: int = MAX_POINTS


@dataclass
class Example:
    """A decision picked as an example."""

    order: bytes
    at: int
    said: Mapping[str, str]
    made: RecordedDecision
    label: str | None = None


@dataclass
class TenantCollection:
    """What was seen of one tenant."""

    tenant: Tenant | None = None
    partition: int = 0
    clock: int = 0
    first: int = 0
    last: int = 0
    points: list[tuple[int, Axes, Counters]] = field(default_factory=list)
    """times, and the counters as they were then"""
    every: int = 1
    batches: int = 0
    alerts: list[AlertEvent] = field(default_factory=list)
    alerts_left_out: int = 0
    decided: Counter[tuple[str, str]] = field(default_factory=Counter)
    """by group and expert"""
    labelled: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    configs: list[tuple[int, int, str, str]] = field(default_factory=list)
    """time, batch, digest, the configuration"""
    examples: dict[bytes, Example] = field(default_factory=dict)
    without: int = 0
    """decisions that get no label by design, because labels come for positive ones only"""
    without_pending: int = 0
    """of these, still held as if they waited"""

    def sample(self, clock: int, tenant: Tenant, most: int) -> None:
        """Keep the counters of now; of many moments every second, fourth …"""
        state = tenant.learner.state
        point = (clock, state.axes, state.lifetime)
        self.batches += 1
        if self.points and (self.batches - 1) % self.every:
            self.points[-1] = point  # the newest is always kept
            return
        self.points.append(point)
        if len(self.points) > 2 * most:
            self.points = [*self.points[1::2]]
            self.every *= 2


@dataclass
class Collection:
    """What was seen of one partition."""

    number: int
    tenants: dict[str, TenantCollection] = field(default_factory=dict)
    dead: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)
    """where the first dead letter of each reason came from"""
    ended: str = ""
    """why the figures end before the record does"""
    batches: int = 0
    """that the figures are made of"""
    until: int = 0
    """the time of the last of them"""


def collect(task: CollectionTask, progress: Progress = lambda records: None) -> Collection:
    """Read a partition. What cannot be recomputed ends the figures; it is the audit's to say what is wrong."""
    return _Collector(task).run(progress)


class _Collector:
    def __init__(self, task: CollectionTask) -> None:
        self.task, self.result, self.pending = task, Collection(task.number), PendingLabels()
        codec = task.codec() if task.codec else None
        self.replay = Replay(task.source, task.number, task.secrets, codec=codec)
        self.replay.drawn = RecordedDraws(task.source, task.number)
        self.lineage = ""
        self.without: set[bytes] = set()
        """decisions held that get no label by design"""
        self.batches, self.until = 0, 0
        self.reached: Partition | None = None

    def run(self, progress: Progress) -> Collection:
        read = 0
        try:
            for batch in self.replay.batches():
                if batch.outcome is None or batch.decoded is None or not batch.exact:
                    self.result.ended = self.replay.lost or "a batch cannot be recomputed"
                    break
                self._batch(batch, batch.decoded)
                self.batches, self.until, self.reached = self.batches + 1, batch.clock, self.replay.partition
                progress(self.replay.read - read)
                read = self.replay.read
        except (NotAuditableError, RecordingError) as reason:
            self.result.ended = str(reason)
        self._end()
        return self.result

    def _batch(self, batch: ReplayedBatch, decoded: DecodedBatch) -> None:
        assert batch.outcome is not None
        if batch.journal.lineage != self.lineage:
            if self.lineage:
                self.result, self.pending, self.without = Collection(self.task.number), PendingLabels(), set()
            self.lineage = batch.journal.lineage
        self._configurations(batch)
        self._requests(batch, decoded)
        made, labelled, expired = self.pending.take(batch.outcome, decoded)
        self._without(made, batch.outcome.partition)
        self.without.difference_update(expired)
        for one in made:
            if self._wanted(one.tenant):
                self._of(one.tenant).decided[one.group, one.expert or EXPLORED] += 1
        for name in {one.tenant for one in made if self._wanted(one.tenant)}:
            for key, example in self._of(name).examples.items():
                example.made = self.pending.waiting.get(key, example.made)
        for label in labelled:
            self._label(label)
        for alert in batch.outcome.alerts:
            self._alert(alert)
        for name in {label.made.tenant for label in labelled if self._wanted(label.made.tenant)}:
            self._of(name).sample(batch.clock, batch.outcome.partition.tenants[name], self.task.points)
        for letter in batch.outcome.dead_letters:
            role = "requests" if letter.raw.source == REQUESTS else "feedback"
            self.result.dead[letter.reason] += 1
            place = f"{self.task.source.topic(role)} [{self.task.number}] at {letter.raw.offset}"  # type: ignore[arg-type]
            self.result.places.setdefault(letter.reason, place)

    def _wanted(self, tenant: str) -> bool:
        return not self.task.tenants or tenant in self.task.tenants

    def _of(self, tenant: str) -> TenantCollection:
        return self.result.tenants.setdefault(tenant, TenantCollection(partition=self.task.number))

    def _configurations(self, batch: ReplayedBatch) -> None:
        for tenant, digest in batch.journal.rules.items():
            if self._wanted(tenant):
                text = self.replay.recorded_settings.configs.get(digest, "")
                self._of(tenant).configs.append((batch.clock, batch.journal.sequence, digest, text))

    def _requests(self, batch: ReplayedBatch, decoded: DecodedBatch) -> None:
        for raw, event, key in decoded.requests:
            if not self._wanted(event.tenant):
                continue
            seen, at = self._of(event.tenant), max(raw.timestamp, 0) or batch.clock
            seen.first, seen.last = min(seen.first or at, at), max(seen.last, at)
            order = blake2b(key, digest_size=8).digest()
            if len(seen.examples) < EXAMPLES_PER_TENANT or order < max(one.order for one in seen.examples.values()):
                self._example(
                    seen, Example(order, at, event.predictions, _unknown_decision(event.tenant, event.decision_id))
                )

    def _example(self, seen: TenantCollection, example: Example) -> None:
        key = entry_id(example.made.tenant, example.made.decision_id)
        if key in seen.examples:
            return
        seen.examples[key] = example
        if len(seen.examples) > EXAMPLES_PER_TENANT:
            del seen.examples[max(seen.examples, key=lambda one: seen.examples[one].order)]

    def _without(self, made: Sequence[RecordedDecision], partition: Partition) -> None:
        """Note who will get no label, whatever happens."""
        for one in made:
            settings = partition.tenants[one.tenant].rules.settings
            if settings.feedback != "all" and one.decision != settings.positive and self._wanted(one.tenant):
                self.without.add(entry_id(one.tenant, one.decision_id))
                self._of(one.tenant).without += 1

    def _label(self, label: LabelledDecision) -> None:
        if not self._wanted(label.made.tenant):
            return
        seen, expert = self._of(label.made.tenant), label.made.expert or EXPLORED
        seen.labelled[expert] += 1
        seen.wrong[expert] += label.made.decision != label.truth
        if label.key in seen.examples:
            seen.examples[label.key].made, seen.examples[label.key].label = label.made, label.truth

    def _alert(self, alert: AlertEvent) -> None:
        if self._wanted(alert.tenant):
            seen = self._of(alert.tenant)
            if len(seen.alerts) < MAX_ALERTS_PER_TENANT:
                seen.alerts.append(alert)
            else:
                seen.alerts_left_out += 1

    def _end(self) -> None:
        partition = self.reached
        self.result.batches, self.result.until = self.batches, self.until
        for key in self.without & self.pending.waiting.keys():
            self._of(self.pending.waiting[key].tenant).without_pending += 1
        for name, seen in self.result.tenants.items():
            refused = [key for key, example in seen.examples.items() if not example.made.decision]
            for key in refused:
                del seen.examples[key]
            if partition is not None and name in partition.tenants:
                seen.tenant, seen.clock = partition.tenants[name], partition.clock


def _unknown_decision(tenant: str, decision_id: str) -> RecordedDecision:
    """Stands for a decision until it is known."""
    return RecordedDecision(tenant, decision_id, "", "", None, {})


def cumulative(seen: TenantCollection) -> list[IntervalFigures]:
    """All labels until then, at up to ``MAX_CUMULATIVE_POINTS`` moments."""
    tenant, points = seen.tenant, _aligned(seen)
    if tenant is None or not points:
        return []
    enough = [one for one in points if int(one[1].seen.sum()) >= MIN_LABELS]
    points = enough or points
    chosen = sorted({round(i) for i in np.linspace(0, len(points) - 1, min(MAX_CUMULATIVE_POINTS, len(points)))})
    start = seen.first or points[0][0]
    return _interval_figures(tenant, [(start, points[i][0], points[i][1].outcomes, points[i][1].seen) for i in chosen])


def intervals(seen: TenantCollection) -> list[IntervalFigures]:
    """The time of the record in intervals with about as many labels each."""
    tenant, points = seen.tenant, _aligned(seen)
    if tenant is None or not points:
        return []
    joined = np.array([int(counters.seen.sum()) for _, counters in points])
    count = int(max(1, min(MAX_INTERVALS, joined[-1] // LABELS_PER_INTERVAL)))
    ends = sorted({int(np.searchsorted(joined, joined[-1] * (k + 1) / count)) for k in range(count)})
    parts, since, before = [], seen.first or points[0][0], None
    for end in ends:
        until, counters = points[end]
        outcomes = counters.outcomes - (before.outcomes if before is not None else 0)
        labels = counters.seen - (before.seen if before is not None else 0)
        parts.append((since, until, outcomes, labels))
        since, before = until, counters
    return _interval_figures(tenant, parts)


def _aligned(seen: TenantCollection) -> list[tuple[int, Counters]]:
    """Counters of all moments under the names of the last."""
    if seen.tenant is None:
        return []
    axes = seen.tenant.learner.state.axes
    return [(at, counters.regrown(old, axes)) for at, old, counters in seen.points]


def _interval_figures(
    tenant: Tenant, parts: Sequence[tuple[int, int, np.ndarray, np.ndarray]]
) -> list[IntervalFigures]:
    outcomes = np.stack([one for _, _, one, _ in parts])
    seen = np.stack([one for _, _, _, one in parts])
    found = window_figures([tenant], outcomes, seen, [[("", since) for since, *_ in parts]])
    return [
        IntervalFigures(
            since=since,
            until=until,
            labels=figures[0].labels,
            gaps=figures[0].gaps,
            rates=figures[0].rates,
            group_error=figures[0].group_error,
        )
        for (since, until, _, _), figures in zip(parts, found, strict=True)
    ]


def measure_coverage(
    source: Source, audits: Sequence[PartitionAudit], collections: Sequence[Collection], wanted: frozenset[str]
) -> list[Coverage]:
    """Every partition with one of the tenants ``wanted`` (none: all of them), and how far its figures go."""
    audit_of = {one.partition: one for one in audits}
    seen = {one.number: one for one in collections}
    found = []
    for number in sorted({*audit_of, *seen, *source.partitions("requests")}):
        audit, collection = audit_of.get(number), seen.get(number, Collection(number))
        if wanted and number not in seen and audit is not None and audit.batches:
            continue  # none of them belongs there
        batches = _count_batches(audit) if audit else 0
        if collection.batches >= batches > 0 and not collection.ended:
            found.append(Coverage(partition=number, batches=collection.batches, of=batches, until=collection.until))
            continue
        one = _partial_coverage(source, collection, batches, audit, wanted)
        if one.missing or one.tenants or (one.of and not wanted):
            found.append(one)
    return found


def _partial_coverage(
    source: Source, collection: Collection, batches: int, audit: PartitionAudit | None, wanted: frozenset[str]
) -> Coverage:
    decided = _tenants(source, "decisions", source.partitions("decisions")) if source.has("decisions") else None
    decoded = _tenants(source, "requests", [collection.number])
    there = decoded if decided is None else decoded & decided
    there = there & wanted if wanted else there
    shown = {name for name, tenant in collection.tenants.items() if tenant.tenant is not None}
    ends = [finding.text for finding in audit.findings if finding.kind == "end-missing"] if audit else []
    why = collection.ended or next(iter(ends), "") or (audit.not_auditable if audit else "") or NO_JOURNAL
    return Coverage(
        partition=collection.number,
        batches=collection.batches,
        of=max(batches, collection.batches),
        until=collection.until,
        why=why,
        tenants=sorted(shown),
        missing=sorted(there - shown),
        later_alerts=list(_later_alerts(source, there | shown, collection.until)),
    )


def _count_batches(audit: PartitionAudit) -> int:
    """Batches of the journal, and those after its end that something else speaks of."""
    last = audit.lineages[-1] if audit.lineages else None
    reached = last.last if last else 0
    beyond = [
        finding.batch - (reached if last and finding.lineage in ("", last.name) else 0)
        for finding in audit.findings
        if finding.kind == "end-missing" and finding.batch is not None
    ]
    return audit.batches + max(beyond, default=0)


def _tenants(source: Source, role: Role, partitions: Iterable[int]) -> set[str]:
    found: set[bytes] = set()
    for number in partitions:
        try:
            found.update(record.key for record in source.read(role, number) if record.key)
        except RecordingError:
            continue  # the audit says so
    return {key.decode(errors="replace") for key in found}


def _later_alerts(source: Source, tenants: set[str], until: int) -> Iterator[LaterAlert]:
    """What the topic of alerts holds of the time that could not be recomputed."""
    for number in source.partitions("alerts"):
        try:
            for record in source.read("alerts", number):
                alert = _decode_alert(record.value)
                if alert is not None and alert.at > until and alert.tenant in tenants:
                    yield LaterAlert(tenant=alert.tenant, at=alert.at, kind=alert.kind, state=alert.state)
        except RecordingError:
            continue


def _decode_alert(value: bytes | None) -> AlertEvent | None:
    try:
        return msgspec.json.decode(value or b"", type=AlertEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
