"""Avro codecs on a schema registry, and events in its wire format as a producer writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import fastavro
import pytest

from processor.adapters.avro import AvroCodec, AvroOptions, schema_text
from processor.core.events import RejectedEventError
from processor.ports.log import Record
from tests.servers.schema_registry import SchemaRegistry

OPTIONS = AvroOptions("requests", "feedback", "decisions")
REQUEST = {"tenant": "t", "decision_id": "1", "group": "A", "predictions": {"m": True}}
SECRET = "hunter2-Zq"


@pytest.fixture(scope="module", autouse=True)
def without_a_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


@pytest.fixture(scope="module")
def codec(registry: SchemaRegistry) -> Iterator[AvroCodec]:
    yield from opened(registry)


@pytest.fixture
def own() -> Iterator[SchemaRegistry]:
    """One that a test may break."""
    with SchemaRegistry() as running:
        yield running


@pytest.fixture
def fresh(own: SchemaRegistry) -> Iterator[AvroCodec]:
    """A codec that knows no schema yet, on a registry of its own."""
    yield from opened(own)


def opened(registry: SchemaRegistry, options: AvroOptions = OPTIONS) -> Iterator[AvroCodec]:
    made = AvroCodec(registry.url, options)
    yield made
    made.close()


def payload(schema: str, event: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), event)
    return out.getvalue()


def framed(registry: SchemaRegistry, topic: str, event: object, schema: str | None = None) -> bytes:
    """As a producer writes it, without any of our code but the schema."""
    schema = schema or schema_text("feedback.v1" if topic == "feedback" else "request.v1")
    number = registry.register(f"{topic}-value", schema)
    return b"\x00" + number.to_bytes(4, "big") + payload(schema, event)


def refusal(codec: AvroCodec, value: bytes, topic: str = "requests") -> RejectedEventError:
    with pytest.raises(RejectedEventError) as refused:
        codec.to_json(topic, value)
    return refused.value


def record(value: bytes | None, topic: str = "requests") -> Record:
    return Record(topic, 0, 5, 1_000, b"t", value)
