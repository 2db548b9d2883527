"""The servers of a run and what is asked of them: topics, offsets, memory. Everything it started ends with it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from processor.adapters.kafka.admin import Topic, create_topics
from tests.servers.broker import Broker, kafka_version
from tests.servers.redis_server import RedisServer

from .children import end_all

OUTPUTS = ("decisions", "journal", "changelog", "dead-letters", "alerts")
TIMEOUT = 20.0
COUNTING = 120.0
"""seconds that counting the records of a topic may take"""


class Stage:
    """A broker and a Redis on loopback, and a folder for logs."""

    def __init__(self) -> None:
        self.broker, self.redis = Broker(), RedisServer()
        self.folder = Path(tempfile.mkdtemp(prefix="gforce-bench-"))
        self.run = uuid4().hex[:6]

    def __enter__(self) -> Stage:
        try:
            self.broker.start()
            self.redis.start()
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        if error is None:
            shutil.rmtree(self.folder, ignore_errors=True)  # else the logs tell what happened

    def _stop(self) -> None:
        end_all()
        self.redis.stop()
        self.broker.stop()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def servers(self) -> str:
        """What runs here, for the report."""
        with self.redis.client() as client:
            info = client.info("server")
        name = "Valkey" if "valkey_version" in info else "Redis"
        version = info.get("valkey_version") or info["redis_version"]
        return f"Kafka {kafka_version()}, {name} {version}"

    def server_pids(self) -> dict[str, int]:
        """The servers that are processes of ours; a container or somebody else's server is not among them."""
        found = {"Redis": self.redis.pid, "broker": self.broker.pid}
        return {name: pid for name, pid in found.items() if pid is not None}

    # Topics

    def inputs(self, name: str, partitions: int) -> tuple[str, str]:
        """New topics for requests and labels."""
        topics = (f"{self.run}.{name}.requests", f"{self.run}.{name}.feedback")
        self.create(topics, partitions)
        return topics

    def create(self, topics: Iterable[str], partitions: int) -> None:
        names = set(topics)
        create_topics({"bootstrap.servers": self.bootstrap}, [Topic(name, partitions) for name in names])
        deadline = time.monotonic() + TIMEOUT
        while not self._led(names) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _led(self, topics: set[str]) -> bool:
        """Whether all their partitions have a leader; asking also brings this client up to date."""
        known = self._admin.list_topics(timeout=TIMEOUT).topics
        found = [partition for name in topics & known.keys() for partition in known[name].partitions.values()]
        return topics <= known.keys() and bool(found) and all(partition.leader >= 0 for partition in found)

    def delete(self, topics: Sequence[str]) -> None:
        for answer in self._admin.delete_topics(list(topics), request_timeout=TIMEOUT).values():
            answer.result(TIMEOUT * 2)

    def named(self, prefix: str) -> list[str]:
        """The topics whose name begins so."""
        return sorted(name for name in self._admin.list_topics(timeout=TIMEOUT).topics if name.startswith(prefix))

    def ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """The end of every partition; transaction markers count as records there."""
        known = self._admin.list_topics(timeout=TIMEOUT).topics
        places = [(topic, number) for topic in topics if topic in known for number in known[topic].partitions]
        return self.ends_of(places)

    def ends_of(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """A partition that was created a moment ago may still have no leader as this client sees it."""
        if not places:
            return {}
        wanted = {KafkaTopicPartition(*place): OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + TIMEOUT
        while True:
            answers = self._admin.list_offsets(wanted, request_timeout=TIMEOUT)
            try:
                return {(at.topic, at.partition): int(a.result(TIMEOUT * 2).offset) for at, a in answers.items()}
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                self._led({topic for topic, _ in places})

    def committed(self, topic: str) -> int:
        """Records that a ``read_committed`` consumer reads from a topic; transaction markers are none."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"{self.run}.count", "log_level": 2}
        settings |= {"isolation.level": "read_committed", "enable.partition.eof": "true"}
        settings |= {"enable.auto.commit": "false"}
        consumer = Consumer(settings)
        places = [KafkaTopicPartition(*place, OFFSET_BEGINNING) for place in self.ends([topic])]
        consumer.assign(places)
        count = ended = 0
        deadline = time.monotonic() + COUNTING
        while ended < len(places) and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise KafkaException(error)
        consumer.close()
        return count

    # Redis

    def forget(self, prefix: str) -> None:
        """Remove the keys of one processor."""
        with self.redis.client() as client:
            keys = list(client.scan_iter(f"{{{prefix}:*", count=10_000))
            for start in range(0, len(keys), 1_000):
                client.unlink(*keys[start : start + 1_000])


class Offsets:
    """What a group has committed, seen from outside it."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2}
        self._consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})  # or it would wait for us
        self._places = [KafkaTopicPartition(topic, number) for topic in topics for number in range(partitions)]
        self._last = 0

    def count(self) -> int:
        """Records before the committed offsets; as before, while the group's coordinator cannot be asked."""
        with contextlib.suppress(KafkaException):
            self._last = sum(max(place.offset, 0) for place in self._consumer.committed(self._places, TIMEOUT))
        return self._last

    def close(self) -> None:
        self._consumer.close()
