"""The pages of a state recreate it anywhere, whatever changes between two of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some

from processor.adapters.memory.store import MemoryStore
from processor.core.stream.writes import DeleteEntry, DeleteField, DropSlot, SetEntry, SetField, SetSlot, Write
from processor.ports.store import Applied, Store

from .backends import NASTY, OURS, Backend, at, content, number, packed, whole

ids = some.one_of(some.sampled_from(NASTY), some.integers(0, 6).map(number))
slots = some.one_of(some.integers(0, 3), some.just(2**32 - 1))
sequences = some.one_of(some.integers(0, 3), some.sampled_from([2**53 + 1, 2**64 - 1]))
names = some.binary(max_size=3)
any_write = some.one_of(
    some.builds(SetEntry, ids, some.binary(max_size=80)),
    some.builds(DeleteEntry, ids),
    some.builds(SetField, names, some.binary(max_size=200)),
    some.builds(DeleteField, names),
    some.builds(SetSlot, slots, sequences, some.lists(ids, max_size=3).map(b"".join)),
    some.builds(DropSlot, slots),
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
    lasting_slabs = [SetSlot(slot, 1, number(slot)) for slot in range(0, 40, 2)]
    store.apply(0, OURS, at(1), 0, packed(*lasting, *lasting_slabs, SetSlot(7, 1, number(7))))
    cursor, found, sequence = b"", set[Write](), 1
    while cursor or sequence == 1:
        _, page = store.page(0, OURS, cursor, 5000)
        cursor = page.cursor
        found |= content(page.writes)
        passing = range(10_000 + 700 * sequence, 10_000 + 700 * (sequence + 1))
        change = [SetEntry(number(n), b"y") for n in passing] if sequence % 2 else []
        change += [DeleteEntry(number(n - 700)) for n in passing]
        change += [DropSlot(7), SetSlot(sequence * 2 + 1, sequence, number(1))]
        assert store.apply(0, OURS, at(sequence + 1), sequence, packed(*change)) is Applied.DONE
        sequence += 1
    assert found >= {*lasting, *lasting_slabs}


def test_the_identity_comes_with_the_page(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, packed(*(SetEntry(number(n), b"x" * 24) for n in range(1000))))
    first, page = store.page(0, OURS, b"", 1000)
    store.apply(0, OURS, at(2), 1, b"")
    second, _ = store.page(0, OURS, page.cursor, 1000)
    assert (first, second) == (at(1), at(2))
