"""Whoever changes, drops or adds a dead letter, an alert or a word of the changelog is found out."""

from __future__ import annotations

from copy import deepcopy

import pytest
from msgspec.structs import replace

from processor.audit.replay.replay import Replay
from processor.audit.verify import side_outputs
from processor.audit.verify.side_outputs import DeadLetters
from processor.core.stream.journal import JournalRecord
from tests.recordings.stream import MemorySource

from .audited import SEEDS, changed, only, place, run
from .audited import alerted as alerted
from .audited import recorded as recorded
from .audited import source as source


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
    monkeypatch.setattr(side_outputs, "READ_AHEAD_LETTERS", 2)
    monkeypatch.setattr(side_outputs, "MAX_HELD_LETTERS", 5)
    for start in (None, 9):
        assert run(source, start=start).verdict == "verified"
    number, index = place(source, "dead_letters", lambda r: True)
    assert index > 5  # so many come before the window
    del source.records["dead_letters", number][-1]
    assert "should be here" in only(run(source, start=9), "dead-letter").text


def test_few_dead_letters_are_held_however_many_are_missing(
    source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_outputs, "READ_AHEAD_LETTERS", 2)
    monkeypatch.setattr(side_outputs, "MAX_HELD_LETTERS", 5)
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
