"""The state of one partition while it is replayed: what the store would hold, in plain dictionaries."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from processor.core.stream.entries import Parked, Pending, decode_entry
from processor.core.stream.expiry import DueSlot, due_slots, ids_of
from processor.core.stream.step import DecodedBatch, StepResult
from processor.core.stream.writes import ID_BYTES

_SIZE16, _SIZE32, _SLAB = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">IQI")
_SET_ENTRY, _DELETE_ENTRY, _SET_FIELD, _DELETE_FIELD, _SET_SLAB, _DROP_SLAB = b"EeSsDd"


@dataclass
class MemoryState:
    """Entries, fields and slabs; as large as the state and no larger, however long the stream."""

    entries: dict[bytes, bytes] = field(default_factory=dict)
    fields: dict[bytes, bytes] = field(default_factory=dict)
    slabs: dict[int, dict[int, bytes]] = field(default_factory=dict)

    def of(self, decoded: DecodedBatch) -> dict[bytes, bytes]:
        """The stored entries of a batch. A step needs no copy of them: ``entries`` will do."""
        ids = [id for part in (decoded.requests, decoded.feedback) for _, _, id in part]
        return {id: self.entries[id] for id in ids if id in self.entries}

    def due(self, last: int, most: int | None) -> dict[int, DueSlot]:
        """What a batch takes of the slots not after ``last``."""
        return due_slots(self.slabs, last, most, self.entries.get)

    def ids(self, slot: int) -> dict[bytes, None]:
        """The ids that wait in a slot, each once, in the order they were added."""
        slab = self.slabs.get(slot, {})
        return dict.fromkeys(ids_of(b"".join([slab[sequence] for sequence in sorted(slab)])))

    def follow(self, outcome: StepResult) -> None:
        """Apply the result of a step."""
        entries = self.entries
        for id, value in outcome.entries.items():
            if value is None:
                entries.pop(id, None)
            else:
                entries[id] = value
        self.take(outcome.writes, outcome.after_entries)

    def take(self, writes: bytes, start: int = 0) -> int:
        """Apply packed writes (``core.stream.writes``); how many operations there were.

        Reads the bytes itself: going through one object for each operation takes three times as long.
        """
        entries, fields, slabs = self.entries, self.fields, self.slabs
        at, end, count = start, len(writes), 0
        while at < end:
            kind = writes[at]
            count += 1
            if kind == _SET_ENTRY:
                start = at + 3 + ID_BYTES
                size = (writes[start - 2] << 8) | writes[start - 1]
                entries[writes[at + 1 : start - 2]] = writes[start : start + size]
                at = start + size
            elif kind == _DELETE_ENTRY:
                entries.pop(writes[at + 1 : at + 1 + ID_BYTES], None)
                at += 1 + ID_BYTES
            elif kind == _SET_FIELD:
                name, at = _sized(writes, at + 1, _SIZE16)
                fields[name], at = _sized(writes, at, _SIZE32)
            elif kind == _DELETE_FIELD:
                name, at = _sized(writes, at + 1, _SIZE16)
                fields.pop(name, None)
            elif kind == _SET_SLAB:
                slot, sequence, size = _SLAB.unpack_from(writes, at + 1)
                at += 1 + _SLAB.size
                slabs.setdefault(slot, {})[sequence] = writes[at : at + size]
                at += size
            elif kind == _DROP_SLAB:
                (slot,) = _SIZE32.unpack_from(writes, at + 1)
                slabs.pop(slot, None)
                at += 5
            else:
                raise ValueError(f"unknown operation {kind:#x} at byte {at} of {end}")
        return count

    def missing_part(self, pending: int, parked: int) -> str:
        """What keeps this from being a whole state, given the head's own counts; empty if nothing does.

        Every entry waits in exactly one slot, so entries and slots are each an index of the other.
        """
        waiting = set().union(*(self.ids(slot) for slot in self.slabs)) if self.slabs else set()
        if waiting != self.entries.keys():
            return f"{len(waiting ^ self.entries.keys())} entries are not in a slot or the other way round"
        kinds = [type(decode_entry(value)) for value in self.entries.values()]
        found = (kinds.count(Pending), kinds.count(Parked))
        if found != (pending, parked):
            return f"{found[0]} pending decisions and {found[1]} parked labels instead of {pending} and {parked}"
        return ""


def _sized(blob: bytes, at: int, size: struct.Struct) -> tuple[bytes, int]:
    (length,) = size.unpack_from(blob, at)
    start = at + size.size
    return blob[start : start + length], start + length


def boundaries(writes: bytes) -> list[int]:
    """Where each operation of packed writes begins, and the end."""
    found, at = [], 0
    while at < len(writes):
        found.append(at)
        kind = writes[at]
        if kind == _SET_ENTRY:
            (size,) = _SIZE16.unpack_from(writes, at + 1 + ID_BYTES)
            at += 3 + ID_BYTES + size
        elif kind == _DELETE_ENTRY:
            at += 1 + ID_BYTES
        elif kind == _SET_FIELD:
            _, at = _sized(writes, at + 1, _SIZE16)
            _, at = _sized(writes, at, _SIZE32)
        elif kind == _DELETE_FIELD:
            _, at = _sized(writes, at + 1, _SIZE16)
        elif kind == _SET_SLAB:
            at += 1 + _SLAB.size + _SLAB.unpack_from(writes, at + 1)[2]
        else:
            at += 5
    return [*found, len(writes)]
