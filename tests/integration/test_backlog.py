"""A backlog on a real Kafka, whose labels all come long after the last request."""

from __future__ import annotations

import time

import pytest

from tests.servers.processor_process import Deployment, eventually

COUNT, STEP = 24_000, 1_000
"""more labels than an input may hold while the requests are decided; each step has a time of its own"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_labels_wait_for_their_requests_and_none_is_lost_or_repeated(deployment: Deployment, protocol: str) -> None:
    hour = 3_600_000
    start = int(time.time() * 1_000) - hour
    ids = [f"loan-{n}" for n in range(COUNT)]
    for role, event, since in (
        ("requests", deployment.request, start),
        ("feedback", deployment.label, start + hour // 2),
    ):
        for first in range(0, COUNT, STEP):
            some = [event("bank", each) for each in ids[first : first + STEP]]
            deployment.send(role, some, timestamp=since + first)
    kafka = {"protocol": protocol} if protocol == "classic" else {"protocol": protocol, "consumer_properties": {}}
    sections = {"kafka": kafka, "processing": {"max_batch_records": 400}}
    processor = deployment.processor(sections=sections).start_ready()
    tally = eventually(lambda: processor.tally("bank"), lambda found: found.get("labels_joined") == COUNT)
    assert {name: tally.get(name, 0) for name in ("decisions", "requests_duplicate", "labels_duplicate")} == {
        "decisions": COUNT,
        "requests_duplicate": 0,
        "labels_duplicate": 0,
    }
    assert tally.get("labels_parked", 0) == 0
    assert processor.metric("gforce_transactions_total") <= 2 * COUNT / 400 + 20
