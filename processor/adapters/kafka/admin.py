"""Administration of topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from processor.adapters.kafka.errors import create_client, error_of, translate_error
from processor.adapters.kafka.settings import Properties, client_properties
from processor.ports.log import TopicPartition

TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is, or as it should be; ``replication`` −1 is the broker's default."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication: int = -1


def create_topics(properties: Properties, topics: Iterable[Topic]) -> list[str]:
    """Create those that do not exist yet, and wait until they can be used; the names of those created."""
    partitions, wanted = {}, []
    for each in topics:
        partitions[each.name] = each.partitions
        wanted.append(NewTopic(each.name, each.partitions, each.replication, config=dict(each.configs)))
    if not wanted:
        return []
    client = _client(properties)  # named, because a client without a name is gone before it is answered
    answers = client.create_topics(wanted, operation_timeout=TIMEOUT_SECONDS, request_timeout=TIMEOUT_SECONDS)
    created = [name for name, answer in answers.items() if _created(name, answer)]
    _await_leaders(client, {name: partitions[name] for name in created})
    return created


def _client(properties: Properties) -> AdminClient:
    return create_client(AdminClient, client_properties(properties))


def _created(name: str, answer: Future[Any]) -> bool:
    try:
        answer.result(TIMEOUT_SECONDS * 2)
    except KafkaException as problem:
        if error_of(problem).code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise translate_error(problem, f"creating topic {name}") from problem
    return True


def _await_leaders(client: AdminClient, partitions: Mapping[str, int]) -> None:
    """A broker may hear of a topic a moment after the controller has created it. Who asks before is told there is none.

    Not for ever: the topics are there, and a partition may be without a leader for reasons of its own.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for name, count in partitions.items():
        while not _has_leaders(client, name, count) and time.monotonic() < deadline:
            time.sleep(0.02)


def _has_leaders(client: AdminClient, name: str, count: int) -> bool:
    try:
        known = client.list_topics(name, timeout=TIMEOUT_SECONDS).topics[name]
    except KafkaException as problem:
        raise translate_error(problem, f"looking for topic {name}") from problem
    hidden = known.error is not None and known.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return hidden or sum(partition.leader >= 0 for partition in known.partitions.values()) >= count


def describe_topics(properties: Properties, names: Iterable[str]) -> dict[str, Topic | None]:
    """Partition count, replication and every effective configuration; None for a topic that does not exist."""
    client = _client(properties)
    wanted = list(names)
    shapes = {name: _shape(client, name) for name in wanted}
    return {
        name: None if shape is None else Topic(name, shape[0], _configs(client, name), shape[1])
        for name, shape in shapes.items()
    }


def _shape(client: AdminClient, name: str) -> tuple[int, int] | None:
    answer = client.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_SECONDS)[name]
    try:
        description = answer.result(TIMEOUT_SECONDS * 2)
    except KafkaException as problem:
        if error_of(problem).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise translate_error(problem, f"describing topic {name}") from problem
    return len(description.partitions), len(description.partitions[0].replicas)


def _configs(client: AdminClient, name: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        entries = client.describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource].result(
            TIMEOUT_SECONDS * 2
        )
    except KafkaException as problem:
        raise translate_error(problem, f"describing the configuration of topic {name}") from problem
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


def delete_records(properties: Properties, at: TopicPartition, before_offset: int) -> int:
    """Delete what is before the offset; the first offset kept now."""
    client = _client(properties)
    place = KafkaTopicPartition(at.topic, at.partition, before_offset)
    answers = client.delete_records([place], request_timeout=TIMEOUT_SECONDS, operation_timeout=TIMEOUT_SECONDS)
    try:
        kept: int = next(iter(answers.values())).result(TIMEOUT_SECONDS * 2).low_watermark
    except KafkaException as problem:
        raise translate_error(problem, f"deleting records of {at.topic}[{at.partition}]") from problem
    return kept
