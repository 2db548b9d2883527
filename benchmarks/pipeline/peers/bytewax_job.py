"""Bytewax: decode, count by tenant, emit. Runs in Bytewax' own environment."""

import os
from datetime import timedelta

import bytewax.operators as op
import msgspec
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import cluster_main
from confluent_kafka import OFFSET_BEGINNING

BROKERS = [os.environ["BENCH_BOOTSTRAP"]]


class Event(msgspec.Struct):
    tenant: str
    decision_id: str
    group: str | None = None
    predictions: dict[str, str] | None = None
    label: str | None = None


decode, encode = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode


def keyed(message):
    event = decode(message.value)
    return event.tenant, event


def count(state, event):
    if state is None:
        state = {"requests": 0, "labels": {}}
    if event.label is None:
        state["requests"] += 1
        said = next(iter(event.predictions.values()))
    else:
        state["labels"][event.label] = state["labels"].get(event.label, 0) + 1
        said = event.label
    return state, {
        "tenant": event.tenant,
        "decision_id": event.decision_id,
        "group": event.group,
        "decision": said,
        "requests": state["requests"],
        "labels": state["labels"],
    }


def written(pair):
    return KafkaSinkMessage(pair[0].encode(), encode(pair[1]))


flow = Dataflow("bench")
source = KafkaSource(
    BROKERS,
    os.environ["BENCH_INPUT"].split(","),
    starting_offset=OFFSET_BEGINNING,
    tail=False,
    add_config={"fetch.queue.backoff.ms": "1", "queued.min.messages": "20000"},
)
stream = op.input("in", flow, source)
stream = op.map("decode", stream, keyed)
stream = op.stateful_map("count", stream, count)
stream = op.map("encode", stream, written)
sink = KafkaSink(
    BROKERS,
    os.environ["BENCH_OUTPUT"],
    add_config={"linger.ms": "5", "compression.type": "lz4", "queue.buffering.max.messages": "1000000"},
)
op.output("out", stream, sink)

if __name__ == "__main__":
    cluster_main(flow, [], 0, epoch_interval=timedelta(seconds=1))
