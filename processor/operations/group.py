"""What an operator does to a whole group: foresee its start, reset it, rebuild its store."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from processor.adapters.kafka.group import KafkaGroup
from processor.adapters.kafka.reader import KafkaReader
from processor.adapters.memory.store import MemoryStore
from processor.adapters.redis.store import RedisStore
from processor.config import Config
from processor.core.errors import GForceError
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.partition import HEAD, stored_partitions
from processor.ports.log import Committed, LogError, OperatorActionRequiredError, Reader, RetryableError, TopicPartition
from processor.ports.store import StoreError, StoreFencedError
from processor.run.assembly import client_properties, store_of, tenant_settings_of, topics_of
from processor.service.recovery import RecoveredPartition, Recovery
from processor.service.topics import TopicNames

Start = Literal["earliest", "latest", "committed"]
Action = Literal["load", "catch up", "restore", "start", "refuse"]
ATTEMPTS = 5


@dataclass(frozen=True)
class Place:
    """Everything an operator's command works on."""

    config: Config
    topics: TopicNames
    reader: KafkaReader
    group: KafkaGroup
    store: RedisStore

    @property
    def recovery(self) -> Recovery:
        rules = tenant_settings_of(self.config)
        return Recovery(self.topics, self.group, self.reader, self.store, rules, lambda: secrets.token_hex(8))

    def partitions(self) -> int:
        """How many partitions the requests have."""
        count = self.reader.partitions(self.topics.requests)
        if count is None:
            raise OperatorActionRequiredError(
                f"there is no topic {self.topics.requests}: create the topics with `gforce topics create`"
            )
        return count


@contextmanager
def opened(config: Config) -> Iterator[Place]:
    """Connections for one command."""
    properties = client_properties(config)
    reader, store = KafkaReader(properties), store_of(config)
    try:
        yield Place(config, topics_of(config), reader, KafkaGroup(properties, config.kafka.group), store)
    finally:
        reader.close()
        store.close()


