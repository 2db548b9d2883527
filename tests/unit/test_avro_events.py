"""Avro at the edge: what is read and written are the same events as in JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from processor.adapters.avro import AvroCodec, schema_text
from processor.core.events import DecisionEvent, Limits, decode_request, encode_decision
from tests.servers.schema_registry import SchemaRegistry

from .avro_codecs import REQUEST, framed
from .avro_codecs import codec as codec
from .avro_codecs import fresh as fresh
from .avro_codecs import own as own
from .avro_codecs import registry as registry
from .avro_codecs import without_a_proxy as without_a_proxy

labels = st.text(min_size=1) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
contexts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
).map(json.dumps)


@given(tenant=names, decision_id=names, group=labels, predictions=st.dictionaries(names, labels), context=contexts)
def test_a_request_is_the_same_event_as_in_json(
    registry: SchemaRegistry, codec: AvroCodec, context: str, **fields: object
) -> None:
    value = framed(registry, "requests", {**fields, "context": context})
    found = codec.to_json("requests", value)
    assert json.loads(found) == {**fields, "context": json.loads(context)}
    assert found.endswith(b',"context":' + context.encode() + b"}")


@given(tenant=names, decision_id=names, label=labels)
def test_feedback_is_the_same_event_as_in_json(registry: SchemaRegistry, codec: AvroCodec, **fields: object) -> None:
    assert json.loads(codec.to_json("feedback", framed(registry, "feedback", fields))) == fields


@given(
    event=st.builds(
        DecisionEvent,
        tenant=names,
        decision_id=names,
        group=names,
        decision=names,
        expert=st.none() | names,
        instance=st.none() | names,
        probabilities=st.dictionaries(names, st.floats(0, 1)),
        parts=st.dictionaries(names, st.integers(0, 2**32)),
        policy=names,
        objective=st.none() | names,
        config=names,
        batch=st.integers(0, 2**63 - 1),
        context=st.just(msgspec.UNSET) | contexts.map(lambda text: msgspec.Raw(text.encode())),
    )
)
def test_a_decision_is_the_same_event_as_in_json(registry: SchemaRegistry, codec: AvroCodec, event: Any) -> None:
    written = codec.from_json("decisions", encode_decision(event))
    number = registry.register("decisions-value", compact("decision.v1"))
    assert written[:5] == b"\x00" + number.to_bytes(4, "big")
    schema = fastavro.parse_schema(json.loads(schema_text("decision.v1")))
    found: Any = fastavro.schemaless_reader(io.BytesIO(written[5:]), schema, None)
    context = found.pop("context")
    assert found == {name: value for name, value in msgspec.structs.asdict(event).items() if name != "context"}
    assert context == (None if event.context is msgspec.UNSET else bytes(event.context).decode())


def compact(name: str) -> str:
    """As confluent-kafka registers it: the text as it is."""
    return schema_text(name).strip()


@pytest.mark.parametrize("name", ["request.v1", "feedback.v1", "decision.v1"])
def test_the_avro_schemas_have_the_fields_of_the_json_schemas(name: str) -> None:
    avro, json_schema = json.loads(schema_text(name)), schemas.load(name)
    assert [field["name"] for field in avro["fields"]] == list(json_schema["properties"])
    assert avro["name"] == json_schema["title"]
    nullable = [field for field in avro["fields"] if "null" in field["type"]]
    assert all(field["type"] == ["null", "string"] and field["default"] is None for field in nullable)


def test_the_wire_format_byte_for_byte(own: SchemaRegistry, fresh: AvroCodec) -> None:
    number = own.register("feedback-value", schema_text("feedback.v1"))
    wire = b"\x00" + number.to_bytes(4, "big") + b"\x02t" + b"\x041x" + b"\x02\x0e"  # the second of the union: long 7
    assert fresh.to_json("feedback", wire) == b'{"tenant":"t","decision_id":"1x","label":7}'


def test_events_of_a_newer_producer_are_read(own: SchemaRegistry, fresh: AvroCodec) -> None:
    """Other order, an int for a long, a plain string for a label, a field we do not know."""
    newer = json.dumps(
        {
            "type": "record",
            "name": "Request",
            "fields": [
                {"name": "predictions", "type": {"type": "map", "values": "string"}},
                {"name": "added", "type": {"type": "array", "items": "double"}},
                {"name": "group", "type": "int"},
                {"name": "decision_id", "type": "string"},
                {"name": "tenant", "type": "string"},
            ],
        }
    )
    event = {**REQUEST, "group": 7, "predictions": {"m": "yes"}, "added": [1.5]}
    found = fresh.to_json("requests", framed(own, "requests", event, newer))
    assert found == b'{"tenant":"t","decision_id":"1","group":7,"predictions":{"m":"yes"}}'
    assert decode_request(found, Limits()).group == "7"
