"""The store of the simulation can go back to what it was, and lose everything."""

from __future__ import annotations

import pytest

from processor.adapters.memory.store import MemoryStore
from processor.core.stream.writes import DeleteEntry, DropSlot, SetEntry, SetField, SetSlot
from processor.ports.store import StoreFencedError

from .backends import OURS, THEIRS, at, number, packed, waiting


def test_a_snapshot_in_memory_brings_back_states_and_tokens() -> None:
    store = MemoryStore()
    store.claim(0, OURS)
    store.apply(0, OURS, at(1), 0, packed(SetEntry(number(1), b"a"), SetSlot(1, 1, number(1))))
    earlier = store.snapshot()
    store.apply(0, OURS, at(2), 1, packed(DeleteEntry(number(1)), SetSlot(1, 2, number(2)), SetField(b"f", b"1")))
    store.claim(0, THEIRS)
    store.claim(1, THEIRS)
    store.apply(1, THEIRS, at(1), 0, packed(SetEntry(number(1), b"a")))
    for _ in range(2):  # a snapshot can be used again
        store.restore(earlier)
        assert waiting(store.look_up(0, OURS, [number(1)], 1, 9)) == {1: [(number(1), b"a")]}
        assert list(store.fields(0, OURS)) == []
        with pytest.raises(StoreFencedError):
            store.look_up(1, THEIRS, [], 0, 0)
        store.apply(0, OURS, at(2), 1, packed(DeleteEntry(number(1)), DropSlot(1)))
        store.wipe(0, OURS)


def test_a_flush_in_memory_loses_tokens_too() -> None:
    store = MemoryStore()
    store.claim(0, OURS)
    store.apply(0, OURS, at(1), 0, b"")
    store.flush()
    with pytest.raises(StoreFencedError):
        store.look_up(0, OURS, [], 0, 0)
    store.claim(0, OURS)
    assert store.look_up(0, OURS, [], 0, 0).identity is None
