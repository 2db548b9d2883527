"""What became of a decision after it was made: found by reading on, without recomputing anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from processor.audit.sources.source import Source
from processor.core.errors import IncompatibleStateError
from processor.core.events import RejectedEventError, decode_feedback
from processor.core.stream.entries import Parked
from processor.core.stream.journal import JournalRecord
from processor.core.stream.step import FEEDBACK, StreamSettings, due_slot
from processor.core.stream.tenant import TenantSettings
from processor.ports.codec import Codec, raw_of
from processor.ports.log import Record


@dataclass(frozen=True)
class PastDecision:
    """A decision, as far as its future depends on it."""

    tenant: str
    decision_id: str
    decision: str
    partition: int
    lineage: str
    batch: int
    journal_offset: int
    clock: int
    requested: int
    parked: Parked | None
    """a label that was waiting for it"""
    parked_label: str

    @property
    def needle(self) -> bytes:
        """Bytes that every record about it must hold, unless it holds escapes."""
        return self.decision_id.encode()


class Label(msgspec.Struct, kw_only=True):
    """A label that came for the decision."""

    label: str
    at: int
    offset: int
    """in the feedback"""
    batch: int
    outcome: Literal["counted", "repeated", "contradicting", "too late", "not expected"] = "counted"


class LabelHistory(msgspec.Struct, kw_only=True):
    fate: Literal["labelled", "expired", "pending"]
    label: str | None = None
    """what it counts as; also for an expired decision, where the tenant says so"""
    correct: bool | None = None
    at: int | None = None
    """time of the label, or of the batch it expired in"""
    batch: int | None = None
    delay: int | None = None
    """milliseconds from the request to the label; negative if it came first"""
    due: int | None = None
    """when it expires or would have"""
    labels: list[Label] = []


def label_history(
    source: Source, made: PastDecision, rules: TenantSettings, settings: StreamSettings, codec: Codec | None
) -> LabelHistory:
    """Read the journal and the feedback on from the batch of the decision."""
    found = LabelHistory(fate="pending")
    due = (max(made.clock, made.requested) + rules.expiry) // settings.slot
    found.due = (due + 1) * settings.slot
    expected = rules.settings.feedback == "all" or made.decision == rules.settings.positive
    if made.parked is not None:
        first = Label(at=made.parked.timestamp, offset=made.parked.offset, batch=made.batch, label=made.parked_label)
        _add_label(found, first, expected)
    for journal, labels in _batches(source, made, settings, codec):
        for label in labels:
            _add_label(found, label, expected)
        if found.fate == "pending" and due_slot(journal.clock, settings.slot) >= due:
            found.fate, found.batch, found.at = "expired", journal.sequence, journal.clock
            found.label = rules.on_expiry if expected else None
    if found.label is not None:
        found.correct = found.label == made.decision
    if found.fate == "labelled" and found.at is not None:
        found.delay = found.at - made.requested
    return found


def _add_label(found: LabelHistory, label: Label, expected: bool) -> None:
    """Add a label; what it leads to depends on what there was before."""
    if found.label is not None:
        label.outcome = "repeated" if label.label == found.label else "contradicting"
    elif found.fate == "expired":
        label.outcome = "too late"
    elif not expected:
        label.outcome = "not expected"
    else:
        found.fate, found.label, found.at, found.batch = "labelled", label.label, label.at, label.batch
    found.labels.append(label)


def _batches(
    source: Source, made: PastDecision, settings: StreamSettings, codec: Codec | None
) -> Iterator[tuple[JournalRecord, list[Label]]]:
    records: Iterator[Record] | None = None
    held: Record | None = None
    for entry in source.read("journal", made.partition, made.journal_offset):
        try:
            journal = JournalRecord.decode(entry.value or b"")
        except IncompatibleStateError:
            return
        if journal.lineage != made.lineage:
            return
        if records is None:
            records = iter(source.read("feedback", made.partition, journal.feedback.start))
        labels: list[Label] = []
        while (record := held or next(records, None)) is not None:
            held = record if record.offset >= journal.feedback.next else None
            if held is not None:
                break
            if (label := _decode_label(record, made, settings, codec)) is not None:
                label.batch = journal.sequence
                labels.append(label)
        yield journal, labels


def _decode_label(record: Record, made: PastDecision, settings: StreamSettings, codec: Codec | None) -> Label | None:
    """The label in this record, if it is one for the decision."""
    value = record.value or b""
    if codec is None and made.needle not in value and b"\\" not in value:
        return None
    try:
        event = decode_feedback(raw_of(FEEDBACK, record, codec).value, settings.limits)
    except RejectedEventError:
        return None
    if (event.tenant, event.decision_id) != (made.tenant, made.decision_id):
        return None
    return Label(label=event.label, at=record.timestamp, offset=record.offset, batch=0)
