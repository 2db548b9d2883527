"""The committed offsets of a group, read and set by a client that is no processor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition


class GroupOffsets:
    """Of both inputs of one group."""

    def __init__(self, bootstrap: str, group: str, topics: tuple[str, str], partitions: int) -> None:
        self._bootstrap, self._group, self._topics, self._partitions = bootstrap, group, topics, partitions

    def committed(self) -> list[KafkaTopicPartition]:
        """The group's offsets of both inputs with their metadata."""
        wanted = [KafkaTopicPartition(topic, p) for topic in self._topics for p in range(self._partitions)]
        with self._member() as consumer:
            return list(consumer.committed(wanted, 20))

    def behind(self, partitions: Iterable[int]) -> int:
        """Records of these partitions that are not committed."""
        wanted = [KafkaTopicPartition(topic, p) for topic in self._topics for p in partitions]
        with self._member() as consumer:
            found = consumer.committed(wanted, 20)
            ends = [consumer.get_watermark_offsets(one, 20)[1] for one in found]
        return sum(end - max(one.offset, 0) for one, end in zip(found, ends, strict=True))

    def commit(self, positions: list[KafkaTopicPartition]) -> None:
        """Set the group's offsets by hand, metadata included, once its members' sessions have ended."""
        deadline = time.monotonic() + 30
        while True:
            try:
                with self._member() as consumer:
                    consumer.commit(offsets=positions, asynchronous=False)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def commit_meanwhile(self, positions: list[KafkaTopicPartition]) -> None:
        """The same while the group is alive: a transaction without member and generation is not refused."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": f"{self._group}-by-hand", "log_level": 2}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        with self._member() as consumer:
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)

    @contextlib.contextmanager
    def _member(self) -> Iterator[Consumer]:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": self._group, "log_level": 2})
        try:
            yield consumer
        finally:
            consumer.close()
