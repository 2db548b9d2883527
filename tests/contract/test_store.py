"""The contract of the state store, on memory, on a real server and on a real cluster of three."""

from __future__ import annotations

import gc
import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from redis import Redis
from redis.exceptions import ResponseError

from processor.adapters.memory.store import MemoryStore
from processor.adapters.redis import store as redis_store
from processor.adapters.redis.store import RedisStore, script
from processor.adapters.store import (
    Applied,
    Identity,
    Store,
    StoreError,
    StoreFenced,
    StoreUnavailable,
    StoreUnusable,
    View,
)
from processor.core.stream.writes import (
    DeleteEntry,
    DeleteField,
    DropSlab,
    SetEntry,
    SetField,
    SetSlab,
    Write,
    Writes,
    unpack,
)
from tests.servers import redis_server
from tests.servers.redis_server import RedisCluster, RedisServer

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
        opened.append(kind(which.url, f"test-{uuid.uuid4().hex}", cluster=in_cluster))
        return opened[-1]

    yield Backend(open_store, half_in_redis)
    for store in opened:
        store.close()


def half_in_memory(store: Store, partition: int, after: Identity, before: int, writes: bytes) -> None:
    assert isinstance(store, MemoryStore)
    state = store._own(partition)
    for write in unpack(writes):
        state.take(write)


def half_in_redis(store: Store, partition: int, after: Identity, before: int, writes: bytes) -> None:
    assert isinstance(store, RedisStore)
    last = "redis.call('HSET', META, 'identity', ARGV[2])"
    text = script("apply").text
    assert text.count(last) == 1
    keys = [f"{{{store._prefix}:{partition}}}:{name}" for name in ("meta", "entries", "fields", "slots")]
    store._call(lambda client: client.eval(text.replace(last, ""), 4, *keys, OURS, after.text(), before, writes))


@pytest.fixture
def store(backend: Backend) -> Store:
    """Empty; partition 0 is ours."""
    store = backend.open()
    store.claim(0, OURS)
    return store


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


def content(writes: bytes) -> set[Write]:
    return set(unpack(writes))


# --- fencing


def every_call(store: Store, token: bytes) -> list[Callable[[], object]]:
    return [
        lambda: store.look_up(0, token, [number(1)], 1, 9),
        lambda: store.apply(0, token, at(2), 1, packed(SetField(b"foreign", b"write"))),
        lambda: store.apply(0, token, at(1), 0, b""),
        lambda: list(store.fields(0, token)),
        lambda: store.page(0, token, b"", 100),
        lambda: store.wipe(0, token),
    ]


@pytest.mark.parametrize("call", range(6))
def test_a_call_with_a_foreign_token_is_fenced_and_changes_nothing(store: Store, call: int) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    before = whole(store)
    with pytest.raises(StoreFenced, match="Partition 0"):
        every_call(store, THEIRS)[call]()
    assert whole(store) == before


@pytest.mark.parametrize("call", range(6))
def test_nobody_is_answered_before_a_claim(backend: Backend, call: int) -> None:
    with pytest.raises(StoreFenced):
        every_call(backend.open(), OURS)[call]()


def test_the_last_claim_wins_and_finds_the_state(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, b"")
    store.claim(0, THEIRS)
    assert store.look_up(0, THEIRS, [], 0, 0).identity == at(1)
    with pytest.raises(StoreFenced):
        store.look_up(0, OURS, [], 0, 0)
    store.claim(0, OURS)
    assert store.look_up(0, OURS, [], 0, 0).identity == at(1)


def test_a_claim_is_for_one_partition(store: Store) -> None:
    store.claim(1, THEIRS)
    store.apply(0, OURS, at(1), 0, packed(SetEntry(number(1), b"zero")))
    store.apply(1, THEIRS, at(1), 0, packed(SetEntry(number(1), b"one")))
    assert store.look_up(0, OURS, [number(1)], 0, 0).entries == [b"zero"]
    assert store.look_up(1, THEIRS, [number(1)], 0, 0).entries == [b"one"]


