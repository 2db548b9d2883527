"""Avro in and out: the processor as a process, on a real Kafka and a real Redis, with a schema registry on loopback.

Producers and readers here are confluent-kafka's own serialisers, as any client would use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from processor.adapters.avro import schema_text
from processor.core.events import Reason
from tests.servers.processor_process import Deployment, Found, eventually
from tests.servers.schema_registry import SchemaRegistry

SUBJECT = {"subject.name.strategy": topic_subject_name_strategy}
Write = Callable[[str, dict[str, object]], tuple[bytes, bytes]]


@pytest.fixture(autouse=True)
def without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def write(deployment: Deployment, client: SchemaRegistryClient) -> Write:
    """Key and value of an event, as a producer makes them."""
    writers: dict[str, Any] = {
        role: AvroSerializer(client, schema_text(name), conf=SUBJECT)
        for role, name in (("requests", "request.v1"), ("feedback", "feedback.v1"))
    }

    def written(role: str, event: dict[str, object]) -> tuple[bytes, bytes]:
        value = writers[role](event, SerializationContext(deployment.topic(role), MessageField.VALUE))
        return str(event["tenant"]).encode(), value

    return written


def request(decision_id: str, **more: object) -> dict[str, object]:
    return {"tenant": "acme", "decision_id": decision_id, "group": 7, "predictions": {"m": True}, **more}


def test_avro_requests_and_labels_in_avro_decisions_out(
    deployment: Deployment, registry: SchemaRegistry, client: SchemaRegistryClient, write: Write
) -> None:
    processor = deployment.processor(sections={"avro": {"registry": registry.url}}).start_ready()
    context = '{"loan": [1, "é"]}'
    deployment.send("requests", [write("requests", request(f"loan-{n}", context=context)) for n in range(50)])
    deployment.send("requests", [write("requests", request("loan-50"))])
    deployment.send(
        "feedback",
        [write("feedback", {"tenant": "acme", "decision_id": f"loan-{n}", "label": n % 2 == 0}) for n in range(51)],
    )
    eventually(lambda: processor.tally("acme").get("labels_joined"), lambda joined: joined == 51)
    read: Any = AvroDeserializer(client, conf=SUBJECT)
    topic = SerializationContext(deployment.topic("decisions"), MessageField.VALUE)
    found = {event["decision_id"]: event for event in (read(sent.value, topic) for sent in records(deployment, 51))}
    assert set(found) == {f"loan-{n}" for n in range(51)}
    first = found["loan-0"]
    assert (first["group"], first["decision"], first["expert"], first["context"]) == ("7", "true", "m", context)
    assert sum(first["parts"].values()) == 2**32
    assert found["loan-50"]["context"] is None
    assert f"{deployment.topic('decisions')}-value" in registry.subjects()
    assert deployment.dead_letters() == {}


def records(deployment: Deployment, count: int) -> list[Found]:
    return eventually(lambda: deployment.records("decisions"), lambda found: len(found) >= count)


def test_a_refused_record_is_a_dead_letter_as_it_came(
    deployment: Deployment, registry: SchemaRegistry, write: Write
) -> None:
    deployment.processor(sections={"avro": {"registry": registry.url}}).start_ready()
    refused = {
        b'{"tenant":"acme"}': Reason.SCHEMA,
        b"\x00\x00\x00\x27\x0funknown": Reason.SCHEMA,
        write("requests", request("x", predictions={}))[1]: Reason.NO_PREDICTIONS,
        write("requests", request("x", context="{"))[1]: Reason.BAD_JSON,
        write("requests", request("x", predictions={"m": "maybe"}))[1]: Reason.UNKNOWN_LABEL,
    }
    deployment.send("requests", [(b"acme", value) for value in refused])
    letters = eventually(deployment.dead_letters, lambda found: len(found) >= len(refused)).values()
    assert {letter.value: letter.header("gforce.reason") for letter in letters} == refused


def test_while_the_registry_is_away_records_wait(
    deployment: Deployment, registry: SchemaRegistry, write: Write
) -> None:
    values = [write("requests", request(f"loan-{n}")) for n in range(10)]
    hurried = {"avro": {"registry": registry.url}, "processing": {"stall_seconds": 1}}
    processor = deployment.processor(sections=hurried).start_ready()
    asked = len(registry.asked)
    registry.broken = (503, {})
    deployment.send("requests", values)
    eventually(lambda: len(registry.asked), lambda count: count >= asked + 3, "three attempts")
    assert deployment.records("decisions") == []
    assert "schema registry" in str(processor.wait_page("/readyz", 503).json["trouble"])
    registry.broken = None
    assert len(records(deployment, 10)) == 10
    assert deployment.dead_letters() == {}
    assert processor.stop() == 0


def test_a_registry_without_its_scheme_ends_it_with_a_message(deployment: Deployment) -> None:
    processor = deployment.processor(sections={"avro": {"registry": "registry:8081"}}).start()
    assert processor.wait() == 2
    assert "registry: expected a URL that starts with http://" in " ".join(processor.log.split())
    assert "Traceback" not in processor.log
