"""Slabs come when they are due, fields come each once and of one state, and a wipe forgets them all."""

from __future__ import annotations

import pytest

from processor.core.stream.writes import DropSlot, SetEntry, SetField, SetSlot
from processor.ports.store import Applied, Store, StoreFencedError, StoreUnavailableError

from .backends import OURS, THEIRS, at, content, number, packed, waiting, whole


def test_a_slab_lists_its_ids_once_in_the_order_of_their_sequences(store: Store) -> None:
    late = packed(SetSlot(5, 300, number(3) + number(1)), SetSlot(5, 2, number(2)), SetEntry(number(3), b"c"))
    store.apply(0, OURS, at(1), 0, packed(SetSlot(5, 1, number(4) + number(1)), SetEntry(number(1), b"a")))
    store.apply(0, OURS, at(300), 1, late)
    expected = [(number(4), None), (number(1), b"a"), (number(2), None), (number(3), b"c")]
    assert waiting(store.look_up(0, OURS, [], 6, 9)) == {5: expected}


def test_the_earliest_due_slots_that_exist_come_first_and_no_more_than_asked_for(store: Store) -> None:
    slots = [2**32 - 1, 100, 9, 20]  # as text they would come in another order
    store.apply(0, OURS, at(1), 0, packed(*(SetSlot(slot, 1, number(slot)) for slot in slots), DropSlot(20)))
    for due, most, expected in [(100, 9, [9, 100]), (100, 1, [9]), (99, 9, [9]), (8, 9, []), (2**32, 0, [])]:
        assert list(waiting(store.look_up(0, OURS, [], due, most))) == expected
    assert list(waiting(store.look_up(0, OURS, [], 2**32 - 1, 9))) == [9, 100, 2**32 - 1]


def test_nothing_is_due_before_the_first_slot(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetSlot(0, 1, number(1))))
    assert waiting(store.look_up(0, OURS, [], -1, 9)) == {}


def test_a_slab_is_rewritten_by_dropping_and_putting(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(SetSlot(5, 1, number(1) + number(2)), SetSlot(6, 1, number(3))))
    store.apply(0, OURS, at(2), 1, packed(DropSlot(5), SetSlot(5, 2, number(2))))
    assert waiting(store.look_up(0, OURS, [], 6, 9)) == {5: [(number(2), None)], 6: [(number(3), None)]}


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
    with pytest.raises(StoreUnavailableError, match="changed"):
        list(reading)


def test_wiping_forgets_the_state_but_not_the_claim(store: Store) -> None:
    store.claim(1, OURS)
    everything = packed(SetEntry(number(1), b"a"), SetField(b"f", b"1"), SetSlot(3, 1, number(1)))
    for partition in (0, 1):
        store.apply(partition, OURS, at(1), 0, everything)
    store.wipe(0, OURS)
    assert whole(store) == (None, b"")
    assert waiting(store.look_up(0, OURS, [number(1)], 3, 9)) == {}
    with pytest.raises(StoreFencedError):
        store.look_up(0, THEIRS, [], 0, 0)
    assert content(whole(store, 1)[1]) == content(everything)
    assert store.apply(0, OURS, at(1), 0, everything) is Applied.DONE


def test_wiping_nothing_is_no_error(store: Store) -> None:
    store.wipe(0, OURS)
    assert whole(store) == (None, b"")
