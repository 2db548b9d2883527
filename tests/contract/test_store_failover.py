"""A master that was demoted and still answers is left at once, and sentinels are followed where configured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from redis.connection import Connection, SSLConnection
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from processor.adapters.redis.connecting import Address, RedisConnection
from processor.adapters.redis.store import RedisStore
from processor.core.stream.writes import SetEntry, SetField
from processor.ports.store import Applied, StoreUnavailableError, StoreUnusableError
from tests.servers import redis_server
from tests.servers.redis_server import RedisPair, RedisServer, Sentinels, free_port
from tests.servers.tcp_proxy import TcpProxy

from .backends import LEFT_OPEN, OURS, at, number, opened, packed, unclaimed
from .backends import close_what_was_opened as close_what_was_opened
from .conftest import needs

T = TypeVar("T")


@pytest.fixture
def pair() -> Iterator[RedisPair]:
    needs(None if redis_server.binary() else redis_server.MISSING)
    with RedisPair() as two:
        yield two


def again(call: Callable[[], T]) -> T:
    """Call as the processor does: whatever is unavailable is tried again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except StoreUnavailableError:
            assert time.monotonic() < deadline, "it never came back"
            time.sleep(0.02)


# A name that moves


def test_a_demoted_master_that_still_answers_is_left_with_the_first_write_it_refuses(pair: RedisPair) -> None:
    with TcpProxy(pair.master.port) as name:
        store = opened(name.url)
        store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
        pair.demote()
        name.move(pair.master.port)
        with pytest.raises(StoreUnavailableError, match="read only replica"):
            store.apply(0, OURS, at(2), 1, packed(SetField(b"f", b"2")))
        assert store.apply(0, OURS, at(2), 1, packed(SetField(b"f", b"2"))) is Applied.DONE
        with pair.master.client() as client:
            assert client.hget("{app:0}:fields", "f") == b"2"
        store.close()


def test_a_restore_leaves_a_demoted_master_too(pair: RedisPair) -> None:
    with TcpProxy(pair.master.port) as name:
        store = opened(name.url)
        pair.demote()
        name.move(pair.master.port)
        with pytest.raises(StoreUnavailableError, match="read only replica"):
            store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))
        assert store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"))) is Applied.DONE
        store.close()


def test_no_connection_to_the_demoted_master_is_used_again(pair: RedisPair) -> None:
    """Also those that lay idle: a look-up would be answered by it, with what it had."""
    with TcpProxy(pair.master.port) as name:
        store = opened(name.url)
        taken = [store._link.call(lambda client: client.connection_pool.get_connection()) for _ in range(3)]
        for one in taken:
            store._link.call(lambda client, one=one: client.connection_pool.release(one))  # type: ignore[misc]
        pair.demote()
        name.move(pair.master.port)
        with pytest.raises(StoreUnavailableError):
            store.apply(0, OURS, at(1), 0, b"")
        assert [one.is_connected for one in taken] == [False] * 3
        store.close()


def test_a_refusal_that_an_old_redis_wraps_into_an_error_of_the_script_is_seen(own: RedisServer) -> None:
    """Redis before 7: "ERR Error running script …: -READONLY You can't write against a read only replica"."""
    link = RedisConnection(own.url, False, 5.0)
    wrapped = "ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a replica."
    before = link.call(lambda client: client)
    with pytest.raises(Exception, match="READONLY"):
        link.call(lambda client: client.eval("return redis.error_reply(ARGV[1])", 0, wrapped))
    assert link.call(lambda client: client) is not before
    link.close()


def test_other_errors_keep_the_connections(own: RedisServer) -> None:
    link = RedisConnection(own.url, False, 5.0)
    before = link.call(lambda client: client)
    with pytest.raises(Exception, match="mistake"):
        link.call(lambda client: client.eval("return redis.error_reply('ERR mistake')", 0))
    assert link.call(lambda client: client) is before
    link.close()


# Sentinels


@pytest.fixture
def sentinels(pair: RedisPair) -> Iterator[Sentinels]:
    with Sentinels(pair) as three:
        yield three


def test_the_store_goes_on_at_the_new_master_when_the_old_one_is_killed(pair: RedisPair, sentinels: Sentinels) -> None:
    store = opened(sentinels.url)
    store.check()
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    pair.settle()
    pair.master.kill()
    assert again(lambda: store.apply(0, OURS, at(2), 1, packed(SetField(b"f", b"2")))) is Applied.DONE
    with pair.replica.client() as client:
        assert client.hget("{app:0}:fields", "f") == b"2"


