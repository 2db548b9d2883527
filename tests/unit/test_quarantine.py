"""One partition that cannot go on stands still by itself; all others go on, and a person says when to try again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from processor import config as configuration
from processor.adapters.memory.log import MemoryOutput, MemoryReader
from processor.audit.replay.recorded_settings import Secrets
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partitioner import partition_of
from processor.operations import history
from processor.ports.log import Committed, Record, RecordRefusedError, TopicPartition
from processor.run import assembly
from processor.service import batches
from processor.service.assigned import AssignedPartition
from processor.telemetry.status import status_of
from tests.recordings.stream import GROUP, START, Event, Running

from .audited import run
from .test_hostile_producers import PACE, SEED, quarantine_of

TENANTS = [next(f"t{n}" for n in range(99) if partition_of(f"t{n}".encode(), 2) == number) for number in range(2)]
"""one on each of two partitions"""


class Two(Running):
    """A processor with two partitions, and what it was told."""

    def __init__(self) -> None:
        super().__init__(configuration.load(None, SEED), 2, PACE)
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.count = 0
        self.listen()
        self.run()
        self.now = START + 1_000_000

    def listen(self) -> None:
        self.worker.notify = lambda event, details: self.told.append((event, details))
        self.worker.recovery = replace(self.worker.recovery, notify=self.worker.notify)

    def decide(self, count: int = 4) -> None:
        """So many requests for each partition."""
        for _ in range(count):
            self.count += 1
            for tenant in TENANTS:
                event = {"tenant": tenant, "decision_id": f"d{self.count}", "group": "A", "predictions": {"e": True}}
                self.feed([Event(START + self.count, "requests", tenant, json.dumps(event).encode())])

    def decided(self, number: int) -> list[str]:
        """The ids of the decisions for the tenant of a partition, in order."""
        values = [r.value or b"" for p in range(2) for r in self.records("decisions", p)]
        decisions = [json.loads(value) for value in values]
        return [one["decision_id"] for one in decisions if one["tenant"] == TENANTS[number]]

    def again(self) -> None:
        """Stop, and start with the same configuration."""
        self.restart(configuration.load(None, SEED))
        self.listen()
        self.run()

    def commit(self, number: int, move: int = 0, metadata: str | None = None) -> None:
        """Change what the group has committed of the requests of a partition."""
        group, at = self.broker.group(GROUP), TopicPartition("requests", number)
        place, position = group.committed[at]
        group.committed[at] = place, Committed(position.offset + move, metadata or position.metadata)

    def records(self, topic: str, number: int) -> list[Record]:
        reader, at = MemoryReader(self.broker), TopicPartition(topic, number)
        return list(reader.read(at, reader.bounds(at)[0]))

    def told_of(self, event: str) -> list[dict[str, Any]]:
        return [details for one, details in self.told if one == event]


@pytest.fixture
def two() -> Two:
    started = Two()
    started.decide()
    return started


def lose_changelog(two: Two, number: int) -> list[Any]:
    """Delete it and the store's state; what was deleted."""
    partition = two.broker.partition(TopicPartition("changelog", number))
    kept = [partition.start, list(partition.entries)]
    two.broker.delete_records(TopicPartition("changelog", number), partition.end)
    two.store._states.pop(number)
    return kept


def test_a_partition_that_cannot_be_recovered_does_not_stop_the_others(two: Two) -> None:
    lose_changelog(two, 0)
    two.decide(3)
    assert "changelog of partition 0 does not lead to batch" in quarantine_of(two, 0)
    assert (len(two.decided(0)), len(two.decided(1))) == (4, 7)
    assert [one["partition"] for one in two.told_of("quarantined")] == [0]


def test_a_process_with_a_quarantined_partition_is_ready_and_says_so(two: Two) -> None:
    lose_changelog(two, 0)
    two.decide(1)
    status = status_of(two.worker, 0, 10.0)
    assert [partition.state for partition in status.partitions] == ["quarantined", "ready"]
    assert "does not lead to batch" in status.partitions[0].trouble
    assert status.moving