def test_a_claim_in_the_middle_of_reading_fields_fences_the_reader(backend: Backend) -> None:
    store = backend.open()
    store.claim(0, OURS)
    fields = [SetField(number(n), b"x" * 20_000) for n in range(200)]  # more than one page
    store.apply(0, OURS, at(1), 0, packed(*fields))
    reading = store.fields(0, OURS)
    next(reading)
    store.claim(0, THEIRS)
    with pytest.raises(StoreFenced):
        list(reading)


# --- apply


def test_an_empty_store_has_no_identity_no_entries_no_slabs_and_no_fields(store: Store) -> None:
    view = store.look_up(0, OURS, [number(1), number(2)], 7, 9)
    assert (view.identity, view.entries, view.slabs) == (None, [None, None], {})
    assert list(store.fields(0, OURS)) == []
    assert whole(store) == (None, b"")


def test_writes_that_follow_the_state_are_taken(store: Store) -> None:
    assert store.apply(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"))) is Applied.DONE
    assert store.apply(0, OURS, at(2), 1, packed(SetEntry(number(2), b"b"))) is Applied.DONE
    view = store.look_up(0, OURS, [number(2), number(3), number(1), number(2)], 0, 0)
    assert (view.identity, view.entries) == (at(2), [b"b", None, b"a", b"b"])


def test_writes_may_lead_over_several_sequences_at_once(store: Store) -> None:
    assert store.apply(0, OURS, at(40), 0, b"") is Applied.DONE
    assert store.apply(0, OURS, at(43), 40, b"") is Applied.DONE
    assert store.look_up(0, OURS, [], 0, 0).identity == at(43)


@pytest.mark.parametrize(("sequence", "before"), [(2, 1), (1, 0), (2, 0)])
def test_writes_already_in_the_state_change_nothing(store: Store, sequence: int, before: int) -> None:
    store.apply(0, OURS, at(2), 0, packed(SetField(b"f", b"1")))
    state = whole(store)
    assert store.apply(0, OURS, at(sequence), before, packed(SetField(b"f", b"2"))) is Applied.ALREADY
    assert whole(store) == state


@pytest.mark.parametrize(("sequence", "before"), [(5, 4), (4, 1), (3, 0)])
def test_writes_that_do_not_follow_the_state_are_a_gap_and_change_nothing(
    store: Store, sequence: int, before: int
) -> None:
    store.apply(0, OURS, at(2), 0, packed(SetField(b"f", b"1")))
    state = whole(store)
    assert store.apply(0, OURS, at(sequence), before, packed(SetField(b"f", b"2"))) is Applied.GAP
    assert whole(store) == state


def test_an_empty_state_is_at_sequence_zero(store: Store) -> None:
    assert store.apply(0, OURS, at(2), 1, b"") is Applied.GAP
    assert store.apply(0, OURS, at(1), 0, b"") is Applied.DONE


def test_writes_of_another_lineage_are_a_gap(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, b"")
    assert store.apply(0, OURS, at(2, "cd34"), 1, b"") is Applied.GAP
    assert store.look_up(0, OURS, [], 0, 0).identity == at(1)


def test_another_lineage_begins_after_a_wipe(store: Store) -> None:
    store.apply(0, OURS, at(7), 0, packed(SetField(b"f", b"1")))
    store.wipe(0, OURS)
    assert store.apply(0, OURS, at(1, "cd34"), 0, b"") is Applied.DONE
    assert store.look_up(0, OURS, [], 0, 0).identity == at(1, "cd34")


def test_writes_that_died_half_way_are_simply_made_again(backend: Backend, store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetEntry(number(1), b"old"), SetSlab(3, 1, number(1))))
    first = packed(DeleteEntry(number(1)), SetEntry(number(2), b"new"), DropSlab(3), SetSlab(3, 2, number(2)))
    rest = packed(SetField(b"f", b"1"), SetSlab(4, 2, number(2)))
    backend.half(store, 0, at(2), 1, first)
    assert store.look_up(0, OURS, [], 0, 0).identity == at(1)
    assert store.apply(0, OURS, at(2), 1, first + rest) is Applied.DONE
    assert whole(store)[0] == at(2)
    assert content(whole(store)[1]) == {
        SetEntry(number(2), b"new"),
        SetField(b"f", b"1"),
        SetSlab(3, 2, number(2)),
        SetSlab(4, 2, number(2)),
    }


