"""The expiry index: which entries a batch must look at because their slot is over.

A slot holds the ids of entries in parts, one for each batch that put some there. A batch takes whole parts, in order
of slot and of sequence, until it has enough: however many decisions are due at once, a batch is bounded. The parts that
are left come with the next batch. Which parts a batch takes follows from the state alone: a replay takes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .writes import ID_BYTES

SLOTS_PER_BATCH = 16
"""At most so many slots that are due are looked at in one batch, the earliest first."""


@dataclass(frozen=True, slots=True)
class DueSlot:
    """What a batch takes of a slot that is over."""

    entries: list[tuple[bytes, bytes | None]]
    """ids with their stored entries, each id once, in the order they were put there"""
    sequences: tuple[int, ...]
    """the parts that these are"""
    whole: bool = True
    """no part is left"""


Slots = Mapping[int, Mapping[int, bytes]]
"""The ids in each part, by slot and sequence."""


def due_slots(
    slots: Slots, last: int, most: int | None, entry: Callable[[bytes], bytes | None], most_slots: int = SLOTS_PER_BATCH
) -> dict[int, DueSlot]:
    """What a batch takes of the slots up to ``last``: parts of together at most ``most`` ids, but at least one part.

    >>> slots = {7: {1: b"a" * 16 + b"b" * 16, 2: b"c" * 16}, 8: {2: b"d" * 16}}
    >>> taken = due_slots(slots, last=8, most=2, entry=lambda id: None)
    >>> {slot: (len(due.entries), due.sequences, due.whole) for slot, due in taken.items()}
    {7: (2, (1,), False)}
    """
    found: dict[int, DueSlot] = {}
    count = 0
    for slot in sorted(slot for slot in slots if slot <= last)[:most_slots]:
        parts = sorted((sequence, ids) for sequence, ids in slots[slot].items() if ids)
        taken: list[tuple[int, bytes]] = []
        for sequence, ids in parts:
            count += len(ids) // ID_BYTES
            if most is not None and count > most and (taken or found):
                break
            taken.append((sequence, ids))
        if taken or not parts:
            unique = dict.fromkeys(ids_of(b"".join([ids for _, ids in taken])))
            sequences = tuple(sequence for sequence, _ in taken)
            found[slot] = DueSlot([(id, entry(id)) for id in unique], sequences, len(taken) == len(parts))
        if len(taken) < len(parts):
            break
    return found


def ids_of(part: bytes) -> list[bytes]:
    """The ids in a part. In one that was tampered with, the last may be too short.

    >>> ids_of(b"0123456789abcdef--+--+--+--+--+-xyz")
    [b'0123456789abcdef', b'--+--+--+--+--+-', b'xyz']
    """
    if len(part) % ID_BYTES:
        return [part[at : at + ID_BYTES] for at in range(0, len(part), ID_BYTES)]
    found: list[bytes] = np.frombuffer(part, _ID).tolist()  # in half the time
    return found


_ID = np.dtype((np.void, ID_BYTES))


def is_cut_short(due: Mapping[int, DueSlot], most_slots: int = SLOTS_PER_BATCH) -> bool:
    """Whether there may be more that is due: the next batch need not wait for input."""
    return len(due) >= most_slots or not all(slot.whole for slot in due.values())
