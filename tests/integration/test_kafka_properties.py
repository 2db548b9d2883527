"""Properties that break the protocol and topics that are missing are named; a broker that is away may come back."""

from __future__ import annotations

import pytest

from processor.adapters.kafka.input import KafkaInput
from processor.adapters.kafka.output import KafkaOutput
from processor.adapters.kafka.reader import KafkaReader
from processor.ports.log import OperatorActionRequiredError, RetryableError
from tests.contract.worlds import named
from tests.servers.kafka_world import KafkaWorld

from .kafka_members import Heard


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", True),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_uncommitted"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("group.id", "mine"),
        ("no.such.property", "1"),
    ],
)
def test_consumer_properties_that_break_the_protocol_are_refused(name: str, value: str | bool) -> None:
    with pytest.raises(OperatorActionRequiredError, match=name):
        KafkaInput({"bootstrap.servers": "127.0.0.1:1", name: value}, "g", "i", named(["t"]), Heard())


@pytest.mark.parametrize("name", ["session.timeout.ms", "partition.assignment.strategy"])
def test_under_the_consumer_protocol_the_broker_decides(name: str) -> None:
    with pytest.raises(OperatorActionRequiredError, match=name):
        KafkaInput(
            {"bootstrap.servers": "127.0.0.1:1", name: "range"}, "g", "i", named(["t"]), Heard(), protocol="consumer"
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("partitioner", "consistent"), ("acks", 1), ("enable.idempotence", False), ("transactional.id", "mine")],
)
def test_producer_properties_that_break_the_protocol_are_refused(name: str, value: str | int) -> None:
    with pytest.raises(OperatorActionRequiredError, match=name):
        KafkaOutput({"bootstrap.servers": "127.0.0.1:1", name: value}, "g", "i")


def test_without_brokers_there_is_a_clear_stop() -> None:
    with pytest.raises(OperatorActionRequiredError, match=r"bootstrap\.servers"):
        KafkaReader({})


def test_a_missing_topic_stops(world: KafkaWorld) -> None:
    with pytest.raises(OperatorActionRequiredError, match="no such topic: nowhere"):
        world.input("one", "g", ["nowhere"], Heard())
    assert world.reader().partitions("nowhere") is None


def test_a_broker_that_is_not_there_is_worth_another_try() -> None:
    output = KafkaOutput({"bootstrap.servers": "127.0.0.1:1"}, "g", "i", request_timeout=0.5)
    with pytest.raises(RetryableError):
        output.open()
    output.close()
