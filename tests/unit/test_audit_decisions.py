"""Whoever changes, drops or adds a decision is found out, without the seeds too."""

from __future__ import annotations

import json

from msgspec.structs import replace

from processor.audit.replay.recorded_settings import Secrets
from processor.core.stream.journal import JournalRecord, decisions_digest
from tests.recordings.stream import MemorySource

from .audited import changed, only, place, run
from .audited import recorded as recorded
from .audited import source as source


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
