"""Records that are small when compressed and huge when not: decided past, or reported and skipped by a person."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.servers.processor_process import Deployment, Place, ProcessorProcess, eventually

from .test_audit import document, gforce

MB = 1_000_000
FETCHED = {"gzip": [101], "lz4": [101], "zstd": [20, 90, 150]}
"""megabytes of zeros that the client can make of a compressed batch"""
LEAST = {"receive.message.max.bytes": 60 * MB}
"""a client that can make less of it"""
STALL = 3


def send_batch(deployment: Deployment, codec: str, partition: int, values: list[tuple[bytes, bytes]]) -> list[Place]:
    """All of these in one compressed batch of requests; where they landed."""
    places: list[Place] = []

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        places.append(Place(message.topic() or "", message.partition() or 0, message.offset() or 0))

    producer = Producer(
        {
            "bootstrap.servers": deployment.bootstrap,
            "compression.type": codec,
            "message.max.bytes": 1_000 * MB,
            "batch.size": 2_000 * MB,
            "queue.buffering.max.kbytes": 2_000_000,
            "linger.ms": 1_000,  # or the first of them would be a batch of its own
        }
    )
    for key, value in values:
        producer.produce(deployment.topic("requests"), value, key, partition, on_delivery=report)
    assert producer.flush(60) == 0
    return places


class Sent:
    """What must be decided."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.wanted = deployment, list[tuple[str, str]]()

    def some(self, tenant: str, count: int = 2) -> list[tuple[bytes, bytes]]:
        names = [uuid4().hex for _ in range(count)]
        self.wanted += [(tenant, name) for name in names]
        return [self.deployment.request(tenant, name) for name in names]

    def all_decided(self) -> None:
        found = eventually(self.deployment.decisions, lambda found: len(found) >= len(self.wanted), "all decisions")
        assert Counter(found) == Counter(self.wanted)


def test_what_the_client_can_fetch_is_a_dead_letter_and_all_around_it_is_decided(deployment: Deployment) -> None:
    processor = deployment.processor().start_ready()
    sent, huge = Sent(deployment), dict[Place, int]()
    (tenant,), (other,) = deployment.tenants_on(0), deployment.tenants_on(1)
    for codec, sizes in FETCHED.items():
        for size in sizes:
            values = [*sent.some(tenant), (tenant.encode(), bytes(size * MB)), *sent.some(tenant)]
            places = send_batch(deployment, codec, 0, values)
            assert [place.offset - places[0].offset for place in places] == [0, 1, 2, 3, 4]
            huge[places[2]] = size * MB
            deployment.send("requests", sent.some(other), partition=1)
            del values
    sent.all_decided()
    letters = eventually(deployment.dead_letters, lambda found: len(found) >= len(huge), "dead letters")
    assert set(letters) == set(huge)
    for place, size in huge.items():
        letter = letters[place]
        assert (letter.header("gforce.reason"), letter.header("gforce.length")) == ("too-large", str(size))
        assert letter.header("gforce.sha256") == sha256(bytes(size)).hexdigest()
        assert letter.value == bytes(1_000)
    assert processor.get("/readyz").status == 200
    assert processor.metric("gforce_polls_failed_total") == 0
    processor.stop()


def partition_states(processor: ProcessorProcess) -> dict[str, str]:
    return {
        dict(labels)["partition"]: dict(labels)["state"]
        for (name, labels), value in processor.metrics().items()
        if name == "gforce_partition_state" and value == 1
    }


def skip(processor: ProcessorProcess, offset: int, *more: str, expect: int = 0) -> Any:
    where = ["--topic", "requests", "--offset", str(offset), "--config", str(processor.config)]
    return document("skip", "0", *where, "--yes", *more, expect=expect)


def log_lines(processor: ProcessorProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in processor.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event]