def test_a_quarantined_partition_goes_on_when_a_person_resumes_it(two: Two) -> None:
    start, entries = lose_changelog(two, 0)
    two.decide(3)
    partition = two.broker.partition(TopicPartition("changelog", 0))
    partition.entries, partition.start = [*entries, *partition.entries], start
    assert two.worker.resume(0)
    two.run()
    assert quarantine_of(two, 0) == ""
    assert two.decided(0) == two.decided(1)


def test_a_restart_tries_again(two: Two) -> None:
    start, entries = lose_changelog(two, 0)
    two.decide(1)
    partition = two.broker.partition(TopicPartition("changelog", 0))
    partition.entries, partition.start = [*entries, *partition.entries], start
    two.again()
    assert quarantine_of(two, 0) == ""
    assert two.decided(0) == two.decided(1)


def test_a_partition_that_is_fine_cannot_be_resumed(two: Two) -> None:
    assert not two.worker.resume(0)


def test_a_record_that_kafka_refuses_stops_its_partition_only(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: MemoryOutput, at: TopicPartition, key: bytes | None, value: bytes | None, *rest: Any) -> None:
        if at == TopicPartition("changelog", 0):
            raise RecordRefusedError("delivering: too large. Remedy: raise max.message.bytes")
        unbroken(self, at, key, value, *rest)

    unbroken = MemoryOutput.send
    monkeypatch.setattr(MemoryOutput, "send", send)
    two.decide(3)
    assert "raise max.message.bytes" in quarantine_of(two, 0)
    assert (len(two.decided(0)), len(two.decided(1))) == (4, 7)


# What was committed, and what the journal says


def test_offsets_that_lost_their_tail_do_not_make_anybody_decide_twice(two: Two) -> None:
    group = two.broker.group(GROUP)
    before = dict(group.committed)
    two.decide(5)
    two.worker.drain()
    two.worker.close()
    group.committed = before
    two.store.flush()
    two.start(configuration.load(None, SEED))
    two.listen()
    two.run()
    two.decide(2)
    assert two.decided(0) == two.decided(1) == [f"d{n}" for n in range(1, 12)]
    assert {one["partition"] for one in two.told_of("offsets lost")} == {0, 1}
    journal = [JournalRecord.decode(r.value or b"") for r in two.records("journal", 0)]
    assert [record.sequence for record in journal] == list(range(1, len(journal) + 1))


@pytest.mark.parametrize("move", [1, -1])
def test_offsets_that_were_moved_by_hand_are_refused(two: Two, move: int) -> None:
    two.worker.drain()
    two.worker.close()
    two.commit(0, move)
    two.start(configuration.load(None, SEED))
    two.run()
    two.decide(1)
    assert f"offset of requests [0] is {4 + move} and the journal read it up to 4" in quarantine_of(two, 0)
    assert (len(two.decided(0)), len(two.decided(1))) == (4, 5)
    two.commit(0, -move)
    two.worker.resume(0)
    two.run()
    assert two.decided(0) == two.decided(1)


def test_inputs_that_were_created_again_are_refused(two: Two) -> None:
    two.worker.drain()
    two.worker.close()
    for topic in ("requests", "feedback"):
        two.broker.delete_topic(topic)
        two.broker.create_topic(topic, 2)
    for n in range(9):
        two.broker.produce(TopicPartition("requests", 0), TENANTS[0].encode(), b"{}", timestamp=START + n)
    two.start(configuration.load(None, SEED))
    two.run()
    assert "requests was deleted and created again" in quarantine_of(two, 0)
    assert "gforce reset --from earliest" in quarantine_of(two, 1)


def test_a_journal_that_lost_its_tail_is_refused(two: Two) -> None:
    two.worker.drain()
    two.worker.close()
    del two.broker.partition(TopicPartition("journal", 0)).entries[-4:]
    two.start(configuration.load(None, SEED))
    two.run()
    assert "journal records are lost" in quarantine_of(two, 0)
    assert quarantine_of(two, 1) == ""


# Records that are not ours

STRAYS: list[Callable[[Two, str], bytes]] = [
    lambda two, topic: b"hello, is this thing on?",
    lambda two, topic: b'{"form": 1}',
    lambda two, topic: b"\x93\x01\x02\x03",
    lambda two, topic: b"",
    lambda two, topic: two.records(topic, 1)[-1].value or b"",
    lambda two, topic: two.records(topic, 0)[0].value or b"",
]


