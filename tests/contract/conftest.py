"""Stores and logs for their contracts, in memory and on real servers. In CI a missing one is a failure, not a skip."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from processor.adapters.memory.store import MemoryStore
from processor.adapters.redis.store import RedisStore
from processor.ports.store import Store
from tests.servers import redis_server
from tests.servers.redis_server import RedisCluster, RedisServer

from .backends import OURS, Backend, Filled, half_in_memory, half_in_redis
from .worlds import MemoryWorld, World


def needs(missing: str | None) -> None:
    """Without a server: skip at home, fail in CI."""
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    needs(redis_server.available())
    with RedisServer() as one:
        yield one


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    needs(None if redis_server.binary() else redis_server.MISSING)
    with RedisCluster() as three:
        yield three


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """A server that a test may mistreat; what is in its append-only file survives a restart."""
    needs(None if redis_server.binary() else redis_server.MISSING)
    with RedisServer(aof=True, own=True) as one:
        yield one


@pytest.fixture(scope="module", params=["memory", "redis", "redis-filled", "redis-cluster"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "memory":
        yield Backend(MemoryStore, half_in_memory)
        return
    in_cluster = request.param == "redis-cluster"
    which = request.getfixturevalue("cluster" if in_cluster else "server")
    kind = Filled if request.param == "redis-filled" else RedisStore
    opened: list[RedisStore] = []

    def open_store() -> Store:
        opened.append(kind(which.url, f"test-{uuid4().hex}", cluster=in_cluster))
        return opened[-1]

    yield Backend(open_store, half_in_redis)
    for store in opened:
        store.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    """Empty; partition 0 is ours."""
    store = backend.open()
    store.claim(0, OURS)
    return store


@pytest.fixture(scope="package")
def kafka() -> Iterator[Callable[[], World]]:
    """Makes worlds on one real broker; in CI its absence is a failure."""
    try:
        from tests.servers.broker import Broker, available
        from tests.servers.kafka_world import KafkaWorld

        reason = available()
    except ImportError as error:
        reason = str(error)
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(f"no Kafka broker in CI: {reason}")
        pytest.skip(f"no Kafka broker: {reason}")
    with Broker() as broker:
        yield lambda: KafkaWorld(broker.bootstrap)


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    make = MemoryWorld if request.param == "memory" else request.getfixturevalue("kafka")
    made: World = make()
    yield made
    made.close()


@pytest.fixture
def names(world: World) -> tuple[str, str, str]:
    """Two inputs of four partitions and a group, all new."""
    unique = uuid4().hex[:8]
    left, right = f"requests-{unique}", f"feedback-{unique}"
    world.topics({left: 4, right: 4})
    return left, right, f"group-{unique}"


@pytest.fixture
def topic(world: World) -> str:
    name = f"decisions-{uuid4().hex[:8]}"
    world.topics({name: 4})
    return name
