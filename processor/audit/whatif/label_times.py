"""The same labels at other times: when would each have come, and with which batch?

A label belongs to the first batch whose last record (request or label, as recorded) is not earlier than the label's
new time, as it does where both inputs are consumed together. Labels that would come earlier than they did must be
known before they are read, so they are first put aside, on disk: memory stays as small as what waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path

from processor.audit.sources.source import Source
from processor.core.events import FeedbackEvent, Limits, RejectedEventError, decode_feedback
from processor.core.stream.entries import entry_id
from processor.core.stream.journal import JournalRecord
from processor.core.stream.step import FEEDBACK, DecodedBatch, InputRecord
from processor.ports.codec import Codec, raw_of

from .settings import LabelDelay

AT_ONCE = 5_000
ANY_SIZE = Limits(max_event_bytes=1 << 30, max_id_chars=1 << 20, max_name_chars=1 << 20)
"""A label beyond the recorded limits finds no request that was within them."""
Due = tuple[int, int, str, str, str]
"""time, offset, tenant, decision id, label"""


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
                event = decode_feedback(raw_of(FEEDBACK, record, codec).value, ANY_SIZE)
            except RejectedEventError:
                continue
            rows.append((entry_id(event.tenant, event.decision_id), record.offset, record.timestamp, event.label))
            if len(rows) >= AT_ONCE:
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


class Retimed:
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

    def __call__(self, journal: JournalRecord, asked: DecodedBatch) -> DecodedBatch:
        until = _end(journal, asked)
        for raw, event, key in asked.requests:
            at = _time(raw, journal)
            for offset, came, label in self._store.of(key):
                when = self._delay.moved(at, came if came >= 0 else at)
                heappush(self._due, (when, offset, event.tenant, event.decision_id, label))
        feedback = []
        while self._due and self._due[0][0] <= until:
            when, offset, tenant, decision_id, label = heappop(self._due)
            raw = InputRecord(FEEDBACK, offset, when, tenant.encode(), b"")
            feedback.append((raw, FeedbackEvent(tenant, decision_id, label), entry_id(tenant, decision_id)))
        return replace(asked, feedback=feedback)


def _end(journal: JournalRecord, asked: DecodedBatch) -> int:
    """Up to when labels belong to this batch: the time of its last record; without any, its clock."""
    return max((_time(raw, journal) for raw, _, _ in (*asked.requests, *asked.feedback)), default=journal.clock)


def _time(raw: InputRecord, journal: JournalRecord) -> int:
    return raw.timestamp if raw.timestamp >= 0 else journal.clock
