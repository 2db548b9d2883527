"""A consumer and a producer with nothing in between: the limit of one Python process. Run as a process of its own.

Without ``--parse`` the bytes go through as they are; with it every event is decoded by msgspec, changed into what a
decision or an acknowledgement would be, and encoded again. With ``--transactional`` the output and the offsets are
committed together, every ``--commit-interval`` milliseconds, as the processor does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)

from processor.adapters.kafka.settings import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS

from .workload import FETCH

MOST = 5_000
"""records of one call, and twice as many as a transaction has from each partition at most: the processor's own"""


class Advice(msgspec.Struct):
    tenant: str
    decision_id: str
    group: str | None = None
    predictions: dict[str, str] | None = None
    label: str | None = None
    context: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Answer(msgspec.Struct, omit_defaults=True):
    tenant: str
    decision_id: str
    group: str | None
    decision: str | None
    probabilities: dict[str, float]
    policy: str
    context: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def parsed_and_written() -> Callable[[bytes], bytes]:
    decode, encode = msgspec.json.Decoder(Advice).decode, msgspec.json.Encoder().encode
    even = {"false": 0.5, "true": 0.5}

    def work(value: bytes) -> bytes:
        event = decode(value)
        said = next(iter(event.predictions.values())) if event.predictions else event.label
        return encode(Answer(event.tenant, event.decision_id, event.group, said, even, "echo", event.context))

    return work


def good(messages: list[Message]) -> list[Message]:
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
    return [message for message in messages if message.error() is None]


class Echo:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.options = arguments
        own: dict[str, Any] = {"bootstrap.servers": arguments.bootstrap, "log_level": 2}
        reading = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "group.id": arguments.group}
        if arguments.transactional:
            reading["enable.auto.commit"] = "false"
        self.consumer = Consumer({**CONSUMER_DEFAULTS, **FETCH, **own, **reading})
        writing: dict[str, Any] = {"enable.idempotence": "true", "queue.buffering.max.messages": 1_000_000}
        writing["linger.ms"] = arguments.linger
        if arguments.transactional:
            writing |= {"transactional.id": arguments.group, "transaction.timeout.ms": 10_000}
        self.producer = Producer({**PRODUCER_DEFAULTS, **own, **writing})
        self.consumer.subscribe(arguments.input)
        self.work = parsed_and_written() if arguments.parse else None
        self.next: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        """Until ``records`` have gone through, or for ever if that is 0."""
        begin = self.transactions if self.options.transactional else self.plain
        begin()
        self.consumer.close()

    def plain(self) -> None:
        done, most = 0, self.options.records or float("inf")
        while done < most:
            messages = good(self.consumer.consume(MOST, 0.1))
            self.forward(messages)
            done += len(messages)
        self.producer.flush(60)

    def transactions(self) -> None:
        self.producer.init_transactions(30)
        done, most = 0, self.options.records or float("inf")
        interval = self.options.commit_interval / 1_000
        while done < most:
            messages, until = list[Message](), None
            while len(messages) < self.options.most and (until is None or time.monotonic() < until):
                wait = 0.05 if until is None else min(0.05, max(until - time.monotonic(), 0))
                found = good(self.consumer.consume(MOST, wait))
                if found and until is None:
                    until = time.monotonic() + interval
                messages += found
                if done + len(messages) >= most:
                    break
            self.producer.begin_transaction()
            self.forward(messages)
            for message in messages:
                self.next[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
            places = [KafkaTopicPartition(*at, offset) for at, offset in self.next.items()]
            self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), 30)
            self.producer.commit_transaction(30)
            done += len(messages)

    def forward(self, messages: list[Message]) -> None:
        produce, topic, work = self.producer.produce, self.options.output, self.work
        for message in messages:
            value = message.value()
            if work is not None:
                value = work(value or b"")
            while True:
                try:
                    produce(topic, value, message.key(), message.partition())  # type: ignore[arg-type]
                    break
                except BufferError:
                    self.producer.poll(0.01)
        self.producer.poll(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", nargs="+", required=True, help="topics to read")
    parser.add_argument("--output", required=True, help="topic to write, with as many partitions")
    parser.add_argument("--group", required=True)
    parser.add_argument("--records", type=int, default=0, help="end after so many; 0 is never")
    parser.add_argument("--parse", action="store_true")
    parser.add_argument("--transactional", action="store_true")
    parser.add_argument("--commit-interval", type=int, default=100, help="milliseconds (default 100)")
    parser.add_argument("--linger", type=int, default=PRODUCER_DEFAULTS["linger.ms"], help="linger.ms of the producer")
    parser.add_argument("--most", type=int, default=20_000, help="records of a transaction (default 20000)")
    Echo(parser.parse_args()).run()


if __name__ == "__main__":
    main()
