"""Read an input by the ranges of the journal, and report where it differs from what was processed.

The journal holds a hash of every input record. A record that was changed in one place can often be reconstructed: try
another label, another prediction, another time until the hash is the recorded one. The hash proves the result.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import islice
from operator import attrgetter

import msgspec

from processor.audit.sources.source import Role, Source
from processor.core import native
from processor.core.stream.journal import JournalRecord, Range, record_hash
from processor.ports.log import Record

from .findings import Finding, Kind, NotAuditableError, batch_finding, with_code_points

TIMESTAMP_SEARCH_MS = 300_000
"""Milliseconds to each side in which another timestamp is looked for."""
_FIELD_PATTERN = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*("(?:[^"\\]|\\.)*"|true|false|-?\d+)')
HASH_BYTES = 8
MAX_CHANGED_FOR_TIMESTAMP_SEARCH = 3
MAX_TIMESTAMP_SEARCHES = 3
"""for each input of a partition, because a search is costly"""
READ_AHEAD_RECORDS = 1_000
"""records read at a time where the input has more than the journal counts"""
_offset = attrgetter("offset")


@dataclass(frozen=True)
class RestoredRecord:
    record: Record
    what: str
    """what was changed, in words"""


def restore_record(
    role: Role, record: Record, wanted: bytes, known: Iterable[str], reach: int = TIMESTAMP_SEARCH_MS
) -> RestoredRecord | None:
    """The record as it was processed, if one changed word or time explains the difference.

    ``known`` are words that may have been replaced: labels, for example.
    """
    for value, what in _other_words(role, record.value or b"", known):
        if record_hash(record.key, value, record.timestamp) == wanted:
            return RestoredRecord(msgspec.structs.replace(record, value=value), what)
    timestamp = _other_time(record, wanted, reach)
    if timestamp is None:
        return None
    what = f"its timestamp was changed from {timestamp} to {record.timestamp}"
    return RestoredRecord(msgspec.structs.replace(record, timestamp=timestamp), what)


def _other_words(role: Role, value: bytes, known: Iterable[str]) -> Iterator[tuple[bytes, str]]:
    """The payload with one of its words replaced by another."""
    pairs = list(_FIELD_PATTERN.finditer(value))
    words = {pair[2] for pair in pairs} | {b"true", b"false", b"0", b"1"}
    words |= {msgspec.json.encode(word) for word in known}
    for pair in pairs:
        name = _word_text(b'"' + pair[1] + b'"')
        part = "its label" if role == "feedback" and name == "label" else f'"{name}"'
        for word in sorted(words - {pair[2]}):
            start, end = pair.span(2)
            before, after = _word_text(word), _word_text(pair[2])
            what = f"{part} was changed from {with_code_points(before, after)} to {with_code_points(after, before)}"
            yield value[:start] + word + value[end:], what


def _word_text(word: bytes) -> str:
    try:
        return str(msgspec.json.decode(word))
    except msgspec.DecodeError:
        return word.decode(errors="replace")


def _other_time(record: Record, wanted: bytes, reach: int) -> int | None:
    body = b"\x00" if record.value is None else b"\x01" + record.value
    encode = msgspec.msgpack.Encoder().encode
    for distance in range(1, reach):
        for timestamp in (record.timestamp - distance, record.timestamp + distance):
            if blake2b(encode([record.key, timestamp]) + body, digest_size=8).digest() == wanted:
                return timestamp
    return None


@dataclass
class RangeRecords:
    """The records of one range. ``exact``: they are those that were processed, restored ones included."""

    records: list[Record]
    exact: bool = True
    findings: list[Finding] = field(default_factory=list)


class Skipped(msgspec.Struct, frozen=True):
    """Offsets ``first`` to ``next``, not included, that the processor could not read and an operator had skipped."""

    input: str
    topic: str
    partition: int
    first: int
    next: int
    readable: int = 0
    """records there that could be read here"""

    @property
    def text(self) -> str:
        """
        >>> Skipped("requests", "eu.requests", 3, 17, 18).text
        'eu.requests [3]: offset 17 was skipped by an operator, because the processor could not read it'
        """
        one = self.next == self.first + 1
        what = f"offset {self.first} was" if one else f"offsets {self.first} to {self.next - 1} were"
        why = f"because the processor could not read {'it' if one else 'them'}"
        here = f"; {self.readable} records of that can be read here" if self.readable else ""
        return f"{self.topic} [{self.partition}]: {what} skipped by an operator, {why}{here}"


class InputCursor:
    """One input of one partition, read forward once; a new lineage may seek back."""

    def __init__(self, source: Source, role: Role, partition: int) -> None:
        self._source, self.role, self.number = source, role, partition
        self.topic = source.topic(role)
        self._bounds = source.bounds(role, partition)
        self._records: Iterator[Record] = iter(())
        self._held: list[Record] = []
        """read already, and after ``position``"""
        self._open = False
        self._first: int | None = None
        """offset of the first record there is"""
        self.position = 0
        self.read = 0
        self.known_words: set[str] = set()
        """names of labels and groups"""
        self.skipped: list[Skipped] = []
        self._searches = MAX_TIMESTAMP_SEARCHES

    def take(self, journal: JournalRecord, part: Range) -> RangeRecords:
        """The records of a batch. Raises NotAuditableError where the record does not reach.

        Offsets that an operator skipped are no input, even if this source can read some of them.
        """
        records = self._between(part.start, part.next, part.count)
        for source, first, after in journal.skipped:
            if source == self.role and part.start <= first < after <= part.next:
                here = len(records)
                records = [record for record in records if not first <= record.offset < after]
                self.skipped.append(Skipped(self.role, self.topic, self.number, first, after, here - len(records)))
        self.read += len(records)
        hashes = _decode_hashes(part)
        if len(hashes) == HASH_BYTES * part.count and len(records) == part.count and hash_records(records) == hashes:
            return RangeRecords(records)
        self._check_reach(journal, part, len(records))
        return _RangeDifferences(self, journal, part, records, hashes).compare()

    def seek(self, position: int) -> None:
        """Continue at this offset, before or after what has been read."""
        if position < self.position:
            self._open = False
        self.position = position

    def restore(self, record: Record, wanted: bytes, one_of_few: bool) -> RestoredRecord | None:
        """The record as it was processed, if it can be reconstructed. A search for its timestamp is costly."""
        search = one_of_few and self._searches > 0
        self._searches -= search
        return restore_record(self.role, record, wanted, self.known_words, TIMESTAMP_SEARCH_MS if search else 0)

    def count_remaining(self) -> int:
        """How many records there are after what the journal covers."""
        self._between(self.position, self.position)
        return len(self._held) + sum(1 for _ in self._records)

    def _between(self, start: int, stop: int, count: int = 0) -> list[Record]:
        """The records of these offsets, which should be ``count``."""
        if not self._open or start < self.position:
            self._records, self._held, self._open = iter(self._source.read(self.role, self.number, start)), [], True
        self.position = stop
        wanted = max(min(count, stop - start), 0) + 1  # one more, to see that there are no others
        found = self._held
        found += islice(self._records, max(wanted - len(found), 0))
        while found and found[-1].offset < stop and (more := list(islice(self._records, READ_AHEAD_RECORDS))):
            found += more
        first, end = (bisect_left(found, offset, key=_offset) for offset in (start, stop))
        if self._first is None and first < len(found):
            self._first = found[first].offset
        self._held = found[end:]
        return found[first:end]

    def _check_reach(self, journal: JournalRecord, part: Range, found: int) -> None:
        """A range that was not kept is no difference, but it cannot be audited either."""
        if found >= part.count:
            return
        what = f"{self.topic} [{self.number}]"
        needs = f"batch {journal.sequence} was made from offsets {part.start} to {part.next - 1} of {what}"
        low = self._bounds[0] if self._bounds else self._first
        if low is not None and part.start < low and (self._bounds or self._first_of(part)):
            raise NotAuditableError(
                f"{needs}, and what is here starts at {low}: older records were not recorded or no longer kept "
                "(retention). Start the audit at a snapshot (--from-snapshot), and keep the inputs as long as audits "
                "need them.",
                partition=self.number,
            )
        if self._bounds and part.next > self._bounds[1]:
            raise NotAuditableError(
                f"{needs}, and what is here ends at {self._bounds[1]}: record the inputs up to there as well",
                partition=self.number,
            )

    def _first_of(self, part: Range) -> bool:
        """Whether there is no record before this range: then its start may simply not be kept."""
        return self._first is not None and self._first >= part.start


def hash_records(records: Sequence[Record]) -> bytes:
    """``record_hash`` of every record, one after the other."""
    columns = ([r.key for r in records], [r.value for r in records], [r.timestamp for r in records])
    return native.record_hashes(*columns)


def _decode_hashes(part: Range) -> bytes:
    try:
        return b64decode(part.hashes, validate=True)
    except NotBase64:
        return b""


@dataclass
class _RangeDifferences:
    """A range whose records are not those that were processed: which differ, and which can be reconstructed."""

    cursor: InputCursor
    journal: JournalRecord
    part: Range
    records: list[Record]
    hashes: bytes

    def compare(self) -> RangeRecords:
        wanted = [self.hashes[at : at + HASH_BYTES] for at in range(0, len(self.hashes), HASH_BYTES)]
        if len(wanted) != self.part.count:
            text = f"the journal counts {self.part.count} records and has {len(wanted)} hashes of them"
            return RangeRecords(self.records, False, [self._finding("journal-altered", None, text)])
        there = [record_hash(r.key, r.value, r.timestamp) for r in self.records]
        if len(there) == len(wanted) and sorted(there) == sorted(wanted):
            return self._reordered(there, wanted)
        return self._aligned(there, wanted)

    def _reordered(self, there: list[bytes], wanted: list[bytes]) -> RangeRecords:
        moved = [i for i, (mine, theirs) in enumerate(zip(there, wanted, strict=True)) if mine != theirs]
        offsets = [self.records[i].offset for i in moved]
        by_hash = dict(zip(there, self.records, strict=True))
        records = [
            Record(r.topic, r.partition, r.offset, o.timestamp, o.key, o.value, o.headers)
            for r, o in zip(self.records, [by_hash[h] for h in wanted], strict=True)
        ]
        text = f"the records at {_offsets_text(offsets)} were processed in another order: they have changed places"
        return RangeRecords(records, True, [self._finding("input-order", offsets[0], text)])

    def _changed_record(self, record: Record, mine: bytes, theirs: bytes, original: RestoredRecord | None) -> Finding:
        text = "the record is not the one that was processed"
        cause = "its key, payload or timestamp was changed"
        if original is not None:
            cause = f"{original.what}: with that, its hash is the one in the journal, and the audit goes on with it"
        return self._finding("input-changed", record.offset, text, theirs.hex(), mine.hex(), cause)

    def _aligned(self, there: list[bytes], wanted: list[bytes]) -> RangeRecords:
        """Separate changed records from missing and added ones, by the longest unchanged runs."""
        records, exact, findings = list(self.records), True, []
        unlike = sum(mine != theirs for mine, theirs in zip(there, wanted, strict=False))
        matcher = SequenceMatcher(None, wanted, there, autojunk=False)
        for how, first, last, at, until in matcher.get_opcodes():
            if how == "equal":
                continue
            pairs = min(last - first, until - at)
            for i in range(pairs):
                record, theirs = self.records[at + i], wanted[first + i]
                original = self.cursor.restore(record, theirs, unlike <= MAX_CHANGED_FOR_TIMESTAMP_SEARCH)
                findings.append(self._changed_record(record, there[at + i], theirs, original))
                exact &= original is not None
                records[at + i] = original.record if original else record
            findings += [self._missing(i, until, wanted[i]) for i in range(first + pairs, last)]
            for i in range(at + pairs, until):
                text = "the record was not there when the batch was made, or was not part of it"
                findings.append(self._finding("input-added", self.records[i].offset, text, "", there[i].hex()))
            exact &= last - first == until - at
        return RangeRecords(records, exact, findings)

    def _missing(self, index: int, at: int, theirs: bytes) -> Finding:
        before = self.records[at - 1].offset if at else self.part.start - 1
        after = self.records[at].offset if at < len(self.records) else self.part.next
        where = f"at offset {before + 1}" if after - before == 2 else f"between offsets {before} and {after}"
        text = f"record {index + 1} of the batch's {self.part.count} is missing: it was {where}"
        return self._finding("input-missing", before + 1, text, theirs.hex())

    def _finding(
        self, kind: Kind, offset: int | None, text: str, recorded: str = "", follows: str = "", cause: str = ""
    ) -> Finding:
        recorded = f"hash {recorded} in the journal" if recorded else ""
        follows = f"hash {follows} of the record" if follows else ""
        topic, partition = self.cursor.topic, self.cursor.number
        return batch_finding(kind, topic, partition, self.journal, offset, text, recorded, follows, cause)


def _offsets_text(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:6]))
    return f"{shown} and {len(offsets) - 6} more" if len(offsets) > 6 else shown
