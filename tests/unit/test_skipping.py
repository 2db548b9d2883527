"""An input that cannot be read on: who is told what, and how a person goes on after it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from processor import config as configuration
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.sources.cluster import offset_after_unreadable
from processor.audit.verify.audit import Audit, audit
from processor.audit.verify.result import AuditOptions
from processor.core.stream.journal import JournalRecord, Range
from processor.operations.skipping import Skipping, judged, refused
from processor.ports.log import Record, TopicPartition, UnreadableBatchError
from processor.telemetry.status import PartitionStatus, status_of
from tests.recordings.stream import START, MemorySource, Running

from .audited import changed
from .test_backlog import PACE, SEED, label, request

STALL = 30.0
CONFIG = configuration.load(None, SEED)
REQUESTS, FEEDBACK = TopicPartition("requests", 0), TopicPartition("feedback", 0)


def running(count: int = 10, first: int = 4, after: int = 6) -> Running:
    """Requests with labels, of which nobody can read a batch."""
    made = Running(CONFIG, 1, PACE)
    made.run()
    made.broker.partition(REQUESTS).unreadable[first] = after
    feed(made, 0, count)
    return made


def feed(made: Running, begin: int, end: int) -> None:
    made.feed([request(n, n) for n in range(begin, end)] + [label(n, n + 50) for n in range(begin, end)], 1 << 60)
    made.now = max(made.now, START + 100_000)
    made.run(20)


def status(made: Running, later: float = 0.0) -> PartitionStatus:
    return status_of(made.worker, made.worker.monotonic_ms() + round(1_000 * later), STALL).partitions[0]


def decided(made: Running) -> list[str]:
    return [json.loads(record.value or b"")["decision_id"] for record in records(made, "decisions")]


def records(made: Running, topic: str) -> list[Record]:
    partition = made.broker.partition(TopicPartition(topic, 0))
    return partition.read(0, partition.end)[0]


def batches(made: Running) -> list[JournalRecord]:
    return [JournalRecord.decode(record.value or b"") for record in records(made, "journal")]


def source(made: Running, readable: bool = False) -> MemorySource:
    """The record of it; without what could not be read, unless whoever records it can."""
    partition = made.broker.partition(REQUESTS)
    gone, partition.unreadable = partition.unreadable, {}
    found = made.source()
    partition.unreadable = gone
    if not readable:
        found.records["requests", 0] = [
            record
            for record in found.records["requests", 0]
            if not any(first <= record.offset < after for first, after in gone.items())
        ]
    return found


def audited(found: MemorySource) -> Audit:
    return audit(found, AuditOptions(Secrets.of_config(CONFIG)), processes=1)


def test_what_cannot_be_read_stalls_its_partition_at_once_and_the_remedy_is_named() -> None:
    made = running()
    found = status(made)
    assert found.state == "stalled"
    assert "requests[0] at offset 4" in found.trouble
    assert "gforce skip 0 --topic requests --offset 4" in found.trouble
    assert (found.next, found.unreadable) == ({"requests": 4, "feedback": 10}, {"requests": 4})
    assert decided(made) == ["d0", "d1", "d2", "d3"]


def test_what_is_skipped_is_in_the_journal_and_all_else_is_decided() -> None:
    made = running()
    assert made.worker.skip(0, "requests", 4, 6)
    made.run(20)
    assert decided(made) == ["d0", "d1", "d2", "d3", "d6", "d7", "d8", "d9"]
    [batch] = [batch for batch in batches(made) if batch.skipped]
    assert batch.skipped == [("requests", 4, 6)]
    assert batch.requests == Range(4, 6, 0, "")
    assert (batch.feedback.count, batch.feedback.hashes, batch.decisions) == (0, "", 0)
    assert status(made).state == "ready"
    assert status(made).unreadable == {}
    following = batches(made)[batches(made).index(batch) + 1]
    assert following.requests.start == 6


def test_a_batch_that_skips_nothing_does_not_mention_it() -> None:
    made = running()
    assert all(b"skipped" not in (record.value or b"") for record in records(made, "journal"))


def test_only_the_next_offset_is_skipped_and_only_if_it_cannot_be_read() -> None:
    made = running()
    for number, source_name, first, after in (
        (0, "requests", 3, 6),
        (0, "requests", 5, 6),
        (0, "requests", 4, 4),
        (0, "feedback", 4, 6),
        (0, "feedback", 10, 11),
        (0, "decisions", 4, 6),
        (1, "requests", 4, 6),
    ):
        assert not made.worker.skip(number, source_name, first, after)
    made.run(20)
    assert status(made).state == "stalled"
    assert not any(batch.skipped for batch in batches(made))


def test_what_was_read_before_it_is_committed_before_it_is_skipped() -> None:
    made = Running(CONFIG, 1, replace(PACE, commit_interval=200))
    made.run()
    made.broker.partition(REQUESTS).unreadable[4] = 6
    for n in range(8):
        made.broker.produce(REQUESTS, b"bank", request(n, n).value, timestamp=START + n)
    made.worker.run_once(0.0)
    [owned] = made.worker.owned.values()
    assert len(owned.buffers["requests"]) == 4
    assert made.worker.skip(0, "requests", 4, 6)
    made.now += 10_000
    made.run(200)
    assert [(b.requests.start, b.requests.next, b.requests.count) for b in batches(made)] == [
        (0, 4, 4),
        (4, 6, 0),
        (6, 8, 2),
    ]


def test_a_batch_may_be_skipped_in_pieces() -> None:
    made = running(first=4, after=7)
    for first, after in ((4, 5), (5, 7)):
        assert made.worker.skip(0, "requests", first, after)
        made.run(20)
    assert [batch.skipped for batch in batches(made) if batch.skipped] == [[("requests", 4, 5)], [("requests", 5, 7)]]
    assert len(decided(made)) == 7
    assert audited(source(made)).verdict == "verified"


def test_the_first_record_of_all_can_be_skipped() -> None:
    made = running(first=0, after=1)
    assert status(made).state == "stalled"
    assert made.worker.skip(0, "requests", 0, 1)
    made.run(20)
    assert len(decided(made)) == 9
    assert audited(source(made)).verdict == "verified"


def test_a_restart_after_a_skip_goes_on_after_it() -> None:
    made = running()
    made.worker.skip(0, "requests", 4, 6)
    made.run(20)
    made.restart(CONFIG)
    made.run(20)
    feed(made, 10, 12)
    assert len(decided(made)) == 10
    assert audited(source(made)).verdict == "verified"


def test_a_restart_before_a_skip_is_committed_asks_again() -> None:
    made = running()
    made.worker.skip(0, "requests", 4, 6)
    made.worker.transactions.close()
    made.restart(CONFIG)
    made.run(20)
    assert status(made).state == "stalled"
    assert not any(batch.skipped for batch in batches(made))


# An input that is silent


def test_an_input_that_gives_nothing_though_its_log_goes_on_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Running(CONFIG, 1, PACE)
    made.run()
    feed(made, 0, 3)
    assert status(made).state == "ready"
    monkeypatch.setattr(made.worker.input, "moved_on", lambda at, ask=False: at == REQUESTS)
    assert status(made, STALL - 1).state == "ready"
    found = status(made, STALL + 1)
    assert found.state == "stalled"
    assert "requests[0]: nothing comes from offset 3 on" in found.trouble


def test_a_partition_whose_other_input_moves_is_stalled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Running(CONFIG, 1, PACE)
    made.run()
    feed(made, 0, 3)
    monkeypatch.setattr(made.worker.input, "moved_on", lambda at, ask=False: at == REQUESTS)
    made._tick += round(1_000 * STALL)
    made.broker.produce(FEEDBACK, b"bank", label(0, 60).value, timestamp=START + 60)
    made.run(20)
    assert status(made, 1).state == "stalled"


def test_an_input_that_waits_for_an_open_transaction_is_not_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Running(CONFIG, 1, PACE)
    made.run()
    feed(made, 0, 3)
    monkeypatch.setattr(made.worker.input, "moved_on", lambda at, ask=False: not ask)
    assert status(made, STALL + 1).state == "ready"


# The audit


def skipped() -> Running:
    made = running()
    made.worker.skip(0, "requests", 4, 6)
    made.run(20)
    return made


def test_an_audit_of_what_was_skipped_is_clean_and_says_so() -> None:
    found = audited(source(skipped()))
    assert found.verdict == "verified"
    [one] = found.partitions[0].skipped
    assert (one.topic, one.partition, one.first, one.next, one.readable) == ("requests", 0, 4, 6, 0)
    assert one.text == (
        "requests [0]: offsets 4 to 5 were skipped by an operator, because the processor could not read them"
    )


def test_whoever_can_read_what_was_skipped_is_told_how_much() -> None:
    found = audited(source(skipped(), readable=True))
    assert found.verdict == "verified"
    assert [one.readable for one in found.partitions[0].skipped] == [2]


@pytest.mark.parametrize(
    "forged", [[], [["requests", 4, 5]], [["feedback", 4, 6]], [["requests", 4, 6], ["feedback", 0, 1]]]
)
def test_a_forged_skip_is_found(forged: list[Any]) -> None:
    record = source(skipped())
    index = next(i for i, one in enumerate(record.records["journal", 0]) if b'"skipped"' in (one.value or b""))
    record.records["journal", 0][index] = changed(record.records["journal", 0][index], skipped=forged)
    found = audited(record)
    assert found.verdict == "differences"
    assert "journal-altered" in {finding.kind for finding in found.findings}


def test_a_request_that_was_decided_and_is_hidden_by_a_forged_skip_is_found() -> None:
    record = source(skipped())
    first = record.records["journal", 0][0]
    taken = json.loads(first.value or b"")["requests"]
    record.records["journal", 0][0] = changed(first, skipped=[["requests", taken["start"], taken["start"] + 1]])
    kinds = {finding.kind for finding in audited(record).findings}
    assert {"journal-altered", "input-missing"} <= kinds


def test_a_skip_outside_the_range_of_its_batch_is_found() -> None:
    record = source(skipped())
    last = record.records["journal", 0][-1]
    record.records["journal", 0][-1] = changed(last, skipped=[["requests", 100, 101]])
    gaps = [finding for finding in audited(record).findings if finding.kind == "journal-gap"]
    assert "leaves out offsets 100 to 100 of requests" in gaps[0].text


# Past what cannot be read, for whoever records or audits


class Message:
    """Stands in for a message of confluent-kafka."""

    def __init__(self, record: Record) -> None:
        self._value = record.value

    def value(self) -> bytes | None:
        return self._value


def test_who_reads_later_goes_past_what_was_skipped_and_nothing_else() -> None:
    made = skipped()
    kept: Any = [[Message(record) for record in records(made, "journal")]]
    problem = UnreadableBatchError("cannot be read", 4)
    assert offset_after_unreadable(kept, "requests", 4, problem) == 6
    assert offset_after_unreadable(kept, "requests", 5, problem) == 6
    assert offset_after_unreadable(kept, "requests", 10, problem) is None
    for role, offset in (("requests", 3), ("requests", 6), ("feedback", 4)):
        with pytest.raises(UnreadableBatchError):
            offset_after_unreadable(kept, role, offset, problem)  # type: ignore[arg-type]


# What a processor answers


def partition(**more: Any) -> PartitionStatus:
    return PartitionStatus(0, "stalled", "because", 1, 1, 0, 0, 0, 0.0, **more)


STUCK = partition(next={"requests": 17, "feedback": 3}, unreadable={"requests": 17})


@pytest.mark.parametrize(
    ("wanted", "where", "status", "said"),
    [
        (Skipping("requests", 17), None, 404, "ask the one that does"),
        (Skipping("requests", 16), STUCK, 409, "is 17, and that one cannot be read: skip it instead of 16"),
        (Skipping("feedback", 3), STUCK, 409, "is 3, and reading goes on there"),
        (Skipping("requests", 17), partition(), 409, "partition 0 is stalled: because"),
    ],
)
def test_another_offset_than_the_next_is_refused(
    wanted: Skipping, where: PartitionStatus | None, status: int, said: str
) -> None:
    answer = refused(0, wanted, where)
    assert answer is not None
    assert (answer[0].done, answer[1]) == (False, status)
    assert said in answer[0].text


def test_what_cannot_be_read_may_be_skipped_up_to_the_end_of_its_batch() -> None:
    assert refused(0, Skipping("requests", 17), STUCK) is None
    for to, reaches in ((None, 22), (18, 18), (22, 22)):
        answer, status = judged(0, Skipping("requests", 17, to), (15, 22))
        assert (answer.done, answer.to, status) == (True, reaches, 202)
    for to in (17, 23):
        answer, status = judged(0, Skipping("requests", 17, to), (15, 22))
        assert (answer.done, status) == (False, 409)
        assert "--to can be 18 to 22" in answer.text
    answer, status = judged(0, Skipping("requests", 17), None)
    assert (answer.done, status) == (False, 409)
    answer, status = judged(0, Skipping("requests", 17, dry_run=True), (15, 22))
    assert (answer.done, answer.to, status) == (False, 22, 200)