@pytest.mark.parametrize("broken", [b"E" + b"i" * 16 + b"\0\5abc", b"?", b"S\0", b"D\0\0\0\1"])
def test_broken_writes_are_refused_and_change_nothing(store: Store, broken: bytes) -> None:
    store.apply(0, OURS, at(1), 0, b"")
    with pytest.raises(ValueError):
        store.apply(0, OURS, at(2), 1, packed(SetField(b"f", b"1")) + broken)
    assert whole(store) == (at(1), b"")


def test_within_one_call_the_last_write_counts(store: Store) -> None:
    one, two = number(1), number(2)
    writes = packed(
        *(SetEntry(one, b"a"), DeleteEntry(one), SetEntry(two, b"a"), DeleteEntry(two), SetEntry(two, b"b")),
        *(SetField(b"f", b"a"), SetField(b"f", b"b"), SetField(b"g", b"a"), DeleteField(b"g")),
        *(SetSlab(1, 1, one), DropSlab(1), SetSlab(1, 2, two), SetSlab(2, 1, one), DropSlab(2)),
        *(SetSlab(3, 1, one), SetSlab(3, 1, two)),
    )
    store.apply(0, OURS, at(1), 0, writes)
    view = store.look_up(0, OURS, [one, two], 3, 9)
    assert view.entries == [None, b"b"]
    assert view.slabs == {1: [(two, b"b")], 3: [(two, b"b")]}
    assert dict(store.fields(0, OURS)) == {b"f": b"b"}


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    nothing = packed(DeleteEntry(number(1)), DeleteField(b"f"), DropSlab(1))
    assert store.apply(0, OURS, at(1), 0, nothing) is Applied.DONE
    assert whole(store) == (at(1), b"")


def test_any_bytes_are_kept_as_they_are(store: Store) -> None:
    everything = bytes(range(256))
    entries = [SetEntry(id, id[::-1] + everything) for id in NASTY]
    fields = [SetField(id + everything, everything * 300) for id in [b"", *NASTY]]
    store.apply(0, OURS, at(1), 0, packed(*entries, *fields, SetSlab(2**32 - 1, 2**64 - 1, b"".join(NASTY))))
    view = store.look_up(0, OURS, NASTY, 2**32 - 1, 9)
    assert view.entries == [entry.value for entry in entries]
    assert view.slabs == {2**32 - 1: [(entry.id, entry.value) for entry in entries]}
    assert dict(store.fields(0, OURS)) == {field.name: field.value for field in fields}


def test_empty_values_are_values(store: Store) -> None:
    writes = packed(SetEntry(number(1), b""), SetField(b"", b""), SetSlab(0, 0, b""))
    store.apply(0, OURS, at(1), 0, writes)
    assert store.look_up(0, OURS, [number(1)], 0, 9).entries == [b""]
    assert list(store.fields(0, OURS)) == [(b"", b"")]
    assert content(whole(store)[1]) == content(writes)


def test_one_call_takes_fifty_thousand_entries(store: Store) -> None:
    ids = [number(n) for n in range(50_000)]
    writes = packed(*(SetEntry(id, id + b"12345678") for id in ids), SetSlab(9, 1, b"".join(ids)))
    assert store.apply(0, OURS, at(1), 0, writes) is Applied.DONE
    view = store.look_up(0, OURS, ids, 9, 1)
    assert view.entries == [id + b"12345678" for id in ids]
    assert view.slabs[9] == [(id, id + b"12345678") for id in ids]
    assert content(whole(store, most=200_000)[1]) == content(writes)
    assert store.apply(0, OURS, at(2), 1, packed(*map(DeleteEntry, ids), DropSlab(9))) is Applied.DONE
    assert whole(store) == (at(2), b"")


