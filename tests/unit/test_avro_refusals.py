"""Whatever is wrong with an Avro record itself, it is refused for a reason that does not quote it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.adapters.avro import AvroCodec, schema_text
from processor.core.events import Limits, Reason, RejectedEventError, decode_request
from processor.core.stream.step import FEEDBACK
from processor.ports.codec import raw_of
from tests.servers.schema_registry import SchemaRegistry

from .avro_codecs import REQUEST, SECRET, framed, payload, record, refusal
from .avro_codecs import codec as codec
from .avro_codecs import fresh as fresh
from .avro_codecs import own as own
from .avro_codecs import registry as registry
from .avro_codecs import without_a_proxy as without_a_proxy


def test_an_empty_record_is_refused(codec: AvroCodec) -> None:
    assert refusal(codec, b"").reason is Reason.EMPTY


@pytest.mark.parametrize("value", [b"{}", b'{"tenant":"t"}', b"\x00", b"\x00\x00\x00\x00\x01", b"\x01" + bytes(30)])
def test_what_is_not_in_the_wire_format_is_refused(codec: AvroCodec, value: bytes) -> None:
    refused = refusal(codec, value)
    assert refused.reason is Reason.SCHEMA
    assert "wire format" in refused.detail


def test_an_unknown_schema_is_refused(codec: AvroCodec) -> None:
    refused = refusal(codec, b"\x00\x00\x0f\x42\x40rubbish")
    assert (refused.reason, refused.detail) == (Reason.SCHEMA, "the schema registry knows no schema 1000000")


def test_a_schema_registered_later_is_known_then(own: SchemaRegistry, fresh: AvroCodec) -> None:
    value = b"\x00\x00\x00\x00\x01" + payload(schema_text("request.v1"), REQUEST)
    assert refusal(fresh, value).reason is Reason.SCHEMA
    own.register("requests-value", schema_text("request.v1"))
    assert json.loads(fresh.to_json("requests", value)) == REQUEST


@pytest.mark.parametrize("kept", [6, 8, 10, -1])
def test_a_record_that_was_cut_is_refused(registry: SchemaRegistry, codec: AvroCodec, kept: int) -> None:
    assert refusal(codec, framed(registry, "requests", REQUEST)[:kept]).reason is Reason.SCHEMA


@given(rubbish=st.binary(min_size=1, max_size=60))
def test_rubbish_under_a_known_schema_is_refused_or_an_event(
    registry: SchemaRegistry, codec: AvroCodec, rubbish: bytes
) -> None:
    head = framed(registry, "feedback", {"tenant": "t", "decision_id": "1", "label": "x"})[:5]
    raw = raw_of(FEEDBACK, record(head + rubbish, "feedback"), codec)
    if raw.refused is not None:
        assert raw.refused.reason in (Reason.SCHEMA, Reason.NOT_UTF8)
    else:
        assert set(json.loads(raw.value or b"")) == {"tenant", "decision_id", "label"}


def test_an_event_of_another_topic_is_refused_without_quoting_it(registry: SchemaRegistry, codec: AvroCodec) -> None:
    value = framed(registry, "feedback", {"tenant": "t", "decision_id": SECRET, "label": "x"})
    refused = refusal(codec, value)
    assert refused.reason is Reason.SCHEMA
    assert "is not an event of this topic" in refused.detail
    assert SECRET not in refused.detail


def test_a_schema_that_is_no_record_is_refused(registry: SchemaRegistry, codec: AvroCodec) -> None:
    assert refusal(codec, framed(registry, "other", b"abcdef", '"bytes"')).reason is Reason.SCHEMA
    number = registry.register("third", '{"$schema": "this is not Avro"}')
    assert refusal(codec, b"\x00" + number.to_bytes(4, "big") + b"rubbish").reason is Reason.SCHEMA


def test_a_string_that_is_not_utf8_is_refused(registry: SchemaRegistry, codec: AvroCodec) -> None:
    value = framed(registry, "requests", {**REQUEST, "tenant": "tenant"}).replace(b"tenant", b"ten\xffnt")
    assert refusal(codec, value).reason is Reason.NOT_UTF8


@pytest.mark.parametrize("context", ["", "{", "nonsense", "NaN", '1,"tenant":"u"', '{}}{"tenant":"u"'])
def test_a_context_that_is_not_json_is_refused(registry: SchemaRegistry, codec: AvroCodec, context: str) -> None:
    refused = refusal(codec, framed(registry, "requests", {**REQUEST, "context": context}))
    assert refused.reason is Reason.BAD_JSON
    assert "context" in refused.detail


def test_a_context_nested_without_end_is_refused(registry: SchemaRegistry, codec: AvroCodec) -> None:
    value = framed(registry, "requests", {**REQUEST, "context": "[" * 100_000 + "]" * 100_000})
    assert refusal(codec, value).reason is Reason.LIMIT


def test_what_json_refuses_avro_refuses_for_the_same_reason(registry: SchemaRegistry, codec: AvroCodec) -> None:
    for change, reason in [
        ({"predictions": {}}, Reason.NO_PREDICTIONS),
        ({"tenant": ""}, Reason.SCHEMA),
        ({"group": "a\nb"}, Reason.SCHEMA),
        ({"decision_id": "x" * 257}, Reason.LIMIT),
        ({"context": "[" * 70 + "]" * 70}, Reason.LIMIT),
    ]:
        found = codec.to_json("requests", framed(registry, "requests", {**REQUEST, **change}))
        with pytest.raises(RejectedEventError) as refused:
            decode_request(found, Limits())
        assert refused.value.reason is reason
