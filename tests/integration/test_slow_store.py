"""A Redis that is slow to answer, and a tenant that is slow to decide for: nobody is fenced, and all take turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.broker import Broker
from tests.servers.processor_process import Deployment, ProcessorProcess, eventually
from tests.servers.redis_server import RedisServer
from tests.servers.tcp_proxy import TcpProxy

PARTITIONS = 24
"""So many calls to a Redis that takes a second and a half for each would outlast a transaction."""


@pytest.fixture
def proxy(redis: RedisServer) -> Iterator[TcpProxy]:
    with TcpProxy(redis.port) as running:
        yield running


@pytest.fixture
def deployment(broker: Broker, proxy: TcpProxy, tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(broker.bootstrap, proxy.url, tmp_path, PARTITIONS)
    yield made
    made.close()


def troubles(processor: ProcessorProcess) -> dict[str, float]:
    names = ("recoveries", "fenced_by_kafka", "transactions_aborted", "commits_unknown")
    return {name: processor.metric(f"gforce_{name}_total") for name in names}


CALM = {"recoveries": PARTITIONS, "fenced_by_kafka": 0, "transactions_aborted": 0, "commits_unknown": 0}


def test_with_a_slow_redis_all_partitions_go_on_in_turn(deployment: Deployment, proxy: TcpProxy) -> None:
    processor = deployment.processor().start_ready()
    tenants = [deployment.tenants_on(number)[0] for number in range(PARTITIONS)]
    proxy.delay = 1.5
    deployment.send("requests", [deployment.request(tenant, "1") for tenant in tenants])
    decided = eventually(deployment.decisions, lambda found: len(found) >= PARTITIONS, "all of them decided")
    proxy.delay = 0.0
    assert sorted(decided) == sorted((tenant, "1") for tenant in tenants)
    assert troubles(processor) == CALM


def test_others_are_decided_for_beside_a_backlog_of_a_tenant_at_the_limits(deployment: Deployment) -> None:
    """Its backlog takes longer than a transaction may, which is set short here."""
    kafka = {"transaction_timeout_ms": 1_000}
    processor = deployment.processor(sections={"kafka": kafka}).start_ready()
    [large, small], [elsewhere] = deployment.tenants_on(5, 2), deployment.tenants_on(2)
    said = {f"expert {number}": "true" for number in range(64)}
    backlog = [deployment.request(large, f"{n}", group=f"group {n % 32}", predictions=said) for n in range(20_000)]
    others = [deployment.request(tenant, f"{n}") for n in range(50) for tenant in (small, elsewhere)]
    deployment.send("requests", [*backlog, *others])
    count = len(backlog) + len(others)
    decided = eventually(deployment.decisions, lambda found: len(found) >= count, "all of them decided")
    assert len(decided) == len(set(decided)) == count
    assert troubles(processor) == CALM