# --- slabs, fields, wipe


def test_a_slab_lists_its_ids_once_in_the_order_of_their_sequences(store: Store) -> None:
    late = packed(SetSlab(5, 300, number(3) + number(1)), SetSlab(5, 2, number(2)), SetEntry(number(3), b"c"))
    store.apply(0, OURS, at(1), 0, packed(SetSlab(5, 1, number(4) + number(1)), SetEntry(number(1), b"a")))
    store.apply(0, OURS, at(300), 1, late)
    expected = [(number(4), None), (number(1), b"a"), (number(2), None), (number(3), b"c")]
    assert store.look_up(0, OURS, [], 6, 9).slabs == {5: expected}


def test_the_earliest_due_slots_that_exist_come_first_and_no_more_than_asked_for(store: Store) -> None:
    slots = [2**32 - 1, 100, 9, 20]  # as text they would come in another order
    store.apply(0, OURS, at(1), 0, packed(*(SetSlab(slot, 1, number(slot)) for slot in slots), DropSlab(20)))
    for due, most, expected in [(100, 9, [9, 100]), (100, 1, [9]), (99, 9, [9]), (8, 9, []), (2**32, 0, [])]:
        assert list(store.look_up(0, OURS, [], due, most).slabs) == expected
    assert list(store.look_up(0, OURS, [], 2**32 - 1, 9).slabs) == [9, 100, 2**32 - 1]


def test_nothing_is_due_before_the_first_slot(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetSlab(0, 1, number(1))))
    assert store.look_up(0, OURS, [], -1, 9).slabs == {}


def test_a_slab_is_rewritten_by_dropping_and_putting(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetSlab(5, 1, number(1) + number(2)), SetSlab(6, 1, number(3))))
    store.apply(0, OURS, at(2), 1, packed(DropSlab(5), SetSlab(5, 2, number(2))))
    assert store.look_up(0, OURS, [], 6, 9).slabs == {5: [(number(2), None)], 6: [(number(3), None)]}


def test_fields_come_each_once_however_many(store: Store) -> None:
    fields = {number(n): bytes([n % 256]) * (n % 5000) for n in range(1500)}
    store.apply(0, OURS, at(1), 0, packed(*(SetField(*pair) for pair in fields.items())))
    found = list(store.fields(0, OURS))
    assert len(found) == len(fields)
    assert dict(found) == fields


def test_fields_of_a_state_that_changes_meanwhile_are_not_mixed(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(*(SetField(number(n), b"x" * 20_000) for n in range(200))))
    reading = store.fields(0, OURS)
    next(reading)
    store.apply(0, OURS, at(2), 1, b"")
    with pytest.raises(StoreUnavailable, match="changed"):
        list(reading)


def test_wiping_forgets_the_state_but_not_the_claim(store: Store) -> None:
    store.claim(1, OURS)
    everything = packed(SetEntry(number(1), b"a"), SetField(b"f", b"1"), SetSlab(3, 1, number(1)))
    for partition in (0, 1):
        store.apply(partition, OURS, at(1), 0, everything)
    store.wipe(0, OURS)
    assert whole(store) == (None, b"")
    assert store.look_up(0, OURS, [number(1)], 3, 9).slabs == {}
    with pytest.raises(StoreFenced):
        store.look_up(0, THEIRS, [], 0, 0)
    assert content(whole(store, 1)[1]) == content(everything)
    assert store.apply(0, OURS, at(1), 0, everything) is Applied.DONE


