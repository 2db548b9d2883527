"""What follows from the record is recomputed, and a record that nobody touched is verified."""

from __future__ import annotations

from copy import deepcopy

from msgspec.structs import replace

from processor.audit.replay.changelog import start_from_snapshot
from processor.audit.replay.recorded_settings import RecordedSettings, Secrets, settings_digest
from processor.audit.replay.replay import Replay, ReplayedBatch
from processor.core.stream.journal import state_digest
from processor.ports.log import Record
from processor.run.assembly import tenant_settings_of
from tests.recordings.stream import SHAPES, MemorySource, Running, events

from .audited import SEEDS, TENANTS, load, only, run
from .audited import alerted as alerted
from .audited import recorded as recorded
from .audited import source as source


def test_a_record_that_nobody_touched_is_verified(recorded: MemorySource) -> None:
    found = run(recorded)
    assert (found.verdict, found.findings, found.reasons) == ("verified", [], [])
    assert (found.draws, found.end, found.exit_code) == ("verified", "verified", 0)
    assert found.decisions == sum(len(recorded.records["decisions", n]) for n in (0, 1)) > 300
    assert sum(one.states for one in found.partitions) == found.batches
    assert sum(one.dead_letters for one in found.partitions) == sum(
        len(recorded.records["dead_letters", n]) for n in (0, 1)
    )


def test_alerts_are_recomputed(alerted: MemorySource) -> None:
    found = run(alerted)
    assert found.verdict == "verified"
    assert found.partitions[0].alerts == len(alerted.records["alerts", 0]) > 0


def test_the_rules_in_the_journal_are_those_of_the_configuration_to_the_last_field(recorded: MemorySource) -> None:
    settings_for, config = tenant_settings_of(load()), load()
    for tenant in TENANTS:
        wanted = settings_for(tenant)
        assert wanted is not None
        book = RecordedSettings(Secrets.of_config(config), limits=config.limits)
        book.configs, book.assigned = {wanted.digest: wanted.canonical}, {tenant: wanted.digest}
        assert book.settings_for(tenant) == replace(wanted, windows=book.settings_for(tenant).windows)  # type: ignore[union-attr]
        assert settings_digest(wanted.canonical) == wanted.digest
    assert run(recorded, Secrets.of_config(config)).verdict == "verified"


def test_without_the_seeds_everything_but_the_draws_is_verified(recorded: MemorySource) -> None:
    found = run(recorded, Secrets())
    assert (found.verdict, found.draws) == ("verified", "not verified")
    assert sorted({name for one in found.partitions for name in one.seedless}) == sorted(TENANTS)
    assert sum(one.states for one in found.partitions) == found.batches  # by way of the changelog


def test_without_seeds_and_changelog_it_says_whose_states_it_could_not_verify(source: MemorySource) -> None:
    source.records = {place: kept for place, kept in source.records.items() if place[0] != "changelog"}
    found = run(source, Secrets())
    assert found.verdict == "verified"
    assert sum(one.states for one in found.partitions) < found.batches
    assert any("shadow policies drew" in note for one in found.partitions for note in one.notes)


def test_a_seed_that_was_not_committed_to_is_not_used(recorded: MemorySource) -> None:
    found = run(recorded, Secrets(masters=("ab" * 32,)))
    assert found.exit_code == 2
    assert "none of those given is the one the journal commits to" in found.reasons[0]


def test_an_audit_may_start_at_a_snapshot(recorded: MemorySource) -> None:
    found = run(recorded, start=0)
    assert found.verdict == "verified"
    for one in found.partitions:
        assert one.from_batch > 2
        assert one.recomputed == one.states == one.batches == one.lineages[-1].last - one.from_batch + 1


def test_an_audit_may_start_at_a_given_batch(recorded: MemorySource) -> None:
    found = run(recorded, start=9)
    assert found.verdict == "verified"
    assert [one.from_batch for one in found.partitions] == [9, 9]


def test_a_window_without_decisions_is_verified_too(recorded: MemorySource) -> None:
    running = Running(load(), 1)
    stream = events({"shop": SHAPES["shop"]}, 60, seed=5)
    running.feed(stream)
    before = len(running.source().records["journal", 0])
    running.feed([event for event in events({"shop": SHAPES["shop"]}, 20, seed=9) if event.role == "feedback"])
    found = run(running.source(), start=before + 1)
    assert found.verdict == "verified"
    assert (found.partitions[0].from_batch, found.decisions) == (before + 1, 0)


def test_a_snapshot_that_was_tampered_with_is_noticed_where_it_is_used(source: MemorySource) -> None:
    """A counter in the state the window starts from: the first batch that touches its tenant has another digest."""
    start, _ = start_from_snapshot(source, 1, 0, SEEDS)
    tenant = next(iter(start.partition.tenants.values()))
    tenant.learner.state.lifetime.labels += 1
    going = Replay(source, 1, SEEDS, start=start)

    def same(batch: ReplayedBatch) -> bool:
        assert batch.outcome is not None
        return state_digest(batch.journal.previous, batch.outcome.writes) == batch.journal.state_digest

    assert not all(same(batch) for batch in going.batches())


def test_a_new_lineage_may_read_its_inputs_again() -> None:
    running = Running(load(), 1)
    stream = events({"shop": SHAPES["shop"]}, 80, seed=5)
    running.feed(stream)
    running.reset(load(), "feedfacefeedface", earliest=True)
    running.feed(events({"shop": SHAPES["shop"]}, 20, seed=6))
    found = run(running.source())
    assert found.verdict == "verified"
    (one,) = found.partitions
    assert [lineage.name for lineage in one.lineages][1:] == ["feedfacefeedface"]
    assert one.decisions > 150


def test_outputs_may_have_another_number_of_partitions_than_the_inputs(recorded: MemorySource) -> None:
    merged = deepcopy(recorded)
    for role in ("decisions", "alerts", "dead_letters"):
        everything: list[Record] = []
        for number in (0, 1):
            everything += merged.records.pop((role, number))  # type: ignore[arg-type]
        merged.records[role, 0] = [  # type: ignore[index]
            replace(record, partition=0, offset=offset) for offset, record in enumerate(everything)
        ]
    assert run(merged).verdict == "verified"
    gone = merged.records["decisions", 0].pop(50)
    assert only(run(merged), "decision-missing").follows == (gone.value or b"").decode()
