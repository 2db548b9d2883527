"""Addresses, passwords and rights that are wrong need a person, and no password is ever shown."""

from __future__ import annotations

import pytest

from processor.adapters.redis.store import RedisStore
from processor.core.stream.writes import SetField
from processor.ports.store import StoreUnavailableError, StoreUnusableError
from tests.servers import redis_server
from tests.servers.redis_server import RedisServer

from .backends import OURS, at, opened, packed, unclaimed, whole
from .backends import close_what_was_opened as close_what_was_opened


def test_what_we_may_not_see_is_a_doubt_and_no_failure(own: RedisServer) -> None:
    with own.client() as client:
        client.execute_command("ACL SETUSER little on >pass ~* +@all -config -info")
    store = opened(f"redis://little:pass@127.0.0.1:{own.port}")
    store.check()
    assert store.doubts == (f"redis://127.0.0.1:{own.port} does not let us read its maxmemory-policy.",)
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    assert whole(store)[0] == at(1)


def test_missing_rights_need_a_person(own: RedisServer) -> None:
    with own.client() as client:
        client.execute_command("ACL SETUSER little on >pass ~other* +@all")
    with pytest.raises(StoreUnusableError, match="lacks rights"):
        opened(f"redis://little:pass@127.0.0.1:{own.port}")


@pytest.mark.parametrize("user", ["", ":s3cr3t%2Fword@", "somebody:s3cr3t%2Fword@"])
def test_a_wrong_or_missing_password_needs_a_person_and_is_never_shown(own: RedisServer, user: str) -> None:
    with own.client() as client:
        client.config_set("requirepass", "another")
        store = unclaimed(f"redis://{user}127.0.0.1:{own.port}")
        with pytest.raises(StoreUnusableError, match="password") as caught:
            store.claim(0, OURS)
        client.config_set("requirepass", "")
    assert "s3cr3t" not in repr(store) + str(caught.value) + repr(caught.value)


def test_the_right_password_opens(own: RedisServer) -> None:
    with own.client() as client:
        client.config_set("requirepass", "s3cr3t/word")
        store = opened(f"redis://:s3cr3t%2Fword@127.0.0.1:{own.port}")
        store.check()
        client.config_set("requirepass", "")
    assert "s3cr3t" not in repr(store)


@pytest.mark.parametrize("url", ["http://:s3cr3t@host", "redis://:s3cr3t@host:port", "s3cr3t", "redis://:s3/cr3t@host"])
def test_an_address_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(StoreUnusableError) as caught:
        RedisStore(url, "app")
    assert "s3" not in str(caught.value)


def test_a_prefix_with_braces_is_refused() -> None:
    with pytest.raises(StoreUnusableError, match="brace"):
        RedisStore("redis://localhost", "a{b}")


def test_nobody_at_the_address_is_unavailable() -> None:
    url = f"redis://:s3cr3t@127.0.0.1:{redis_server.free_port()}"
    for in_cluster in (False, True):
        with pytest.raises(StoreUnavailableError) as caught:
            opened(url, cluster=in_cluster)
        assert "s3cr3t" not in str(caught.value)
