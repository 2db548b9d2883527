"""Real servers for the integration tests. In CI a missing one is a failure, not a skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers import redis_server
from tests.servers.broker import Broker, available
from tests.servers.kafka_world import KafkaWorld
from tests.servers.processor_process import Deployment
from tests.servers.redis_server import RedisServer


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    reason = available()
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"no Kafka broker: {reason}")
    if reason is not None:
        pytest.skip(f"no Kafka broker: {reason}")
    with Broker() as running:
        yield running


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A server of the test's own, if one can be started; else the one of REDIS_URL."""
    reason = redis_server.available()
    if reason is not None and os.environ.get("CI"):
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    with RedisServer(own=redis_server.binary() is not None) as running:
        yield running


@pytest.fixture
def deployment(broker: Broker, redis: RedisServer, tmp_path: Path) -> Iterator[Deployment]:
    """Two partitions of every topic, and nothing running on them yet."""
    made = Deployment(broker.bootstrap, redis.url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def world(broker: Broker) -> Iterator[KafkaWorld]:
    """Clients of the broker, all closed in the end."""
    running = KafkaWorld(broker.bootstrap, f"group-{uuid4().hex[:8]}")
    yield running
    running.close()


@pytest.fixture
def topic(world: KafkaWorld) -> str:
    """A new one, of two partitions."""
    name = f"topic-{uuid4().hex[:8]}"
    world.topics({name: 2})
    return name
