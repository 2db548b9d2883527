"""Snapshots in the changelog: which one is whole, and what is deleted behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from processor import config as configuration
from processor.adapters.memory.log import MemoryReader
from processor.core.stream.journal import SNAPSHOT_UNKNOWN, ChangelogRecord, JournalRecord
from processor.ports.log import TopicPartition
from processor.service.worker import AssignedPartition
from tests.recordings.stream import PACE, Event, Running, Shape, events

SEED = {"GFORCE_PROCESSING__SEED": "0badc0de" * 4}
STREAM = events({"t": Shape(("no", "yes"), ("A", "B"))}, count=1_500, seed=3)


class Later(Executor):
    """Keeps calls until somebody makes them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], Any]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append(lambda: call(*args, **kwargs))
        return Future()


class One(Running):
    """A processor with one partition that takes a snapshot every few batches."""

    def __init__(self) -> None:
        super().__init__(configuration.load(None, SEED), 1, replace(PACE, slice_bytes=100))
        self.worker.trim = self.broker.delete_records
        self._left: Iterator[Event] = iter(STREAM)

    def until(self, wanted: Callable[[AssignedPartition], bool]) -> None:
        for event in self._left:
            self.feed([event])
            if self.worker.owned[0].ready and wanted(self.worker.owned[0]):
                return
        raise AssertionError("the stream is at its end")

    def lose_the_store(self) -> None:
        """It is noticed with the next batch."""
        recoveries = self.worker.totals["recoveries"]
        self.store.flush()
        self.feed([next(self._left)])
        owned = self.worker.owned[0]
        assert owned.quarantine is not None or self.worker.totals["recoveries"] == recoveries + 1

    @property
    def changelog(self) -> TopicPartition:
        return TopicPartition(self.topics.changelog, 0)

    def begun(self) -> list[tuple[int, int]]:
        """Offset and batch of every snapshot that has begun."""
        records = MemoryReader(self.broker).read(self.changelog, self.first_offset)
        decoded = [(record.offset, ChangelogRecord.decode(record.value or b"")) for record in records]
        return [(offset, record.sequence) for offset, record in decoded if record.snapshot and record.part == 0]

    @property
    def first_offset(self) -> int:
        return MemoryReader(self.broker).bounds(self.changelog)[0]

    def journaled(self) -> list[int]:
        records = MemoryReader(self.broker).read(TopicPartition(self.topics.journal, 0), 0)
        return [JournalRecord.decode(record.value or b"").snapshot for record in records]


def is_half_way(owned: AssignedPartition) -> bool:
    current = owned.snapshots.current
    return current is not None and current.sequence > 0


@pytest.fixture
def one() -> One:
    return One()


def test_the_journal_says_with_which_batch_the_last_whole_snapshot_began(one: One) -> None:
    one.worker.trim = lambda at, offset: None
    one.until(lambda owned: one.worker.totals["snapshots"] == 2 and not is_half_way(owned))
    begun = [sequence for _, sequence in one.begun()]
    assert list(dict.fromkeys(one.journaled())) == [0, *begun[:2]]


def test_a_snapshot_that_is_not_whole_is_no_state_to_start_from(one: One) -> None:
    one.until(lambda owned: one.worker.totals["snapshots"] >= 1 and is_half_way(owned))
    offset, sequence = one.begun()[-1]
    assert sequence > one.journaled()[-1]
    one.broker.delete_records(one.changelog, offset)
    one.lose_the_store()
    quarantine = one.worker.owned[0].quarantine
    assert quarantine is not None
    assert "does not lead to batch" in quarantine.reason


def test_a_whole_snapshot_is_enough(one: One) -> None:
    one.until(lambda owned: one.worker.totals["snapshots"] >= 1 and is_half_way(owned))
    assert one.first_offset == one.begun()[0][0] > 0
    ids = set(one.store.entry_ids(0))
    one.lose_the_store()
    assert one.worker.owned[0].ready
    assert len(set(one.store.entry_ids(0)) ^ ids) <= 1


def test_a_state_of_the_first_journal_form_starts_from_what_there_is(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processor.service.snapshot.SnapshotSchedule.whole_after", lambda *_: SNAPSHOT_UNKNOWN)
    one.until(lambda owned: one.worker.totals["snapshots"] == 1 and not is_half_way(owned))
    assert set(one.journaled()) == {SNAPSHOT_UNKNOWN}
    one.lose_the_store()
    assert one.worker.owned[0].ready


def test_nobody_waits_until_the_changelog_is_trimmed(one: One) -> None:
    one.worker.trimming = later = Later()
    one.until(lambda owned: one.worker.totals["snapshots"] == 2)
    assert one.first_offset == 0
    for call in later.calls:
        call()
    assert one.first_offset > 0
