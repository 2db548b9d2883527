"""Whoever does not hold the last claim of a partition is fenced, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from processor.core.stream.writes import SetEntry, SetField
from processor.ports.store import Store, StoreFencedError

from .backends import OURS, THEIRS, Backend, at, number, packed, whole


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
    with pytest.raises(StoreFencedError, match="Partition 0"):
        every_call(store, THEIRS)[call]()
    assert whole(store) == before


@pytest.mark.parametrize("call", range(6))
def test_nobody_is_answered_before_a_claim(backend: Backend, call: int) -> None:
    with pytest.raises(StoreFencedError):
        every_call(backend.open(), OURS)[call]()


def test_the_last_claim_wins_and_finds_the_state(store: Store) -> None:
    store.apply(0, OURS, at(1), 0, b"")
    store.claim(0, THEIRS)
    assert store.look_up(0, THEIRS, [], 0, 0).identity == at(1)
    with pytest.raises(StoreFencedError):
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
    with pytest.raises(StoreFencedError):
        list(reading)
