"""A state of which something was deleted is not taken for whole; due slots are emptied in bounded pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from processor.adapters.memory.store import MemoryStore
from processor.adapters.redis.store import RedisStore
from processor.core.stream.expiry import due_slots, ids_of
from processor.core.stream.writes import DeleteEntry, SetEntry, SetField, SetSlot
from processor.ports.store import Applied, Store, StoreDamagedError
from tests.servers.redis_server import RedisServer

from .backends import OURS, Backend, at, number, packed, waiting

STATE = packed(
    *(SetEntry(number(n), b"e%d" % n) for n in range(6)),
    SetField(b"f", b"1"),
    SetField(b"g", b"2"),
    SetSlot(5, 1, number(0) + number(1)),
    SetSlot(6, 1, number(2)),
)


def delete(store: Store, what: str) -> None:
    """Behind the store's back, as a slip or an eviction does it."""
    if isinstance(store, MemoryStore):
        state = store._own(0)
        {
            "an entry": lambda: state.entries.pop(number(3)),
            "all entries": state.entries.clear,
            "a field": lambda: state.fields.pop(b"f"),
            "all fields": state.fields.clear,
            "the slots": state.slabs.clear,
        }[what]()
        return
    assert isinstance(store, RedisStore)
    _, entries, fields, slots = store._keys(0)
    calls: dict[str, Callable[..., object]] = {
        "an entry": lambda client: client.hdel(entries, number(3)),
        "all entries": lambda client: client.delete(entries),
        "a field": lambda client: client.hdel(fields, b"f"),
        "all fields": lambda client: client.unlink(fields),
        "the slots": lambda client: client.delete(slots),
    }
    store._call(calls[what])


@pytest.fixture
def server_store(server: RedisServer) -> Iterator[RedisStore]:
    store = RedisStore(server.url, f"damage-{uuid4().hex}")
    store.claim(0, OURS)
    yield store
    store.close()


@pytest.mark.parametrize("what", ["an entry", "all entries", "a field", "all fields", "the slots"])
def test_what_was_deleted_is_noticed_by_every_call(store: Store, what: str) -> None:
    store.apply(0, OURS, at(1), 0, STATE)
    delete(store, what)
    with pytest.raises(StoreDamagedError):
        store.look_up(0, OURS, [number(1)], 0, 0)
    with pytest.raises(StoreDamagedError):
        store.apply(0, OURS, at(2), 1, packed(SetEntry(number(9), b"x")))
    with pytest.raises(StoreDamagedError):
        store.fill(0, OURS, at(2), 1, packed(SetEntry(number(9), b"x")))
    with pytest.raises(StoreDamagedError):
        store.page(0, OURS, b"", 100)
    with pytest.raises(StoreDamagedError):
        list(store.fields(0, OURS))


def test_a_damaged_state_can_be_wiped_and_filled_again(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, STATE)
    delete(store, "all entries")
    store.wipe(0, OURS)
    assert store.fill(0, OURS, at(1), 0, STATE) is Applied.DONE
    assert store.look_up(0, OURS, [number(3)], 0, 0).entries == [b"e3"]


def test_a_state_that_shrinks_by_its_own_writes_is_whole(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, STATE)
    store.apply(0, OURS, at(2), 1, packed(*(DeleteEntry(number(n)) for n in range(6))))
    store.fill(0, OURS, at(3), 2, packed(SetEntry(number(7), b"x")))
    assert store.look_up(0, OURS, [number(7)], 0, 0).entries == [b"x"]


def test_a_slab_that_was_deleted_is_noticed_when_it_is_due(server_store: RedisStore) -> None:
    server_store.apply(0, OURS, at(1), 0, STATE)
    server_store._call(lambda client: client.delete(f"{{{server_store._prefix}:0}}:slab:5"))
    with pytest.raises(StoreDamagedError, match="slot 5"):
        server_store.look_up(0, OURS, [], 6, 9)
    server_store.wipe(0, OURS)
    assert server_store.apply(0, OURS, at(1), 0, STATE) is Applied.DONE
    assert waiting(server_store.look_up(0, OURS, [], 5, 9)) == {5: [(number(0), b"e0"), (number(1), b"e1")]}


def test_a_state_that_an_earlier_version_wrote_since_is_not_judged(server_store: RedisStore) -> None:
    """It leaves the sizes of the batch before, which are those of another state."""
    server_store.apply(0, OURS, at(1), 0, STATE)
    meta, entries = server_store._keys(0)[:2]
    server_store._call(lambda client: client.hset(entries, number(8), b"new"))
    server_store._call(lambda client: client.hset(meta, "identity", at(2).text()))
    assert server_store.look_up(0, OURS, [number(8)], 0, 0).entries == [b"new"]
    assert server_store.apply(0, OURS, at(3), 2, b"") is Applied.DONE


def test_parts_of_due_slots_come_until_there_are_enough(store: Store) -> None:
    ids = [number(n) for n in range(10)]
    writes = [SetSlot(5, 300, b"".join(ids[2:5])), SetSlot(5, 2, b"".join(ids[:2])), SetSlot(6, 1, b"".join(ids[5:]))]
    store.apply(0, OURS, at(300), 0, packed(*writes))
    for sweep, expected in [
        (1, {5: ((2,), False)}),
        (4, {5: ((2,), False)}),
        (5, {5: ((2, 300), True)}),
        (9, {5: ((2, 300), True)}),
        (10, {5: ((2, 300), True), 6: ((1,), True)}),
        (None, {5: ((2, 300), True), 6: ((1,), True)}),
    ]:
        view = store.look_up(0, OURS, [], 6, 9, sweep)
        assert {slot: (due.sequences, due.whole) for slot, due in view.due.items()} == expected


def test_a_part_that_was_emptied_is_not_seen_again(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetSlot(5, 1, number(1)), SetSlot(5, 2, number(2))))
    store.apply(0, OURS, at(2), 1, packed(SetSlot(5, 1, b"")))
    view = store.look_up(0, OURS, [], 5, 9, 1)
    assert waiting(view) == {5: [(number(2), None)]}
    assert view.due[5].whole


slabs = st.dictionaries(st.integers(0, 9), st.dictionaries(st.integers(1, 5), st.integers(0, 6), min_size=1))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slabs, st.integers(0, 10), st.integers(1, 4), st.none() | st.integers(1, 12))
def test_every_store_takes_the_parts_that_a_replay_takes(
    backend: Backend, sizes: dict[int, dict[int, int]], last: int, most: int, sweep: int | None
) -> None:
    slots = {
        slot: {
            sequence: b"".join(number(100 * slot + 10 * sequence + n) for n in range(size))
            for sequence, size in parts.items()
        }
        for slot, parts in sizes.items()
    }
    store = backend.open()
    store.claim(0, OURS)
    store.wipe(0, OURS)
    writes = [SetSlot(slot, sequence, ids) for slot, parts in slots.items() for sequence, ids in parts.items()]
    store.apply(0, OURS, at(1), 0, packed(*writes))
    assert store.look_up(0, OURS, [], last, most, sweep).due == due_slots(slots, last, sweep, lambda id: None, most)
    assert all(ids_of(ids) for parts in slots.values() for ids in parts.values() if ids)
