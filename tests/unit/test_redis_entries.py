"""Packed writes taken apart by the hundred, beside the plain reading of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from processor.adapters.redis.entries import RUN, SplitWrites, split_commands
from processor.core.stream.writes import (
    DeleteEntry,
    DeleteField,
    DropSlot,
    SetEntry,
    SetField,
    SetSlot,
    Write,
    Writes,
    unpack,
)

ids = some.integers(0, 5).map(lambda n: bytes([n]) * 16)
slots = some.integers(0, 2**32 - 1)
writes = some.one_of(
    some.builds(SetEntry, ids, some.binary(max_size=300)),
    some.builds(DeleteEntry, ids),
    some.builds(SetField, some.binary(max_size=5), some.binary(max_size=20)),
    some.builds(DeleteField, some.binary(max_size=5)),
    some.builds(SetSlot, slots, some.integers(0, 2**64 - 1), some.lists(ids).map(b"".join)),
    some.builds(DropSlot, slots),
)


def run(count: int, value: bytes, first: int = 0) -> list[Write]:
    return [SetEntry(n.to_bytes(16, "big"), value) for n in range(first, first + count)]


def deleted(*which: int) -> list[Write]:
    return [DeleteEntry(n.to_bytes(16, "big")) for n in which]


runs = some.builds(run, some.integers(RUN - 1, 2 * RUN + 1), some.binary(max_size=30), some.integers(0, RUN))
deletions = some.integers(0, 2 * RUN).map(deleted)


def packed(operations: Iterable[Write]) -> bytes:
    found = Writes()
    for operation in operations:
        found.add(operation)
    return found.packed()


def read(wire: bytes) -> list[bytes]:
    """The arguments of a command."""
    found, at = [], wire.index(b"\r\n") + 2
    while at < len(wire):
        end = wire.index(b"\r\n", at)
        size = int(wire[at + 1 : end])
        found.append(wire[end + 2 : end + 2 + size])
        at = end + 4 + size
    assert len(found) == int(wire[1 : wire.index(b"\r\n")])
    return found


def entries_after(parts: SplitWrites) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    for name, key, *arguments in map(read, parts.commands("key")):
        assert key == b"key"
        if name == b"HSET":
            entries.update(zip(arguments[::2], arguments[1::2], strict=True))
        else:
            assert name == b"HDEL"
            for id in arguments:
                entries.pop(id, None)
    return entries


def plainly(operations: Iterable[Write]) -> tuple[dict[bytes, bytes], set[bytes], list[Write]]:
    """The entries that are left, those that were deleted last, and all that is no entry."""
    entries: dict[bytes, bytes] = {}
    gone: set[bytes] = set()
    others = []
    for operation in operations:
        match operation:
            case SetEntry(id, value):
                entries[id] = value
                gone.discard(id)
            case DeleteEntry(id):
                entries.pop(id, None)
                gone.add(id)
            case _:
                others.append(operation)
    return entries, gone, others


@given(some.lists(some.one_of(some.lists(writes), runs, deletions)).map(partial(sum, start=[])))
@example(run(RUN, b"same"))
@example([*run(RUN, b"a"), *deleted(1, 2), *run(RUN, b"b", 2), *deleted(3)])
@example([*run(RUN - 1, b"a"), *run(1, b"longer", RUN)])
def test_it_finds_what_the_plain_reading_finds(operations: list[Write]) -> None:
    parts = split_commands(packed(operations))
    assert (entries_after(parts), parts.gone, list(unpack(b"".join(parts.others)))) == plainly(operations)


@given(some.lists(writes, min_size=1).map(packed), some.data())
def test_writes_that_are_cut_are_refused_as_they_are_by_the_plain_reading(blob: bytes, data: some.DataObject) -> None:
    cut = blob[: data.draw(some.integers(0, len(blob) - 1))]
    try:
        expected = plainly(unpack(cut))
    except Exception:
        with pytest.raises(ValueError, match="cut off|after the end"):
            split_commands(cut)
    else:
        assert entries_after(split_commands(cut)) == expected[0]


def test_a_letter_that_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown operation .* at byte 5"):
        split_commands(packed([DropSlot(1)]) + b"x")