@pytest.mark.parametrize(
    ("protocol", "properties", "sizes"),
    [("classic", {}, [400]), ("classic", LEAST, [1, 90, 1]), ("consumer", LEAST, [45, 45])],
    ids=["alone", "in the middle of a batch", "consumer protocol"],
)
def test_what_the_client_cannot_fetch_is_reported_and_skipped_by_a_person(
    deployment: Deployment, tmp_path: Path, protocol: str, properties: dict[str, int], sizes: list[int]
) -> None:
    kafka: dict[str, object] = {"protocol": protocol, "properties": properties}
    if protocol == "consumer":
        kafka["consumer_properties"] = {}
    processor = deployment.processor(sections={"kafka": kafka, "processing": {"stall_seconds": STALL}}).start_ready()
    sent = Sent(deployment)
    (tenant,), (other,) = deployment.tenants_on(0), deployment.tenants_on(1)
    deployment.send("requests", sent.some(tenant), partition=0)
    deployment.send("feedback", [deployment.label(*sent.wanted[0])])
    sent.all_decided()
    places = send_batch(deployment, "zstd", 0, [(tenant.encode(), bytes(size * MB)) for size in sizes])
    first, after = places[0].offset, places[0].offset + len(sizes)
    assert [place.offset for place in places] == [*range(first, after)]
    deployment.send("requests", sent.some(tenant), partition=0)
    late = sent.wanted[-2:]
    del sent.wanted[-2:]

    page = processor.wait_page("/readyz", 503)
    assert page.json["partitions"] == {"0": "stalled", "1": "ready"}
    trouble = page.json["trouble"]["0"]
    assert f"{deployment.topic('requests')}[0] at offset {first}" in trouble
    assert f"gforce skip 0 --topic requests --offset {first}" in trouble
    assert set(page.json["trouble"]) == {"0"}
    assert partition_states(processor) == {"0": "stalled", "1": "ready"}
    # The others go on, and the other input of the same partition does too.
    deployment.send("requests", sent.some(other, 500), partition=1)
    sent.all_decided()
    deployment.send("feedback", [deployment.label(*sent.wanted[1])])
    eventually(lambda: processor.tally(tenant).get("labels_joined", 0), lambda count: count == 2, "a label")
    assert processor.get("/readyz").status == 503
    assert [line["partition"] for line in log_lines(processor, "stalled")] == [0]
    assert processor.metric("gforce_polls_failed_total") == 0

    # Only what cannot be read is skipped.
    for wrong in ([first - 1], [first + 1], [first, "--to", str(after + 1)]):
        refused = skip(processor, wrong[0], *map(str, wrong[1:]), expect=1)
        assert not refused["done"]
        assert str(first) in refused["text"]
    assert "can be" in refused["text"]
    assert (
        "ask the one that does"
        in document(
            "skip", "7", "--topic", "requests", "--offset", "1", "--config", str(processor.config), "--yes", expect=1
        )["text"]
    )
    shown = skip(processor, first, "--dry-run")
    assert (shown["done"], shown["to"]) == (False, after)
    done = skip(processor, first)
    assert (done["done"], done["offset"], done["to"]) == (True, first, after)
    sent.wanted += late
    sent.all_decided()
    processor.wait_ready()
    assert [(line["offset"], line["to"]) for line in log_lines(processor, "skipped")] == [(first, after)]
    assert log_lines(processor, "moves again")
    processor.kill()
    processor.start_ready()
    deployment.send("requests", sent.some(tenant), partition=0)
    sent.all_decided()
    processor.stop()

    skipped = [{"first": first, "next": after, "partition": 0, "input": "requests"}]
    folder = tmp_path / "recording"
    recorded = document("record", "--config", str(processor.config), "--out", str(folder))
    assert [(one["since"], one["until"]) for one in recorded["gone"]] == [(first, after)]
    for where in ([], [str(folder)]):
        found = document("audit", *where, "--config", str(processor.config))
        assert (found["verdict"], found["draws"], found["end"]) == ("verified", "verified", "verified")
        told = [one for partition in found["partitions"] for one in partition["skipped"]]
        assert [{name: one[name] for name in skipped[0]} for one in told] == skipped
    assert "skipped by an operator" in gforce("audit", str(folder), "--config", str(processor.config))
