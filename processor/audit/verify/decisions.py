"""The published decisions: compared with those that follow, and used for draws whose seed is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from processor.audit.replay.findings import Finding, Kind, batch_finding, with_code_points
from processor.audit.replay.output_reader import OutputReader, PartitionCursor
from processor.audit.replay.recorded_settings import RecordedSettings
from processor.audit.sources.source import Source
from processor.core.events import DecisionEvent, RequestEvent, decode_decision
from processor.core.learner.cases import Drawn
from processor.core.stream.journal import JournalRecord, decisions_digest
from processor.core.stream.step import DecodedBatch, EncodedDecision
from processor.core.stream.tenant import TenantSettings
from processor.ports.log import Record

Key = tuple[str, str]
QUOTED_CHARS = 600
"""characters of a record that are quoted"""


def tenants_without_seed(decoded: DecodedBatch, recorded_settings: RecordedSettings) -> set[str]:
    """The tenants of these requests whose seed is not known."""
    if len(recorded_settings.assigned) <= len(decoded.requests) and recorded_settings.has_all_seeds():
        return set()  # without a look at each request
    asking = {event.tenant for _, event, _ in decoded.requests}
    return {
        tenant for tenant in asking if recorded_settings.settings_for(tenant) and tenant in recorded_settings.seedless
    }


def recorded_draws(
    decoded: DecodedBatch, recorded_settings: RecordedSettings, tenants: set[str], decisions: Iterable[Record]
) -> Mapping[str, Mapping[str, Drawn]]:
    """What these decisions say, by tenant and id; only what some draw could have led to."""
    requests = {(e.tenant, e.decision_id): e for _, e, _ in decoded.requests if e.tenant in tenants}
    drawn: dict[str, dict[str, Drawn]] = {tenant: {} for tenant in tenants}
    for record in decisions:
        try:
            event = decode_decision(record.value or b"")
        except msgspec.MsgspecError:
            continue
        request, rules = requests.get((event.tenant, event.decision_id)), recorded_settings.settings_for(event.tenant)
        if request is not None and rules is not None and _is_possible(event, request, rules):
            drawn[event.tenant][event.decision_id] = Drawn(event.decision, event.expert, event.instance)
    return drawn


def _is_possible(event: DecisionEvent, request: RequestEvent, rules: TenantSettings) -> bool:
    """Whether the decision is an expert's advice, or the positive label by exploration."""
    settings = rules.settings
    followed = event.expert is not None and request.predictions.get(event.expert) == event.decision
    explored = event.expert is None and settings.explore is not None and event.decision == settings.positive
    return event.decision in settings.labels and (followed or explored) and event.instance in (None, *settings.labels)


class DecisionHead(msgspec.Struct, frozen=True, gc=False):
    """The part of a decision that says which it is."""

    tenant: str
    decision_id: str
    batch: int


_HEAD_DECODER = msgspec.json.Decoder(DecisionHead)


