"""Packed writes: what a batch changes in the stored state, as one blob.

The same bytes go to the changelog, into the state digest and to the store's script. All writes are absolute (set or
delete, never add), so applying them twice is applying them once. A sequence of operations, each a letter and its
arguments, numbers big-endian:

    E id16 u16 value          set an entry (a pending decision, or what is left of one)
    e id16                    delete an entry
    S u16 field u32 value     set a state field (a tenant's counters)
    s u16 field               delete a state field
    D u32 slot u64 seq u32 ids    put ids (16 bytes each) into the slab of a slot, under the sequence that wrote them;
                                  without ids, what was put there under this sequence goes
    d u32 slot                drop the slab of a slot
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from processor.core import native

ID_BYTES = 16
MAX_ENTRY = 0xFFFF


@dataclass(frozen=True, slots=True)
class SetEntry:
    id: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    id: bytes


@dataclass(frozen=True, slots=True)
class SetField:
    name: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class DeleteField:
    name: bytes


@dataclass(frozen=True, slots=True)
class SetSlot:
    slot: int
    sequence: int
    ids: bytes


@dataclass(frozen=True, slots=True)
class DropSlot:
    slot: int


Write = SetEntry | DeleteEntry | SetField | DeleteField | SetSlot | DropSlot


@dataclass
class Writes:
    """A growing list of operations.

    >>> writes = Writes()
    >>> writes.add(SetField(b"tenant", b"..."))
    >>> list(unpack(writes.packed()))
    [SetField(name=b'tenant', value=b'...')]
    """

    _parts: list[bytes] = field(default_factory=list)

    def add(self, write: Write) -> None:
        match write:
            case SetEntry(id, value):
                self._parts += (b"E", id, struct.pack(">H", len(value)), value)
            case DeleteEntry(id):
                self._parts += (b"e", id)
            case SetField(name, value):
                self.add_fields([(name, value)])
            case DeleteField(name):
                self.add_fields([(name, None)])
            case SetSlot(slot, sequence, ids):
                self._parts += (b"D", struct.pack(">IQI", slot, sequence, len(ids)), ids)
            case DropSlot(slot):
                self._parts += (b"d", struct.pack(">I", slot))

    def add_fields(self, fields: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Many at once, in this order: set, or delete where there is no value."""
        self._parts += [
            b"s%b%b" % (len(name).to_bytes(2, "big"), name)
            if value is None
            else b"S%b%b%b%b" % (len(name).to_bytes(2, "big"), name, len(value).to_bytes(4, "big"), value)
            for name, value in fields
        ]

    def add_entries(self, entries: dict[bytes, bytes | None]) -> int:
        """Many at once, in the order of their ids: set, or delete where there is no value; how many bytes that is."""
        packed = native.packed_entries(entries)
        self._parts.append(packed)
        return len(packed)

    def packed(self) -> bytes:
        return b"".join(self._parts)


SET_ENTRY, DELETE_ENTRY, SET_FIELD, DELETE_FIELD, SET_SLOT, DROP_SLOT = b"EeSsDd"
ENTRY_VALUE_AT = 1 + ID_BYTES + 2
"""where the value of an entry begins, after the letter, the id and the value's size"""


def operation_end(blob: bytes, start: int) -> int:
    """Where the operation that begins at ``start`` ends, which may be after the end of a broken blob."""
    letter = blob[start]
    if letter == SET_ENTRY:
        return start + ENTRY_VALUE_AT + _number(blob, start + 1 + ID_BYTES, 2)
    if letter == DELETE_ENTRY:
        return start + 1 + ID_BYTES
    if letter == SET_FIELD:
        name_end = start + 3 + _number(blob, start + 1, 2)
        return name_end + 4 + _number(blob, name_end, 4)
    if letter == DELETE_FIELD:
        return start + 3 + _number(blob, start + 1, 2)
    if letter == SET_SLOT:
        return start + 17 + _number(blob, start + 13, 4)
    if letter == DROP_SLOT:
        return start + 5
    raise ValueError(f"unknown operation {bytes([letter])!r} at byte {start} of {len(blob)}")


def scan(blob: bytes, start: int = 0) -> Iterator[tuple[int, int, int]]:
    """Letter, beginning and end of each operation, in order. Everybody who reads packed writes reads them by this."""
    size = len(blob)
    while start < size:
        end = operation_end(blob, start)
        if end > size:
            raise ValueError(f"the last operation ends at byte {end}, after the end of the blob at {size}")
        yield blob[start], start, end
        start = end


def operation(blob: bytes, start: int, end: int) -> Write:
    """The operation between these bytes, as ``scan`` has found it."""
    letter = blob[start]
    if letter == SET_ENTRY:
        return SetEntry(blob[start + 1 : start + 1 + ID_BYTES], blob[start + ENTRY_VALUE_AT : end])
    if letter == DELETE_ENTRY:
        return DeleteEntry(blob[start + 1 : end])
    if letter == SET_FIELD:
        name_end = start + 3 + _number(blob, start + 1, 2)
        return SetField(blob[start + 3 : name_end], blob[name_end + 4 : end])
    if letter == DELETE_FIELD:
        return DeleteField(blob[start + 3 : end])
    if letter == SET_SLOT:
        return SetSlot(_number(blob, start + 1, 4), _number(blob, start + 5, 8), blob[start + 17 : end])
    return DropSlot(_number(blob, start + 1, 4))


def unpack(blob: bytes) -> Iterator[Write]:
    """The operations of a packed blob, in order."""
    return (operation(blob, start, end) for _, start, end in scan(blob))


def _number(blob: bytes, at: int, size: int) -> int:
    if at + size > len(blob):
        raise ValueError(f"an operation is cut off at byte {len(blob)}")
    return int.from_bytes(blob[at : at + size], "big")
