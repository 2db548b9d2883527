"""Where the contract of the state store is tested: in memory, on a real server, or on a real cluster of three."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import pack

import pytest

from processor.adapters.memory.store import MemoryStore
from processor.adapters.redis.store import RedisStore, script
from processor.core.stream.writes import Write, Writes, unpack
from processor.ports.store import Applied, Identity, LookupResult, Store

OURS, THEIRS = b"\x00our token\xff", b"their token"
NASTY = [b"\x00" * 16, b"\n\r\n" * 5 + b"\n", b"\xff" * 16, b"{}:*?[a-z] 'id\"\\"]
"""ids that break whatever is not safe for bytes"""

Half = Callable[[Store, int, Identity, int, bytes], None]


@dataclass(frozen=True)
class Backend:
    """Opens stores that know nothing of each other; ``half`` applies writes and dies before the identity is written."""

    open: Callable[[], Store]
    half: Half


class Filled(RedisStore):
    """``fill`` in the place of ``apply``: the contract is the same."""

    def apply(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        return self.fill(partition, token, after, before, writes)


def half_in_memory(store: Store, partition: int, after: Identity, before: int, writes: bytes) -> None:
    assert isinstance(store, MemoryStore)
    state = store._own(partition)
    state.left = None
    for write in unpack(writes):
        state.take(write)


def half_in_redis(store: Store, partition: int, after: Identity, before: int, writes: bytes) -> None:
    assert isinstance(store, RedisStore)
    last = "redis.call('HSET', META, 'identity', ARGV[2], 'sizes', sizes(ARGV[2]))"
    text = script("apply").text
    assert text.count(last) == 1
    keys = [f"{{{store._prefix}:{partition}}}:{name}" for name in ("meta", "entries", "fields", "slots")]
    store._call(lambda client: client.eval(text.replace(last, ""), 4, *keys, OURS, after.text(), before, writes, ""))


def at(sequence: int, lineage: str = "ab12") -> Identity:
    return Identity(lineage, sequence, f"digest{sequence}")


def packed(*writes: Write) -> bytes:
    all_of_them = Writes()
    for write in writes:
        all_of_them.add(write)
    return all_of_them.packed()


def number(n: int) -> bytes:
    return pack(">QQ", n * 0x9E3779B97F4A7C15 % 2**64, n)


def whole(store: Store, partition: int = 0, most: int = 1000) -> tuple[Identity | None, bytes]:
    """All pages, one after another."""
    cursor, pages = b"", []
    while True:
        identity, page = store.page(partition, OURS, cursor, most)
        pages.append(page.writes)
        cursor = page.cursor
        if not cursor:
            return identity, b"".join(pages)


def waiting(view: LookupResult) -> dict[int, list[tuple[bytes, bytes | None]]]:
    """The ids with their entries in the slots that are due."""
    return {slot: due.entries for slot, due in view.due.items()}


def content(writes: bytes) -> set[Write]:
    return set(unpack(writes))


LEFT_OPEN: list[RedisStore] = []


@pytest.fixture(autouse=True)
def close_what_was_opened() -> Iterator[None]:
    yield
    while LEFT_OPEN:
        LEFT_OPEN.pop().close()


def unclaimed(url: str, cluster: bool = False, timeout: float = 5.0) -> RedisStore:
    LEFT_OPEN.append(RedisStore(url, "app", cluster=cluster, timeout=timeout))
    return LEFT_OPEN[-1]


def opened(url: str, cluster: bool = False, timeout: float = 5.0) -> RedisStore:
    store = unclaimed(url, cluster, timeout)
    store.claim(0, OURS)
    return store
