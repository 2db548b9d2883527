"""One reading of a partition for what a report shows beyond the verdict: figures over time, alerts, who decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.output_reader import OutputReader
from processor.audit.replay.pool import Progress
from processor.audit.replay.recorded_draws import drawn_by_record, without_seed
from processor.audit.replay.replay import Replay, ReplayedBatch
from processor.audit.replay.rules import RuleBook, Secrets
from processor.audit.sources.source import RecordingError, Source
from processor.audit.verify.decisions import Decisions
from processor.audit.whatif.ledger import LabelledDecision, Ledger, RecordedDecision
from processor.core.alerts.alert_events import AlertEvent
from processor.core.learner.axes import Axes
from processor.core.learner.cases import Drawn
from processor.core.learner.counters import Counters
from processor.core.stream.entries import entry_id
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partition import Partition
from processor.core.stream.step import REQUESTS, DecodedBatch
from processor.core.stream.tenant import Tenant
from processor.ports.codec import Codec

MOST_POINTS = 160
MOST_ALERTS = 200
SAMPLES = 4
EXPLORED = "(exploration)"


@dataclass(frozen=True)
class Reading:
    """One partition to be read; it can be given to another process."""

    source: Source
    number: int
    secrets: Secrets
    tenants: frozenset[str] = frozenset()
    codec: Callable[[], Codec | None] | None = None
    points: int = MOST_POINTS


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


def collected(reading: Reading, progress: Progress = lambda records: None) -> Collection:
    """Read a partition. What cannot be recomputed ends the figures; it is the audit's to say what is wrong."""
    return _Collecting(reading).run(progress)


class _Collecting:
    def __init__(self, reading: Reading) -> None:
        self.reading, self.result, self.ledger = reading, Collection(reading.number), Ledger()
        codec = reading.codec() if reading.codec else None
        self.replay = Replay(reading.source, reading.number, reading.secrets, codec=codec)
        self.replay.drawn = self._drawn
        self.decisions: Decisions | None = None
        self.lineage = ""
        self.without: set[bytes] = set()
        """decisions held that get no label by design"""
        self.batches, self.until = 0, 0
        self.reached: Partition | None = None

    def run(self, progress: Progress) -> Collection:
        read = 0
        try:
            for batch in self.replay.batches():
                if batch.outcome is None or batch.asked is None or not batch.exact:
                    self.result.ended = self.replay.lost or "a batch cannot be recomputed"
                    break
                self._batch(batch, batch.asked)
                self.batches, self.until, self.reached = self.batches + 1, batch.clock, self.replay.partition
                progress(self.replay.read - read)
                read = self.replay.read
        except (NotAuditableError, RecordingError) as reason:
            self.result.ended = str(reason)
        self._end()
        return self.result

    def _drawn(self, journal: JournalRecord, asked: DecodedBatch, book: RuleBook) -> Mapping[str, Mapping[str, Drawn]]:
        tenants = without_seed(asked, book)
        if not tenants:
            return {}
        if self.decisions is None:
            number = self.reading.number
            self.decisions = Decisions(
                OutputReader(self.reading.source, "decisions", number, journal.partitions), number
            )
        return drawn_by_record(asked, book, tenants, self.decisions.of(journal))

    def _batch(self, batch: ReplayedBatch, asked: DecodedBatch) -> None:
        assert batch.outcome is not None
        if batch.journal.lineage != self.lineage:
            if self.lineage:
                self.result, self.ledger, self.without = Collection(self.reading.number), Ledger(), set()
            self.lineage = batch.journal.lineage
        self._configurations(batch)
        self._requests(batch, asked)
        made, labelled, expired = self.ledger.take(batch.outcome, asked)
        self._without(made, batch.outcome.partition)
        self.without.difference_update(expired)
        for one in made:
            if self._wanted(one.tenant):
                self._of(one.tenant).decided[one.group, one.expert or EXPLORED] += 1
        for name in {one.tenant for one in made if self._wanted(one.tenant)}:
            for key, example in self._of(name).examples.items():
                example.made = self.ledger.waiting.get(key, example.made)
        for label in labelled:
            self._label(label)
        for alert in batch.outcome.alerts:
            self._alert(alert)
        for name in {label.made.tenant for label in labelled if self._wanted(label.made.tenant)}:
            self._of(name).sample(batch.clock, batch.outcome.partition.tenants[name], self.reading.points)
        for letter in batch.outcome.dead_letters:
            role = "requests" if letter.raw.source == REQUESTS else "feedback"
            self.result.dead[letter.reason] += 1
            place = f"{self.reading.source.topic(role)} [{self.reading.number}] at {letter.raw.offset}"  # type: ignore[arg-type]
            self.result.places.setdefault(letter.reason, place)

    def _wanted(self, tenant: str) -> bool:
        return not self.reading.tenants or tenant in self.reading.tenants

    def _of(self, tenant: str) -> TenantCollection:
        return self.result.tenants.setdefault(tenant, TenantCollection(partition=self.reading.number))

    def _configurations(self, batch: ReplayedBatch) -> None:
        for tenant, digest in batch.journal.rules.items():
            if self._wanted(tenant):
                text = self.replay.book.configs.get(digest, "")
                self._of(tenant).configs.append((batch.clock, batch.journal.sequence, digest, text))

    def _requests(self, batch: ReplayedBatch, asked: DecodedBatch) -> None:
        for raw, event, key in asked.requests:
            if not self._wanted(event.tenant):
                continue
            seen, at = self._of(event.tenant), max(raw.timestamp, 0) or batch.clock
            seen.first, seen.last = min(seen.first or at, at), max(seen.last, at)
            order = blake2b(key, digest_size=8).digest()
            if len(seen.examples) < SAMPLES or order < max(one.order for one in seen.examples.values()):
                self._example(seen, Example(order, at, event.predictions, _nothing(event.tenant, event.decision_id)))

    def _example(self, seen: TenantCollection, example: Example) -> None:
        key = entry_id(example.made.tenant, example.made.decision_id)
        if key in seen.examples:
            return
        seen.examples[key] = example
        if len(seen.examples) > SAMPLES:
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
            if len(seen.alerts) < MOST_ALERTS:
                seen.alerts.append(alert)
            else:
                seen.alerts_left_out += 1

    def _end(self) -> None:
        partition = self.reached
        self.result.batches, self.result.until = self.batches, self.until
        for key in self.without & self.ledger.waiting.keys():
            self._of(self.ledger.waiting[key].tenant).without_pending += 1
        for name, seen in self.result.tenants.items():
            refused = [key for key, example in seen.examples.items() if not example.made.decision]
            for key in refused:
                del seen.examples[key]
            if partition is not None and name in partition.tenants:
                seen.tenant, seen.clock = partition.tenants[name], partition.clock


def _nothing(tenant: str, decision_id: str) -> RecordedDecision:
    """Stands for a decision until it is known."""
    return RecordedDecision(tenant, decision_id, "", "", None, {})
