"""A batch on its way: what is asked of the store, and what goes into the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from processor import __version__
from processor.adapters.store import Page, View
from processor.core.identity import Identity
from processor.core.journal import (
    ChangelogRecord,
    JournalRecord,
    Range,
    changelog_parts,
    decisions_digest,
    digest,
    hashes_text,
    record_hashes,
    state_digest,
)
from processor.core.step import Asked, Outcome, Raw, Terms

from .owned import Owned


@dataclass(frozen=True)
class Question:
    """A batch that is decoded, and on its way to the store."""

    owned: Owned
    taken: dict[str, list[Raw]]
    """its records by topic: requests, then feedback"""
    raws: list[Raw]
    asked: Asked
    ids: list[bytes]
    clock: int
    now: int
    answer: Future[tuple[View, Page | None]]


@dataclass
class Batch:
    """What goes into the transaction for one partition."""

    owned: Owned
    outcome: Outcome
    journal: JournalRecord
    encoded: bytes
    """the journal record"""
    identity: Identity
    positions: dict[str, int]
    taken: dict[str, list[Raw]]
    """its records by topic"""
    page: Page | None = None
    """a slice of a snapshot"""

    @property
    def seen(self) -> int:
        return sum(map(len, self.taken.values()))

    @cached_property
    def changelog(self) -> list[ChangelogRecord]:
        """The slice first, if there is one: what the batch itself writes comes after it."""
        first = self.page is not None and self.owned.snapshots.begins
        writes = (self.page.writes if self.page else b"") + self.outcome.writes
        identity = self.identity
        return changelog_parts(
            identity.lineage, identity.sequence, identity.digest, self.journal.previous, first, writes
        )


def batch_of(question: Question, outcome: Outcome, poison: list[tuple[str, int]], terms: Terms) -> Batch:
    """Write down what a batch has led to, on the state of its partition before it."""
    owned, partition = question.owned, question.owned.partition
    assert partition is not None
    before = partition.identity
    ranges = {topic: _range(owned.positions[topic], raws) for topic, raws in question.taken.items()}
    requests, feedback = ranges.values()
    journal = JournalRecord(
        lineage=before.lineage,
        partition=owned.number,
        partitions=partition.partitions,
        sequence=before.sequence + 1,
        clock=question.clock,
        now=question.now,
        requests=requests,
        feedback=feedback,
        decisions=len(outcome.decisions),
        decisions_digest=decisions_digest([made.value for made in outcome.decisions]),
        state_digest=state_digest(before.digest, outcome.writes),
        previous=before.digest,
        terms=terms.text if partition.terms != terms.text else "",
        rules=outcome.rules,
        configs=outcome.configs,
        acknowledged=list(owned.acknowledged),
        poison=poison,
        version=__version__,
    )
    encoded = journal.encode()
    identity = Identity(before.lineage, journal.sequence, digest(encoded))
    positions = {topic: one.next for topic, one in ranges.items()}
    return Batch(owned, outcome, journal, encoded, identity, positions, question.taken)


def _range(start: int, raws: Sequence[Raw]) -> Range:
    """Which records these are, and their hashes as they came."""
    came = [raw.value if raw.original is None else raw.original for raw in raws]
    hashes = record_hashes([raw.key for raw in raws], came, [raw.timestamp for raw in raws])
    return Range(start, raws[-1].offset + 1 if raws else start, len(raws), hashes_text(hashes))
