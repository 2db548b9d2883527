"""A backlog of both inputs: which records a batch takes, which are held back, and that all of them come in the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from processor import config as configuration
from processor.core.stream.decode import REQUESTS, InputRecord
from processor.ports.log import TopicPartition
from processor.service.assigned import LoopSettings
from processor.service.buffer import InputBuffer, batch_limit
from tests.recordings.stream import START, Event, Running

PACE = LoopSettings(commit_interval=0, most_records=50)
PATIENT = replace(PACE, commit_interval=1_000)
"""waits until there is enough for a batch"""
SEED = {"GFORCE_PROCESSING__SEED": "0badc0de" * 4}
NOW = START + 1_000_000


def request(number: int, at: int) -> Event:
    value = {"tenant": "bank", "decision_id": f"d{number}", "group": "AB"[number % 2], "predictions": {"m": "true"}}
    return Event(START + at, "requests", "bank", json.dumps(value).encode())


def label(number: int, at: int) -> Event:
    value = {"tenant": "bank", "decision_id": f"d{number}", "label": "true"}
    return Event(START + at, "feedback", "bank", json.dumps(value).encode())


def case(number: int, late: int) -> list[Event]:
    return [request(number, number), label(number, number + late)]


def after(stream: Iterable[Event], loop_settings: LoopSettings = PACE, turns: int = 500) -> Running:
    """A processor to which a stream came that was there before anybody read it, each input in order of time."""
    running = Running(configuration.load(None, SEED), 1, loop_settings)
    running.run()
    running.now = NOW
    running.feed(sorted(stream, key=lambda event: event.at), between=1 << 60)
    running.run(turns)
    return running


def tally(running: Running) -> dict[str, int]:
    [owned] = running.worker.owned.values()
    assert owned.partition is not None
    assert not owned.buffered
    return dict(owned.partition.tenants["bank"].tally)


def test_labels_do_not_overtake_their_requests() -> None:
    """One request in four gets a label, so records of equal number are far apart in time."""
    stream = [event for number in range(800) for event in case(number, late=5)[: 2 if number % 4 == 0 else 1]]
    counts = tally(after(stream))
    assert (counts["decisions"], counts["labels_joined"]) == (800, 200)
    assert "labels_parked" not in counts


def test_labels_do_not_wait_for_requests_that_have_ended() -> None:
    counts = tally(after(event for number in range(100) for event in case(number, late=5_000)))
    assert counts["labels_joined"] == 100


def test_a_label_that_is_before_its_request_is_still_parked() -> None:
    counts = tally(after(event for number in range(400, 700) for event in case(number, late=-300)))
    assert counts["labels_joined"] == 300
    assert counts["labels_parked"] > 0


UNEQUAL = {
    "labels long after all requests": [
        *(request(n, n) for n in range(2_000)),
        *(label(n, n + 9_000) for n in range(2_000)),
    ],
    "few labels": [*(request(n, n) for n in range(3_000)), *(label(n, n + 5) for n in range(0, 3_000, 100))],
    "few requests": [*(request(n, n * 100) for n in range(30)), *(label(n // 100, n + 200) for n in range(3_000))],
    "labels of requests long gone": [
        *(request(n, n + 9_000) for n in range(2_000)),
        *(label(-n, n) for n in range(2_000)),
    ],
}


@pytest.mark.parametrize("stream", UNEQUAL.values(), ids=UNEQUAL)
def test_small_batches_of_unequal_inputs_come_to_an_end_and_are_full(stream: list[Event]) -> None:
    running = after(stream, PATIENT)
    counts, totals = tally(running), running.worker.totals
    assert totals["records"] == len(stream)
    assert counts["decisions"] == sum(event.role == "requests" for event in stream)
    assert totals["transactions"] <= len(stream) / 50 + 10
    assert totals["recoveries"] == 1


@pytest.mark.parametrize("most_held", [1, 1_000])
@pytest.mark.parametrize("stream", UNEQUAL.values(), ids=UNEQUAL)
def test_pausing_and_reading_on_loses_and_repeats_nothing(stream: list[Event], most_held: int) -> None:
    """It is paused at two batches, or more if that is so, and then read on when half are gone."""
    running = Running(configuration.load(None, SEED), 1, replace(PATIENT, most_held=most_held))
    running.run()
    running.now = NOW
    running.feed(sorted(stream, key=lambda event: event.at), between=1 << 60)
    [owned] = running.worker.owned.values()
    pauses, most = 0, 0
    while running.worker.buffers.has_lag(owned):
        before = len(owned.paused)
        running.worker.run_once(0.0)
        pauses += len(owned.paused) > before
        most = max(most, *map(len, owned.buffers.values()))
    counts = tally(running)
    requests = sum(event.role == "requests" for event in stream)
    assert (running.worker.totals["records"], counts["decisions"]) == (len(stream), requests)
    assert "requests_duplicate" not in counts
    plenty = max(100, most_held)
    assert most < plenty + 50
    assert pauses <= 2 * len(stream) / plenty + 2
    assert not owned.paused


def test_reading_is_paused_and_read_on_at_all() -> None:
    """Or the test above would show nothing."""
    running = Running(configuration.load(None, SEED), 1, replace(PATIENT, most_held=100))
    running.run()
    running.now = NOW
    running.feed(UNEQUAL["labels long after all requests"], between=1 << 60)
    running.run(20)
    [owned] = running.worker.owned.values()
    assert owned.paused == {running.topics.feedback}
    assert not running.worker.input.ended(TopicPartition(running.topics.feedback, 0))
    running.run(500)
    assert not owned.paused
    assert not running.worker.buffers.has_lag(owned)


def test_a_label_from_the_future_holds_nothing_back() -> None:
    """Neither one that is refused nor one that is not."""
    stream = [event for number in range(800) for event in case(number, late=5)]
    for ahead in (10_000, 1 << 40):
        wrong = Event(NOW + ahead, "feedback", "bank", label(7, 0).value)
        first = Running(configuration.load(None, SEED), 1, PACE)
        first.run()
        first.now = NOW
        first.broker.produce(TopicPartition(first.topics.feedback, 0), b"bank", wrong.value, timestamp=wrong.at)
        first.feed(stream, between=1 << 60)
        first.run(20)
        [owned] = first.worker.owned.values()
        assert len(owned.buffers[first.topics.feedback]) < 200
        first.run(200)
        counts = tally(first)
        assert (counts["decisions"], counts["labels_joined"]) == (800, 800)
        assert counts.get("labels_parked", 0) <= 1


def test_requests_that_have_caught_up_do_not_wait_for_old_labels() -> None:
    """Somebody loads the labels of years: who asks for a decision now gets it now."""
    running = after([], turns=5)
    running.feed([label(n, n) for n in range(5_000)], between=1 << 60)
    running.feed([request(0, 900_000)], between=1 << 60)
    running.run(3)
    [owned] = running.worker.owned.values()
    assert owned.partition is not None
    assert owned.partition.tenants["bank"].tally["decisions"] == 1
    assert running.worker.buffers.has_lag(owned)


def test_what_is_held_back_is_left_by_a_stop_and_read_again() -> None:
    stream = UNEQUAL["labels long after all requests"]
    config = configuration.load(None, SEED)
    running = Running(config, 1, PATIENT)
    running.run()
    running.now = NOW
    running.feed(stream, between=1 << 60)
    for _ in range(4):
        running.run(20)
        running.restart(config)
        running.run(5)
    running.run(500)
    counts = tally(running)
    assert (counts["decisions"], counts["labels_joined"]) == (2_000, 2_000)


# What may be taken


def buffer(*times: int, now: int = 1_000) -> InputBuffer:
    found = InputBuffer(0)
    if times:
        found.add([InputRecord(REQUESTS, offset, time, None, None) for offset, time in enumerate(times)], now)
    return found


NEITHER, BOTH = (False, False), (True, True)


@pytest.mark.parametrize(
    ("requests", "feedback", "most", "caught_up", "expected"),
    [
        (buffer(1, 2, 3), buffer(2, 3, 4), 9, NEITHER, (3, 2)),
        (buffer(1, 2, 3), buffer(2, 3, 4), 2, NEITHER, (2, 1)),
        (buffer(5, 6), buffer(1), 9, NEITHER, (0, 1)),
        (buffer(5, 6), buffer(1), 9, (False, True), (2, 1)),
        (buffer(5, 6), buffer(7), 9, (True, False), (2, 1)),
        (buffer(5, 6), buffer(1), 9, (True, False), (2, 1)),
        (buffer(5, 6, 7), buffer(9), 2, BOTH, (2, 0)),
        (buffer(5), buffer(), 9, NEITHER, (0, 0)),
        (buffer(), buffer(5), 9, NEITHER, (0, 0)),
        (buffer(), buffer(5), 9, BOTH, (0, 1)),
        (buffer(9, 1), buffer(5), 9, NEITHER, (0, 1)),
        (buffer(1, 2_000, 6), buffer(5), 9, NEITHER, (2, 1)),
        (buffer(900), buffer(950), 9, NEITHER, (1, 1)),
    ],
)
def test_what_a_batch_may_take(
    requests: InputBuffer, feedback: InputBuffer, most: int, caught_up: tuple[bool, bool], expected: tuple[int, int]
) -> None:
    assert batch_limit(requests, feedback, most, caught_up, present=900) == expected


def test_an_input_remembers_the_time_of_what_was_let_go() -> None:
    requests, feedback = buffer(5, 6), buffer(5)
    requests.drop_committed(2)
    assert batch_limit(requests, feedback, 9, NEITHER, present=900) == (0, 1)
    assert (len(requests), requests.reached, requests.next) == (0, 6, 2)


def test_records_that_were_read_before_are_passed_over() -> None:
    one = buffer(5, 6)
    one.add([InputRecord(REQUESTS, offset, 7, None, None) for offset in (0, 1, 2)], 1_000)
    one.add([InputRecord(REQUESTS, 1, 7, None, None)], 1_000)
    assert [record.offset for record in one.records] == [0, 1, 2]
    assert one.latest == [5, 6, 7]
