"""Records that are small when compressed and huge when not: decided past, or reported and skipped by a person."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Message, Producer

from processor.operations.skipping import SkipAnswer, Skipping, skipped
from tests.servers.processor_process import Deployment, Place, ProcessorProcess, eventually

from .test_audit import document

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
    # Kafka's client has it once and Python has it once.
    peak = processor.peak_bytes
    print(json.dumps({"peak": peak}))
    assert peak < 3 * max(huge.values()) + (300 << 20)
    processor.stop()


def partition_states(processor: ProcessorProcess) -> dict[str, str]:
    return {
        dict(labels)["partition"]: dict(labels)["state"]
        for (name, labels), value in processor.metrics().items()
        if name == "gforce_partition_state" and value == 1
    }


def asked_to_skip(processor: ProcessorProcess, number: int, offset: int, to: int | None = None) -> SkipAnswer:
    return skipped(f"http://127.0.0.1:{processor.port}", number, Skipping("requests", offset, to))


def log_lines(processor: ProcessorProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in processor.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event]


@dataclass
class StuckError:
    """A processor of two partitions, with a batch of requests [0] that its client cannot make anything of."""

    deployment: Deployment
    processor: ProcessorProcess
    sent: Sent
    tenants: tuple[str, str]
    """one on each partition"""
    first: int
    after: int
    late: list[tuple[str, str]]
    """what comes after it on the same partition"""

    def told(self) -> None:
        """Its own partition is named, with the remedy; the others and the other input go on."""
        processor, (tenant, other) = self.processor, self.tenants
        page = processor.wait_page("/readyz", 503)
        assert page.json["partitions"] == {"0": "stalled", "1": "ready"}
        assert set(page.json["trouble"]) == {"0"}
        assert f"{self.deployment.topic('requests')}[0] at offset {self.first}" in page.json["trouble"]["0"]
        assert f"gforce skip 0 --topic requests --offset {self.first}" in page.json["trouble"]["0"]
        assert partition_states(processor) == {"0": "stalled", "1": "ready"}
        self.deployment.send("requests", self.sent.some(other, 500), partition=1)
        self.sent.all_decided()
        self.deployment.send("feedback", [self.deployment.label(*self.sent.wanted[1])])
        eventually(lambda: processor.tally(tenant).get("labels_joined", 0), lambda count: count == 2, "a label")
        assert processor.get("/readyz").status == 503
        assert [line["partition"] for line in log_lines(processor, "stalled")] == [0]
        assert processor.metric("gforce_polls_failed_total") == 0

    def moves_again(self) -> None:
        self.sent.wanted += self.late
        self.sent.all_decided()
        self.processor.wait_ready()
        said = [(line["offset"], line["to"]) for line in log_lines(self.processor, "skipped")]
        assert said == [(self.first, self.after)]
        assert log_lines(self.processor, "moves again")


def stuck(deployment: Deployment, sizes: list[int], kafka: dict[str, object]) -> StuckError:
    """``sizes`` are those of the records in the batch, in megabytes."""
    sections = {"kafka": kafka, "processing": {"stall_seconds": STALL}}
    processor = deployment.processor(sections=sections).start_ready()
    sent, tenants = Sent(deployment), (deployment.tenants_on(0)[0], deployment.tenants_on(1)[0])
    deployment.send("requests", sent.some(tenants[0]), partition=0)
    deployment.send("feedback", [deployment.label(*sent.wanted[0])])
    sent.all_decided()
    places = send_batch(deployment, "zstd", 0, [(tenants[0].encode(), bytes(size * MB)) for size in sizes])
    first, after = places[0].offset, places[0].offset + len(sizes)
    assert [place.offset for place in places] == [*range(first, after)]
    deployment.send("requests", sent.some(tenants[0]), partition=0)
    late = sent.wanted[-2:]
    del sent.wanted[-2:]
    return StuckError(deployment, processor, sent, tenants, first, after, late)


def test_what_the_client_cannot_fetch_is_reported_and_skipped_by_a_person(
    deployment: Deployment, tmp_path: Path
) -> None:
    found = stuck(deployment, [1, 90, 1], {"properties": LEAST})
    found.told()
    processor, first, after = found.processor, found.first, found.after
    for number, offset, to, why in (
        (0, first - 1, None, f"is {first}, and that one cannot be read"),
        (0, first + 1, None, f"is {first}, and that one cannot be read"),
        (0, first, after + 1, f"--to can be {first + 1} to {after}"),
        (7, first, None, "ask the one that does"),
    ):
        refused = asked_to_skip(processor, number, offset, to)
        assert not refused.done
        assert why in refused.text
    done = document(
        "skip", "0", "--topic", "requests", "--offset", str(first), "--config", str(processor.config), "--yes"
    )
    assert (done["done"], done["offset"], done["to"]) == (True, first, after)
    found.moves_again()
    processor.kill()
    processor.start_ready()
    deployment.send("requests", found.sent.some(found.tenants[0]), partition=0)
    found.sent.all_decided()
    processor.stop()

    folder = tmp_path / "recording"
    recorded = document("record", "--config", str(processor.config), "--out", str(folder))
    assert [(one["since"], one["until"]) for one in recorded["gone"]] == [(first, after)]
    for where in ([], [str(folder)]):
        audited = document("audit", *where, "--config", str(processor.config))
        assert (audited["verdict"], audited["draws"], audited["end"]) == ("verified", "verified", "verified")
        [told] = [one for partition in audited["partitions"] for one in partition["skipped"]]
        place = (told["topic"], told["partition"], told["first"], told["next"])
        assert place == (deployment.topic("requests"), 0, first, after)


@pytest.mark.parametrize(
    ("sizes", "kafka"),
    [([400], {}), ([45, 45], {"properties": LEAST, "protocol": "consumer", "consumer_properties": {}})],
    ids=["with the settings of a new processor", "under the consumer protocol"],
)
def test_it_is_reported_and_skipped(deployment: Deployment, sizes: list[int], kafka: dict[str, object]) -> None:
    found = stuck(deployment, sizes, kafka)
    found.told()
    assert asked_to_skip(found.processor, 0, found.first).to == found.after
    found.moves_again()
    found.processor.stop()
