"""One partition under one other setting, stepped batch by batch beside the record.

Labels may come at other times. A label belongs to the first batch whose last record (request or label, as recorded) is
not earlier than the label's new time, as it does where both inputs are consumed together. Labels that would come
earlier than they did must be known before they are read, so they are first stored on disk: memory stays as small as
what waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from processor.audit.replay.memory_state import MemoryState
from processor.audit.replay.recorded_settings import RecordedSettings, Secrets
from processor.audit.replay.replay import ReplayedBatch
from processor.audit.sources.source import Source
from processor.core.advice import Advice
from processor.core.errors import InvalidSettingsError
from processor.core.events import FeedbackEvent, Limits, RejectedEventError, decode_feedback
from processor.core.stream.entries import entry_id
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partition import Partition
from processor.core.stream.step import FEEDBACK, DecodedBatch, InputRecord, advanced, due_slot, step
from processor.core.stream.tenant import Tenant, TenantSettings, fields_by_tenant
from processor.ports.codec import Codec, raw_of

from .outcomes import LabelledDecision, PairedCases, PendingLabels, TenantRun, count_batch
from .settings import LabelDelay, SettingsChange

INSERT_ROWS = 5_000
NO_LIMITS = Limits(max_event_bytes=1 << 30, max_id_chars=1 << 20, max_name_chars=1 << 20)
"""A label beyond the recorded limits finds no request that was within them."""
Due = tuple[int, int, str, str, str]
"""time, offset, tenant, decision id, label"""
HIDDEN_LABELS = (
    "labels come for positive decisions only: of cases the record refused nobody knows the label, and another setting "
    "would have decided others positively"
)


class LabelStore:
    """Every label of a partition by its decision."""

    def __init__(self, path: Path) -> None:
        self._base = sqlite3.connect(path)
        self._base.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE IF NOT EXISTS labels (id BLOB, offset INTEGER, at INTEGER, label TEXT);"
        )

    def fill(self, source: Source, number: int, codec: Codec | None = None) -> None:
        """Read the feedback once. What is no label is left out: it is none at any other time either."""
        rows = []
        for record in source.read("feedback", number):
            try:
                event = decode_feedback(raw_of(FEEDBACK, record, codec).value, NO_LIMITS)
            except RejectedEventError:
                continue
            rows.append((entry_id(event.tenant, event.decision_id), record.offset, record.timestamp, event.label))
            if len(rows) >= INSERT_ROWS:
                self._add(rows)
                rows = []
        self._add(rows)
        self._base.execute("CREATE INDEX IF NOT EXISTS by_id ON labels (id)")
        self._base.commit()

    def _add(self, rows: list[tuple[bytes, int, int, str]]) -> None:
        self._base.executemany("INSERT INTO labels VALUES (?, ?, ?, ?)", rows)

    def of(self, key: bytes) -> Iterator[tuple[int, int, str]]:
        """Offset, time and label, in the order they came."""
        return iter(self._base.execute("SELECT offset, at, label FROM labels WHERE id = ? ORDER BY offset", (key,)))

    def close(self) -> None:
        self._base.close()


class RetimedLabels:
    """Replaces the labels of every batch by those that are due with it."""

    def __init__(self, delay: LabelDelay, store: LabelStore) -> None:
        self._delay, self._store = delay, store
        self._due: list[Due] = []

    def begin(self) -> None:
        self._due = []

    @property
    def outstanding(self) -> int:
        """Labels that have not come by the end of the record."""
        return len(self._due)

    def __call__(self, journal: JournalRecord, decoded: DecodedBatch) -> DecodedBatch:
        until = _end_of_batch(journal, decoded)
        for raw, event, key in decoded.requests:
            at = _timestamp(raw, journal)
            for offset, came, label in self._store.of(key):
                when = self._delay.label_time(at, came if came >= 0 else at)
                heappush(self._due, (when, offset, event.tenant, event.decision_id, label))
        feedback = []
        while self._due and self._due[0][0] <= until:
            when, offset, tenant, decision_id, label = heappop(self._due)
            raw = InputRecord(FEEDBACK, offset, when, tenant.encode(), b"")
            feedback.append((raw, FeedbackEvent(tenant, decision_id, label), entry_id(tenant, decision_id)))
        return replace(decoded, feedback=feedback)


def _end_of_batch(journal: JournalRecord, decoded: DecodedBatch) -> int:
    """Up to when labels belong to this batch: the time of its last record; without any, its clock."""
    return max(
        (_timestamp(raw, journal) for raw, _, _ in (*decoded.requests, *decoded.feedback)), default=journal.clock
    )


def _timestamp(raw: InputRecord, journal: JournalRecord) -> int:
    return raw.timestamp if raw.timestamp >= 0 else journal.clock


class Variation:
    """The stream under one other setting."""

    def __init__(
        self, change: SettingsChange, number: int, secrets: Secrets, tenants: frozenset[str], store: LabelStore | None
    ) -> None:
        self.change, self._number, self._secrets, self._tenants = change, number, secrets, tenants
        self.retimed = RetimedLabels(change.delay, store) if change.delay and store else None
        self.refused: dict[str, str] = {}
        """tenants this setting cannot be tried on, and why"""
        self._lineage = ""
        self.partition: Partition | None = None
        self.runs: dict[str, TenantRun] = {}
        self.pending = PendingLabels()

    def _begin(self, journal: JournalRecord) -> None:
        self._lineage = journal.lineage
        self.recorded_settings, self.state = RecordedSettings(self._secrets, self._override), MemoryState()
        self.runs, self.pending = {}, PendingLabels()
        self.partition = Partition(
            self._number, journal.partitions, Identity(journal.lineage, journal.sequence - 1, GENESIS)
        )
        if self.retimed:
            self.retimed.begin()

    def _override(self, tenant: str, rules: TenantSettings) -> TenantSettings:
        if rules.settings.feedback != "all":
            self.refused[tenant] = HIDDEN_LABELS
            return rules
        try:
            return self.change.apply_to(tenant, rules)
        except InvalidSettingsError as error:
            self.refused[tenant] = str(error)
            return rules

    def follow(self, batch: ReplayedBatch) -> tuple[list[LabelledDecision], list[bytes]]:
        """Step one batch. Returns the labels it joined, and decisions whose labels will never come."""
        journal = batch.journal
        assert batch.decoded is not None
        if journal.lineage != self._lineage:
            self._begin(journal)
        self._configure(journal)
        decoded, undecidable = self._transform(journal, batch.decoded)
        settings = self.recorded_settings.stream_settings()
        due = self.state.due(due_slot(journal.clock, settings.slot), settings.sweep)
        assert self.partition is not None
        outcome = step(self.partition, decoded, self.state.entries, due, journal.clock, settings)
        self.state.follow(outcome)
        self.partition = advanced(outcome.partition, batch.identity)
        made, labelled, expired = self.pending.take(outcome, decoded)
        count_batch(self.runs, made, labelled, frozenset())
        for tenant in undecidable:
            self.runs.setdefault(tenant, TenantRun(tenant)).undecided += 1
        for alert in outcome.alerts:
            if alert.state == "raised" and alert.tenant in self.runs:
                self.runs[alert.tenant].alerts += 1
        return labelled, expired

    def _configure(self, journal: JournalRecord) -> None:
        """Apply the settings of the journal, as ``Replay`` does."""
        self.recorded_settings.configs.update(journal.configs)
        fresh = bool(journal.terms) and journal.terms != self.recorded_settings.stream_text
        if fresh:
            self.recorded_settings.set_stream_settings(journal.terms)
        self.recorded_settings.assigned.update(journal.rules)
        affected = [name for name in self.partition.tenants if fresh or name in journal.rules] if self.partition else []
        if affected and self.partition is not None:
            tenants, own = dict(self.partition.tenants), fields_by_tenant(self.state.fields)
            for name in affected:
                number = tenants[name].number
                tenants[name] = Tenant.from_fields(number, own[number], self.recorded_settings.settings_for)
            self.partition = replace(self.partition, tenants=tenants)

    def _transform(self, journal: JournalRecord, decoded: DecodedBatch) -> tuple[DecodedBatch, list[str]]:
        """The batch under this setting: the tenants wanted, without the experts left out, labels at their new times."""
        wanted, without = self._tenants, set(self.change.without)
        requests = [one for one in decoded.requests if not wanted or one[1].tenant in wanted]
        feedback = [one for one in decoded.feedback if not wanted or one[1].tenant in wanted]
        undecidable: list[str] = []
        if without:
            kept = []
            for raw, event, key in requests:
                predictions = {expert: label for expert, label in event.predictions.items() if expert not in without}
                if predictions:
                    kept.append((raw, msgspec.structs.replace(event, advice=Advice.of(event.group, predictions)), key))
                else:
                    undecidable.append(event.tenant)
            requests = kept
        decoded = replace(decoded, requests=requests, feedback=feedback, refused=[], garbage=0)
        return (self.retimed(journal, decoded) if self.retimed else decoded), undecidable


@dataclass
class Pairing:
    """Brings the two labels of a case together, at whatever times they come."""

    pending: PendingLabels
    other: Variation
    by_tenant: dict[str, PairedCases] = field(default_factory=dict)
    _mine: dict[bytes, LabelledDecision] = field(default_factory=dict)
    _theirs: dict[bytes, LabelledDecision] = field(default_factory=dict)

    def take(
        self,
        mine: Sequence[LabelledDecision],
        theirs: Sequence[LabelledDecision],
        gone: Iterable[bytes],
        gone_there: Iterable[bytes],
    ) -> None:
        for label in theirs:
            self._theirs[label.key] = label
        for label in mine:
            partner = self._theirs.pop(label.key, None)
            if partner is not None:
                self._pair(label, partner)
            elif label.key in self.other.pending.waiting:
                self._mine[label.key] = label
        for label in theirs:
            if label.key not in self._theirs:
                continue
            partner = self._mine.pop(label.key, None)
            if partner is not None:
                self._pair(partner, self._theirs.pop(label.key))
            elif label.key not in self.pending.waiting:
                del self._theirs[label.key]  # the record never has a label for it
        for key in gone:
            self._theirs.pop(key, None)
        for key in gone_there:
            self._mine.pop(key, None)

    def _pair(self, mine: LabelledDecision, theirs: LabelledDecision) -> None:
        if mine.truth == theirs.truth:  # one may have expired into another label
            self.by_tenant.setdefault(mine.made.tenant, PairedCases()).add(mine, theirs)