# What would happen on start


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a processor would do with a partition, and why."""

    partition: int
    committed: Identity | None
    stored: Identity | None
    action: Action
    detail: str


def forecast(partition: int, committed: Identity | None, stored: Identity | None) -> Forecast:
    """What recovery does, without doing it.

    >>> forecast(0, Identity("ab", 9, "d"), Identity("ab", 7, "c")).detail
    '2 batches from the changelog'
    """

    def says(action: Action, detail: str) -> Forecast:
        return Forecast(partition, committed, stored, action, detail)

    if committed is None:
        return says("start", "nothing was ever committed: at the first record, under a new lineage")
    if committed.sequence == 0:
        return says("start", f"after a reset, under lineage {committed.lineage}")
    if stored == committed:
        return says("load", "the store is at the committed state")
    if stored is None:
        return says("restore", f"the store is empty: batches up to {committed.sequence} from the changelog")
    if stored.lineage != committed.lineage:
        return says("restore", "the store is of another lineage")
    if stored.sequence > committed.sequence:
        return says(
            "refuse",
            f"the store is at batch {stored.sequence}, Kafka at {committed.sequence}: Kafka has lost committed data. "
            "Check the brokers; `gforce rebuild` makes the store follow Kafka",
        )
    if stored.sequence == committed.sequence:
        return says("restore", "the store is at another state of the same number")
    return says("catch up", f"{committed.sequence - stored.sequence} batches from the changelog")


def foresee(place: Place, number: int, partitions: int) -> Forecast:
    """Look at Kafka and at the store; change nothing."""
    try:
        stored, fields = place.store.peek(number, [HEAD])
    except StoreError as error:
        return Forecast(number, None, None, "refuse", str(error))
    try:
        committed_state = place.recovery.committed_state(number)
    except GForceError as error:
        return Forecast(number, None, stored, "refuse", str(error))
    told = forecast(number, committed_state.identity if committed_state else None, stored)
    if HEAD in fields and told.action in ("load", "catch up") and stored_partitions(fields) != partitions:
        detail = f"made with {stored_partitions(fields)} partitions, now {partitions}: restore the count or reset"
        return Forecast(number, told.committed, stored, "refuse", detail)
    if told.action in ("catch up", "restore"):
        at = TopicPartition(place.topics.changelog, number)
        if next(iter(place.reader.read(at, place.reader.bounds(at)[0])), None) is None:
            return Forecast(number, told.committed, stored, "refuse", f"{place.topics.changelog} is empty")
    return told


# A new lineage


@dataclass(frozen=True, slots=True)
class Reset:
    """Where a partition would begin anew."""

    partition: int
    was: Identity | None
    lineage: str
    positions: dict[str, int]

    @property
    def identity(self) -> Identity:
        return Identity(self.lineage, 0, GENESIS)


def plan_reset(place: Place, start: Start) -> list[Reset]:
    """One new beginning for each partition."""
    counts = {topic: place.reader.partitions(topic) for topic in place.topics.inputs}
    partitions = place.partitions()
    if set(counts.values()) != {partitions}:
        raise OperatorActionRequiredError(
            f"the inputs have different partition counts ({counts}): see `gforce topics check`"
        )
    places = [TopicPartition(topic, number) for topic in place.topics.inputs for number in range(partitions)]
    committed = place.group.committed(places)
    return [_plan_one(place, number, start, committed) for number in range(partitions)]


def _plan_one(place: Place, number: int, start: Start, committed: dict[TopicPartition, Committed | None]) -> Reset:
    was, positions = None, {}
    for topic in place.topics.inputs:
        at = TopicPartition(topic, number)
        now = committed[at]
        was = was or (Identity.parse(now.metadata) if now else None)
        positions[topic] = beginning(start, now.offset if now else None, place.reader.bounds(at))
    return Reset(number, was, secrets.token_hex(8), positions)


def beginning(start: Start, committed: int | None, bounds: tuple[int, int]) -> int:
    """The offset to begin with; a committed one that is not kept becomes the nearest that is.

    >>> beginning("earliest", 7, (5, 10)), beginning("latest", 7, (5, 10)), beginning("committed", 3, (5, 10))
    (5, 10, 5)
    """
    first, end = bounds
    if start == "committed":
        return first if committed is None else min(max(committed, first), end)
    return first if start == "earliest" else end


def reset(place: Place, plans: list[Reset]) -> None:
    """Commit the beginnings, which the broker refuses while the group has members, then empty the store.

    Should the second fail, the first start does it. The journal and the changelog stay: their records are of the old
    lineages and are skipped.
    """
    positions = {
        TopicPartition(topic, plan.partition): Committed(offset, plan.identity.text())
        for plan in plans
        for topic, offset in plan.positions.items()
    }
    place.group.commit(positions)
    for plan in plans:
        token = secrets.token_bytes(16)
        place.store.claim(plan.partition, token)
        place.store.wipe(plan.partition, token)


# The store from Kafka


@dataclass(frozen=True, slots=True)
class Rebuilt:
    partition: int
    sequence: int
    replayed: int
    trouble: str = ""


def rebuild(place: Place, number: int, partitions: int) -> Rebuilt:
    """Forget what the store holds of a partition and fill it again from the changelog."""
    try:
        recovered = _rebuilt(place, number, partitions)
    except StoreFencedError:
        return Rebuilt(number, 0, 0, "a running processor has taken it back and restores it itself")
    except LogError as error:
        return Rebuilt(number, 0, 0, str(error))
    return Rebuilt(number, recovered.partition.identity.sequence, recovered.replayed)


def _rebuilt(place: Place, number: int, partitions: int) -> RecoveredPartition:
    """Into memory first: what the changelog cannot restore must not be wiped."""
    token = secrets.token_bytes(16)
    _insisted(replace(place.recovery, store=MemoryStore()), number, partitions, token)
    place.store.claim(number, token)
    place.store.wipe(number, token)
    return _insisted(place.recovery, number, partitions, token)


def _insisted(recovery: Recovery, number: int, partitions: int, token: bytes) -> RecoveredPartition:
    """Markers of a transaction land one by one, so what is committed may not be readable at once."""
    for _ in range(ATTEMPTS - 1):
        try:
            return recovery.recover(number, partitions, token)
        except RetryableError:
            time.sleep(0.5)
    return recovery.recover(number, partitions, token)


def positions_of(reader: Reader, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """The bounds of every partition of a topic."""
    count = reader.partitions(topic)
    if count is None:
        raise OperatorActionRequiredError(f"there is no topic {topic}: create the topics with `gforce topics create`")
    return {TopicPartition(topic, number): reader.bounds(TopicPartition(topic, number)) for number in range(count)}
