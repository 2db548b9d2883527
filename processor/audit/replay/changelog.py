"""The changelog: compared with the journal batch by batch, and a snapshot to start an audit from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from processor.audit.sources.source import Source
from processor.core.errors import ForeignRecordError, IncompatibleStateError
from processor.core.stream.identity import Identity
from processor.core.stream.journal import ChangelogRecord, JournalRecord, digest, state_digest
from processor.core.stream.partition import HEAD, partition_from_fields
from processor.ports.log import Record

from .findings import Finding, NotAuditableError, batch_finding
from .journal_chain import Chain, ChainLink, decode_journal
from .memory_state import MemoryState, boundaries
from .recorded_settings import RecordedSettings, Secrets
from .replay import Start

ENDS_EARLY = (
    "the changelog at hand ends before the journal. Earlier versions left it so where it had been trimmed between two "
    "recordings into one folder: record into it once more, and the manifest says which offsets were gone"
)


@dataclass(frozen=True)
class ChangelogBatch:
    """One batch of the changelog."""

    offset: int
    """of its last part"""
    identity: Identity
    previous: str
    snapshot: bool
    """a whole snapshot starts here, a slice with each batch"""
    writes: bytes


def changelog_batches(source: Source, number: int, foreign: list[Finding] | None = None) -> Iterator[ChangelogBatch]:
    """Whole batches, in order. A batch whose beginning is not there is left out; ``foreign`` gets what is not ours."""
    parts: list[ChangelogRecord] = []
    for record in source.read("changelog", number):
        decoded = _decode_record(source, record, [] if foreign is None else foreign)
        if decoded is None:
            continue
        if decoded.part == 0:
            parts = []
        parts.append(decoded)
        if [part.part for part in parts] == list(range(decoded.parts)):
            identity = Identity(decoded.lineage, decoded.sequence, decoded.digest)
            writes = b"".join(part.writes for part in parts)
            yield ChangelogBatch(record.offset, identity, decoded.previous, parts[0].snapshot, writes)


def _decode_record(source: Source, record: Record, foreign: list[Finding]) -> ChangelogRecord | None:
    if not record.value:
        return None
    topic, partition, offset = source.topic("changelog"), record.partition, record.offset
    try:
        return ChangelogRecord.decode(record.value)
    except ForeignRecordError as error:
        foreign.append(Finding(kind="foreign-record", topic=topic, partition=partition, offset=offset, text=str(error)))
        return None
    except IncompatibleStateError as error:
        place = f"{source.topic('changelog')} [{record.partition}] at {record.offset}"
        raise NotAuditableError(f"{place}: {error}", partition=record.partition) from None


def own_writes(writes: bytes, previous: str, wanted: str) -> bytes | None:
    """The writes of the batch itself, without the slice of a snapshot before them; None if there are none such.

    The state digest in the journal says which they are.
    """
    if state_digest(previous, writes) == wanted:
        return writes
    for at in reversed(boundaries(writes)):
        if state_digest(previous, writes[at:]) == wanted:
            return writes[at:]
    return None


class Changelog:
    """Read along with the journal. Trimmed batches are no difference."""

    def __init__(self, source: Source, number: int) -> None:
        self.topic, self.number = source.topic("changelog"), number
        self._foreign: list[Finding] = []
        self._entries = changelog_batches(source, number, self._foreign)
        self._gaps = source.gaps("changelog", number)
        self._held: ChangelogBatch | None = None
        self._met = False
        self._passed = -1
        """offset of the last entry that was read and is no longer held"""
        self.trimmed = 0
        """batches whose writes were gone before they could be recorded"""

    def of(self, journal: JournalRecord) -> ChangelogBatch | None:
        """The entry of this batch, if it is kept."""
        while (entry := self._held or next(self._entries, None)) is not None:
            self._held = None
            at = (entry.identity.lineage, entry.identity.sequence)
            if at == (journal.lineage, journal.sequence):
                self._met, self._passed = True, entry.offset
                return entry
            if entry.identity.lineage != journal.lineage or entry.identity.sequence > journal.sequence:
                self._held = entry
                return None
            self._passed = entry.offset
        return None

    def _gone(self) -> bool:
        """Whether the next batch was trimmed before it could be recorded: before the first one here, or in a gap."""
        if not self._met or self._gaps is None:
            return True
        until = None if self._held is None else self._held.offset
        return any(self._passed < first and (until is None or end <= until) for first, end in self._gaps)

    def compare(self, journal: JournalRecord, identity: Identity, own: bytes) -> list[Finding]:
        """``own`` are the writes that follow from the batch."""
        entry = self.of(journal)
        foreign, self._foreign[:] = list(self._foreign), []
        return foreign + self._compared(entry, journal, identity, own)

    def _compared(
        self, entry: ChangelogBatch | None, journal: JournalRecord, identity: Identity, own: bytes
    ) -> list[Finding]:
        if entry is None:
            if self._gone():
                self.trimmed += 1
                return []
            cause = "" if self._held else ENDS_EARLY
            return [self._finding(journal, None, "the writes of this batch are missing", cause)]
        if entry.identity != identity or entry.previous != journal.previous:
            return [self._finding(journal, entry.offset, f"the record belongs to {entry.identity.text()}")]
        if not entry.writes.endswith(own):
            return [self._finding(journal, entry.offset, "its writes are not those that follow from the record")]
        return []

    def unlike(self, journal: JournalRecord, entry: ChangelogBatch) -> list[Finding]:
        return [self._finding(journal, entry.offset, "no part of its writes has the state digest of the journal")]

    def _finding(self, journal: JournalRecord, offset: int | None, text: str, cause: str = "") -> Finding:
        text = f"changelog of batch {journal.sequence}: {text}"
        return batch_finding("changelog", self.topic, self.number, journal, offset, text, cause=cause)


def start_from_snapshot(source: Source, number: int, batch: int, secrets: Secrets) -> tuple[Start, list[Finding]]:
    """The state to start batch ``batch`` from; 0 is the first batch after the first whole snapshot.

    Also returns the findings of the chain, which is walked from the first journal record there is.
    """
    if not source.has("changelog"):
        raise NotAuditableError("to start at a snapshot the changelog must be recorded as well", partition=number)
    state, last = _restore_state(source, number, batch)
    recorded_settings = RecordedSettings(secrets)
    link, findings = _walk_chain(source, number, last.identity, recorded_settings)
    _, partitions, *_, terms, _ = msgspec.msgpack.decode(state.fields[HEAD])
    recorded_settings.set_stream_settings(terms)
    for name, value in state.fields.items():
        if name.startswith(b"t"):
            _, tenant, _, _, _, recorded, *_ = msgspec.msgpack.decode(value)
            recorded_settings.assigned[tenant] = recorded
    partition = partition_from_fields(number, partitions, link.identity, state.fields, recorded_settings.settings_for)
    return Start(link, partition, state, recorded_settings), findings


def _restore_state(source: Source, number: int, batch: int) -> tuple[MemoryState, ChangelogBatch]:
    """Apply the changelog until a whole state is there, at the batch before the wanted one or later."""
    state, last, whole, next_look = MemoryState(), None, False, 0
    for entry in changelog_batches(source, number):
        sequence = entry.identity.sequence
        follows = last is not None and (entry.identity.lineage, sequence, entry.previous) == (
            last.identity.lineage,
            last.identity.sequence + 1,
            last.identity.digest,
        )
        begins = (sequence == 1 and batch > 0) or (entry.snapshot and not (whole and follows))
        if begins:
            state, whole, next_look = MemoryState(), sequence == 1, sequence
        elif not follows:
            last = None
            continue
        last = entry
        state.take(entry.writes)
        if not whole and sequence >= next_look:
            next_look = sequence + max(1, (sequence - next_look) // 2)
            whole = not _missing_part(state)
        if whole and sequence >= max(batch - 1, 1):
            return state, entry
    if last is None or not whole:
        raise NotAuditableError(
            f"the changelog of partition {number} at hand holds no whole snapshot"
            + (f" before batch {batch}" if batch else "")
            + ": record it from its beginning, or audit from the first batch (without --from-snapshot)",
            partition=number,
        )
    raise NotAuditableError(
        f"the changelog of partition {number} ends with batch {last.identity.sequence}, before {batch}",
        partition=number,
    )


def _missing_part(state: MemoryState) -> str:
    head = state.fields.get(HEAD)
    if head is None:
        return "no head"
    _, _, _, pending, parked, *_ = msgspec.msgpack.decode(head)
    numbers = {name[1:] for name in state.fields if name.startswith(b"t")}
    counted = {name[1:] for name in state.fields if name.startswith(b"c")}
    if numbers != counted or numbers != {i.to_bytes(2, "big") for i in range(len(numbers))}:
        return "tenants are missing"
    return state.missing_part(pending, parked)


def _walk_chain(
    source: Source, number: int, wanted: Identity, recorded_settings: RecordedSettings
) -> tuple[ChainLink, list[Finding]]:
    """The chain up to the batch a state is of, and the configurations on the way."""
    topic = source.topic("journal")
    chain, findings = Chain(topic, number), list[Finding]()
    for record in source.read("journal", number):
        journal = decode_journal(topic, number, record)
        if isinstance(journal, Finding):
            findings.append(journal)
            continue
        link = ChainLink(journal, record.offset, digest(record.value or b""))
        if chain.last is None and journal.sequence > 1:
            chain.last = link  # the window begins here: nothing before it to be held against
        else:
            findings += chain.follow(link)
        recorded_settings.configs.update(journal.configs)
        if (journal.lineage, journal.sequence) == (wanted.lineage, wanted.sequence):
            if link.digest != wanted.digest:
                raise NotAuditableError(
                    f"the snapshot is of {wanted.text()} and the journal has {link.identity.text()} there: they are "
                    "not of the same history",
                    partition=number,
                )
            return link, findings
    raise NotAuditableError(
        f"the journal at hand does not hold batch {wanted.sequence} of lineage {wanted.lineage}, which the snapshot "
        "was taken at",
        partition=number,
    )