def test_wiping_nothing_is_no_error(store: Store) -> None:
    store.wipe(0, OURS)
    assert whole(store) == (None, b"")


# --- pages

ids = some.one_of(some.sampled_from(NASTY), some.integers(0, 6).map(number))
slots = some.one_of(some.integers(0, 3), some.just(2**32 - 1))
sequences = some.one_of(some.integers(0, 3), some.sampled_from([2**53 + 1, 2**64 - 1]))
names = some.binary(max_size=3)
any_write = some.one_of(
    some.builds(SetEntry, ids, some.binary(max_size=80)),
    some.builds(DeleteEntry, ids),
    some.builds(SetField, names, some.binary(max_size=200)),
    some.builds(DeleteField, names),
    some.builds(SetSlab, slots, sequences, some.lists(ids, max_size=3).map(b"".join)),
    some.builds(DropSlab, slots),
)


@settings(max_examples=40)
@given(batches=some.lists(some.lists(any_write, max_size=12), max_size=4), most=some.integers(0, 400))
def test_pages_recreate_the_state_anywhere(backend: Backend, batches: list[list[Write]], most: int) -> None:
    original, copy, model = backend.open(), backend.open(), MemoryStore()
    for store in (original, model):
        store.claim(0, OURS)
        for sequence, writes in enumerate(batches):
            assert store.apply(0, OURS, at(sequence + 1), sequence, packed(*writes)) is Applied.DONE
    identity, writes = whole(original, most=most)
    assert (identity, content(writes)) == (whole(model)[0], content(whole(model)[1]))
    copy.claim(3, OURS)
    assert copy.apply(3, OURS, at(9), 0, writes) is Applied.DONE
    assert content(whole(copy, 3)[1]) == content(writes)


def test_pages_are_about_as_long_as_asked_for(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(*(SetEntry(number(n), b"x" * 24) for n in range(5000))))
    for most in (1_000, 20_000):
        _, page = store.page(0, OURS, b"", most)
        assert most <= len(page.writes) <= most + 5_000
        assert page.cursor


def test_what_is_there_all_the_time_is_in_the_pages_whatever_else_changes(store: Store) -> None:
    """A snapshot is spread over batches: the state grows and shrinks between two pages of it."""
    lasting = [SetEntry(number(n), b"x" * 24) for n in range(2000)]
    lasting_slabs = [SetSlab(slot, 1, number(slot)) for slot in range(0, 40, 2)]
    store.apply(0, OURS, at(1), 0, packed(*lasting, *lasting_slabs, SetSlab(7, 1, number(7))))
    cursor, found, sequence = b"", set[Write](), 1
    while cursor or sequence == 1:
        _, page = store.page(0, OURS, cursor, 5000)
        cursor = page.cursor
        found |= content(page.writes)
        passing = range(10_000 + 700 * sequence, 10_000 + 700 * (sequence + 1))
        change = [SetEntry(number(n), b"y") for n in passing] if sequence % 2 else []
        change += [DeleteEntry(number(n - 700)) for n in passing]
        change += [DropSlab(7), SetSlab(sequence * 2 + 1, sequence, number(1))]
        assert store.apply(0, OURS, at(sequence + 1), sequence, packed(*change)) is Applied.DONE
        sequence += 1
    assert found >= {*lasting, *lasting_slabs}


def test_the_identity_comes_with_the_page(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(*(SetEntry(number(n), b"x" * 24) for n in range(1000))))
    first, page = store.page(0, OURS, b"", 1000)
    store.apply(0, OURS, at(2), 1, b"")
    second, _ = store.page(0, OURS, page.cursor, 1000)
    assert (first, second) == (at(1), at(2))


def test_a_sound_store_passes_its_check(store: Store) -> None:
    store.check()


# --- the server of the simulation


