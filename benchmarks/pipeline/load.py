"""Load at an even pace, and a reader of what comes out: the two ends of a latency. Run as a process of its own.

Two processes: producing at 20 000 events a second and reading as many in one would add the wait for the other's turn
to what is measured. The ids hold the time, so they need not talk.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path

import msgspec
import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)

from .workload import FEEDBACK, REQUESTS, Event, Publisher, Shape, request

AFTER = 20.0
"""seconds the reader waits for stragglers"""
STEP = 0.002


class Seen(msgspec.Struct):
    decision_id: str


def produce(options: argparse.Namespace, told: multiprocessing.SimpleQueue[float]) -> None:
    """One request and the label of the one a second ago, over and over."""
    publisher = Publisher(options.bootstrap, tuple(options.input), options.partitions, **{"linger.ms": 1})
    shape = Shape()
    templates = [_split(request(shape, number)) for number in range(5_000)]
    sent: list[tuple[int, str]] = []
    began = time.perf_counter()
    total = int(options.rate * (options.warm_up + options.seconds))
    while len(sent) < total:
        due = min(int((time.perf_counter() - began) * options.rate), total)
        if due == len(sent):
            publisher.poll()
            time.sleep(STEP / 4)
            continue
        for number in range(len(sent), due):
            tenant, head, rest = templates[number % len(templates)]
            identity = f"{time.time_ns()}-{number}"
            publisher.send(Event(REQUESTS, tenant, f"{head}{identity}{rest}".encode()))
            sent.append((tenant, identity))
            if number >= options.rate:
                tenant, identity = sent[number - options.rate]
                text = f'{{"tenant":"{shape.tenant(tenant)}","decision_id":"{identity}","label":"true"}}'
                publisher.send(Event(FEEDBACK, tenant, text.encode()))
        publisher.poll()
    took = time.perf_counter() - began
    publisher.flush()
    told.put(total / took)


def _split(event: Event) -> tuple[int, str, str]:
    """A request before and after its id."""
    text = event.value.decode()
    head, rest = text.split('"decision_id":"')
    return event.tenant, f'{head}"decision_id":"', rest[32:]


def read(options: argparse.Namespace, ready: multiprocessing.SimpleQueue[bool]) -> None:
    """Every decision of the time after the warm-up: how long ago its request was produced."""
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "fetch.wait.max.ms": 10,
            "log_level": 2,
        }
    )
    consumer.assign([KafkaTopicPartition(options.output, p, OFFSET_BEGINNING) for p in range(options.partitions)])
    consumer.consume(1, 1.0)
    ready.put(True)
    decode = msgspec.json.Decoder(Seen).decode
    total, first = int(options.rate * (options.warm_up + options.seconds)), int(options.rate * options.warm_up)
    waits, seen, last = list[int](), 0, 0
    deadline = time.monotonic() + options.warm_up + options.seconds + AFTER
    met = set[str]()
    while seen < total and time.monotonic() < deadline:
        messages = consumer.consume(1_000, 0.05)
        now = time.time_ns()
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    continue
                raise KafkaException(error)
            value = message.value() or b""
            if b'"label":' in value:
                continue  # the echo forwards labels too
            identity = decode(value).decision_id
            at, number = identity.split("-")
            seen += 1
            last = max(last, now - int(at)) if int(number) >= total - options.rate // 10 else last
            if int(number) >= first:
                waits.append(now - int(at))
                met.add(identity)
    consumer.close()
    if len(met) != len(waits):
        raise SystemExit(f"{len(waits) - len(met)} requests were answered twice")
    options.file.write_bytes(np.array(waits, dtype="<i8").tobytes())
    options.file.with_suffix(".seen").write_bytes(msgspec.json.encode({"missing": total - seen, "last": last / 1e9}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", nargs=2, required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ready, told = context.SimpleQueue(), context.SimpleQueue()
    reader = context.Process(target=read, args=(options, ready), daemon=True)
    reader.start()
    ready.get()
    produce(options, told)
    reader.join(AFTER + 30)
    if reader.exitcode != 0:
        raise SystemExit(f"the reader ended with {reader.exitcode}")
    found = msgspec.json.decode(options.file.with_suffix(".seen").read_bytes())
    options.file.with_suffix(".json").write_bytes(msgspec.json.encode({**found, "offered": told.get()}))


if __name__ == "__main__":
    main()
