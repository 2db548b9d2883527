"""Nothing a producer sends stops a partition: the whole corpus of bad events on real topics, among good ones."""

from __future__ import annotations

import json
import time
from collections import Counter
from hashlib import sha256
from typing import NamedTuple
from uuid import uuid4

from processor.core.events import Reason
from processor.core.stream.partitioner import partition_of
from tests.servers.processor_process import Deployment, Found, Place, ProcessorProcess, eventually
from tests.unit.bad_events import BAD_EVENTS

CUT = 900_000
WARM_UP, ROUNDS = 2, 4
YEAR = 365 * 86_400_000
ROLE = {"request": "requests", "feedback": "feedback"}


class Sent(NamedTuple):
    """A bad record on its way."""

    reason: Reason
    key: bytes | None
    value: bytes | None


def send_round(deployment: Deployment, tenants: list[str]) -> tuple[dict[Place, Sent], list[tuple[str, str]]]:
    """Every bad event between good ones; where each bad one landed, and what must be decided."""
    bad: dict[Place, Sent] = {}
    good = [(tenants[n % len(tenants)], uuid4().hex) for n in range(2 * len(BAD_EVENTS))]
    waiting = iter(good)
    for index in range(0, len(BAD_EVENTS), 50):
        for kind, role in ROLE.items():
            events = [event for event in BAD_EVENTS[index : index + 50] if event.kind == kind]
            for partition in range(deployment.partitions):
                share = events[partition :: deployment.partitions]
                places = deployment.send(role, [(b"bank", event.value) for event in share], partition=partition)
                bad |= {p: Sent(event.reason, b"bank", event.value) for p, event in zip(places, share, strict=True)}
        deployment.send("requests", [deployment.request(*each) for _, each in zip(range(100), waiting, strict=False)])
    deployment.send("requests", [deployment.request(*each) for each in waiting])
    return bad | send_misplaced(deployment, tenants[0]), good


def send_misplaced(deployment: Deployment, tenant: str) -> dict[Place, Sent]:
    """Valid events in records that are not: bad keys, the wrong partition, a timestamp of next year."""
    bad: dict[Place, Sent] = {}
    for role, (key, value) in {
        "requests": deployment.request(tenant, uuid4().hex),
        "feedback": deployment.label(tenant, uuid4().hex),
    }.items():
        own = partition_of(key, deployment.partitions)
        for wrong in (None, b"", b"other", b"\xff\xfe", key + b"\0", b" " + key, key.upper(), b"k" * 20_000):
            (place,) = deployment.send(role, [(wrong, value)], partition=own)
            bad[place] = Sent(Reason.KEY_MISMATCH, wrong, value)
        (place,) = deployment.send(role, [(key, value)], partition=1 - own)
        bad[place] = Sent(Reason.WRONG_PARTITION, key, value)
        for ahead in (3_600_000, YEAR, 1000 * YEAR):
            (place,) = deployment.send(role, [(key, value)], partition=own, timestamp=_now() + ahead)
            bad[place] = Sent(Reason.FUTURE_TIMESTAMP, key, value)
    return bad


def _now() -> int:
    return time.time_ns() // 1_000_000


def check_letter(letter: Found, sent: Sent, place: Place) -> None:
    assert letter.header("gforce.reason") == sent.reason, place
    assert 0 < len(letter.header("gforce.detail")) < 200
    assert letter.header("gforce.timestamp").isdigit()
    assert letter.key == (sent.key if sent.key is None or len(sent.key) <= 10_000 else None)
    if sent.value is None or len(sent.value) <= CUT:
        assert letter.value == sent.value
    else:
        assert letter.value
        assert sent.value.startswith(letter.value)
        assert letter.header("gforce.length") == str(len(sent.value))
        assert letter.header("gforce.sha256") == sha256(sent.value).hexdigest()


def settled(processor: ProcessorProcess, records: int) -> int:
    """Memory once so many records are processed."""
    eventually(lambda: processor.metric("gforce_records_total"), lambda found: found >= records, f"{records} records")
    return processor.resident_bytes


def test_every_bad_event_is_a_dead_letter_with_its_reason_and_every_good_one_is_decided(
    deployment: Deployment,
) -> None:
    processor = deployment.processor().start_ready()
    tenants = [*deployment.tenants_on(0, 3), *deployment.tenants_on(1, 3)]
    bad: dict[Place, Sent] = {}
    good: list[tuple[str, str]] = []
    memory: list[int] = []
    for _ in range(WARM_UP + ROUNDS):
        more_bad, more_good = send_round(deployment, tenants)
        bad |= more_bad
        good += more_good
        memory.append(settled(processor, len(bad) + len(good)))
    assert Counter(eventually(deployment.decisions, lambda found: len(found) >= len(good))) == Counter(good)
    letters = eventually(deployment.dead_letters, lambda found: len(found) >= len(bad), f"{len(bad)} dead letters")
    assert set(letters) == set(bad)
    for place, letter in letters.items():
        check_letter(letter, bad[place], place)
    assert processor.get("/readyz").status == 200
    assert processor.metric("gforce_breaker_trips_total") == 0
    assert '"internal"' not in processor.log
    counted = Counter(sent.reason for sent in bad.values())
    found = {
        dict(labels)["reason"]: int(value)
        for (name, labels), value in processor.metrics().items()
        if name == "gforce_dead_letters_total"
    }
    assert found == {str(reason): count for reason, count in counted.items()}
    sizes = sum(len(sent.value or b"") for sent in bad.values()) * ROUNDS / (WARM_UP + ROUNDS)
    grown = max(memory[WARM_UP:]) - max(memory[:WARM_UP])
    print(json.dumps({"memory": memory, "sent": sizes}))
    # To keep what was sent would cost all of it; the allocator and caches that fill take a share.
    assert grown < 0.8 * sizes, f"{grown >> 20} MiB more after {int(sizes) >> 20} MiB of bad events: {memory}"
