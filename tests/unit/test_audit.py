"""The audit: what follows from the record is recomputed, and whoever changes a word of it is found out."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from processor.adapters.log import Record
from processor.audit.explain.aftermath import Aftermath
from processor.audit.explain.explain import explained
from processor.audit.replay.findings import Finding, NotAuditable
from processor.audit.replay.mirror import Mirror, boundaries
from processor.audit.replay.replay import Replay, ReplayedBatch, replay
from processor.audit.replay.rules import RuleBook, Secrets, digest_of
from processor.audit.replay.snapshots import entries, own_writes, start_at
from processor.audit.sources.source import Role
from processor.audit.verify import side_outputs
from processor.audit.verify.audit import Audit, audit, heads
from processor.audit.verify.result import Options
from processor.audit.verify.side_outputs import DeadLetters
from processor.cli import app
from processor.core.errors import GForceError, InvalidInput
from processor.core.settings import Prior
from processor.core.stream.journal import JournalRecord, decisions_digest, digest, state_digest
from processor.core.stream.tenant import TenantRules
from processor.runtime import config as configuration
from processor.runtime.assembly import rules_of
from processor.runtime.config import Config
from tests.recordings.stream import SHAPES, START, Event, MemorySource, Running, events
from tests.recordings.writing import write_plain, write_recording

CONFIG = Path(__file__).parents[1] / "recordings" / "gforce.toml"
TENANTS = ("bank", "shop", "lender", "clinic")


def load(**changed: str) -> Config:
    environment = {f"GFORCE_{name}": value for name, value in changed.items()}
    return configuration.load(CONFIG, environment)


def stricter(tmp: Path) -> Path:
    """The same configuration, but for how much fairness counts with the bank, and another shadow."""
    text = CONFIG.read_text().replace('shadows = ["groupaware", "mw"]', 'shadows = ["groupaware"]\nlambda = 3.0')
    path = tmp / "stricter.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> MemorySource:
    """400 requests, the configuration changed in the middle."""
    running = Running(load(), 2)
    stream = events(SHAPES, 400, seed=3)
    middle = len(stream) // 2
    running.feed(stream[:middle])
    running.restart(configuration.load(stricter(tmp_path_factory.mktemp("config")), {}))
    running.feed(stream[middle:])
    return running.source()


@pytest.fixture(scope="module")
def alerted() -> MemorySource:
    """One tenant whose groups are treated very differently."""
    running = Running(load(), 1)
    running.feed(events({"bank": dataclasses.replace(SHAPES["bank"], late=(500,), labelled=1.0)}, 350, seed=4))
    return running.source()


@pytest.fixture
def source(recorded: MemorySource) -> MemorySource:
    return deepcopy(recorded)


SEEDS = Secrets.of_config(load())


def run(source: MemorySource, secrets: Secrets = SEEDS, start: int | None = None, **heads: str) -> Audit:
    kept = {int(name.removeprefix("p")): text for name, text in heads.items()}
    return audit(source, Options(secrets, kept, start), processes=1)


def only(found: Audit, kind: str) -> Finding:
    """The one finding of a kind."""
    return next(finding for finding in found.findings if finding.kind == kind)


def place(source: MemorySource, role: Role, wanted: Callable[[Record], bool], skip: int = 20) -> tuple[int, int]:
    """Partition and index of a record, somewhere in the middle."""
    for number in source.partitions(role):
        for index, record in enumerate(source.records[role, number]):
            if index >= skip and wanted(record):
                return number, index
    raise LookupError(f"no such record in {role}")


def changed(record: Record, **fields: object) -> Record:
    """The record with some fields of its JSON replaced, written as the producer writes it."""
    document = {**json.loads(record.value or b""), **fields}
    return replace(record, value=json.dumps(document, separators=(",", ":")).encode())


def is_request(record: Record) -> bool:
    return b'"predictions"' in (record.value or b"") and b"stranger" not in (record.value or b"")


def is_label(record: Record) -> bool:
    return b'"label"' in (record.value or b"") and b"stranger" not in (record.value or b"")


# What was recorded follows


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
    rules_for, config = rules_of(load()), load()
    for tenant in TENANTS:
        wanted = rules_for(tenant)
        assert wanted is not None
        book = RuleBook(Secrets.of_config(config), limits=config.limits)
        book.configs, book.assigned = {wanted.digest: wanted.canonical}, {tenant: wanted.digest}
        assert book.rules_for(tenant) == replace(wanted, windows=book.rules_for(tenant).windows)  # type: ignore[union-attr]
        assert digest_of(wanted.canonical) == wanted.digest
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
    start, _ = start_at(source, 1, 0, SEEDS)
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


# Whoever changes a word of it is found out


def test_a_changed_prediction_is_found_and_had_back(source: MemorySource) -> None:
    number, index = place(source, "requests", lambda r: is_request(r) and b'"bank"' in (r.value or b""))
    record = source.records["requests", number][index]
    said = json.loads(record.value or b"")["predictions"]
    other = "deny" if said["e0"] == "grant" else "grant"
    source.records["requests", number][index] = changed(record, predictions={**said, "e0": other})
    found = run(source)
    finding = only(found, "input-changed")
    assert (finding.topic, finding.partition, finding.offset) == ("requests", number, record.offset)
    assert f'"e0" was changed from {said["e0"]} to {other}' in finding.cause
    assert {one.kind for one in found.findings} == {"input-changed"}  # the rest follows from what it was
    assert found.exit_code == 1


def test_a_changed_label_is_found_and_had_back(source: MemorySource) -> None:
    number, index = place(source, "feedback", lambda r: is_label(r) and b'"shop"' in (r.value or b""))
    record = source.records["feedback", number][index]
    label = json.loads(record.value or b"")["label"]
    other = next(one for one in ("low", "mid", "high") if one != label)
    source.records["feedback", number][index] = changed(record, label=other)
    found = run(source)
    finding = only(found, "input-changed")
    assert (finding.topic, finding.partition, finding.offset) == ("feedback", number, record.offset)
    assert f"its label was changed from {label} to {other}" in finding.cause
    assert {one.kind for one in found.findings} == {"input-changed"}


def test_a_changed_timestamp_is_found_and_had_back(source: MemorySource) -> None:
    number, index = place(source, "requests", is_request)
    record = source.records["requests", number][index]
    source.records["requests", number][index] = replace(record, timestamp=record.timestamp + 41)
    found = run(source)
    finding = only(found, "input-changed")
    assert (finding.topic, finding.partition, finding.offset) == ("requests", number, record.offset)
    assert f"its timestamp was changed from {record.timestamp} to {record.timestamp + 41}" in finding.cause
    assert {one.kind for one in found.findings} == {"input-changed"}


def test_a_request_that_was_rewritten_is_found_with_what_it_leads_to(source: MemorySource) -> None:
    """Changed in more than one place, so that it cannot be had back: then the decision that follows is another."""
    number, index = place(source, "requests", lambda r: is_request(r) and b'"bank"' in (r.value or b""))
    record = source.records["requests", number][index]
    before = json.loads(record.value or b"")
    source.records["requests", number][index] = changed(
        record, group="A" if before["group"] == "B" else "B", predictions={"z": "deny"}
    )
    found = run(source)
    finding = only(found, "input-changed")
    assert (finding.offset, finding.cause) == (record.offset, "its key, payload or timestamp was changed")
    wrong = only(found, "decision")
    assert (wrong.topic, wrong.batch) == ("decisions", finding.batch)
    assert f"requests [{number}] at {record.offset}" in wrong.cause
    assert '"z"' not in wrong.recorded
    assert "expert z" in wrong.follows
    one = found.partitions[number]
    assert one.recomputed < one.batches
    assert any("were not recomputed" in note for note in one.notes)


def test_a_dropped_request_is_found(source: MemorySource) -> None:
    number, index = place(source, "requests", is_request)
    record = source.records["requests", number].pop(index)
    found = run(source)
    finding = only(found, "input-missing")
    assert (finding.topic, finding.partition, finding.offset) == ("requests", number, record.offset)
    assert only(found, "decision-added").topic == "decisions"  # the decision has no request any more


def test_an_added_request_is_found(source: MemorySource) -> None:
    number, index = place(source, "requests", is_request)
    records = source.records["requests", number]
    later = [replace(record, offset=record.offset + 1) for record in records[index:]]
    extra = changed(records[index], decision_id="invented")
    source.records["requests", number] = [*records[:index], extra, *later]
    start, end = source.limits["requests", number]
    source.limits["requests", number] = (start, end + 1)
    finding = only(run(source), "input-added")
    assert (finding.topic, finding.partition, finding.offset) == ("requests", number, extra.offset)


def test_a_reordered_pair_is_found(source: MemorySource) -> None:
    number = 1
    records = source.records["requests", number]
    ranges = [JournalRecord.decode(r.value or b"").requests for r in source.records["journal", number]]
    part = next(part for part in ranges[4:] if part.count > 3)
    index = next(i for i, record in enumerate(records) if record.offset == part.start)
    one, other = records[index], records[index + 1]
    records[index], records[index + 1] = replace(other, offset=one.offset), replace(one, offset=other.offset)
    found = run(source)
    finding = only(found, "input-order")
    assert (finding.topic, finding.partition, finding.offset) == ("requests", number, one.offset)
    assert {one.kind for one in found.findings} == {"input-order"}


def test_an_added_decision_is_found(source: MemorySource) -> None:
    number, index = place(source, "decisions", lambda r: True)
    records = source.records["decisions", number]
    extra = changed(records[index], decision_id="invented")
    later = [replace(record, offset=record.offset + 1) for record in records[index:]]
    source.records["decisions", number] = [*records[:index], extra, *later]
    finding = only(run(source), "decision-added")
    assert (finding.topic, finding.partition, finding.offset) == ("decisions", number, extra.offset)
    assert "invented" in finding.recorded


def test_a_decision_added_at_the_very_end_is_found(source: MemorySource) -> None:
    last = source.records["decisions", 1][-1]
    extra = replace(changed(last, decision_id="invented"), offset=last.offset + 1)
    source.records["decisions", 1].append(extra)
    finding = only(run(source), "decision-added")
    assert (finding.topic, finding.offset) == ("decisions", extra.offset)


def test_a_dropped_decision_is_found(source: MemorySource) -> None:
    number, index = place(source, "decisions", lambda r: True)
    gone = source.records["decisions", number].pop(index)
    finding = only(run(source), "decision-missing")
    assert (finding.topic, finding.partition) == ("decisions", number)
    assert finding.follows == (gone.value or b"").decode()


def test_an_altered_decision_is_found(source: MemorySource) -> None:
    number, index = place(source, "decisions", lambda r: b'"lender"' in (r.value or b""))
    record = source.records["decisions", number][index]
    label = json.loads(record.value or b"")["decision"]
    source.records["decisions", number][index] = changed(record, decision="no" if label == "yes" else "yes")
    finding = only(run(source), "decision")
    assert (finding.topic, finding.partition, finding.offset) == ("decisions", number, record.offset)
    assert f"decision {label}" in finding.follows
    assert finding.cause == "every input of the batch is as it was processed, by its hash"


def test_an_altered_probability_is_found(source: MemorySource) -> None:
    number, index = place(source, "decisions", lambda r: b'"bank"' in (r.value or b""))
    record = source.records["decisions", number][index]
    parts = json.loads(record.value or b"")["parts"]
    label = max(parts, key=parts.__getitem__)
    other = next(name for name in parts if name != label)
    altered = {**parts, label: parts[label] - 1, other: parts[other] + 1}
    source.records["decisions", number][index] = changed(record, parts=altered)
    found = run(source)
    finding = only(found, "probability")
    assert (finding.topic, finding.partition, finding.offset) == ("decisions", number, record.offset)
    assert str(parts[label]) in finding.follows
    assert str(parts[label] - 1) in finding.recorded
    assert {one.kind for one in found.findings} == {"probability"}


@pytest.mark.parametrize("field", ["clock", "now", "state_digest", "decisions_digest", "decisions", "version"])
def test_an_altered_journal_record_is_found(source: MemorySource, field: str) -> None:
    index = 6
    record = source.records["journal", 1][index]
    was = json.loads(record.value or b"")[field]
    other = was + 1 if isinstance(was, int) else "".join(reversed(was)) + "0"
    source.records["journal", 1][index] = changed(record, **{field: other})
    finding = only(run(source), "journal-altered")
    assert (finding.topic, finding.partition, finding.offset) == ("journal", 1, record.offset)


def test_an_altered_link_of_the_chain_is_blamed_on_its_own_record(source: MemorySource) -> None:
    record = source.records["journal", 0][6]
    source.records["journal", 0][6] = changed(record, previous="ab" * 16)
    finding = only(run(source), "journal-altered")
    assert (finding.partition, finding.offset) == (0, record.offset)


def test_an_altered_last_record_is_found_by_the_anchor(source: MemorySource) -> None:
    record = source.records["journal", 1][-1]
    source.records["journal", 1][-1] = changed(record, version="9.9.9")
    assert only(run(source), "anchor").topic == "journal"
    assert only(run(source), "changelog")  # it names the journal record it belongs to
    source.anchors = {}
    del source.records["changelog", 1]
    assert run(source).verdict == "verified"  # nothing else could tell, and the report says so
    assert run(source).end == "not verified"


def test_a_dropped_journal_record_is_found(source: MemorySource) -> None:
    del source.records["journal", 1][7]
    after = source.records["journal", 1][7]
    finding = only(run(source), "journal-gap")
    assert (finding.topic, finding.partition, finding.offset) == ("journal", 1, after.offset)


def test_a_truncated_end_is_found_by_the_anchor(source: MemorySource) -> None:
    cut(source, 1, batches=3)
    found = run(source)
    finding = only(found, "end-missing")
    last = source.records["journal", 1][-1]
    assert (finding.topic, finding.partition, finding.offset) == ("journal", 1, last.offset + 1)
    assert {one.kind for one in found.findings} == {"end-missing"}


def test_a_truncated_end_is_found_by_a_head_that_somebody_kept(source: MemorySource) -> None:
    head = run(source).partitions[1].head
    cut(source, 1, batches=3)
    source.anchors = {}
    assert run(source).verdict == "verified"
    assert any("the end cannot be verified" in note for note in run(source).partitions[1].notes)
    assert only(run(source, p1=head), "end-missing").recorded == head


def test_decisions_after_the_end_of_the_journal_give_a_cut_away(source: MemorySource) -> None:
    source.anchors = {}
    del source.records["journal", 1][-4:]
    finding = only(run(source), "end-missing")
    assert finding.topic == "decisions"


def test_a_changed_configuration_is_found(source: MemorySource) -> None:
    index = next(i for i, r in enumerate(source.records["journal", 0]) if b'"configs"' in (r.value or b""))
    record = source.records["journal", 0][index]
    configs = json.loads(record.value or b"")["configs"]
    name, text = next(iter(configs.items()))
    expiry = json.loads(text)["expiry"]
    tampered = {**configs, name: text.replace(f'"expiry":{expiry}', f'"expiry":{expiry + 1000}')}
    source.records["journal", 0][index] = changed(record, configs=tampered)
    found = run(source, Secrets(masters=SEEDS.masters, tenants=SEEDS.tenants))
    finding = only(found, "configuration")
    assert (finding.topic, finding.partition, finding.offset) == ("journal", 0, record.offset)
    assert finding.recorded == f"digest {name}"
    assert only(found, "journal-altered").offset == record.offset


def test_a_changed_dead_letter_is_found(source: MemorySource) -> None:
    number, index = place(source, "dead_letters", lambda r: True)
    record = source.records["dead_letters", number][index]
    headers = tuple((name, b"schema" if name == "gforce.reason" else value) for name, value in record.headers)
    source.records["dead_letters", number][index] = replace(record, headers=headers)
    finding = only(run(source), "dead-letter")
    assert (finding.topic, finding.offset, finding.recorded) == ("dead-letters", record.offset, "schema")


def test_a_dropped_and_an_added_dead_letter_are_found(source: MemorySource) -> None:
    number, index = place(source, "dead_letters", lambda r: True)
    gone = source.records["dead_letters", number].pop(index)
    assert "should be here" in only(run(source), "dead-letter").text
    source.records["dead_letters", number].append(gone)
    assert run(source).verdict == "verified"  # order among dead letters says nothing
    source.records["dead_letters", number].append(replace(gone, offset=100_000))
    finding = only(run(source), "dead-letter")
    assert (finding.offset, "nothing in the record leads to" in finding.text) == (100_000, True)


def test_dead_letters_before_a_window_are_passed_over_however_many(
    source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_outputs, "AHEAD", 2)
    monkeypatch.setattr(side_outputs, "MOST_SEEN", 5)
    for start in (None, 9):
        assert run(source, start=start).verdict == "verified"
    number, index = place(source, "dead_letters", lambda r: True)
    assert index > 5  # so many come before the window
    del source.records["dead_letters", number][-1]
    assert "should be here" in only(run(source, start=9), "dead-letter").text


def test_few_dead_letters_are_held_however_many_are_missing(
    source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_outputs, "AHEAD", 2)
    monkeypatch.setattr(side_outputs, "MOST_SEEN", 5)
    follows = [b.outcome.dead_letters for b in Replay(source, 0, SEEDS).batches() if b.outcome]
    journal = JournalRecord.decode(source.records["journal", 0][0].value or b"")
    source.records["dead_letters", 0] = source.records["dead_letters", 0][10:]
    letters = DeadLetters(source, 0)
    missing = sum(len(letters.compare(journal, some)) for some in follows)
    assert missing >= 10
    assert len(letters._seen) <= 5 + len(source.partitions("dead_letters"))


def test_a_changed_a_dropped_and_an_added_alert_are_found(alerted: MemorySource) -> None:
    source, record = deepcopy(alerted), alerted.records["alerts", 0][0]
    source.records["alerts", 0][0] = changed(record, since=1)
    finding = only(run(source), "alert")
    assert (finding.topic, finding.partition, finding.offset) == ("alerts", 0, record.offset)
    source.records["alerts", 0] = []
    assert "is missing" in only(run(source), "alert").text
    kept = alerted.records["alerts", 0]
    source.records["alerts", 0] = [*kept, replace(kept[-1], offset=kept[-1].offset + 1)]
    assert only(run(source), "alert").offset == kept[-1].offset + 1


def test_a_changed_changelog_is_found(source: MemorySource) -> None:
    record = source.records["changelog", 1][-2]
    value = bytearray(record.value or b"")
    value[-3] ^= 1
    source.records["changelog", 1][-2] = replace(record, value=bytes(value))
    finding = only(run(source), "changelog")
    assert (finding.topic, finding.partition, finding.offset) == ("changelog", 1, record.offset)


def test_without_seeds_a_decision_that_no_draw_could_lead_to_is_found(source: MemorySource) -> None:
    number, index = place(source, "decisions", lambda r: b'"shop"' in (r.value or b""))
    record = source.records["decisions", number][index]
    decision = json.loads(record.value or b"")["decision"]
    other = next(one for one in ("low", "mid", "high") if one != decision)
    source.records["decisions", number][index] = changed(record, decision=other)
    found = run(source, Secrets())
    assert only(found, "decision").offset == record.offset


def test_without_seeds_an_altered_probability_is_found(source: MemorySource) -> None:
    number, index = place(source, "decisions", lambda r: b'"shop"' in (r.value or b""))
    record = source.records["decisions", number][index]
    parts = json.loads(record.value or b"")["parts"]
    source.records["decisions", number][index] = changed(record, parts={**parts, "low": parts["low"] ^ 1})
    assert only(run(source, Secrets()), "probability").offset == record.offset


def test_rewriting_decision_and_journal_together_breaks_the_chain_all_the_same(source: MemorySource) -> None:
    index = next(
        i
        for i, r in enumerate(source.records["journal", 1])
        if i > 5 and JournalRecord.decode(r.value or b"").decisions
    )
    journal = JournalRecord.decode(source.records["journal", 1][index].value or b"")
    mine = [
        i
        for i, r in enumerate(source.records["decisions", 1])
        if json.loads(r.value or b"")["batch"] == journal.sequence
    ]
    target = source.records["decisions", 1][mine[0]]
    source.records["decisions", 1][mine[0]] = changed(target, group="rewritten")
    values = [source.records["decisions", 1][i].value or b"" for i in mine]
    record = source.records["journal", 1][index]
    source.records["journal", 1][index] = changed(record, decisions_digest=decisions_digest(values))
    found = run(source)
    assert only(found, "decision").offset == target.offset
    assert only(found, "journal-altered").offset == record.offset
    assert only(found, "decisions-digest").offset == record.offset


def cut(source: MemorySource, number: int, batches: int) -> None:
    """Cut the end off everything, as if it had never happened."""
    gone = [JournalRecord.decode(r.value or b"") for r in source.records["journal", number][-batches:]]
    del source.records["journal", number][-batches:]
    for role in ("decisions", "alerts"):
        source.records[role, number] = [  # type: ignore[index]
            r
            for r in source.records[role, number]
            if json.loads(r.value or b"")["batch"] < gone[0].sequence  # type: ignore[index]
        ]
    places = {("requests", gone[0].requests.start), ("feedback", gone[0].feedback.start)}
    for role, start in places:
        kept = [r for r in source.records[role, number] if r.offset < start]  # type: ignore[index]
        source.records[role, number] = kept  # type: ignore[index]
    del source.records["changelog", number][-batches:]
    letters = source.records["dead_letters", number]
    left = Replay(source, number, SEEDS)
    follows = {
        (letter.raw.source, letter.raw.offset) for b in left.batches() if b.outcome for letter in b.outcome.dead_letters
    }
    source.records["dead_letters", number] = [r for r in letters if _place_of(r) in follows]


def _place_of(record: Record) -> tuple[str, int]:
    headers: Mapping[str, bytes | None] = dict(record.headers)
    return (headers["gforce.topic"] or b"").decode(), int(headers["gforce.offset"] or b"")


# What cannot be audited


def test_a_journal_without_its_beginning_is_not_auditable(source: MemorySource) -> None:
    del source.records["journal", 1][:3]
    found = run(source)
    assert found.exit_code == 2
    assert "starts with batch 4" in found.partitions[1].not_auditable
    assert "--from-snapshot" in found.partitions[1].not_auditable
    assert run(source, start=0).verdict == "verified"


def test_inputs_that_retention_has_taken_are_not_auditable_from_the_beginning(source: MemorySource) -> None:
    del source.records["requests", 1][:10]
    source.limits["requests", 1] = (source.records["requests", 1][0].offset, source.limits["requests", 1][1])
    found = run(source)
    assert found.exit_code == 2
    assert "retention" in found.reasons[0]
    assert run(source, start=0).verdict == "verified"


def test_a_record_without_journal_is_not_auditable(source: MemorySource) -> None:
    source.records = {place: kept for place, kept in source.records.items() if place[0] != "journal"}
    with pytest.raises(NotAuditable, match="nothing of topic journal"):
        run(source)


def test_a_journal_of_an_unknown_form_is_not_auditable(source: MemorySource) -> None:
    source.records["journal", 1][2] = changed(source.records["journal", 1][2], form=99)
    assert "use a later version" in run(source).partitions[1].not_auditable


def test_a_configuration_that_is_not_there_is_not_auditable_unless_somebody_has_it(source: MemorySource) -> None:
    """As in a recording of a window, which begins after the configuration was written down."""
    for index, record in enumerate(source.records["journal", 0]):
        if b'"configs"' in (record.value or b"") and index > 0:
            break
    del source.records["journal", 0][: index + 1]
    without = Secrets(masters=SEEDS.masters, tenants=SEEDS.tenants)
    assert "the configuration" in run(source, without, start=0).partitions[0].not_auditable


def test_seeds_are_never_shown() -> None:
    shown = repr(Options(SEEDS))
    assert "5eed" not in shown
    assert "1e4de4" not in shown


def test_a_seed_file_is_checked_without_quoting_it(tmp_path: Path) -> None:
    for text in ("seed = 7", 'seed = "not hexadecimal"', 'sed = "00"', "[tenants]\nacme = [1]", "secret"):
        (tmp_path / "seeds").write_text(text)
        with pytest.raises(GForceError) as wrong:
            Secrets.of_file(tmp_path / "seeds")
        assert "secret" not in str(wrong.value).replace("keep it secret", "")
    (tmp_path / "seeds").write_text("ab" * 32 + "\n")
    assert Secrets.of_file(tmp_path / "seeds").masters == ("ab" * 32,)


def test_a_head_is_written_as_it_is_printed() -> None:
    assert heads(["3=abc:7:ff"]) == {3: "1:abc:7:ff"}
    with pytest.raises(InvalidInput, match="is no head"):
        heads(["abc"])


# The parts


def test_the_writes_of_a_batch_are_told_from_the_slice_of_a_snapshot(recorded: MemorySource) -> None:
    journals = [JournalRecord.decode(r.value or b"") for r in recorded.records["journal", 1]]
    by_sequence = {journal.sequence: journal for journal in journals}
    sliced = 0
    for entry in entries(recorded, 1):
        journal = by_sequence[entry.identity.sequence]
        own = own_writes(entry.writes, journal.previous, journal.state_digest)
        assert own is not None
        sliced += own != entry.writes
    assert sliced > 2
    assert own_writes(entry.writes, journal.previous, "00" * 16) is None


def test_the_mirror_holds_what_the_store_would_hold(recorded: MemorySource) -> None:
    mirror = Mirror()
    last = list(Replay(recorded, 1, SEEDS).batches())[-1]
    for batch in replay(recorded, 1, SEEDS):
        assert batch.outcome is not None
        count = mirror.take(batch.outcome.writes)
        assert count == len(boundaries(batch.outcome.writes)) - 1
    assert last.outcome is not None
    assert mirror.wanting(last.outcome.partition.pending, last.outcome.partition.parked) == ""
    mirror.entries.popitem()
    assert "not in a slot" in mirror.wanting(last.outcome.partition.pending, last.outcome.partition.parked)


def test_a_replay_under_other_rules_keeps_the_interleaving_and_the_clock(recorded: MemorySource) -> None:
    def cautious(tenant: str, rules: TenantRules) -> TenantRules:
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


# One decision explained


def test_an_explanation_adds_up_to_the_recorded_probability(recorded: MemorySource) -> None:
    seen = set()
    for tenant in TENANTS:
        made = [
            json.loads(r.value or b"")
            for n in (0, 1)
            for r in recorded.records["decisions", n]
            if r.key == tenant.encode()
        ]
        for event in (made[1], made[len(made) // 2], made[-1]):
            found = explained(recorded, tenant, event["decision_id"], SEEDS)
            assert found is not None
            assert found.parts == event["parts"]
            explore = found.explore or 0.0
            for label, chance in found.probabilities.items():
                asked = sum(i.chance * e.share for i in found.instances for e in i.experts if e.said == label)
                sure = explore if label == found.configuration["settings"]["positive"] else 0.0  # type: ignore[index]
                assert chance == pytest.approx(sure + (1 - explore) * asked, abs=1e-8)
            assert found.draws is not None
            assert all(draw.above <= draw.value < draw.below + 1e-9 for draw in found.draws)
            seen.add(found.aftermath.fate)
    assert seen >= {"labelled", "expired"}


def test_what_was_learnt_later_is_told(tmp_path: Path) -> None:
    def request(at: int, name: str) -> Event:
        said = {"tenant": "bank", "decision_id": name, "group": "A", "predictions": {"e": "grant", "f": "deny"}}
        return Event(START + at, "requests", "bank", json.dumps(said).encode())

    def label(at: int, name: str, label: str) -> Event:
        said = {"tenant": "bank", "decision_id": name, "label": label}
        return Event(START + at, "feedback", "bank", json.dumps(said).encode())

    stream = [
        label(0, "early", "grant"),
        request(1_000, "early"),
        request(2_000, "labelled"),
        request(3_000, "expired"),
        label(7_000, "labelled", "deny"),
        label(8_000, "labelled", "deny"),
        label(9_000, "labelled", "grant"),
        request(30_000, "meanwhile"),
        label(40_000, "expired", "grant"),
        request(60_000, "waiting"),
        label(60_500, "nobody", "grant"),
    ]
    running = Running(load(), 1)
    running.feed(stream, between=1)
    source = running.source()

    def later(name: str) -> Aftermath:
        found = explained(source, "bank", name, SEEDS)
        assert found is not None
        return found.aftermath

    early, labelled, expired, waiting = map(later, ("early", "labelled", "expired", "waiting"))
    assert (early.fate, early.label, early.delay) == ("labelled", "grant", -1_000)
    assert (labelled.fate, labelled.label, labelled.delay) == ("labelled", "deny", 5_000)
    assert [one.outcome for one in labelled.labels] == ["counted", "repeated", "contradicting"]
    assert (expired.fate, expired.label, [one.outcome for one in expired.labels]) == ("expired", None, ["too late"])
    assert (waiting.fate, waiting.label, waiting.labels) == ("pending", None, [])
    letters = {dict(r.headers)["gforce.reason"] for r in source.records["dead_letters", 0]}
    assert letters == {b"contradicting-label", b"expired-decision"}


def test_without_the_seed_an_explanation_has_no_draws(recorded: MemorySource) -> None:
    event = json.loads(recorded.records["decisions", 1][30].value or b"")
    found = explained(recorded, event["tenant"], event["decision_id"], Secrets())
    assert found is not None
    assert found.draws is None
    assert found.parts == event["parts"]
    assert explained(recorded, event["tenant"], "no such decision", SEEDS) is None


# The commands


def test_the_command_verifies_a_recording_and_ends_with_0(recorded: MemorySource, tmp_path: Path) -> None:
    write_recording(recorded, tmp_path / "r")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["verdict"], document["draws"], document["end"]) == ("verified", "verified", "verified")
    head = f"0={document['heads']['0'].removeprefix('1:')}"
    again = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--head", head, "--partitions", "0"])
    assert again.exit_code == 0, again.output
    assert "verified" in again.stdout


def test_the_command_reads_plain_files_and_says_that_the_end_is_not_verified(
    recorded: MemorySource, tmp_path: Path
) -> None:
    paths = write_plain(recorded, tmp_path)
    seeds = tmp_path / "seeds.toml"
    lender = load().tenants.named["lender"].seed
    master = load().processing.seed
    assert lender is not None
    assert master is not None
    seeds.write_text(f'seed = "{master.reveal()}"\n[tenants]\nlender = ["{"00" * 16}", "{lender.reveal()}"]\n')
    done = CliRunner().invoke(app, ["audit", *map(str, paths), "--seed-file", str(seeds)])
    assert done.exit_code == 0, done.output
    assert "draws: verified" in done.stdout
    assert "the end cannot be verified" in " ".join(done.stdout.split())


def test_the_command_ends_with_1_and_names_the_place_of_a_difference(recorded: MemorySource, tmp_path: Path) -> None:
    tampered = deepcopy(recorded)
    gone = tampered.records["requests", 1].pop(40)
    write_recording(tampered, tmp_path / "r")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG)])
    assert done.exit_code == 1, done.output
    assert f"requests [1] at offset {gone.offset}" in " ".join(done.stdout.split())


def test_a_file_of_a_recording_that_was_changed_is_named(recorded: MemorySource, tmp_path: Path) -> None:
    """In a header, which the chain does not cover."""
    write_recording(recorded, tmp_path / "r")
    path = tmp_path / "r" / "dead-letters-1.jsonl"
    path.write_bytes(path.read_bytes().replace(b"gforce.detail", b"gforce.retail"))
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG), "--json"])
    assert done.exit_code == 1, done.output
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["kind"], finding["topic"], finding["partition"]) == ("recording", "dead-letters", 1)
    assert "SHA-256 differs" in finding["text"]


def test_the_command_ends_with_2_and_says_why(recorded: MemorySource, tmp_path: Path) -> None:
    tampered = deepcopy(recorded)
    del tampered.records["journal", 1][:2]
    write_recording(tampered, tmp_path / "r")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG)])
    assert done.exit_code == 2, done.output
    assert "starts with batch 3" in " ".join(done.stdout.split())


def test_the_command_explains_a_decision(recorded: MemorySource, tmp_path: Path) -> None:
    write_recording(recorded, tmp_path / "r")
    event = json.loads(recorded.records["decisions", 1][30].value or b"")
    asked = ["explain", event["decision_id"], "--tenant", event["tenant"], str(tmp_path / "r"), "--config", str(CONFIG)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert event["decision"] in done.stdout
    document = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert document["parts"] == event["parts"]
    missing = CliRunner().invoke(app, ["explain", "nothing", "--tenant", "bank", str(tmp_path / "r")])
    assert missing.exit_code == 1


def test_partitions_are_audited_by_processes_of_their_own(
    recorded: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processor.audit.verify.audit.FEW", 0)
    told: list[int] = []
    found = audit(recorded, Options(SEEDS), processes=2, progress=told.append)
    assert found.verdict == "verified"
    assert told[-1] == found.requests + found.labels
