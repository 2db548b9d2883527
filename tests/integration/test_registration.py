"""Real processes on the real broker: of two under one name the newer one gives up, and a dead one holds up nobody."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.servers.broker import Broker
from tests.servers.processor_process import Deployment, ProcessorProcess, clean_environment, eventually
from tests.servers.redis_server import RedisPair, RedisServer, Sentinels
from tests.servers.tcp_proxy import TcpProxy


def double_of(deployment: Deployment, instance: str) -> ProcessorProcess:
    """Another process of the same instance, with a folder and a port of its own."""
    return deployment.processor("double", {"kafka": {"instance": instance}})


def decided(deployment: Deployment, begin: int, count: int) -> None:
    """Send requests and wait until each of them is decided."""
    names = {f"loan-{number}" for number in range(begin, begin + count)}
    deployment.send("requests", [deployment.request("acme", name) for name in sorted(names)])
    eventually(lambda: {name for _, name in deployment.decisions()}, lambda found: found >= names)


def record(redis: RedisServer, deployment: Deployment, instance: str = "one") -> dict[str, object] | None:
    with redis.client() as client:
        text = client.get(f"{deployment.name}:process:{instance}")
    assert text is None or isinstance(text, bytes)
    return json.loads(text) if text else None


def test_a_second_process_of_the_same_name_gives_up_each_time_and_the_first_is_never_disturbed(
    deployment: Deployment, redis: RedisServer
) -> None:
    first = deployment.processor("one").start_ready()
    decided(deployment, 0, 20)
    recoveries = first.metric("gforce_recoveries_total")
    second = double_of(deployment, "one")
    for turn in range(1, 4):
        second.start()
        assert second.wait() == 2
        decided(deployment, 20 * turn, 20)
        said = second.log.splitlines()[-1]
        assert f'another process runs as instance "one": host {socket.gethostname()}, pid {first.pid}, since 20' in said
        assert 'give every process its own "instance"' in said
    assert first.metric("gforce_recoveries_total") == recoveries
    assert first.metric("gforce_fenced_by_kafka_total") == 0
    assert first.metric("gforce_fenced_by_store_total") == 0
    assert len(deployment.decisions()) == 80
    found = record(redis, deployment)
    assert found is not None
    assert (found["form"], found["pid"], found["http"]) == (1, first.pid, f"127.0.0.1:{first.port}")
    assert first.stop() == 0
    assert record(redis, deployment) is None, "a name is given back"
    second.start_ready()


def test_a_killed_process_takes_its_name_again_without_waiting(deployment: Deployment) -> None:
    processor = deployment.processor("one").start_ready()
    decided(deployment, 0, 20)
    processor.kill()
    processor.start_ready()
    decided(deployment, 20, 20)
    assert '"waiting"' not in processor.log
    assert processor.stop() == 0


def test_a_process_that_finds_somebody_older_under_its_name_stops_in_order(
    deployment: Deployment, redis: RedisServer
) -> None:
    processor = deployment.processor("one").start_ready()
    decided(deployment, 0, 20)
    found = record(redis, deployment)
    assert found is not None
    older = {**found, "token": "other", "host": "elsewhere", "started": int(str(found["started"])) - 1}
    with redis.client() as client:
        for refreshed in count():
            client.set(f"{deployment.name}:process:one", json.dumps({**older, "refreshed": refreshed}))
            if processor.ended(within=0.2):
                break
    assert processor.wait() == 2
    assert 'another process runs as instance "one": host elsewhere' in processor.log.splitlines()[-1]
    left = record(redis, deployment)
    assert left is not None
    assert left["token"] == "other"


def test_of_two_that_could_not_see_each_other_exactly_one_goes_on(deployment: Deployment, redis: RedisServer) -> None:
    """The record of the first one vanishes just when the second one starts, so that both join the group."""
    first = deployment.processor("one").start_ready()
    decided(deployment, 0, 20)
    second = double_of(deployment, "one").start()
    with redis.client() as client:
        while (record(redis, deployment) or {}).get("pid") != second.pid:
            client.delete(f"{deployment.name}:process:one")
    eventually(lambda: [one for one in (first, second) if one.ended(within=0.1)], lambda gone: len(gone) == 1)
    (left,) = [one for one in (first, second) if not one.ended(within=0.1)]
    decided(deployment, 20, 20)
    left.wait_ready()
    decided(deployment, 40, 20)
    assert not left.ended(within=6), "nor later"
    assert len(deployment.decisions()) == 60
    assert left.stop() == 0


def test_a_process_goes_on_while_redis_is_away_and_registers_again(deployment: Deployment, redis: RedisServer) -> None:
    processor = deployment.processor("one").start_ready()
    before = record(redis, deployment)
    assert before is not None
    redis.kill()
    redis.start()  # empty
    after = eventually(lambda: record(redis, deployment))
    assert after is not None
    assert after["token"] == before["token"]
    decided(deployment, 0, 20)
    assert processor.stop() == 0


def test_a_policy_that_begins_to_evict_is_told_by_a_running_process(deployment: Deployment, redis: RedisServer) -> None:
    processor = deployment.processor("one").start_ready()
    assert processor.metrics()["gforce_store_unsafe", ()] == 0
    with redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    eventually(lambda: processor.metric("gforce_store_unsafe"), lambda found: found == 1)
    page = processor.get("/readyz")
    assert page.status == 200
    assert "allkeys-lru" in page.json["warnings"][0]
    lines = [json.loads(line) for line in processor.log.splitlines() if '"store unsafe"' in line]
    assert [line["level"] for line in lines] == ["error"]
    decided(deployment, 0, 20)


@pytest.fixture
def pair() -> Iterator[RedisPair]:
    with RedisPair() as two:
        yield two


def test_a_processor_goes_on_by_itself_when_its_redis_is_demoted_and_still_answers(
    broker: Broker, pair: RedisPair, tmp_path: Path
) -> None:
    with TcpProxy(pair.master.port) as name:
        deployment = Deployment(broker.bootstrap, name.url, tmp_path)
        try:
            processor = deployment.processor("one").start_ready()
            decided(deployment, 0, 20)
            pair.demote()
            name.move(pair.master.port)
            decided(deployment, 20, 20)
            processor.wait_ready()
            assert len(deployment.decisions()) == 40
            with pair.master.client() as client:
                found = client.get(f"{deployment.name}:process:one")
            assert isinstance(found, bytes)
            assert json.loads(found)["pid"] == processor.pid
        finally:
            deployment.close()


def test_a_processor_follows_its_sentinels_and_doctor_says_who_is_master(
    broker: Broker, pair: RedisPair, tmp_path: Path
) -> None:
    with Sentinels(pair) as sentinels:
        deployment = Deployment(broker.bootstrap, sentinels.url, tmp_path)
        try:
            processor = deployment.processor("one").start_ready()
            decided(deployment, 0, 20)
            assert f"(now 127.0.0.1:{pair.master.port})" in doctor(processor)
            sentinels.failover()
            decided(deployment, 20, 20)
            assert f"(now 127.0.0.1:{pair.replica.port})" in doctor(processor)
            processor.wait_ready()
            assert len(deployment.decisions()) == 40
        finally:
            deployment.close()


def doctor(processor: ProcessorProcess) -> str:
    command = [sys.executable, "-m", "processor.cli", "doctor", "--json", "--config", str(processor.config)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)
    return done.stdout
