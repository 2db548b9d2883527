"""Whatever happens to its server, a store is unavailable, fenced or unusable, and never keeps half of a batch."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from processor.adapters.redis import store as redis_store
from processor.core.stream.writes import SetEntry, SetField
from processor.ports.store import (
    Applied,
    LookupResult,
    Store,
    StoreDamagedError,
    StoreError,
    StoreFencedError,
    StoreUnavailableError,
    StoreUnusableError,
)
from tests.servers.redis_server import RedisServer

from .backends import OURS, THEIRS, at, content, number, opened, packed, unclaimed, whole
from .backends import close_what_was_opened as close_what_was_opened


def test_a_sound_store_passes_its_check(store: Store) -> None:
    store.check()


def test_scripts_are_sent_again_when_the_server_has_forgotten_them(server: RedisServer) -> None:
    store = opened(server.url)
    with server.client() as client:
        client.script_flush()
    assert store.look_up(0, OURS, [], 0, 0).entries == []
    store.wipe(0, OURS)


def test_a_killed_server_is_unavailable_and_then_has_what_it_answered_for(own: RedisServer) -> None:
    store = opened(own.url)
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    own.kill()
    with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{own.port}"):
        store.look_up(0, OURS, [], 0, 0)
    own.start()
    assert whole(store) == (at(1), packed(SetField(b"f", b"1")))


def test_a_server_that_lost_everything_fences_us(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.flushall()
    with pytest.raises(StoreFencedError):
        store.look_up(0, OURS, [], 0, 0)


def test_pages_begin_again_when_the_server_was_restarted_because_its_cursors_mean_nothing(own: RedisServer) -> None:
    store = opened(own.url)
    writes = packed(*(SetEntry(number(n), b"x" * 24) for n in range(3000)))
    store.apply(0, OURS, at(1), 0, writes)
    _, page = store.page(0, OURS, b"", 60_000)
    own.restart()
    found = content(page.writes)
    assert found < content(writes)
    while page.cursor:
        _, page = store.page(0, OURS, page.cursor, 60_000)
        found |= content(page.writes)
    assert found == content(writes)


def test_fields_are_not_mixed_over_a_restart(own: RedisServer) -> None:
    store = opened(own.url)
    store.apply(0, OURS, at(1), 0, packed(*(SetField(number(n), b"x" * 20_000) for n in range(200))))
    reading = store.fields(0, OURS)
    next(reading)
    own.restart()
    with pytest.raises(StoreUnavailableError, match="changed"):
        list(reading)


def test_a_server_that_may_evict_must_not_be_used(own: RedisServer) -> None:
    with own.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreUnusableError, match="allkeys-lru.*noeviction"):
        unclaimed(own.url).check()


def test_a_full_server_is_waited_for_with_the_remedy_at_hand(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailableError, match="Raise maxmemory"):
        store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))


def test_a_full_server_takes_nothing_of_a_restore(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailableError, match="Raise maxmemory"):
            store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))
        client.config_set("maxmemory", 0)
    assert store.look_up(0, OURS, [number(1)], 0, 0) == LookupResult(None, [None])
    assert store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"))) is Applied.DONE


def test_a_claim_between_the_check_and_the_writes_of_a_restore_stops_them(
    own: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(own.url), unclaimed(own.url)
    inner = redis_store._transaction

    def late(*arguments: Any) -> list[Any]:
        theirs.claim(0, THEIRS)
        return inner(*arguments)

    monkeypatch.setattr(redis_store, "_transaction", late)
    with pytest.raises(StoreUnavailableError, match="meanwhile"):
        ours.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))
    assert theirs.look_up(0, THEIRS, [number(1)], 0, 0) == LookupResult(None, [None])
    with pytest.raises(StoreFencedError):
        ours.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))


def test_entries_that_could_not_be_written_are_no_state(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.set("{app:0}:entries", "mine")
    with pytest.raises(StoreUnusableError, match="another prefix"):
        store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"), SetField(b"f", b"1")))
    assert store.peek(0)[0] is None


def test_a_server_that_does_not_answer_in_time_is_unavailable(own: RedisServer) -> None:
    store = opened(own.url, timeout=1.0)
    with own.client() as client:
        client.client_pause(60_000, all=False)
        with pytest.raises(StoreUnavailableError):
            store.apply(0, OURS, at(1), 0, b"")
        client.client_unpause()


def run_for_ever(client: Redis) -> None:
    with pytest.raises(ResponseError, match="killed"):
        client.eval("while true do end", 0)


def test_a_server_busy_with_a_script_is_unavailable(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client, own.client() as other:
        client.config_set("busy-reply-threshold", 50)
        endless = threading.Thread(target=run_for_ever, args=(client,))
        endless.start()
        time.sleep(0.3)
        with pytest.raises(StoreUnavailableError, match="BUSY"):
            store.look_up(0, OURS, [], 0, 0)
        other.script_kill()
        endless.join()


def test_a_replica_is_unavailable_for_writes(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailableError):
            store.apply(0, OURS, at(1), 0, b"")
        client.execute_command("REPLICAOF", "NO", "ONE")


def test_a_state_of_another_version_needs_a_person(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.hset("{app:0}:meta", "identity", "2:of:the:future")
    for call in (
        lambda: store.look_up(0, OURS, [], 0, 0),
        lambda: store.apply(0, OURS, at(1), 0, b""),
        lambda: store.page(0, OURS, b"", 100),
    ):
        with pytest.raises(StoreUnusableError, match="another version"):
            call()


def test_keys_that_something_else_uses_need_a_person(own: RedisServer) -> None:
    with own.client() as client:
        client.set("{app:0}:meta", "mine")
    with pytest.raises(StoreUnusableError, match="another prefix"):
        opened(own.url)


def test_every_error_of_a_store_is_one_of_four() -> None:
    assert set(StoreError.__subclasses__()) == {
        StoreUnavailableError,
        StoreFencedError,
        StoreDamagedError,
        StoreUnusableError,
    }
