"""What must be true at the end of every run, checked without the processor's own loop."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter

from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryReader
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
from processor.ports.log import Record, TopicPartition
from processor.service.topics import TopicNames

from .workload import Workload

TOKEN = b"oracle"


class ViolationError(AssertionError):
    """The contract is broken."""


def must(true: bool, message: str) -> None:
    if not true:
        raise ViolationError(message)


class Oracle:
    def __init__(
        self, broker: MemoryBroker, store: MemoryStore, topics: TopicNames, terms: StreamSettings, partitions: int
    ) -> None:
        broker.hook = None
        self.reader = MemoryReader(broker)
        self.store, self.topics, self.terms, self.partitions = store, topics, terms, partitions

    def check(self, workload: Workload) -> None:
        decisions = [
            json.loads(r.value or b"") for p in range(self.partitions) for r in self._all(self.topics.decisions, p)
        ]
        made = Counter((d["tenant"], d["decision_id"]) for d in decisions)
        must(set(made) == set(workload.requests), "a request has no decision, or a decision no request")
        must(all(n == 1 for n in made.values()), "a request was decided twice")
        for decision in decisions:
            must(
                decision["group"] == workload.requests[decision["tenant"], decision["decision_id"]]["group"],
                "a decision is not of the first request under its id",
            )
        dead = self._dead_letters()
        joined = duplicate = parked = 0
        for number in range(self.partitions):
            partition = self._replay(number)
            parked += partition.parked
            waiting = sum(tenant.waits.pending for tenant in partition.tenants.values())
            must(waiting == partition.pending, "the tenants' pending decisions are not those of the partition")
            for tenant in partition.tenants.values():
                joined += tenant.tally["labels_joined"]
                duplicate += tenant.tally["labels_duplicate"]
                counted = int(tenant.learner.counters().joined[0])
                must(counted == tenant.tally["labels_joined"], "a label was counted twice or not at all")
        labels = sum(len(self._all(self.topics.feedback, p)) for p in range(self.partitions))
        must(joined + duplicate + parked + dead[self.topics.feedback] == labels, "a label is neither counted nor dead")

    def _dead_letters(self) -> Counter[str]:
        places: Counter[tuple[str, str, str]] = Counter()
        for number in range(self.partitions):
            for record in self._all(self.topics.dead_letters, number):
                headers = {name: (value or b"").decode() for name, value in record.headers}
                places[headers["gforce.topic"], headers["gforce.partition"], headers["gforce.offset"]] += 1
        must(all(n == 1 for n in places.values()), "a record is in dead-letters twice")
        return Counter(topic for topic, _, _ in places)

    def _replay(self, number: int) -> Partition:
        """Recompute the partition from inputs and journal alone, and compare everything that was recorded."""
        journal = self._journal(number)
        mirror = MemoryStore()
        mirror.claim(number, TOKEN)
        partition: Partition | None = None
        decisions: list[bytes] = []
        alerts: list[bytes] = []
        positions = {topic: self.reader.bounds(TopicPartition(topic, number))[0] for topic in self.topics.inputs}
        for entry in journal:
            record = JournalRecord.decode(entry.value or b"")
            if partition is None:
                partition = Partition(number, self.partitions, Identity(record.lineage, 0, GENESIS))
            must(record.lineage == partition.identity.lineage, "the lineage changed by itself")
            must(
                record.sequence == partition.identity.sequence + 1,
                "a batch is missing from the journal, or twice in it",
            )
            must(record.previous == partition.identity.digest, "the chain of the journal is broken")
            outcome = self._recompute(partition, record, mirror, positions)
            identity = Identity(record.lineage, record.sequence, digest(entry.value or b""))
            mirror.apply(number, TOKEN, identity, record.sequence - 1, outcome.writes)
            partition = advanced(outcome.partition, identity)
            decisions += [made.value for made in outcome.decisions]
            alerts += [alert.encode() for alert in outcome.alerts]
        must(partition is not None, "nothing was committed")
        assert partition is not None
        published = [r.value for r in self._all(self.topics.decisions, number)]
        must(published == decisions, "the decisions published are not those recomputed")
        raised = [r.value for r in self._all(self.topics.alerts, number)]
        must(raised == alerts, "the alerts published are not those recomputed")
        self._compare_store(number, partition, mirror)
        return partition

    def _journal(self, number: int) -> list[Record]:
        """Without what somebody else put there: it is not part of the chain."""
        found: list[Record] = []
        last = GENESIS
        for record in self._all(self.topics.journal, number):
            try:
                decoded = JournalRecord.decode(record.value or b"")
            except ValueError:
                continue
            if decoded.partition == number and decoded.previous == last:
                found.append(record)
                last = digest(record.value or b"")
        return found

    def _recompute(
        self, partition: Partition, record: JournalRecord, mirror: MemoryStore, positions: dict[str, int]
    ) -> StepResult:
        raws = []
        for source, topic, part in (
            (REQUESTS, self.topics.requests, record.requests),
            (FEEDBACK, self.topics.feedback, record.feedback),
        ):
            must(part.start == positions[topic], "the journal skips or repeats input")
            raws += self._raws(source, TopicPartition(topic, partition.number), part)
            positions[topic] = part.next
        poison = {(source, offset) for source, offset in record.poison}
        asked = decode(*split_by_source(raws), partition.number, self.partitions, record.now, self.terms, poison)
        due = due_slot(record.clock, self.terms.slot)
        view = mirror.look_up(partition.number, TOKEN, asked.ids, due, SLOTS_PER_BATCH, self.terms.sweep)
        entries = dict(zip(asked.ids, view.entries, strict=True))
        outcome = step(partition, asked, entries, view.due, record.clock, self.terms, record.acknowledged)
        must(
            decisions_digest(made.value for made in outcome.decisions) == record.decisions_digest,
            "a decision cannot be recomputed",
        )
        must(state_digest(record.previous, outcome.writes) == record.state_digest, "the state cannot be recomputed")
        return outcome

    def _raws(self, source: str, at: TopicPartition, part: Range) -> list[InputRecord]:
        records = list(self.reader.read(at, part.start, part.next))
        hashes = b64decode(part.hashes)
        must(len(records) == part.count and len(hashes) == 8 * part.count, "the journal does not match its input")
        raws = []
        for i, r in enumerate(records):
            must(record_hash(r.key, r.value, r.timestamp) == hashes[8 * i : 8 * i + 8], "an input record was changed")
            raws.append(InputRecord(source, r.offset, r.timestamp, r.key, r.value, r.headers))
        return raws

    def _compare_store(self, number: int, partition: Partition, mirror: MemoryStore) -> None:
        self.store.claim(number, TOKEN)
        stored = self.store.look_up(number, TOKEN, [], 0, 0).identity
        must(stored == partition.identity, f"the store is at {stored}, the journal at {partition.identity}")
        must(self._content(self.store, number) == self._content(mirror, number), "the store differs from the journal")
        rebuilt = partition_from_fields(
            number, self.partitions, partition.identity, dict(self.store.fields(number, TOKEN)), self.terms.settings_for
        )
        must(rebuilt.pending == partition.pending, "the number of pending decisions differs")

    @staticmethod
    def _content(store: MemoryStore, number: int) -> bytes:
        pages, cursor = [], b""
        while True:
            _, page = store.page(number, TOKEN, cursor, 1 << 30)
            pages.append(page.writes)
            cursor = page.cursor
            if not cursor:
                return b"".join(pages)

    def _all(self, topic: str, number: int) -> list[Record]:
        at = TopicPartition(topic, number)
        return list(self.reader.read(at, self.reader.bounds(at)[0]))
