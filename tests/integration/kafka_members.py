"""Members of a group on a real Kafka: what they hear, and how long we wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from processor.adapters.kafka.input import KafkaInput
from processor.adapters.kafka.reader import KafkaReader
from processor.ports.log import Membership, Record, TopicPartition
from tests.contract.worlds import flat
from tests.servers.kafka_world import KafkaWorld


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.memberships: list[Membership] = []
        self.revocations: list[set[TopicPartition]] = []
        self.losses: list[set[TopicPartition]] = []

    def assigned(self, partitions: Sequence[TopicPartition], membership: Membership) -> None:
        self.owned |= set(partitions)
        self.memberships.append(membership)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.revocations.append(set(partitions))
        self.owned -= set(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.losses.append(set(partitions))
        self.owned -= set(partitions)

    @property
    def membership(self) -> Membership:
        return self.memberships[-1]


def poll_until(condition: Callable[[], object], *inputs: KafkaInput, seconds: float = 30) -> list[Record]:
    """Poll all inputs in turn until the condition holds."""
    deadline, records = time.monotonic() + seconds, []
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        for each in inputs:
            records += flat(each.poll(100, 0.05))
    return records


def joined(world: KafkaWorld, group: str, topic: str, instance: str = "one") -> tuple[KafkaInput, Heard]:
    heard = Heard()
    member = world.input(instance, group, [topic], heard)
    poll_until(lambda: heard.owned, member)
    return member, heard


def comes_to_hold(reader: KafkaReader, at: TopicPartition, *values: bytes) -> bool:
    """Whether the partition holds just these, soon: markers land after the commit is answered."""
    poll_until(lambda: [record.value for record in reader.read(at, 0)] == list(values))
    return True
