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


def unpack(blob: bytes) -> Iterator[Write]:
    """The operations of a packed blob, in order."""
    at, end = 0, len(blob)
    while at < end:
        kind = blob[at : at + 1]
        at += 1
        match kind:
            case b"E":
                id_end = at + ID_BYTES
                (size,) = struct.unpack_from(">H", blob, id_end)
                start = id_end + 2
                yield SetEntry(blob[at:id_end], blob[start : start + size])
                at = start + size
            case b"e":
                yield DeleteEntry(blob[at : at + ID_BYTES])
                at += ID_BYTES
            case b"S":
                name, at = _sized(blob, at, ">H")
                value, at = _sized(blob, at, ">I")
                yield SetField(name, value)
            case b"s":
                name, at = _sized(blob, at, ">H")
                yield DeleteField(name)
            case b"D":
                slot, sequence, size = struct.unpack_from(">IQI", blob, at)
                yield SetSlot(slot, sequence, blob[at + 16 : at + 16 + size])
                at += 16 + size
            case b"d":
                (slot,) = struct.unpack_from(">I", blob, at)
                yield DropSlot(slot)
                at += 4
            case _:
                raise ValueError(f"unknown operation {kind!r} at byte {at - 1} of {end}")
    if at != end:
        raise ValueError(f"the last operation ends at byte {at}, after the end of the blob at {end}")


def _sized(blob: bytes, at: int, form: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(form, blob, at)
    start = at + struct.calcsize(form)
    return blob[start : start + size], start + size
