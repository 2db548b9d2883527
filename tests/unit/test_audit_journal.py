"""Whoever changes the journal or cuts off its end is found out: by the chain, by the anchor or by a head kept."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from processor.audit.replay.recorded_settings import Secrets
from processor.audit.replay.replay import Replay
from processor.audit.sources.source import Role
from processor.core.stream.journal import JournalRecord
from processor.ports.log import Record
from tests.recordings.stream import MemorySource

from .audited import SEEDS, changed, only, run
from .audited import recorded as recorded
from .audited import source as source


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
    journal = source.records["journal", 1]
    del journal[max(i for i, r in enumerate(journal) if json.loads(r.value or b"")["decisions"]) :]
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


@pytest.mark.parametrize(("role", "kind"), [("journal", "journal-unreadable"), ("changelog", "foreign-record")])
def test_a_record_that_is_not_ours_is_named_and_all_else_is_verified(
    source: MemorySource, role: Role, kind: str
) -> None:
    before = run(source)
    records = source.records[role, 1]
    place = next(i for i in range(3, len(records)) if records[i].offset > records[i - 1].offset + 1)
    stray = replace(records[place], offset=records[place].offset - 1, value=b"hello, is this thing on?")
    records.insert(place, stray)
    found = run(source)
    assert [(one.kind, one.topic, one.offset) for one in found.findings] == [(kind, role, stray.offset)]
    assert [one.recomputed for one in found.partitions] == [one.recomputed for one in before.partitions]
