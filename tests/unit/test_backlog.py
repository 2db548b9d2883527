"""A backlog of both inputs, of which the labels are read first."""

from __future__ import annotations

import json

from processor.runtime import config as configuration
from processor.runtime.owned import Pace
from tests.recordings.stream import START, Event, Running

PACE = Pace(commit_interval=0, most_records=50)
SEED = {"GFORCE_PROCESSING__SEED": "0badc0de" * 4}


def case(number: int, late: int) -> list[Event]:
    request = {"tenant": "bank", "decision_id": f"d{number}", "group": "AB"[number % 2], "predictions": {"m": "true"}}
    label = {"tenant": "bank", "decision_id": f"d{number}", "label": "true"}
    return [
        Event(START + number, "requests", "bank", json.dumps(request).encode()),
        Event(START + number + late, "feedback", "bank", json.dumps(label).encode()),
    ]


def processed(stream: list[Event]) -> dict[str, int]:
    """What became of a stream that was there before anybody read it."""
    running = Running(configuration.load(None, SEED), 1, PACE)
    running.run()
    running.now = START + 10_000
    running.feed(sorted(stream, key=lambda event: event.at), between=1 << 60)
    running.run(200)
    [owned] = running.worker.owned.values()
    assert owned.partition is not None
    return dict(owned.partition.tenants["bank"].tally)


def test_labels_do_not_overtake_their_requests() -> None:
    """One request in four gets a label, so records of equal number are far apart in time."""
    stream = [event for number in range(800) for event in case(number, late=5)[: 2 if number % 4 == 0 else 1]]
    counts = processed(stream)
    assert (counts["decisions"], counts["labels_joined"]) == (800, 200)
    assert "labels_parked" not in counts


def test_labels_do_not_wait_for_requests_that_have_ended() -> None:
    counts = processed([event for number in range(100) for event in case(number, late=5_000)])
    assert counts["labels_joined"] == 100


def test_a_label_that_is_before_its_request_is_still_parked() -> None:
    counts = processed([event for number in range(400, 700) for event in case(number, late=-300)])
    assert counts["labels_joined"] == 300
    assert counts["labels_parked"] > 0
