"""Writes are taken once and in order, as they are, or not at all."""

from __future__ import annotations

import pytest

from processor.core.stream.writes import DeleteEntry, DeleteField, DropSlot, SetEntry, SetField, SetSlot
from processor.ports.store import Applied, Store

from .backends import NASTY, OURS, Backend, at, content, number, packed, waiting, whole


def test_an_empty_store_has_no_identity_no_entries_no_slabs_and_no_fields(store: Store) -> None:
    view = store.look_up(0, OURS, [number(1), number(2)], 7, 9)
    assert (view.identity, view.entries, waiting(view)) == (None, [None, None], {})
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
    store.apply(0, OURS, at(1), 0, packed(SetEntry(number(1), b"old"), SetSlot(3, 1, number(1))))
    first = packed(DeleteEntry(number(1)), SetEntry(number(2), b"new"), DropSlot(3), SetSlot(3, 2, number(2)))
    rest = packed(SetField(b"f", b"1"), SetSlot(4, 2, number(2)))
    backend.half(store, 0, at(2), 1, first)
    assert store.look_up(0, OURS, [], 0, 0).identity == at(1)
    assert store.apply(0, OURS, at(2), 1, first + rest) is Applied.DONE
    assert whole(store)[0] == at(2)
    assert content(whole(store)[1]) == {
        SetEntry(number(2), b"new"),
        SetField(b"f", b"1"),
        SetSlot(3, 2, number(2)),
        SetSlot(4, 2, number(2)),
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
        *(SetSlot(1, 1, one), DropSlot(1), SetSlot(1, 2, two), SetSlot(2, 1, one), DropSlot(2)),
        *(SetSlot(3, 1, one), SetSlot(3, 1, two)),
    )
    store.apply(0, OURS, at(1), 0, writes)
    view = store.look_up(0, OURS, [one, two], 3, 9)
    assert view.entries == [None, b"b"]
    assert waiting(view) == {1: [(two, b"b")], 3: [(two, b"b")]}
    assert dict(store.fields(0, OURS)) == {b"f": b"b"}


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    nothing = packed(DeleteEntry(number(1)), DeleteField(b"f"), DropSlot(1))
    assert store.apply(0, OURS, at(1), 0, nothing) is Applied.DONE
    assert whole(store) == (at(1), b"")


def test_any_bytes_are_kept_as_they_are(store: Store) -> None:
    everything = bytes(range(256))
    entries = [SetEntry(id, id[::-1] + everything) for id in NASTY]
    fields = [SetField(id + everything, everything * 300) for id in [b"", *NASTY]]
    store.apply(0, OURS, at(1), 0, packed(*entries, *fields, SetSlot(2**32 - 1, 2**64 - 1, b"".join(NASTY))))
    view = store.look_up(0, OURS, NASTY, 2**32 - 1, 9)
    assert view.entries == [entry.value for entry in entries]
    assert waiting(view) == {2**32 - 1: [(entry.id, entry.value) for entry in entries]}
    assert dict(store.fields(0, OURS)) == {field.name: field.value for field in fields}


def test_empty_values_are_values(store: Store) -> None:
    writes = packed(SetEntry(number(1), b""), SetField(b"", b""), SetSlot(0, 0, b""))
    store.apply(0, OURS, at(1), 0, writes)
    assert store.look_up(0, OURS, [number(1)], 0, 9).entries == [b""]
    assert list(store.fields(0, OURS)) == [(b"", b"")]
    assert content(whole(store)[1]) == content(writes)


def test_one_call_takes_fifty_thousand_entries(store: Store) -> None:
    ids = [number(n) for n in range(50_000)]
    writes = packed(*(SetEntry(id, id + b"12345678") for id in ids), SetSlot(9, 1, b"".join(ids)))
    assert store.apply(0, OURS, at(1), 0, writes) is Applied.DONE
    view = store.look_up(0, OURS, ids, 9, 1)
    assert view.entries == [id + b"12345678" for id in ids]
    assert waiting(view)[9] == [(id, id + b"12345678") for id in ids]
    assert content(whole(store, most=200_000)[1]) == content(writes)
    assert store.apply(0, OURS, at(2), 1, packed(*map(DeleteEntry, ids), DropSlot(9))) is Applied.DONE
    assert whole(store) == (at(2), b"")
