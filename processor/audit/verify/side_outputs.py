"""Comparing dead letters and alerts with those that follow from the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from processor.audit.replay.findings import Finding, batch_finding
from processor.audit.replay.output_reader import OutputReader
from processor.audit.sources.source import Source
from processor.core.stream.journal import JournalRecord
from processor.core.stream.step import REQUESTS, DeadLetter, InputRecord
from processor.ports.log import Record
from processor.service.publish import MAX_DEAD_LETTER, MAX_KEY

from .decisions import quote

READ_AHEAD_LETTERS = 10_000
"""Dead letters read ahead of the one looked for, before it is said to be missing."""
MAX_HELD_LETTERS = 5 * READ_AHEAD_LETTERS
"""Dead letters held that nothing has led to yet, however many are missing."""
BAND_TOLERANCE = 1e-4
"""Ends of confidence bands come from library functions, which may differ in the last bit between machines."""
BAND_FIELDS = ("lower", "upper")

Name = tuple[str, int, str]
"""Which alert: tenant, number, state."""
Place = tuple[bytes, int]
"""Where a dead letter came from: topic and offset."""


class DeadLetters:
    """The dead letters of one partition of the inputs, identified by the offset in their headers.

    They are partitioned by the key they came with, and without one they may be anywhere, so order says nothing.
    """

    def __init__(self, source: Source, number: int) -> None:
        self.topic, self.number, self._mine = source.topic("dead_letters"), number, str(number).encode()
        self._topics = (source.topic("requests").encode(), source.topic("feedback").encode())
        self._readers = [iter(source.read("dead_letters", j)) for j in source.partitions("dead_letters")]
        self._seen: dict[Place, tuple[Record, bytes]] = {}
        """read already and not looked for yet, each with the reason it gives"""
        self._floors = (0, 0)
        self._early: dict[Place, tuple[Record, bytes]] = {}
        """the same, of what came before the audit starts: few of them are looked for (labels that were parked)"""

    def skip_to(self, journal: JournalRecord) -> None:
        """Do not wait for what came before this batch."""
        self._floors = (journal.requests.start, journal.feedback.start)

    def compare(self, journal: JournalRecord, letters: Sequence[DeadLetter]) -> list[Finding]:
        found: list[Finding] = []
        requests, feedback = self._topics
        reasons = {reason: reason.encode() for reason in {letter.reason for letter in letters}}
        for letter in letters:
            raw = letter.raw
            place = (requests if raw.source == REQUESTS else feedback, raw.offset)
            held = self._seen.pop(place, None)
            record, reason = held or self._look_for(place)
            if record is None or reason != reasons[letter.reason] or not _holds_input(record, raw):
                found.append(self._difference(journal, letter, record, self._in_words(place)))
        return found

    def _in_words(self, place: Place) -> str:
        return f"{place[0].decode(errors='replace')} [{self.number}] at {place[1]}"

    def _difference(self, journal: JournalRecord, letter: DeadLetter, record: Record | None, where: str) -> Finding:
        if record is None:
            return self._finding(journal, None, f"{where} should be here", "", str(letter.reason))
        reason = _header_text(record, "gforce.reason")
        if reason != letter.reason:
            text = f"the reason for {where} differs"
            return self._finding(journal, record.offset, text, reason, str(letter.reason))
        return self._finding(journal, record.offset, f"{where} is not what came", quote(record.value))

    def unclaimed(self) -> Iterable[tuple[Record, str, int, int]]:
        """What nothing leads to, with the place it names: in words, by input (0 or 1) and by offset."""
        while self._readers:
            self._read_on()
        for place, (record, _) in self._seen.items():
            yield record, self._in_words(place), int(place[0] != self._topics[0]), place[1]

    def _look_for(self, place: Place) -> tuple[Record | None, bytes]:
        seen = self._early if place[1] < self._floor(place[0]) else self._seen
        limit = min(len(self._seen) + READ_AHEAD_LETTERS, MAX_HELD_LETTERS)
        while place not in seen:
            if not self._readers or len(self._seen) >= limit:
                return None, b""
            self._read_on()
        return seen.pop(place)

    def _floor(self, topic: bytes) -> int:
        return self._floors[topic != self._topics[0]]

    def _read_on(self) -> None:
        """One record of every partition."""
        for cursor in tuple(self._readers):
            record = next(cursor, None)
            if record is None:
                self._readers.remove(cursor)
                continue
            header = dict(record.headers).get
            offset = header("gforce.offset") or b""
            if header("gforce.partition") == self._mine and offset.isdigit():
                self._keep((header("gforce.topic") or b"", int(offset)), (record, header("gforce.reason") or b""))

    def _keep(self, place: Place, letter: tuple[Record, bytes]) -> None:
        if place[1] >= self._floor(place[0]):
            self._seen[place] = letter
            return
        self._early[place] = letter
        if len(self._early) > MAX_HELD_LETTERS:
            for oldest in tuple(islice(self._early, READ_AHEAD_LETTERS)):
                del self._early[oldest]

    def added(self, record: Record, place: str) -> Finding:
        return Finding(
            kind="dead-letter",
            topic=self.topic,
            partition=record.partition,
            offset=record.offset,
            text=f"nothing in the record leads to this dead letter of {place}",
            recorded=_header_text(record, "gforce.reason"),
        )

    def _finding(
        self, journal: JournalRecord, offset: int | None, text: str, recorded: str = "", follows: str = ""
    ) -> Finding:
        text = f"dead letter: {text}"
        return batch_finding("dead-letter", self.topic, self.number, journal, offset, text, recorded, follows)


def _holds_input(record: Record, raw: InputRecord) -> bool:
    """Whether a dead letter has the key and value of what came, as they are published; see ``service.publish``."""
    key, value = raw.key, raw.received
    if value is not None and len(value) > MAX_DEAD_LETTER:
        value = value[:1_000]
    return value == record.value and (key == record.key or key is None or len(key) > MAX_KEY)


def _header_text(record: Record, name: str) -> str:
    """What a header says; the last of that name."""
    return (dict(record.headers).get(name) or b"").decode(errors="replace")


class Alerts:
    """The alerts of one partition, in order for each tenant."""

    def __init__(self, reader: OutputReader, number: int) -> None:
        self._reader, self.number, self.topic = reader, number, reader.topic

    def compare(self, journal: JournalRecord, alerts: Sequence[Any]) -> list[Finding]:
        """``alerts`` are those that follow from the batch."""
        found: list[Finding] = []
        names = [(alert.tenant, alert.number, alert.state) for alert in alerts]
        for i, alert in enumerate(alerts):
            cursor = self._reader.cursor(alert.tenant.encode())
            record = cursor.next()
            expected = alert.encode()
            who = f'alert {alert.number} of tenant "{alert.tenant}" ({alert.state})'
            if record is None or _is_later(record, journal.sequence, names[i], names[i + 1 :]):
                where = "" if record is None else f": it was before offset {record.offset}"
                found.append(self._finding(journal, None, f"{who} is missing{where}", "", quote(expected)))
                if record is not None:
                    cursor.put_back(record)
            elif not same_alert(record.value or b"", expected):
                text = f"{who} is not as it follows from the record"
                found.append(self._finding(journal, record.offset, text, quote(record.value), quote(expected)))
        return found

    def skip_to(self, journal: JournalRecord) -> None:
        """Leave out what batches before this one have raised."""
        for cursor in self._reader.cursors.values():
            for record in cursor:
                if _batch_of(record) >= journal.sequence:
                    cursor.put_back(record)
                    break

    def unclaimed(self) -> Iterable[Record]:
        for cursor in self._reader.cursors.values():
            yield from cursor

    def added(self, record: Record) -> Finding:
        return Finding(
            kind="alert",
            topic=self.topic,
            partition=record.partition,
            offset=record.offset,
            text="nothing in the record leads to this alert",
            recorded=quote(record.value),
        )

    def _finding(self, journal: JournalRecord, offset: int | None, text: str, recorded: str, follows: str) -> Finding:
        return batch_finding("alert", self.topic, self.number, journal, offset, text, recorded, follows)


class _AlertHead(msgspec.Struct, gc=False):
    """The part of an alert that says which it is."""

    batch: int = 0
    tenant: str = ""
    number: int = -1
    state: str = ""


def _alert_head(record: Record) -> _AlertHead:
    try:
        return msgspec.json.decode(record.value or b"", type=_AlertHead)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _AlertHead()


def _batch_of(record: Record) -> int:
    return _alert_head(record).batch


def _is_later(record: Record, batch: int, wanted: Name, after: Sequence[Name]) -> bool:
    """Whether this is not the alert that is wanted, altered or not, but one that comes after it."""
    there = _alert_head(record)
    name = (there.tenant, there.number, there.state)
    return name != wanted and (name in after or there.batch > batch)


def same_alert(recorded: bytes, expected: bytes) -> bool:
    """Alike but for the last digits of the ends of confidence bands.

    >>> same_alert(b'{"gap":0.1,"lower":0.0399}', b'{"gap":0.1,"lower":0.04}')
    True
    >>> same_alert(b'{"gap":0.11,"lower":0.04}', b'{"gap":0.1,"lower":0.04}')
    False
    """
    if recorded == expected:
        return True
    try:
        return _equal_values(msgspec.json.decode(recorded), msgspec.json.decode(expected), "")
    except msgspec.MsgspecError:
        return False


def _equal_values(one: Any, other: Any, name: str) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal_values(one[key], other[key], key) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_equal_values(a, b, name) for a, b in zip(one, other, strict=True))
    if name in BAND_FIELDS and isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= BAND_TOLERANCE + 1e-9
    return bool(one == other)