def head_of(record: Record) -> DecisionHead | None:
    """None for what is not a decision in JSON."""
    try:
        return _HEAD_DECODER.decode(record.value or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Decisions:
    """The decisions of one partition, batch by batch."""

    def __init__(self, reader: OutputReader, number: int) -> None:
        self.reader, self.number, self.topic = reader, number, reader.topic
        self._taken: tuple[str, int, list[Record]] | None = None
        self._hashed: tuple[list[bytes], str] = ([], decisions_digest([]))
        """the decisions a digest was last made of, and the digest"""

    def of(self, journal: JournalRecord) -> list[Record]:
        """The published decisions of this batch; a second call returns the same."""
        if self._taken is None or self._taken[:2] != (journal.lineage, journal.sequence):
            self._taken = (journal.lineage, journal.sequence, self._take(journal))
        return self._taken[2]

    def _take(self, journal: JournalRecord) -> list[Record]:
        if not self.reader.same_partitions:
            return [r for cursor in self.reader.cursors.values() for r in _take_batch(cursor, journal.sequence, [])]
        cursor = self.reader.cursors[self.number]
        records = cursor.take(journal.decisions)
        if self.digest_of([r.value or b"" for r in records]) == journal.decisions_digest:
            return records
        return _take_batch(cursor, journal.sequence, records)

    def digest_of(self, values: list[bytes]) -> str:
        """The digest of these decisions, cached: it is needed as they were recorded and as they follow."""
        if values != self._hashed[0]:
            self._hashed = (values, decisions_digest(values))
        return self._hashed[1]

    def skip_to(self, journal: JournalRecord) -> None:
        """Leave out the decisions of batches before this one.

        Sequences start again with every lineage, so where that tells more than one place the digest decides.
        """
        if self.reader.same_partitions:
            self.reader.start(self._first_offset(journal))
            return
        for cursor in self.reader.cursors.values():
            for record in cursor:
                if (head := head_of(record)) is None or head.batch >= journal.sequence:
                    cursor.put_back(record)
                    break

    def _first_offset(self, journal: JournalRecord) -> int:
        first: int | None = None
        end = 0
        group: list[Record] = []
        for record in self.reader.cursors[self.number]:
            head, end = head_of(record), record.offset + 1
            if head is None or head.batch < journal.sequence:
                group = []
                continue
            first = record.offset if first is None else first
            group = [*group, record] if head.batch == journal.sequence else []
            if not journal.decisions:
                break
            if len(group) == journal.decisions:
                if decisions_digest([r.value or b"" for r in group]) == journal.decisions_digest:
                    return group[0].offset
                group = group[1:]
        return end if first is None else first

    def unclaimed(self) -> Iterable[Record]:
        """The decisions that no batch has claimed."""
        for cursor in self.reader.cursors.values():
            yield from cursor

    # Comparing

    def compare(self, journal: JournalRecord, made: Sequence[EncodedDecision], values: list[bytes]) -> list[Finding]:
        """``values`` are the decisions that follow, as they are published."""
        records = self.of(journal)
        if [r.value for r in records] == values:
            keys = _Keys()
            if [r.key for r in records] == [keys[one.tenant] for one in made]:
                return []
        if not self.reader.same_partitions and {(r.key, r.value) for r in records} == {
            (one.tenant.encode(), value) for one, value in zip(made, values, strict=True)
        }:
            return [] if len(records) == len(values) else [self._twice(journal, records)]
        return self._differences(journal, records, values)

    def about(self, journal: JournalRecord, value: bytes) -> list[Finding]:
        """What is wrong with the published record of one decision; ``value`` is what follows."""
        key = _decision_key(value)
        records = [r for r in self.of(journal) if (head := head_of(r)) and (head.tenant, head.decision_id) == key]
        if not records:
            return [self._missing(journal, key, value)]
        return [found for r in records if r.value != value for found in self._changed(journal, r, value)]

    def digest_only(self, journal: JournalRecord, offset: int) -> list[Finding]:
        """Where nothing can be recomputed: are they those the journal was written with?"""
        records = self.of(journal)
        if (
            not self.reader.same_partitions
            or decisions_digest([r.value or b"" for r in records]) == journal.decisions_digest
        ):
            return []
        first = records[0].offset if records else None
        text = (
            f"the {len(records)} decisions of batch {journal.sequence} are not those ({journal.decisions}) that the "
            "journal was written with"
        )
        return [self._finding("decisions-digest", journal, first, text, cause=f"journal record at offset {offset}")]

    def _twice(self, journal: JournalRecord, records: Sequence[Record]) -> Finding:
        seen: set[bytes | None] = set()
        again = next(r for r in records if r.value in seen or seen.add(r.value))  # type: ignore[func-returns-value]
        return self._finding("decision-added", journal, again.offset, "a decision is there twice", quote(again.value))

    def _differences(self, journal: JournalRecord, records: Sequence[Record], values: Sequence[bytes]) -> list[Finding]:
        found: list[Finding] = []
        expected = {_decision_key(value): value for value in values}
        seen: dict[Key | None, Record] = {}
        for record in records:
            head = head_of(record)
            key = (head.tenant, head.decision_id) if head else None
            if key is None or key not in expected or key in seen:
                found.append(self._added(journal, record, key is not None and key in seen))
                continue
            seen[key] = record
            if record.value != expected[key]:
                found += self._changed(journal, record, expected[key])
            elif record.key != key[0].encode():
                text = f'the decision has {_key_text(record.key)} instead of its tenant "{key[0]}"'
                found.append(self._finding("decision", journal, record.offset, text))
        found += [
            self._missing(journal, key, value, _offsets_around([*expected], key, seen))
            for key, value in expected.items()
            if key not in seen
        ]
        if not found:
            text = "the decisions of this batch are in another order than their requests"
            found.append(self._finding("decision", journal, records[0].offset if records else None, text))
        return found

    def _missing(self, journal: JournalRecord, key: Key, value: bytes, where: str = "") -> Finding:
        text = f'the decision "{with_code_points(key[1])}" of tenant "{with_code_points(key[0])}" is missing{where}'
        return self._finding("decision-missing", journal, None, text, follows=quote(value))

    def added(self, journal: JournalRecord, record: Record) -> Finding:
        """A decision after those of the last batch."""
        return self._added(journal, record, False)

    def _added(self, journal: JournalRecord, record: Record, twice: bool) -> Finding:
        text = "the decision is there a second time" if twice else "no request of this batch leads to this decision"
        return self._finding("decision-added", journal, record.offset, text, quote(record.value))

    def _changed(self, journal: JournalRecord, record: Record, value: bytes) -> list[Finding]:
        try:
            theirs, mine = decode_decision(record.value or b""), decode_decision(value)
        except msgspec.MsgspecError:
            text = "the decision is not the one that follows from the record"
            return [self._finding("decision", journal, record.offset, text, quote(record.value), quote(value))]
        who = f'decision "{mine.decision_id}" of tenant "{mine.tenant}"'
        found = []
        chances = _fields_that_differ(theirs, mine, ("parts", "probabilities"))
        if chances:
            text = f"{who}: the recorded probability is not the one that follows"
            found.append(
                self._finding("probability", journal, record.offset, text, *_both_values(chances, theirs, mine))
            )
        rest = _fields_that_differ(
            theirs, mine, [f for f in mine.__struct_fields__ if f not in ("parts", "probabilities")]
        )
        if rest or not chances:
            text = f"{who}: {', '.join(rest) or 'its bytes'} not as it follows from the record"
            sides = _both_values(rest, theirs, mine) if rest else (quote(record.value), quote(value))
            found.append(self._finding("decision", journal, record.offset, text, *sides))
        return found

    def _finding(
        self,
        kind: Kind,
        journal: JournalRecord,
        offset: int | None,
        text: str,
        recorded: str = "",
        follows: str = "",
        cause: str = "",
    ) -> Finding:
        return batch_finding(kind, self.topic, self.number, journal, offset, text, recorded, follows, cause)


class RecordedDraws:
    """What was drawn according to the published decisions, for tenants whose seed is not known."""

    def __init__(self, source: Source, number: int, read_all: bool = False) -> None:
        self._source, self._number, self._read_all = source, number, read_all
        self.decisions: Decisions | None = None
        """opened when they are first needed; with ``read_all``, at the first batch"""

    def __call__(
        self, journal: JournalRecord, decoded: DecodedBatch, recorded_settings: RecordedSettings
    ) -> Mapping[str, Mapping[str, Drawn]]:
        tenants = tenants_without_seed(decoded, recorded_settings)
        if not tenants and not self._read_all:
            return {}
        if self.decisions is None:
            reader = OutputReader(self._source, "decisions", self._number, journal.partitions)
            self.decisions = Decisions(reader, self._number)
        records = self.decisions.of(journal)
        return recorded_draws(decoded, recorded_settings, tenants, records) if tenants else {}


class _Keys(dict[str, bytes]):
    """Tenants with the keys of their records."""

    def __missing__(self, tenant: str) -> bytes:
        key = self[tenant] = tenant.encode()
        return key


def _take_batch(cursor: PartitionCursor, sequence: int, begun: list[Record]) -> list[Record]:
    """All records up to the first of a later batch; ``begun`` has been read already."""
    for record in reversed(begun):
        cursor.put_back(record)
    records: list[Record] = []
    for record in cursor:
        head = head_of(record)
        if head is not None and head.batch > sequence:
            cursor.put_back(record)
            break
        records.append(record)
    return records


def _offsets_around(order: Sequence[Key], key: Key, there: Mapping[Key | None, Record]) -> str:
    """Between which offsets a decision was, as far as others of its batch are there; ``order`` is theirs."""
    at = order.index(key)
    before = next((there[one].offset for one in reversed(order[:at]) if one in there), None)
    after = next((there[one].offset for one in order[at + 1 :] if one in there), None)
    if before is None and after is None:
        return ""
    if before is None or after is None:
        return f": it was before offset {after}" if before is None else f": it was after offset {before}"
    return f": it was between offsets {before} and {after}"


def _key_text(key: bytes | None) -> str:
    """
    >>> _key_text(b"lender"), _key_text(None)
    ('the key "lender"', 'no key')
    """
    return "no key" if key is None else f'the key "{with_code_points(key.decode(errors="backslashreplace"))}"'


def _decision_key(value: bytes) -> Key:
    head = _HEAD_DECODER.decode(value)
    return head.tenant, head.decision_id


def _fields_that_differ(theirs: DecisionEvent, mine: DecisionEvent, fields: Iterable[str]) -> list[str]:
    return [name for name in fields if _plain(getattr(theirs, name)) != _plain(getattr(mine, name))]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, msgspec.Raw) else value


def _both_values(fields: Iterable[str], theirs: DecisionEvent, mine: DecisionEvent) -> tuple[str, str]:
    def side(event: DecisionEvent) -> str:
        return "; ".join(f"{name} {_value_text(getattr(event, name))}" for name in fields)

    recorded, follows = side(theirs), side(mine)
    return with_code_points(recorded, follows), with_code_points(follows, recorded)


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {part}" for name, part in value.items())
    return quote(bytes(value)) if isinstance(value, msgspec.Raw) else str(value)


def quote(value: bytes | None) -> str:
    text = (value or b"").decode(errors="replace")
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]} …"
