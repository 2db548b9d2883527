"""Avro through the processor: decisions are Avro, journal and dead letters are of what came, and nothing is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import msgspec
import pytest

from processor.adapters.avro import AvroCodec, schema_text
from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.adapters.memory.store import MemoryStore
from processor.config import load
from processor.core.events import DecisionEvent, Limits, decode_feedback, encode_decision
from processor.core.stream.journal import JournalRecord, decisions_digest, hashes_text, record_hash
from processor.core.stream.step import FEEDBACK, REQUESTS, InputRecord
from processor.ports.codec import raw_of
from processor.ports.log import Record, TopicPartition
from processor.run.assembly import codec_of, loop_settings, stream_settings, topics_of
from processor.service.worker import Worker
from tests.servers.schema_registry import SchemaRegistry

from .avro_codecs import REQUEST, framed, record
from .avro_codecs import codec as codec
from .avro_codecs import own as own
from .avro_codecs import registry as registry
from .avro_codecs import without_a_proxy as without_a_proxy

# Into the core


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
    assert raw_of(REQUESTS, record(b"{}"), None) == InputRecord(REQUESTS, 5, 1_000, b"t", b"{}")


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
            stream_settings=stream_settings(config),
            loop_settings=loop_settings(config),
            wall_ms=lambda: self.now,
            monotonic_ms=lambda: self.now,
            entropy=lambda count: bytes(count),
            codec=self.codec,
        )

    def send(self, topic: str, value: bytes | None) -> None:
        self.broker.produce(TopicPartition(topic, 0), b"t", value)

    def turn(self, times: int = 10) -> None:
        for _ in range(times):
            self.now += 600
            self.worker.run_once(0)

    def records(self, topic: str) -> list[Record]:
        return list(MemoryReader(self.broker).read(TopicPartition(topic, 0), 0))

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
    assert "schema registry" in stream.worker.owned[0].last_error
    own.broken = None
    stream.turn()
    assert len(stream.records("decisions")) == 1
    assert stream.worker.owned[0].last_error == ""


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
