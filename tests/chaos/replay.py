"""Recompute a partition from its inputs and its journal alone, and compare everything that was recorded."""

from __future__ import annotations

from base64 import b64decode
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from processor.adapters.memory.store import MemoryStore
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JournalRecord, Range, decisions_digest, digest, record_hash, state_digest
from processor.core.stream.partition import Partition, partition_from_fields
from processor.core.stream.step import (
    FEEDBACK,
    REQUESTS,
    SLOTS_PER_BATCH,
    InputRecord,
    StepResult,
    StreamSettings,
    advanced,
    decode,
    due_slot,
    split_by_source,
    step,
)
from processor.core.stream.writes import SetEntry, SetField, SetSlot, unpack
from processor.ports.store import Store
from processor.service.topics import TopicNames

from .topics import Contents

TOKEN = b"verification"


class DiffersError(Exception):
    """What was recorded is not what is recomputed."""


def _same(true: bool, what: str) -> None:
    if not true:
        raise DiffersError(what)


class Replay:
    """One partition, recomputed batch by batch."""

    def __init__(
        self, contents: Contents, topics: TopicNames, terms: StreamSettings, number: int, partitions: int
    ) -> None:
        self._contents, self._topics, self._terms = contents, topics, terms
        self.number, self._partitions = number, partitions
        self.mirror = MemoryStore()
        self.mirror.claim(number, TOKEN)
        self._offsets = {topic: [r.offset for r in contents.of(topic, number)] for topic in topics.inputs}
        self._positions = dict.fromkeys(topics.inputs, 0)
        self.partition: Partition | None = None
        self.batches = 0

    def run(self) -> Partition:
        """The partition at the end of its journal; raises ``DiffersError`` at the first thing that differs."""
        decisions: list[bytes] = []
        for entry in self._contents.of(self._topics.journal, self.number):
            record = JournalRecord.decode(entry.value)
            partition = self.partition or Partition(self.number, self._partitions, Identity(record.lineage, 0, GENESIS))
            self._check_chain(partition.identity, record)
            outcome = self._recompute(partition, record)
            identity = Identity(record.lineage, record.sequence, digest(entry.value))
            self.mirror.apply(self.number, TOKEN, identity, record.sequence - 1, outcome.writes)
            self.partition = advanced(outcome.partition, identity)
            decisions += [made.value for made in outcome.decisions]
            self.batches += 1
        published = [seen.value for seen in self._contents.of(self._topics.decisions, self.number)]
        _same(published == decisions, "the decisions published are not those recomputed")
        _same(self.partition is not None, "its journal is empty")
        assert self.partition is not None
        for topic, offsets in self._offsets.items():
            _same(not offsets or self._positions[topic] == offsets[-1] + 1, f"the journal does not reach {topic}'s end")
        return self.partition

    def _check_chain(self, before: Identity, record: JournalRecord) -> None:
        at = f"batch {record.sequence}"
        _same(record.lineage == before.lineage, f"{at}: the lineage changed by itself")
        _same(record.sequence == before.sequence + 1, f"{at} follows {before.sequence} in the journal")
        _same(record.previous == before.digest, f"{at}: the chain of the journal is broken")

    def _recompute(self, partition: Partition, record: JournalRecord) -> StepResult:
        at = f"batch {record.sequence}"
        raws = self._raws(REQUESTS, self._topics.requests, record.requests)
        raws += self._raws(FEEDBACK, self._topics.feedback, record.feedback)
        poison = {(source, offset) for source, offset in record.poison}
        asked = decode(*split_by_source(raws), self.number, self._partitions, record.now, self._terms, poison)
        due = due_slot(record.clock, self._terms.slot)
        view = self.mirror.look_up(self.number, TOKEN, asked.ids, due, SLOTS_PER_BATCH, self._terms.sweep)
        entries = dict(zip(asked.ids, view.entries, strict=True))
        outcome = step(partition, asked, entries, view.due, record.clock, self._terms, record.acknowledged)
        made = decisions_digest(made.value for made in outcome.decisions)
        _same(made == record.decisions_digest, f"{at}: a decision cannot be recomputed")
        state = state_digest(record.previous, outcome.writes)
        _same(state == record.state_digest, f"{at}: the state cannot be recomputed")
        return outcome

    def _raws(self, source: str, topic: str, part: Range) -> list[InputRecord]:
        before = self._positions[topic]
        _same(part.start == before, f"{topic}: read to {before}, then from {part.start}")
        self._positions[topic] = part.next
        offsets = self._offsets[topic]
        first, last = bisect_left(offsets, part.start), bisect_left(offsets, part.next)
        records = self._contents.of(topic, self.number)[first:last]
        hashes = b64decode(part.hashes)
        _same(len(records) == part.count, f"{topic} {part.start}–{part.next}: {len(records)} records, not {part.count}")
        for i, r in enumerate(records):
            same = record_hash(r.key, r.value, r.timestamp) == hashes[8 * i : 8 * i + 8]
            _same(same, f"{topic} at {r.offset} is not what was processed")
        return [InputRecord(source, r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]

    def compare_store(self, store: Store) -> Partition:
        """The real store must hold exactly what the mirror holds; the partition as stored there."""
        assert self.partition is not None
        store.claim(self.number, TOKEN)
        stored = store.look_up(self.number, TOKEN, [], 0, 0).identity
        identity = self.partition.identity
        _same(stored == identity, f"the store is at {stored}, the journal at {identity}")
        mine, theirs = content(self.mirror, self.number), content(store, self.number)
        wrong = Counter(key[0] for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
        _same(not wrong, f"of {len(mine)} things in the store differ from the recomputed ones: {dict(wrong)}")
        _same({kind for kind, *_ in mine} >= {"entry", "field"}, "there is nothing to compare")
        fields = dict(store.fields(self.number, TOKEN))
        return partition_from_fields(self.number, self._partitions, identity, fields, self._terms.settings_for)


def content(store: Store, number: int) -> dict[tuple[str, object], bytes]:
    """Entries, fields and slabs, whatever order they are paged in."""
    found: dict[tuple[str, object], bytes] = {}
    for writes in _pages(store, number):
        for write in unpack(writes):
            match write:
                case SetEntry(id=key, value=value):
                    found["entry", key] = value
                case SetField(name=key, value=value):
                    found["field", key] = value
                case SetSlot(slot=slot, sequence=sequence, ids=ids):
                    found["slab", (slot, sequence)] = ids
    return found


def _pages(store: Store, number: int) -> Iterable[bytes]:
    cursor = b""
    for _ in range(1_000_000):
        _, page = store.page(number, TOKEN, cursor, 1 << 20)
        yield page.writes
        cursor = page.cursor
        if not cursor:
            return
