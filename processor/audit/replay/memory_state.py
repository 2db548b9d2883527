"""The state of one partition while it is replayed: what the store would hold, in plain dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field

from processor.core.stream.entries import Parked, Pending, decode_entry
from processor.core.stream.expiry import DueSlot, due_slots, ids_of
from processor.core.stream.step import DecodedBatch, StepResult
from processor.core.stream.writes import (
    ENTRY_VALUE_AT,
    ID_BYTES,
    SET_ENTRY,
    DeleteEntry,
    DeleteField,
    DropSlot,
    SetField,
    SetSlot,
    operation,
    scan,
)


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
        """Apply packed writes (``core.stream.writes``) from this byte on; returns the number of operations."""
        entries, fields, slabs, count = self.entries, self.fields, self.slabs, 0
        for letter, begin, end in scan(writes, start):
            count += 1
            if letter == SET_ENTRY:  # nearly all are: no object is made for them
                entries[writes[begin + 1 : begin + 1 + ID_BYTES]] = writes[begin + ENTRY_VALUE_AT : end]
                continue
            match operation(writes, begin, end):
                case DeleteEntry(id):
                    entries.pop(id, None)
                case SetField(name, value):
                    fields[name] = value
                case DeleteField(name):
                    fields.pop(name, None)
                case SetSlot(slot, sequence, ids):
                    slabs.setdefault(slot, {})[sequence] = ids
                case DropSlot(slot):
                    slabs.pop(slot, None)
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


def boundaries(writes: bytes) -> list[int]:
    """Where each operation of packed writes begins, and the end."""
    return [*(start for _, start, _ in scan(writes)), len(writes)]
