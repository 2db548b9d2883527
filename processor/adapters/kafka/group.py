"""The consumer group seen from outside: who is in it, what it has committed, and how to set that.

Nothing here joins the group, so nothing here disturbs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from processor.adapters.kafka.errors import create_client, error_of, translate_error
from processor.adapters.kafka.settings import Properties, client_properties, producer_properties, reader_properties
from processor.ports.log import Committed, OperatorActionRequiredError, RetryableError, TopicPartition

TIMEOUT_SECONDS = 10.0


class KafkaGroup:
    """A consumer group by its name."""

    def __init__(self, properties: Properties, group: str, timeout: float = TIMEOUT_SECONDS) -> None:
        self._properties = properties
        self._client = create_client(AdminClient, client_properties(properties))
        self._group = group
        self._timeout = timeout

    def members(self) -> list[str]:
        """The instances that are in the group. One that was stopped stays until its session has timed out."""
        answer = self._client.describe_consumer_groups([self._group], request_timeout=self._timeout)[self._group]
        described = self._result(answer, f'asking who is in the group "{self._group}"')
        return sorted(member.group_instance_id or member.client_id for member in described.members)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """What is committed, once no open transaction can change it any more.

        Asked by a consumer that never joins the group: the client for administration dies of a segmentation fault
        while the coordinator of the group is moving or newly made (librdkafka issue 5040). Under ``read_committed``
        only stable offsets are given.
        """
        wanted = [KafkaTopicPartition(*at) for at in partitions]
        consumer = create_client(Consumer, {**reader_properties(self._properties), "group.id": self._group})
        deadline = time.monotonic() + self._timeout
        try:
            while True:
                try:
                    answers: list[Any] = consumer.committed(wanted, self._timeout)
                    problem = next((answer.error for answer in answers if answer.error is not None), None)
                except KafkaException as raised:
                    problem = error_of(raised)
                if problem is None:
                    return {TopicPartition(each.topic, each.partition): _position(each) for each in answers}
                why = translate_error(problem, f'reading the offsets of the group "{self._group}"')
                if time.monotonic() > deadline or isinstance(why, OperatorActionRequiredError):
                    raise why
                time.sleep(0.1)
        finally:
            consumer.close()

    def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Set the group's offsets, all in one request: the broker appends them together.

        Not in a transaction: outside of one the broker refuses while the group has members, inside of one it does not.
        """
        places = [KafkaTopicPartition(at.topic, at.partition, to.offset, to.metadata) for at, to in positions.items()]
        request = ConsumerGroupTopicPartitions(self._group, places)
        answer = self._client.alter_consumer_group_offsets([request], request_timeout=self._timeout)[self._group]
        doing = f'setting the offsets of the group "{self._group}"'
        for place in self._result(answer, doing).topic_partitions:
            if place.error is not None and place.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise OperatorActionRequiredError(f"{doing}: a processor is in the group. Remedy: stop it first")
            if place.error is not None:
                raise translate_error(place.error, doing)

    def _result(self, answer: Any, doing: str) -> Any:
        try:
            return answer.result(self._timeout * 2)
        except KafkaException as problem:
            raise translate_error(problem, doing) from problem


def _position(place: Any) -> Committed | None:
    return Committed(place.offset, place.metadata or "") if place.offset >= 0 else None


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a cluster says about itself. The Kafka protocol does not tell the version."""

    name: str
    brokers: int
    configs: Mapping[str, str]
    """of one of its brokers; empty where we may not know"""


def describe_cluster(properties: Properties, timeout: float = TIMEOUT_SECONDS) -> Cluster:
    client = create_client(AdminClient, client_properties(properties))
    try:
        found = client.describe_cluster(request_timeout=timeout).result(timeout * 2)
    except KafkaException as problem:
        client.poll(0)  # hear what it has logged meanwhile: the reason, such as a wrong password
        raise translate_error(problem, "asking for the cluster") from problem
    configs: dict[str, str] = {}
    resource = ConfigResource(ResourceType.BROKER, str(found.nodes[0].id))
    with suppress(KafkaException):  # it needs DESCRIBE_CONFIGS on the cluster, which is not needed otherwise
        entries = client.describe_configs([resource], request_timeout=timeout)[resource].result(timeout * 2)
        configs = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return Cluster(found.cluster_id, len(found.nodes), configs)


def try_transaction(
    properties: Properties, group: str, instance: str, at: TopicPartition, wall: Callable[[], int]
) -> int | None:
    """Write one record in a transaction and abort it. How far the broker's clock is ahead of ours, in milliseconds;
    None if the topic keeps the producers' time (``message.timestamp.type``)."""
    heard: list[tuple[KafkaError | None, int, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        heard.append((error, *message.timestamp()))

    producer = create_client(Producer, producer_properties(properties, group, instance, 10_000))
    try:
        producer.init_transactions(TIMEOUT_SECONDS)
        producer.begin_transaction()
        producer.produce(at.topic, b"", b"doctor", at.partition, delivered)
        before = wall()
        producer.flush(TIMEOUT_SECONDS)
        after = wall()
        producer.abort_transaction(TIMEOUT_SECONDS)
    except KafkaException as problem:
        raise translate_error(problem, f"trying a transaction as {group}-{instance}") from problem
    if not heard:
        raise RetryableError(f"{at.topic} took no record within {TIMEOUT_SECONDS:.0f} s")
    error, kind, stamped = heard[0]
    if error is not None:
        raise translate_error(error, f"writing to {at.topic}")
    return stamped - (before + after) // 2 if kind == 2 else None  # 2: stamped by the broker
