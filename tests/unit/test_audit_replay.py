"""A replay leads to the writes, the entries and the hashes of the record, and under other rules to other decisions."""

from __future__ import annotations

from base64 import b64decode

from msgspec.structs import replace

from processor.audit.replay.changelog import changelog_batches, own_writes
from processor.audit.replay.memory_state import MemoryState, boundaries
from processor.audit.replay.replay import Replay, replay
from processor.core.settings import Prior
from processor.core.stream.journal import JournalRecord, digest
from processor.core.stream.tenant import TenantSettings
from tests.recordings.stream import MemorySource

from .audited import SEEDS
from .audited import recorded as recorded


def test_the_writes_of_a_batch_are_told_from_the_slice_of_a_snapshot(recorded: MemorySource) -> None:
    journals = [JournalRecord.decode(r.value or b"") for r in recorded.records["journal", 1]]
    by_sequence = {journal.sequence: journal for journal in journals}
    sliced = 0
    for entry in changelog_batches(recorded, 1):
        journal = by_sequence[entry.identity.sequence]
        own = own_writes(entry.writes, journal.previous, journal.state_digest)
        assert own is not None
        sliced += own != entry.writes
    assert sliced > 2
    assert own_writes(entry.writes, journal.previous, "00" * 16) is None


def test_the_memory_state_holds_what_the_store_would_hold(recorded: MemorySource) -> None:
    state = MemoryState()
    last = list(Replay(recorded, 1, SEEDS).batches())[-1]
    for batch in replay(recorded, 1, SEEDS):
        assert batch.outcome is not None
        count = state.take(batch.outcome.writes)
        assert count == len(boundaries(batch.outcome.writes)) - 1
    assert last.outcome is not None
    assert state.missing_part(last.outcome.partition.pending, last.outcome.partition.parked) == ""
    state.entries.popitem()
    assert "not in a slot" in state.missing_part(last.outcome.partition.pending, last.outcome.partition.parked)


def test_a_replay_under_other_rules_keeps_the_interleaving_and_the_clock(recorded: MemorySource) -> None:
    def cautious(tenant: str, rules: TenantSettings) -> TenantSettings:
        settings = replace(rules.settings, prior=Prior(error=50.0))
        return replace(rules, settings=settings)

    plain = list(replay(recorded, 1, SEEDS))
    other = list(replay(recorded, 1, SEEDS, override=cautious))
    assert [batch.clock for batch in plain] == [batch.clock for batch in other]
    made = [[made.value for batch in run for made in batch.outcome.decisions] for run in (plain, other)]  # type: ignore[union-attr]
    assert len(made[0]) == len(made[1])
    assert made[0] != made[1]


def test_the_journal_names_every_record_by_its_hash(recorded: MemorySource) -> None:
    for record in recorded.records["journal", 1]:
        journal = JournalRecord.decode(record.value or b"")
        assert len(b64decode(journal.requests.hashes)) == 8 * journal.requests.count
        assert digest(record.value or b"") != journal.previous