def test_a_snapshot_in_memory_brings_back_states_and_tokens() -> None:
    store = MemoryStore()
    store.claim(0, OURS)
    store.apply(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"), SetSlab(1, 1, number(1))))
    earlier = store.snapshot()
    store.apply(0, OURS, at(2), 1, packed(DeleteEntry(number(1)), SetSlab(1, 2, number(2)), SetField(b"f", b"1")))
    store.claim(0, THEIRS)
    store.claim(1, THEIRS)
    store.apply(1, THEIRS, at(1), 0, packed(SetEntry(number(1), b"a")))
    for _ in range(2):  # a snapshot can be used again
        store.restore(earlier)
        assert store.look_up(0, OURS, [number(1)], 1, 9).slabs == {1: [(number(1), b"a")]}
        assert list(store.fields(0, OURS)) == []
        with pytest.raises(StoreFenced):
            store.look_up(1, THEIRS, [], 0, 0)
        store.apply(0, OURS, at(2), 1, packed(DeleteEntry(number(1)), DropSlab(1)))
        store.wipe(0, OURS)


def test_a_flush_in_memory_loses_tokens_too() -> None:
    store = MemoryStore()
    store.claim(0, OURS)
    store.apply(0, OURS, at(1), 0, b"")
    store.flush()
    with pytest.raises(StoreFenced):
        store.look_up(0, OURS, [], 0, 0)
    store.claim(0, OURS)
    assert store.look_up(0, OURS, [], 0, 0).identity is None


# --- what only a real server does


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
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{own.port}"):
        store.look_up(0, OURS, [], 0, 0)
    own.start()
    assert whole(store) == (at(1), packed(SetField(b"f", b"1")))


def test_a_server_that_lost_everything_fences_us(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.flushall()
    with pytest.raises(StoreFenced):
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
    with pytest.raises(StoreUnavailable, match="changed"):
        list(reading)


def test_a_server_that_may_evict_must_not_be_used(own: RedisServer) -> None:
    with own.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreUnusable, match="allkeys-lru.*noeviction"):
        unclaimed(own.url).check()


def test_a_full_server_needs_a_person(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.config_set("maxmemory", 1)
    with pytest.raises(StoreUnusable, match="Raise maxmemory"):
        store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))


def test_a_full_server_takes_nothing_of_a_restore(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnusable, match="Raise maxmemory"):
            store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))
        client.config_set("maxmemory", 0)
    assert store.look_up(0, OURS, [number(1)], 0, 0) == View(None, [None])
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
    with pytest.raises(StoreUnavailable, match="meanwhile"):
        ours.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))
    assert theirs.look_up(0, THEIRS, [number(1)], 0, 0) == View(None, [None])
    with pytest.raises(StoreFenced):
        ours.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a")))


