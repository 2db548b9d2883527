"""A batch on its way: what is asked of the store, and what goes into the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from processor import __version__
from processor.core import native
from processor.core.stream.identity import Identity
from processor.core.stream.journal import (
    JOURNAL_FORM,
    ChangelogRecord,
    JournalRecord,
    Range,
    changelog_parts,
    decisions_digest,
    digest,
    hashes_text,
    state_digest,
)
from processor.core.stream.partition import Partition
from processor.core.stream.step import DecodedBatch, InputRecord, StepResult, StreamSettings
from processor.ports.store import LookupResult, SnapshotPage

from .assigned import AssignedPartition, Skip


@dataclass(frozen=True)
class BatchLookup:
    """A batch that is decoded, and on its way to the store."""

    owned: AssignedPartition
    taken: dict[str, list[InputRecord]]
    """its records by topic: requests, then feedback"""
    asked: DecodedBatch
    ids: list[bytes]
    clock: int
    now: int
    answer: Future[tuple[LookupResult, SnapshotPage | None]]
    ranges: Future[dict[str, Range]]
    """which records these are, by topic, with their hashes"""
    skip: Skip | None = None
    """offsets that this batch, which then holds no records, leaves out"""
    cost: float = 0.0
    """how long it will take, in milliseconds, by what is known before"""

    @property
    def inputs(self) -> tuple[list[InputRecord], list[InputRecord]]:
        """Requests and labels."""
        requests, feedback = self.taken.values()
        return requests, feedback

    @property
    def record_count(self) -> int:
        return sum(map(len, self.taken.values()))


@dataclass
class PreparedBatch:
    """What goes into the transaction for one partition.

    What needs hashes is put together when it is first asked for: they are worked out beside the loop, in which the
    decisions are sent meanwhile.
    """

    lookup: BatchLookup
    before: Partition
    outcome: StepResult
    poison: list[tuple[str, int]]
    stream_settings: StreamSettings
    acknowledged: list[tuple[str, int]]
    digests: Future[tuple[str, str]]
    """of the decisions, and of the state after them"""
    page: SnapshotPage | None = None
    """a slice of a snapshot"""

    @property
    def owned(self) -> AssignedPartition:
        return self.lookup.owned

    @property
    def taken(self) -> dict[str, list[InputRecord]]:
        """Its records by topic."""
        return self.lookup.taken

    @property
    def positions(self) -> dict[str, int]:
        """Where each input is to be read on."""
        return {topic: one.next for topic, one in self.lookup.ranges.result().items()}

    @property
    def reconfigured(self) -> dict[str, object]:
        """Tenants that go on under another configuration: where nobody changed it, somebody has the wrong file."""
        known = self.before.tenants
        were = {name: known[name].recorded for name in self.outcome.rules if name in known and known[name].recorded}
        if not were:
            return {}
        first = min(were)
        return {"tenants": len(were), "first": first, "was": were[first], "now": self.outcome.rules[first]}

    @cached_property
    def journal(self) -> JournalRecord:
        """What the batch has led to, written down."""
        identity, outcome = self.before.identity, self.outcome
        requests, feedback = self.lookup.ranges.result().values()
        of_decisions, of_state = self.digests.result()
        return JournalRecord(
            form=JOURNAL_FORM,
            lineage=identity.lineage,
            partition=self.owned.number,
            partitions=self.before.partitions,
            sequence=identity.sequence + 1,
            clock=self.lookup.clock,
            now=self.lookup.now,
            requests=requests,
            feedback=feedback,
            decisions=len(outcome.decisions),
            decisions_digest=of_decisions,
            state_digest=of_state,
            previous=identity.digest,
            terms=self.stream_settings.text if self.before.terms != self.stream_settings.text else "",
            rules=outcome.rules,
            configs=outcome.configs,
            acknowledged=self.acknowledged,
            poison=self.poison,
            topics=self.owned.topic_ids,
            snapshot=self.owned.snapshots.whole_after(self.page, identity.sequence + 1),
            skipped=[(skip.source, skip.first, skip.next)] if (skip := self.lookup.skip) else [],
            version=__version__,
        )

    @cached_property
    def encoded(self) -> bytes:
        """The journal record."""
        return self.journal.encode()

    @cached_property
    def identity(self) -> Identity:
        """That of the state after the batch."""
        return Identity(self.journal.lineage, self.journal.sequence, digest(self.encoded))

    @cached_property
    def changelog(self) -> list[ChangelogRecord]:
        """The slice first, if there is one: what the batch itself writes comes after it."""
        first = self.page is not None and self.owned.snapshots.begins
        writes = (self.page.writes if self.page else b"") + self.outcome.writes
        identity = self.identity
        return changelog_parts(
            identity.lineage, identity.sequence, identity.digest, self.journal.previous, first, writes
        )


def digests_of(before: Partition, outcome: StepResult) -> tuple[str, str]:
    """Of the decisions of a batch, and of the state after it."""
    decisions = decisions_digest([made.value for made in outcome.decisions])
    return decisions, state_digest(before.identity.digest, outcome.writes)


def ranges_of(
    starts: Mapping[str, int], taken: Mapping[str, list[InputRecord]], skip: Skip | None = None
) -> dict[str, Range]:
    """Which records these are, with their hashes as they came; ``starts`` are the offsets to read on from before."""
    ends = {skip.topic: skip.next} if skip else {}
    return {topic: _range(starts[topic], raws, ends.get(topic, starts[topic])) for topic, raws in taken.items()}


def _range(start: int, raws: list[InputRecord], end: int) -> Range:
    return Range(start, raws[-1].offset + 1 if raws else end, len(raws), hashes_text(native.hashes_as_received(raws)))
