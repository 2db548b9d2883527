"""While the processor runs, a memory policy that evicts is noticed on the real server, and when it is right again."""

from __future__ import annotations

import logging

import pytest

from processor.ports.store import StoreUnavailableError
from processor.run.store_watch import StoreWatch
from processor.telemetry.logs import LOGGER
from tests.servers.redis_server import RedisCluster, RedisServer

from .backends import close_what_was_opened as close_what_was_opened
from .backends import unclaimed


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(LOGGER, "propagate", True)
    caplog.set_level(logging.INFO, LOGGER.name)
    return caplog


def told(lines: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.levelname, record.getMessage()) for record in lines.records]
    lines.clear()
    return found


def test_a_policy_that_begins_to_evict_is_told_once_and_so_is_its_end(
    own: RedisServer, lines: pytest.LogCaptureFixture
) -> None:
    watch = StoreWatch(unclaimed(own.url).unsafe)
    watch.look()
    assert (watch.unsafe, told(lines)) == ("", [])
    with own.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        watch.look()
        watch.look()
        assert watch.unsafe == (
            f"redis://127.0.0.1:{own.port} has maxmemory-policy allkeys-lru and would silently drop state when it is "
            "full. Set maxmemory-policy to noeviction."
        )
        assert told(lines) == [("ERROR", "store unsafe")]
        client.config_set("maxmemory-policy", "noeviction")
    watch.look()
    watch.look()
    assert (watch.unsafe, told(lines)) == ("", [("INFO", "store safe")])


def test_one_node_of_a_cluster_is_enough_and_is_named(cluster: RedisCluster, lines: pytest.LogCaptureFixture) -> None:
    watch = StoreWatch(unclaimed(cluster.url, cluster=True).unsafe)
    with cluster.nodes[1].client() as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        watch.look()
        assert watch.unsafe.startswith(f"127.0.0.1:{cluster.nodes[1].port} has maxmemory-policy volatile-ttl")
        assert watch.unsafe.count("maxmemory-policy to noeviction") == 1
        client.config_set("maxmemory-policy", "noeviction")
    watch.look()
    assert watch.unsafe == ""
    assert len(told(lines)) == 2


def test_a_server_that_is_away_changes_nothing(lines: pytest.LogCaptureFixture) -> None:
    answers = iter(["it evicts", None, ""])

    def ask() -> str:
        answer = next(answers)
        if answer is None:
            raise StoreUnavailableError("away")
        return answer

    watch = StoreWatch(ask)
    watch.look()
    watch.look()
    assert watch.unsafe == "it evicts"
    watch.look()
    assert watch.unsafe == ""
    assert told(lines) == [("ERROR", "store unsafe"), ("INFO", "store safe")]


def test_it_is_asked_beside_the_loop_until_it_is_stopped(own: RedisServer) -> None:
    store = unclaimed(own.url)
    watch = StoreWatch(store.unsafe, store.close, every=0.01)
    with own.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lfu")
    watch.start()
    while not watch.unsafe:
        assert watch._thread.is_alive()
    watch.stop()
    assert not watch._thread.is_alive()