def test_entries_that_could_not_be_written_are_no_state(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.set("{app:0}:entries", "mine")
    with pytest.raises(StoreUnusable, match="another prefix"):
        store.fill(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"), SetField(b"f", b"1")))
    assert store.peek(0)[0] is None


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
    with pytest.raises(StoreUnusable, match="lacks rights"):
        opened(f"redis://little:pass@127.0.0.1:{own.port}")


@pytest.mark.parametrize("user", ["", ":s3cr3t%2Fword@", "somebody:s3cr3t%2Fword@"])
def test_a_wrong_or_missing_password_needs_a_person_and_is_never_shown(own: RedisServer, user: str) -> None:
    with own.client() as client:
        client.config_set("requirepass", "another")
        store = unclaimed(f"redis://{user}127.0.0.1:{own.port}")
        with pytest.raises(StoreUnusable, match="password") as caught:
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
    with pytest.raises(StoreUnusable) as caught:
        RedisStore(url, "app")
    assert "s3" not in str(caught.value)


def test_a_prefix_with_braces_is_refused() -> None:
    with pytest.raises(StoreUnusable, match="brace"):
        RedisStore("redis://localhost", "a{b}")


def test_a_server_that_does_not_answer_in_time_is_unavailable(own: RedisServer) -> None:
    store = opened(own.url, timeout=0.2)
    with own.client() as client:
        client.client_pause(1500)
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.apply(0, OURS, at(1), 0, b"")
        assert time.monotonic() - started < 1.4
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
        with pytest.raises(StoreUnavailable, match="BUSY"):
            store.look_up(0, OURS, [], 0, 0)
        other.script_kill()
        endless.join()


def test_a_replica_is_unavailable_for_writes(own: RedisServer) -> None:
    store = opened(own.url)
    with own.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable):
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
        with pytest.raises(StoreUnusable, match="another version"):
            call()


def test_keys_that_something_else_uses_need_a_person(own: RedisServer) -> None:
    with own.client() as client:
        client.set("{app:0}:meta", "mine")
    with pytest.raises(StoreUnusable, match="another prefix"):
        opened(own.url)


def test_nobody_at_the_address_is_unavailable() -> None:
    url = f"redis://:s3cr3t@127.0.0.1:{redis_server.free_port()}"
    for in_cluster in (False, True):
        with pytest.raises(StoreUnavailable) as caught:
            opened(url, cluster=in_cluster)
        assert "s3cr3t" not in str(caught.value)


def test_taking_a_cluster_for_a_server_or_a_server_for_a_cluster_names_the_remedy(
    own: RedisServer, cluster: RedisCluster
) -> None:
    with pytest.raises(StoreUnusable, match="Set cluster to false"):
        opened(own.url, cluster=True)
    other = next(node for node in cluster.nodes if node is not cluster.owner("{app:0}:meta"))
    with pytest.raises(StoreUnusable, match="Set cluster to true"):
        opened(other.url)


@pytest.fixture
def collected() -> Iterator[None]:
    """redis-py's cluster client forgets the connections of a lost node without closing them: collect them here."""
    yield
    while LEFT_OPEN:
        LEFT_OPEN.pop().close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("collected")
def test_a_killed_node_is_unavailable_and_then_has_what_it_answered_for(cluster: RedisCluster) -> None:
    store = opened(cluster.url, cluster=True)
    store.wipe(0, OURS)
    store.apply(0, OURS, at(1), 0, packed(SetField(b"f", b"1")))
    node = cluster.owner("{app:0}:meta")
    cluster.kill(node)
    with pytest.raises(StoreUnavailable):
        store.look_up(0, OURS, [], 0, 0)
    cluster.restart(node)
    assert whole(store) == (at(1), packed(SetField(b"f", b"1")))


@pytest.mark.usefixtures("collected")
def test_half_of_a_state_is_never_seen_while_a_cluster_moves_it(cluster: RedisCluster) -> None:
    store = opened(cluster.url, cluster=True, timeout=2)
    store.wipe(0, OURS)
    everything = packed(SetEntry(number(1), b"a"), SetField(b"f", b"1"), SetSlab(3, 1, number(1)))
    store.apply(0, OURS, at(1), 0, everything)
    source = cluster.owner("{app:0}:meta")
    target = next(node for node in cluster.nodes if node is not source)
    with source.client() as here, target.client() as there:
        slot = here.execute_command("CLUSTER KEYSLOT", "{app:0}:meta")
        names = {node: node_client.execute_command("CLUSTER MYID") for node, node_client in ((0, here), (1, there))}
        there.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
        here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])
        for key in ("meta", "fields", "slots", "entries", "slab:3"):
            here.execute_command("MIGRATE", "127.0.0.1", target.port, f"{{app:0}}:{key}", 0, 2000)
            try:
                view = store.look_up(0, OURS, [number(1)], 3, 9)
            except StoreUnavailable:
                continue
            assert (view.entries, view.slabs) == ([b"a"], {3: [(number(1), b"a")]})
        for client in (there, here):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[1])
    assert content(whole(store)[1]) == content(everything)


def test_every_error_of_a_store_is_one_of_three() -> None:
    assert set(StoreError.__subclasses__()) == {StoreUnavailable, StoreFenced, StoreUnusable}
