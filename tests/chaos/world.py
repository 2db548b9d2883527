"""The servers of a run, its topics and configuration, and the producer that plays a workload."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from processor.adapters.kafka.admin import Topic, create_topics
from processor.config import Config, load
from processor.run.assembly import topics_of
from tests.servers.broker import Broker
from tests.servers.redis_server import RedisCluster, RedisServer

from .workload import Event

PARTITIONS = 4
GROUP = "gforce"
SNAPSHOT_BYTES = 400_000
"""small, so that a run of minutes takes many"""

CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"
group = "{group}"
session_timeout_ms = 6000
transaction_timeout_ms = 10000

[redis]
url = "{redis}"
cluster = {cluster}
timeout_ms = 2000

[processing]
seed = "{seed}"
slot_ms = 1000
snapshot_bytes = {snapshot_bytes}

[log]
format = "json"

[tenants.default]
parking = "20s"
"""


class World:
    """A broker, a Redis (or a cluster of three) and a folder; everything it started ends with it."""

    def __init__(
        self, cluster: bool = False, broker: Mapping[str, str] | None = None, snapshot_bytes: int = SNAPSHOT_BYTES
    ) -> None:
        self.broker = Broker(broker)
        self.redis: RedisServer | RedisCluster = RedisCluster() if cluster else RedisServer(aof=True, own=True)
        self.cluster, self.snapshot_bytes = cluster, snapshot_bytes
        self.folder = Path(tempfile.mkdtemp(prefix="gforce-chaos-"))
        self.config_file = self.folder / "gforce.toml"

    def __enter__(self) -> World:
        try:
            self.broker.start()
            self.redis.start()
            self._write_config()
            names = list(vars(topics_of(self.config)).values())
            create_topics({"bootstrap.servers": self.broker.bootstrap}, [Topic(name, PARTITIONS) for name in names])
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self.broker.stop()
        self.redis.stop()

    @property
    def config(self) -> Config:
        return load(self.config_file, {})

    def _write_config(self) -> None:
        text = CONFIG.format(
            bootstrap=self.broker.bootstrap,
            group=GROUP,
            redis=self.redis.url,
            cluster=str(self.cluster).lower(),
            seed="5e" * 32,
            snapshot_bytes=self.snapshot_bytes,
        )
        self.config_file.write_text(text)

    def flush_redis(self) -> None:
        for node in self.redis.nodes if isinstance(self.redis, RedisCluster) else [self.redis]:
            with node.client() as client:
                client.flushall()


class Player(threading.Thread):
    """Produces events at their time, in order; behind schedule it goes as fast as the broker takes them."""

    def __init__(self, bootstrap: str, events: list[Event]) -> None:
        super().__init__(name="player", daemon=True)
        self._events = events
        self._halt = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        self.delivered = 0
        self.failed: list[str] = []
        self.produced = 0

    def run(self) -> None:
        began = time.monotonic()
        for event in self._events:
            while (ahead := began + event.at - time.monotonic()) > 0 and not self._halt.is_set():
                self._producer.poll(min(ahead, 0.05))
            if self._halt.is_set():
                return
            self._produce(event)
            self.produced += 1
        if left := self._producer.flush(120):
            self.failed.append(f"{left} records could not be delivered")

    def stop(self) -> None:
        self._halt.set()
        self.join(150)

    def _produce(self, event: Event) -> None:
        while True:
            try:
                self._producer.produce(event.topic, event.value, event.key, on_delivery=self._reported)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(str(error))


class Transactions:
    """Which partitions of a topic hold records of a transaction that is still open."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def open_on(self, topic: str) -> set[int]:
        """A stable end that lags behind the end means an open transaction; nothing if the broker does not answer."""
        with contextlib.suppress(KafkaException):
            stable = self._ends(topic, IsolationLevel.READ_COMMITTED)
            ends = self._ends(topic, IsolationLevel.READ_UNCOMMITTED)
            return {p for p in ends if stable[p] < ends[p]}
        return set()

    def _ends(self, topic: str, isolation: IsolationLevel) -> dict[int, int]:
        wanted = {KafkaTopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=5)
        return {at.partition: answer.result().offset for at, answer in answers.items()}


class Lag:
    """How far the group is behind, seen with a client of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 2})

    def committed(self) -> dict[tuple[str, int], int | None]:
        """The group's offset of every input partition; None where it has none."""
        places = [KafkaTopicPartition(topic, p) for topic in ("requests", "feedback") for p in range(PARTITIONS)]
        answers = self._consumer.committed(places, 10)
        return {(a.topic, a.partition): a.offset if a.error is None and a.offset >= 0 else None for a in answers}

    def behind(self) -> int:
        """Records that are not committed; −1 if that cannot be known now."""
        with contextlib.suppress(KafkaException):
            return sum(
                self._consumer.get_watermark_offsets(KafkaTopicPartition(*at), 10)[1] - (offset or 0)
                for at, offset in self.committed().items()
            )
        return -1

    def close(self) -> None:
        self._consumer.close()