@pytest.mark.parametrize("stray", range(len(STRAYS)))
@pytest.mark.parametrize("topic", ["changelog", "journal"])
def test_a_stray_record_is_passed_over(two: Two, topic: str, stray: int) -> None:
    record = two.broker.produce(TopicPartition(topic, 0), None, STRAYS[stray](two, topic))
    two.decide(2)
    two.store.flush()
    two.decide(2)
    two.again()
    two.decide(1)
    assert two.decided(0) == two.decided(1) == [f"d{n}" for n in range(1, 10)]
    if stray < 4:
        places = {(one["topic"], one["partition"], one["offset"]) for one in two.told_of("foreign record")}
        assert places == {(topic, 0, record.offset)}


# What was deleted from the store


def test_entries_that_were_deleted_are_reconstructed(two: Two) -> None:
    two.store.delete_entries(0, two.store.entry_ids(0)[:2])
    for n, tenant in ((1, TENANTS[0]), (2, TENANTS[0]), (3, TENANTS[1])):
        event = {"tenant": tenant, "decision_id": f"d{n}", "label": True}
        two.feed([Event(START + 50, "feedback", tenant, json.dumps(event).encode())])
        two.feed([Event(START + 60, "requests", tenant, json.dumps(asked(tenant, n)).encode())])
    two.run()
    assert two.decided(0) == two.decided(1) == ["d1", "d2", "d3", "d4"]
    assert joined(two.worker.owned[0]) == 2
    assert two.worker.totals["store_damaged"] == 1


def asked(tenant: str, n: int) -> dict[str, object]:
    return {"tenant": tenant, "decision_id": f"d{n}", "group": "A", "predictions": {"e": True}}


def joined(owned: AssignedPartition) -> int:
    assert owned.partition is not None
    return sum(tenant.tally["labels_joined"] for tenant in owned.partition.tenants.values())


# What a person is told before a start


def found(two: Two) -> list[tuple[str, str, str]]:
    two.worker.drain()
    return [(one.level, one.what, one.found) for one in history.examine(two.worker.recovery, 2)]


def test_a_history_that_belongs_together_is_fine(two: Two) -> None:
    assert found(two) == [("ok", "history", "offsets, journal and changelog of 2 partitions agree")]


def test_a_changelog_that_does_not_lead_to_the_committed_batch_is_a_problem(two: Two) -> None:
    two.broker.delete_records(TopicPartition("changelog", 0), two.broker.partition(TopicPartition("changelog", 0)).end)
    [(level, what, text)] = found(two)
    assert (level, what) == ("problem", "partition 0")
    assert "does not lead to batch" in text


def test_offsets_that_contradict_the_journal_are_a_problem(two: Two) -> None:
    two.worker.drain()
    two.commit(1, 1)
    [(level, what, text)] = found(two)
    assert (level, what) == ("problem", "partition 1")
    assert "moved by hand" in text


def test_a_stray_record_is_a_warning_with_its_place(two: Two) -> None:
    record = two.broker.produce(TopicPartition("journal", 1), None, b"hello")
    [_, (level, what, text)] = found(two)
    assert (level, what) == ("warning", "partition 1")
    assert f"journal [1] at {record.offset}" in text


# What 0.2 has left


def test_a_state_of_the_first_journal_form_is_taken_over_without_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(batches, "JOURNAL_FORM", 1)
        earlier.setattr(assembly, "MAX_DUE_ENTRIES_PER_BATCH", None)
        earlier.setattr(MemoryReader, "topic_ids", lambda self, topics: {})
        two = Two()
        two.decide()
        two.worker.drain()
        two.worker.close()
    two.start(configuration.load(None, SEED))
    two.listen()
    two.run()
    two.decide()
    journal = [JournalRecord.decode(r.value or b"") for r in two.records("journal", 0)]
    assert len({record.lineage for record in journal}) == 1
    assert {record.form for record in journal} == {1, 2}
    assert ["sweep" in record.terms for record in journal if record.terms] == [False, True]
    assert two.decided(0) == two.decided(1) == [f"d{n}" for n in range(1, 9)]
    found = run(two.source(), Secrets.of_config(configuration.load(None, SEED)))
    assert (found.verdict, found.findings) == ("verified", [])
