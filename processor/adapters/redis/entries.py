"""Packed writes as plain commands of Redis: the entries, which are nearly all of a state, apart from the rest.

A restore is as fast as this, so nothing here makes an object for each entry where it can be helped: entries of equal
size that follow each other are put into the form of the wire by the hundred.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from processor.core.stream.writes import DELETE_ENTRY, ENTRY_VALUE_AT, ID_BYTES, SET_ENTRY, operation_end

RUN = 256
"""entries that are taken together if they are all set and of one size"""

_ALL_SET = bytes([SET_ENTRY]) * RUN
_SIZE_AT = 1 + ID_BYTES


@dataclass(slots=True)
class SplitWrites:
    """What packed writes come to."""

    pairs: list[bytes] = field(default_factory=list)
    """ids and values to be set, later ones over earlier ones, as arguments on the wire"""
    count: int = 0
    """of pairs"""
    gone: set[bytes] = field(default_factory=set)
    """ids of entries to be deleted then"""
    others: list[bytes] = field(default_factory=list)
    """all other operations, as they are"""

    def commands(self, key: str) -> list[bytes]:
        """The entries as commands on the wire, for a hash."""
        found = []
        if self.count:
            found.append(command("HSET", key, more=2 * self.count) + b"".join(self.pairs))
        if self.gone:
            found.append(command("HDEL", key, *self.gone))
        return found


def split_commands(writes: bytes) -> SplitWrites:
    """The same as ``core.stream.writes.unpack`` finds. Raises ValueError if the writes are broken."""
    found = SplitWrites()
    at, size = 0, len(writes)
    while at < size:
        letter, start = writes[at], at
        if letter == SET_ENTRY and (run_end := _take_run(found, writes, at)) is not None:
            at = run_end
            continue
        at = operation_end(writes, start)
        if at > size:
            raise ValueError(f"the last operation ends at byte {at}, after the end of the blob at {size}")
        if letter == SET_ENTRY:
            _take_entry(found, writes, start, at)
        elif letter == DELETE_ENTRY:
            found.gone.add(writes[start + 1 : at])
        else:
            found.others.append(writes[start:at])
    return found


def _take_entry(found: SplitWrites, writes: bytes, start: int, end: int) -> None:
    """One entry that is set."""
    value, id = start + ENTRY_VALUE_AT, writes[start + 1 : start + _SIZE_AT]
    found.pairs.append(b"$16\r\n%b\r\n$%d\r\n%b\r\n" % (id, end - value, writes[value:end]))
    found.count += 1
    found.gone.discard(id)


def _take_run(found: SplitWrites, writes: bytes, at: int) -> int | None:
    """``RUN`` entries of the size of the first; where they end, or None if there are none."""
    if at + ENTRY_VALUE_AT > len(writes):
        return None
    high, low = writes[at + _SIZE_AT], writes[at + _SIZE_AT + 1]
    step = ENTRY_VALUE_AT + (high << 8 | low)
    end = at + RUN * step
    if (
        writes[at:end:step] != _ALL_SET
        or end > len(writes)
        or writes[at + _SIZE_AT : end : step].count(high) != RUN
        or writes[at + _SIZE_AT + 1 : end : step].count(low) != RUN
    ):
        return None
    read = np.frombuffer(writes, np.uint8, RUN * step, at).reshape(RUN, step)
    wire = _frame(step - ENTRY_VALUE_AT).copy()
    ids, values = read[:, 1:_SIZE_AT], read[:, ENTRY_VALUE_AT:]
    wire[:, 5 : 5 + ID_BYTES] = ids
    wire[:, -2 - values.shape[1] : -2] = values
    found.pairs.append(wire.tobytes())
    found.count += RUN
    if found.gone:
        found.gone.difference_update(map(bytes, ids))
    return end


@cache
def _frame(size: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """A run on the wire without its ids and values."""
    one = b"$16\r\n%b\r\n$%d\r\n%b\r\n" % (bytes(ID_BYTES), size, bytes(size))
    return np.frombuffer(one * RUN, np.uint8).reshape(RUN, len(one))


def command(*arguments: bytes | str | int, more: int = 0) -> bytes:
    """A command on the wire; ``more`` arguments are to follow.

    >>> command("HGET", "hash", b"field")
    b'*3\\r\\n$4\\r\\nHGET\\r\\n$4\\r\\nhash\\r\\n$5\\r\\nfield\\r\\n'
    """
    return b"*%d\r\n" % (len(arguments) + more) + b"".join(_wire(arguments))


def _wire(arguments: Iterable[bytes | str | int]) -> Iterable[bytes]:
    for argument in arguments:
        one = argument if isinstance(argument, bytes) else str(argument).encode()
        yield b"$%d\r\n%b\r\n" % (len(one), one)
