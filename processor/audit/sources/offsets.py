"""Offsets of a running cluster: where topics begin, where they are stable, what was at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from processor.adapters.kafka.errors import create_client, translate_error
from processor.adapters.kafka.group import KafkaGroup
from processor.adapters.kafka.settings import Properties, client_properties
from processor.core.stream.identity import Identity
from processor.ports.log import OperatorActionRequiredError, TopicPartition

TIMEOUT = 15.0
PATIENCE = 20.0
"""seconds to wait for open transactions; a processor's own time out after ten"""
PAUSE = 0.05
LISTED_AT_ONCE = 500

_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Extent = tuple[int, int]
"""the first offset that is kept, and the end of what is stable"""


class KafkaOffsets:
    """Asks the brokers."""

    def __init__(self, properties: Properties, patience: float = PATIENCE) -> None:
        self._client = create_client(AdminClient, client_properties(properties))
        self._patience = patience

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """How many each topic has; topics that do not exist are left out."""
        try:
            found = self._client.list_topics(timeout=TIMEOUT).topics
        except KafkaException as problem:
            raise translate_error(problem, "asking for the topics") from problem
        return {topic: len(found[topic].partitions) for topic in topics if topic in found}

    def extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Extent]:
        """Of each partition, once everything that is in it now is settled.

        The markers of one transaction land on its topics one by one. What was under way when we asked is waited for,
        so that whoever asks for the journal first, and then for the rest, gets all that the journal speaks of.
        """
        begin = self._listed(places, _EARLIEST)
        written = self._listed(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._listed(places, _LATEST, IsolationLevel.READ_COMMITTED)
        deadline = time.monotonic() + self._patience
        while (late := [at for at in places if stable[at] < written[at]]) and time.monotonic() < deadline:
            time.sleep(PAUSE)
            stable |= self._listed(late, _LATEST, IsolationLevel.READ_COMMITTED)
        return {at: (begin[at], max(begin[at], stable[at])) for at in places}

    def at_time(self, places: Sequence[TopicPartition], milliseconds: int) -> dict[TopicPartition, int | None]:
        """The first offset with a timestamp at or after this; None if there is none."""
        found = self._listed(places, OffsetSpec.for_timestamp(milliseconds))
        return {at: offset if offset >= 0 else None for at, offset in found.items()}

    def _listed(
        self, places: Sequence[TopicPartition], what: Any, level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """One answer for each place; leaders may be moving, or not be known yet for a topic just made."""
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self._patience
        while left := [at for at in places if at not in found][:LISTED_AT_ONCE]:
            asked = {KafkaTopicPartition(*at): what for at in left}
            answers = self._client.list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT)
            for place, answer in answers.items():
                try:
                    found[TopicPartition(place.topic, place.partition)] = answer.result(TIMEOUT * 2).offset
                except KafkaException as problem:
                    said = translate_error(problem, f"asking for the offsets of {place.topic}[{place.partition}]")
                    if isinstance(said, OperatorActionRequiredError) or time.monotonic() > deadline:
                        raise said from problem
                    time.sleep(PAUSE)
        return found


def committed_identities(properties: Properties, group: str, inputs: Sequence[str], count: int) -> dict[int, str]:
    """The identity each partition's state had when the group last committed; partitions without one are left out."""
    if not inputs or not count:
        return {}
    texts: dict[int, set[str]] = {number: set() for number in range(count)}
    places = [TopicPartition(topic, number) for topic in inputs for number in range(count)]
    for at, position in KafkaGroup(properties, group, PATIENCE).committed(places).items():
        texts[at.partition].add(position.metadata if position else "")
    found: dict[int, str] = {}
    for number, said in texts.items():
        identity = Identity.parse(said.pop()) if len(said) == 1 else None
        if identity is not None and identity.sequence > 0:
            found[number] = identity.text()
    return found


def counts_of(offsets: KafkaOffsets, topics: Mapping[Any, str]) -> dict[str, int]:
    """Partition counts by topic; none of the topics there is a mistake of the person who asks."""
    counts = offsets.partitions(list(topics.values()))
    if not counts:
        names = ", ".join(topics.values())
        raise OperatorActionRequiredError(
            f"none of the topics {names} exists on this cluster: check [topics] and bootstrap_servers"
        )
    return counts
