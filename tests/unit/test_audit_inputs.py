"""Whoever changes, drops, adds or reorders an input is found out, and what it was is had back where it can be."""

from __future__ import annotations

import json

from msgspec.structs import replace

from processor.core.stream.journal import JournalRecord
from tests.recordings.stream import MemorySource

from .audited import changed, is_label, is_request, only, place, run
from .audited import recorded as recorded
from .audited import source as source


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