def test_the_store_goes_on_at_the_new_master_when_the_old_one_is_demoted(pair: RedisPair, sentinels: Sentinels) -> None:
    store = opened(sentinels.url)
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    pair.settle()
    sentinels.failover()
    again(lambda: store.apply(0, OURS, at(2), 1, packed(SetField(b"f", b"2"))))
    assert again(lambda: store.look_up(0, OURS, [], 0, 0).identity) == at(2)
    with pair.replica.client() as client:
        assert client.hget("{app:0}:fields", "f") == b"2"


def test_one_sentinel_that_answers_is_enough_and_the_master_it_names_is_shown(
    pair: RedisPair, sentinels: Sentinels
) -> None:
    url = f"redis+sentinel://127.0.0.1:{free_port()},{sentinels.places}/{sentinels.NAME}"
    assert list(opened(url).versions()) == [f"{Address.of(url)} (now 127.0.0.1:{pair.master.port})"]


def test_a_name_that_the_sentinels_do_not_know_is_named_with_what_to_look_at(sentinels: Sentinels) -> None:
    with pytest.raises(StoreUnavailableError, match=r"master .other. that is up\. .*their name for it"):
        opened(f"redis+sentinel://{sentinels.places}/other/0")


def test_sentinels_that_are_away_are_unavailable_and_each_is_named() -> None:
    ports = [free_port(), free_port()]
    with pytest.raises(StoreUnavailableError) as caught:
        opened(f"redis+sentinel://:s3cr3t@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/m?sentinel_password=s3cr4t")
    for port in ports:
        assert f"127.0.0.1:{port}: Error 111" in str(caught.value)
    assert "s3cr" not in str(caught.value) + repr(caught.value)


def test_sentinels_have_a_password_of_their_own_and_the_data_another(pair: RedisPair) -> None:
    for server in (pair.master, pair.replica):
        with server.client() as client:
            client.execute_command("ACL SETUSER gforce on >s3cr3t/word ~* +@all")
    with Sentinels(pair, password="s3cr4t/word") as sentinels:
        where = f"127.0.0.1:{sentinels.ports[0]}/{sentinels.NAME}/0"
        store = opened(f"redis+sentinel://gforce:s3cr3t%2Fword@{where}?sentinel_password=s3cr4t%2Fword")
        store.check()
        assert "s3cr" not in repr(store)
        with pytest.raises(StoreUnusableError, match="sentinel_password") as caught:
            opened(f"redis+sentinel://gforce:s3cr3t%2Fword@{where}?sentinel_password=s3cr5t")
        assert "s3cr" not in str(caught.value)
        with pytest.raises(StoreUnusableError, match="Correct user and password"):
            opened(f"redis+sentinel://gforce:s3cr5t@{where}?sentinel_password=s3cr4t%2Fword")
        LEFT_OPEN[0].close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:s3cr3t@host:26379",
        "redis+sentinel://:s3cr3t@host:26379/",
        "redis+sentinel://:s3cr3t@host:port/name",
        "redis+sentinel://:s3cr3t@host,,other/name",
        "redis+sentinel://:s3cr3t@host/name/database",
        "sentinel://:s3cr3t@host/name",
    ],
)
def test_an_address_of_sentinels_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(StoreUnusableError, match="name-of-the-master") as caught:
        RedisStore(url, "app")
    assert "s3" not in str(caught.value)


def test_a_cluster_has_no_sentinels() -> None:
    with pytest.raises(StoreUnusableError, match="Set cluster to false"):
        unclaimed("redis+sentinel://host/name", cluster=True)


def test_tls_is_for_the_data_and_for_the_sentinels_only_if_asked_for() -> None:
    where = "me:pass@one,two:7/name/3?ssl_ca_certs=/ca.pem&sentinel_username=watcher&sentinel_password=other"
    for scheme, more, tls in (("redis", "", "no"), ("rediss", "", "data"), ("rediss", "&sentinel_ssl=true", "both")):
        link = RedisConnection(f"{scheme}+sentinel://{where}{more}", False, 5.0)
        data, sentinels = link.call(lambda client: (client.connection_pool, client.sentinels.sentinels))
        assert data.connection_class is (SentinelManagedConnection if tls == "no" else SentinelManagedSSLConnection)
        wanted = {"username": "me", "password": "pass", "db": 3, "ssl_ca_certs": "/ca.pem", "socket_timeout": 5.0}
        assert wanted.items() <= data.connection_kwargs.items()
        for one, place in zip(sentinels, (("one", 26379), ("two", 7)), strict=True):
            pool = one.connection_pool
            assert (pool.connection_kwargs["host"], pool.connection_kwargs["port"]) == place
            assert pool.connection_class is (SSLConnection if tls == "both" else Connection)
            assert {"username": "watcher", "password": "other"}.items() <= pool.connection_kwargs.items()
            assert (pool.connection_kwargs.get("ssl_ca_certs") == "/ca.pem") == (tls == "both")
        link.close()
