"""Real Kafka for the contract suite of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError, Message, Producer

from processor.adapters.kafka.admin import Topic, create_topics
from processor.adapters.kafka.input import KafkaInput
from processor.adapters.kafka.output import KafkaOutput
from processor.adapters.kafka.reader import KafkaReader
from processor.ports.log import Listener, TopicPartition
from tests.contract.worlds import named

# Short, because a static member that leaves is missed only when its session ends.
SESSION = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}


Thing = TypeVar("Thing", KafkaInput, KafkaOutput, KafkaReader)


class KafkaWorld:
    """What the contract suite needs of a log. Whatever it opened, ``close`` closes."""

    def __init__(self, bootstrap: str, group: str = "world", transaction_timeout_ms: int = 60_000) -> None:
        self.properties = {"bootstrap.servers": bootstrap}
        self._group = group
        self._transaction_timeout_ms = transaction_timeout_ms
        self._opened: list[KafkaInput | KafkaOutput | KafkaReader] = []
        self._producer = Producer({**self.properties, "linger.ms": 0})

    def topics(self, partitions: Mapping[str, int]) -> None:
        create_topics(self.properties, [Topic(name, count) for name, count in partitions.items()])

    def input(self, instance: str, group: str, topics: Sequence[str], listener: Listener) -> KafkaInput:
        return self._kept(KafkaInput({**self.properties, **SESSION}, group, instance, named(topics), listener))

    def output(self, instance: str) -> KafkaOutput:
        timeout = self._transaction_timeout_ms
        return self._kept(KafkaOutput(self.properties, self._group, instance, transaction_timeout_ms=timeout))

    def reader(self) -> KafkaReader:
        return self._kept(KafkaReader(self.properties))

    def produce(self, at: TopicPartition, key: bytes | None, value: bytes | None, timestamp: int | None = None) -> int:
        """Outside any transaction; the offset of the record."""
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offsets.append(message.offset() or 0)

        self._producer.produce(at.topic, value, key, at.partition, on_delivery=delivered, timestamp=timestamp or 0)
        assert self._producer.flush(20) == 0, "the broker did not take the record"
        return offsets[0]

    def _kept(self, thing: Thing) -> Thing:
        self._opened.append(thing)
        return thing

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
