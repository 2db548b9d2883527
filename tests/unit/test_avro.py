"""Avro at the edge: the same events as in JSON, and only a record's own faults make it a dead letter."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from processor.adapters.avro import AvroCodec, Options, schema_text
from processor.adapters.codec import raw_of
from processor.adapters.log import At, Record, Retry
from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.adapters.memory.store import MemoryStore
from processor.core.errors import InvalidSettings
from processor.core.stream.events import (
    DecisionEvent,
    Limits,
    Reason,
    Rejected,
    decode_feedback,
    decode_request,
    encode_decision,
)
from processor.core.stream.journal import JournalRecord, decisions_digest, hashes_text, record_hash
from processor.core.stream.step import FEEDBACK, REQUESTS, Raw
from processor.runtime.assembly import codec_of, pace_of, terms_of, topics_of
from processor.runtime.config import load
from processor.runtime.loop.worker import Worker
from tests.servers.schema_registry import SchemaRegistry

OPTIONS = Options("requests", "feedback", "decisions")
REQUEST = {"tenant": "t", "decision_id": "1", "group": "A", "predictions": {"m": True}}
SECRET = "hunter2-Zq"

labels = st.text(min_size=1) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
contexts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
).map(json.dumps)


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


def opened(registry: SchemaRegistry, options: Options = OPTIONS) -> Iterator[AvroCodec]:
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


def refusal(codec: AvroCodec, value: bytes, topic: str = "requests") -> Rejected:
    with pytest.raises(Rejected) as refused:
        codec.to_json(topic, value)
    return refused.value


# The same events


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


# What a record can do wrong


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
        with pytest.raises(Rejected) as refused:
            decode_request(found, Limits())
        assert refused.value.reason is reason


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
    with pytest.raises(Retry, match="schema registry"):
        fresh.to_json("requests", value)
    own.broken = None
    assert json.loads(fresh.to_json("requests", value)) == REQUEST


def test_without_a_registry_reading_and_writing_mean_later() -> None:
    with SchemaRegistry() as gone:
        value = framed(gone, "requests", REQUEST)
    for codec in opened(gone):
        with pytest.raises(Retry, match="schema registry"):
            codec.to_json("requests", value)
        with pytest.raises(Retry, match="schema registry"):
            codec.from_json("decisions", decision())


def decision() -> bytes:
    return encode_decision(DecisionEvent("t", "1", "A", "x", None, None, {}, {}, "gforce", None, "c", 1))


def test_a_refused_schema_of_decisions_means_later(own: SchemaRegistry, fresh: AvroCodec) -> None:
    own.broken = (409, {"error_code": 409, "message": "incompatible with an earlier schema"})
    with pytest.raises(Retry, match="incompatible"):
        fresh.from_json("decisions", decision())
    own.broken = None
    assert fresh.from_json("decisions", decision())[:1] == b"\x00"
    assert own.subjects() == {"decisions-value"}


# Properties


def test_credentials_reach_the_registry(own: SchemaRegistry) -> None:
    own.register("requests-value", schema_text("request.v1"))
    options = Options("requests", "feedback", "decisions", {"basic.auth.user.info": f"me:{SECRET}", "timeout": "2"})
    assert SECRET not in repr(options)
    for codec in opened(own, options):
        codec.to_json("requests", framed(own, "requests", REQUEST))
    assert own.authorization[0].startswith("Basic ")  # type: ignore[union-attr]


def test_a_property_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidSettings, match="avro.properties: Unrecognized properties: no.such"):
        AvroCodec("http://127.0.0.1:1", Options("r", "f", "d", {"no.such": "x"}))
    with pytest.raises(InvalidSettings, match="avro.properties"):
        AvroCodec("http://127.0.0.1:1", Options("r", "f", "d", {"timeout": "soon"}))


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(InvalidSettings, match=r'pip install "gforce\[avro\]"'):
        AvroCodec("http://127.0.0.1:1", OPTIONS)


# Into the core


def record(value: bytes | None, topic: str = "requests") -> Record:
    return Record(topic, 0, 5, 1_000, b"t", value)


def test_the_core_gets_json_and_keeps_what_came(registry: SchemaRegistry, codec: AvroCodec) -> None:
    value = framed(registry, "feedback", {"tenant": "t", "decision_id": "1", "label": True})
    raw = raw_of(FEEDBACK, record(value, "feedback"), codec)
    assert decode_feedback(raw.value, Limits()).label == "true"
    assert raw.received == value
    assert raw.refused is None


@pytest.mark.parametrize("value", [None, b"", b"{}"])
def test_what_cannot_be_turned_into_json_is_kept_as_it_came(codec: AvroCodec, value: bytes | None) -> None:
    raw = raw_of(REQUESTS, record(value), codec)
    assert raw.received == raw.value == value
    assert (raw.refused is not None) == bool(value)


def test_without_a_codec_nothing_changes() -> None:
    assert raw_of(REQUESTS, record(b"{}"), None) == Raw(REQUESTS, 5, 1_000, b"t", b"{}")


# Through the processor


class Stream:
    """A worker on a log in memory, with one partition and time of its own."""

    def __init__(self, registry: SchemaRegistry) -> None:
        environment = {"GFORCE_PROCESSING__SEED": "5e" * 32, "GFORCE_AVRO__REGISTRY": registry.url}
        config = load(None, {**environment, "GFORCE_TENANTS__DEFAULT__PARKING": "1h"})
        self.now = 1_000_000_000
        self.topics = topics_of(config)
        self.broker = MemoryBroker(lambda: self.now)
        for topic in vars(self.topics).values():
            self.broker.create_topic(topic, 1)
        made = codec_of(config)
        assert isinstance(made, AvroCodec)
        self.codec = made
        self.worker = Worker(
            topics=self.topics,
            make_input=lambda listener: MemoryInput(self.broker, "a", "g", self.topics.sources, listener),
            make_output=lambda: MemoryOutput(self.broker, "a"),
            reader=MemoryReader(self.broker),
            store=MemoryStore(),
            terms=terms_of(config),
            pace=pace_of(config),
            wall=lambda: self.now,
            tick=lambda: self.now,
            entropy=lambda count: bytes(count),
            codec=self.codec,
        )

    def send(self, topic: str, value: bytes | None) -> None:
        self.broker.produce(At(topic, 0), b"t", value)

    def turn(self, times: int = 10) -> None:
        for _ in range(times):
            self.now += 600
            self.worker.run_once(0)

    def records(self, topic: str) -> list[Record]:
        return list(MemoryReader(self.broker).read(At(topic, 0), 0))

    def letters(self) -> list[tuple[str, bytes | None]]:
        found = self.records(self.topics.dead_letters)
        return [((dict(letter.headers)["gforce.reason"] or b"").decode(), letter.value) for letter in found]

    def journals(self) -> list[JournalRecord]:
        return [JournalRecord.decode(record.value or b"") for record in self.records(self.topics.journal)]


@pytest.fixture
def stream(own: SchemaRegistry) -> Iterator[Stream]:
    made = Stream(own)
    yield made
    made.worker.close()
    made.codec.close()


def read_decision(value: bytes | None) -> Any:
    schema = fastavro.parse_schema(json.loads(schema_text("decision.v1")))
    return fastavro.schemaless_reader(io.BytesIO((value or b"")[5:]), schema, None)


def test_the_processor_decides_avro_requests_and_the_journal_is_of_what_came(
    own: SchemaRegistry, stream: Stream
) -> None:
    value = framed(own, "requests", {**REQUEST, "context": '{"a": [1, 2]}'})
    stream.send("requests", value)
    stream.send("feedback", framed(own, "feedback", {"tenant": "t", "decision_id": "1", "label": True}))
    stream.turn()
    (sent,) = stream.records("decisions")
    found = read_decision(sent.value)
    assert (found["decision_id"], found["decision"], found["context"]) == ("1", "true", '{"a": [1, 2]}')
    assert stream.worker.totals["labels_joined"] == 1
    journal = next(journal for journal in stream.journals() if journal.decisions)
    (request,) = stream.records("requests")
    assert journal.requests.hashes == hashes_text(record_hash(b"t", value, request.timestamp))
    context = msgspec.Raw(found.pop("context").encode())
    assert journal.decisions_digest == decisions_digest([encode_decision(DecisionEvent(**found, context=context))])


def test_dead_letters_hold_what_came(own: SchemaRegistry, stream: Stream) -> None:
    unlabelled = framed(own, "requests", {**REQUEST, "predictions": {"m": "maybe"}})
    parked = framed(own, "feedback", {"tenant": "t", "decision_id": "none", "label": True})
    for value in (b"{}", unlabelled, b"", None):
        stream.send("requests", value)
    stream.send("feedback", parked)
    stream.turn()
    assert stream.worker.totals["labels_parked"] == 1
    stream.now += 2 * 3_600_000
    stream.turn()
    assert sorted(stream.letters(), key=repr) == sorted(
        [
            ("schema", b"{}"),
            ("unknown-label", unlabelled),
            ("empty", b""),
            ("empty", None),
            ("unknown-decision", parked),
        ],
        key=repr,
    )


def test_while_the_registry_is_away_records_wait_and_none_is_lost(own: SchemaRegistry, stream: Stream) -> None:
    stream.turn()
    own.broken = (503, {})
    stream.send("requests", framed(own, "requests", REQUEST))
    stream.turn()
    assert stream.letters() == []
    assert stream.records("decisions") == stream.journals() == []
    assert "schema registry" in stream.worker.owned[0].trouble
    own.broken = None
    stream.turn()
    assert len(stream.records("decisions")) == 1
    assert stream.worker.owned[0].trouble == ""


def test_while_decisions_cannot_be_written_nothing_is_committed(own: SchemaRegistry, stream: Stream) -> None:
    stream.turn()
    value = framed(own, "requests", REQUEST)
    stream.codec.to_json("requests", value)
    own.broken = (409, {"error_code": 409, "message": "incompatible"})
    stream.send("requests", value)
    stream.turn()
    assert stream.worker.totals["transactions_aborted"] > 0
    assert stream.records("decisions") == stream.journals() == []
    own.broken = None
    stream.turn()
    assert [read_decision(sent.value)["decision_id"] for sent in stream.records("decisions")] == ["1"]
    assert [journal.decisions for journal in stream.journals()] == [1]
