"""What is wrong with the schema registry is not the record's fault: it means later, or a setting to mend."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from processor.adapters.avro import AvroCodec, AvroOptions, schema_text
from processor.core.errors import InvalidSettingsError
from processor.core.events import DecisionEvent, Reason, encode_decision
from processor.ports.log import RetryableError
from tests.servers.schema_registry import SchemaRegistry

from .avro_codecs import OPTIONS, REQUEST, SECRET, framed, opened, refusal
from .avro_codecs import fresh as fresh
from .avro_codecs import own as own
from .avro_codecs import without_a_proxy as without_a_proxy

# What is not the record's fault


def test_a_schema_is_asked_for_once_and_then_no_registry_is_needed(own: SchemaRegistry, fresh: AvroCodec) -> None:
    values = [framed(own, "requests", {**REQUEST, "decision_id": str(n)}) for n in range(3)]
    assert json.loads(fresh.to_json("requests", values[0])) == REQUEST | {"decision_id": "0"}
    own.broken = (500, {})
    for value in values:
        fresh.to_json("requests", value)
    assert refusal(fresh, values[0][:-1]).reason is Reason.SCHEMA
    assert own.asked == ["GET /schemas/ids/1"]


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"error_code": 50001, "message": "Error in the backend data store"}),
        (503, {}),
        (401, {"error_code": 401, "message": "Unauthorized"}),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),  # a URL that is no registry's
        (200, {}),
        (200, []),
    ],
)
def test_a_registry_that_does_not_answer_sensibly_means_later(
    own: SchemaRegistry, fresh: AvroCodec, answer: tuple[int, Any]
) -> None:
    value = framed(own, "requests", REQUEST)
    own.broken = answer
    with pytest.raises(RetryableError, match="schema registry"):
        fresh.to_json("requests", value)
    own.broken = None
    assert json.loads(fresh.to_json("requests", value)) == REQUEST


def test_without_a_registry_reading_and_writing_mean_later() -> None:
    with SchemaRegistry() as gone:
        value = framed(gone, "requests", REQUEST)
    for codec in opened(gone):
        with pytest.raises(RetryableError, match="schema registry"):
            codec.to_json("requests", value)
        with pytest.raises(RetryableError, match="schema registry"):
            codec.from_json("decisions", decision())


def decision() -> bytes:
    return encode_decision(DecisionEvent("t", "1", "A", "x", None, None, {}, {}, "gforce", None, "c", 1))


def test_a_refused_schema_of_decisions_means_later(own: SchemaRegistry, fresh: AvroCodec) -> None:
    own.broken = (409, {"error_code": 409, "message": "incompatible with an earlier schema"})
    with pytest.raises(RetryableError, match="incompatible"):
        fresh.from_json("decisions", decision())
    own.broken = None
    assert fresh.from_json("decisions", decision())[:1] == b"\x00"
    assert own.subjects() == {"decisions-value"}


# Properties


def test_credentials_reach_the_registry(own: SchemaRegistry) -> None:
    own.register("requests-value", schema_text("request.v1"))
    options = AvroOptions("requests", "feedback", "decisions", {"basic.auth.user.info": f"me:{SECRET}", "timeout": "2"})
    assert SECRET not in repr(options)
    for codec in opened(own, options):
        codec.to_json("requests", framed(own, "requests", REQUEST))
    assert own.authorization[0].startswith("Basic ")  # type: ignore[union-attr]


def test_a_property_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidSettingsError, match="avro.properties: Unrecognized properties: no.such"):
        AvroCodec("http://127.0.0.1:1", AvroOptions("r", "f", "d", {"no.such": "x"}))
    with pytest.raises(InvalidSettingsError, match="avro.properties"):
        AvroCodec("http://127.0.0.1:1", AvroOptions("r", "f", "d", {"timeout": "soon"}))


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(InvalidSettingsError, match=r'pip install "gforce\[avro\]"'):
        AvroCodec("http://127.0.0.1:1", OPTIONS)
