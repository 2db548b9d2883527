"""Nothing a producer or an operator's slip does stops a partition, or loses what waits in it, without a word."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from processor import config as configuration
from processor.adapters.kafka.headers import MAX_HEADER_BYTES, headers_of
from processor.adapters.kafka.runs import reference_runs, runs
from processor.adapters.memory.broker import MemoryPartition
from processor.core.stream.decode import REQUESTS, InputRecord
from processor.core.stream.entries import MOST_PARKED
from processor.ports.log import OperatorActionRequiredError, TransactionAbortedError
from processor.service import worker
from processor.service.assigned import AssignedPartition, LoopSettings
from processor.service.buffer import MAX_BATCH_BYTES, InputBuffer
from tests.recordings.stream import START, Event, Running

from .test_backlog import label, request
from .test_kafka_runs import HERE, Fetched

SEED = {"GFORCE_PROCESSING__SEED": "0badc0de" * 4}
PACE = LoopSettings(commit_interval=0, most_records=10_000)


def running(loop_settings: LoopSettings = PACE, **environment: str) -> Running:
    started = Running(configuration.load(None, SEED | environment), 1, loop_settings)
    started.run()
    started.now = START + 1_000_000
    return started


def only(one: Running) -> AssignedPartition:
    [owned] = one.worker.owned.values()
    return owned


def quarantine_of(one: Running, number: int = 0) -> str:
    """Why a partition stands still; nothing if it does not."""
    quarantine = one.worker.owned[number].quarantine
    return quarantine.reason if quarantine else ""


def reasons(one: Running) -> list[bytes | None]:
    return [
        dict(letter.headers)["gforce.reason"]
        for letter in one.source().read("dead_letters", 0)  # type: ignore[arg-type]
    ]


# Headers


class WithHeaders(Fetched):
    given: object = None

    def headers(self) -> object:  # type: ignore[override]
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


@pytest.mark.parametrize("read", [runs, reference_runs])
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([("trace", b"17")], (("trace", b"17"),)),
        (SystemError("returned a result with an exception set"), ()),
        ([("big", b"x" * MAX_HEADER_BYTES)], ()),
        ([("n" * (MAX_HEADER_BYTES + 1), None)], ()),
        (None, ()),
    ],
    ids=["as they are", "a name that is no text", "a large value", "a large name", "none"],
)
def test_headers_that_cannot_go_along_are_left_out(read: object, given: object, kept: object) -> None:
    message = WithHeaders(HERE, 5)
    message.given = given
    [(_, [raw])] = read([message], {HERE: 0}, {HERE.topic: REQUESTS})  # type: ignore[operator]
    assert raw.headers == kept
    assert headers_of(message) == kept  # type: ignore[arg-type]


# Records


def test_a_large_label_before_its_request_is_a_dead_letter_and_breaks_nothing() -> None:
    one = running()
    payload = {"tenant": "bank", "decision_id": "d1", "label": "true", "note": "x" * MOST_PARKED}
    small = {**payload, "decision_id": "d2", "note": ""}
    stream = [Event(START + 1, "feedback", "bank", json.dumps(each).encode()) for each in (payload, small)]
    one.feed([*stream, *(request(n, 5) for n in range(3, 6))])
    assert reasons(one) == [b"limit"]
    tally = only(one).partition.tenants["bank"].tally  # type: ignore[union-attr]
    assert (tally["decisions"], tally["labels_parked"], tally["dead_limit"]) == (3, 1, 1)


def test_a_record_at_fault_is_looked_for_once_however_often_its_batch_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    one = running()
    known, looked, aborts = one.worker.stream_settings.settings_for, [0], [3]

    def settings_for(name: str) -> object:
        if name == "boom":
            looked[0] += 1
            raise RuntimeError("a defect of ours")
        return known(name)

    one.worker.stream_settings = one.worker.buffers.stream_settings = replace(
        one.worker.stream_settings, settings_for=settings_for
    )  # type: ignore[arg-type]
    output = one.worker.transactions.output
    assert output is not None
    send_offsets = output.send_offsets

    def failing(*args: object) -> None:
        if aborts[0]:
            aborts[0] -= 1
            raise TransactionAbortedError("the broker is slow")
        send_offsets(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(output, "send_offsets", failing)
    boom = {"tenant": "boom", "decision_id": "d", "group": "A", "predictions": {"m": "true"}}
    stream = [request(n, n) for n in range(20)]
    one.feed([*stream[:10], Event(START + 10, "requests", "boom", json.dumps(boom).encode()), *stream[10:]], 1 << 60)
    first = looked[0]
    one.run(60)
    assert aborts == [0]
    assert reasons(one) == [b"internal"]
    assert only(one).partition.tenants["bank"].tally["decisions"] == 20  # type: ignore[union-attr]
    assert looked[0] == first > 0, "the batch was bisected again"
    assert only(one).poison == set()


def test_more_new_tenants_than_the_journal_can_hold_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_JOURNALED_CONFIG_BYTES", 50_000)
    one = running()
    stream = []
    for number in range(300):
        value = {"tenant": f"t{number}", "decision_id": "d", "group": "A", "predictions": {"m": "true"}}
        stream.append(Event(START + number, "requests", f"t{number}", json.dumps(value).encode()))
    one.feed(stream, between=1 << 60)
    one.run(200)
    journal = list(one.source().read("journal", 0))
    assert len(only(one).partition.tenants) == 300  # type: ignore[union-attr]
    assert max(len(record.value or b"") for record in journal) < 100_000
    assert 5 < len(journal) < 100


def test_a_transaction_is_bounded_however_many_tenants_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    one = running(replace(PACE, for_each_tenant=12))
    one.feed([request(1, 1)])
    partition = only(one).partition
    assert partition is not None
    monkeypatch.setattr(partition, "tenants", dict.fromkeys(map(str, range(100_000))))
    assert one.worker._transaction_target() == worker.MAX_TRANSACTION_RECORDS


def test_what_is_held_and_what_a_batch_takes_is_bounded_in_bytes() -> None:
    buffer = InputBuffer(0)
    buffer.add(only_raws(40, size=1 << 20), START)
    assert buffer.size == 40 << 20
    assert buffer.fitting(10_000) == MAX_BATCH_BYTES >> 20
    buffer.drop_committed(30)
    assert (buffer.size, buffer.fitting(10_000)) == (10 << 20, 10_000)


def only_raws(count: int, size: int) -> list[InputRecord]:
    return [InputRecord(REQUESTS, number, START, b"t", bytes(size)) for number in range(count)]


def test_unreadable_records_of_a_batch_that_is_tried_again_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = running(replace(PACE, breaker_records=100))
    output = one.worker.transactions.output
    assert output is not None
    monkeypatch.setattr(output, "commit", lambda: (_ for _ in ()).throw(TransactionAbortedError("the broker is slow")))
    one.feed([Event(START + n, "requests", "bank", b"\xff") for n in range(60)], between=1 << 60)
    one.run(50)
    assert not only(one).breaker.open
    monkeypatch.undo()
    one.run(50)
    assert (only(one).breaker.open, only(one).breaker.seen) == (False, 60)


# What an operator may get wrong


def test_another_width_of_slots_is_refused_before_anything_expires() -> None:
    one = running()
    one.feed([request(n, n) for n in range(5)])
    one.worker.drain()
    one.worker.close()
    one.start(configuration.load(None, SEED | {"GFORCE_PROCESSING__SLOT_MS": "1000"}))
    one.run()
    quarantine = only(one).quarantine
    assert quarantine is not None
    assert re.search(
        r"slot_ms is 1000 and the state of partition 0 was made with 60000.*Set it back", quarantine.reason
    )
    assert quarantine.by_process
    assert not one.worker.ready
    one.worker.close()
    one.start(configuration.load(None, SEED))
    one.feed([label(n, 900_000) for n in range(5)])
    assert only(one).partition.tenants["bank"].tally["labels_joined"] == 5  # type: ignore[union-attr]


def test_inputs_with_unequal_partitions_are_refused() -> None:
    one = Running(configuration.load(None, SEED), 1, PACE)
    one.broker._topics[one.topics.feedback].append(MemoryPartition())
    with pytest.raises(
        OperatorActionRequiredError, match=r"same number of partitions and have not: requests 1, feedback 2"
    ):
        one.run()


def test_a_stop_while_there_is_no_producer_is_a_stop() -> None:
    one = running()
    one.feed([request(1, 1)])
    one.worker.transactions.close()
    one.worker.drain()
    one.worker.close()
    assert one.worker.transactions.output is None
