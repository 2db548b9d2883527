"""The state of partitions in memory: the server of the simulation, one object for all its processes."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from processor.core.stream.expiry import due_slots
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
from processor.ports.store import (
    Applied,
    Identity,
    LookupResult,
    SnapshotPage,
    StoreDamagedError,
    StoreFencedError,
    StoreUnavailableError,
    verdict,
)


@dataclass(slots=True)
class _State:
    """One partition. Slabs are immutable tuples of pairs (sequence, ids), so that a copy is three shallow ones."""

    identity: Identity | None = None
    entries: dict[bytes, bytes] = field(default_factory=dict)
    fields: dict[bytes, bytes] = field(default_factory=dict)
    slabs: dict[int, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    left: tuple[int, int, int] | None = None
    """how large the last apply left it; None while one is under way"""

    def copy(self) -> _State:
        return replace(self, entries=self.entries.copy(), fields=self.fields.copy(), slabs=self.slabs.copy())

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.entries), len(self.fields), len(self.slabs)

    def take(self, write: Write) -> None:
        match write:
            case SetEntry(id, value):
                self.entries[id] = value
            case DeleteEntry(id):
                self.entries.pop(id, None)
            case SetField(name, value):
                self.fields[name] = value
            case DeleteField(name):
                self.fields.pop(name, None)
            case SetSlot(slot, sequence, ids):
                slab = {**dict(self.slabs.get(slot, ())), sequence: ids}
                self.slabs[slot] = tuple(sorted(slab.items()))
            case DropSlot(slot):
                self.slabs.pop(slot, None)

    def pieces(self) -> list[tuple[bytes, Write]]:
        """The whole state as writes, each with a key to go on after, in the order of the keys."""
        found: list[tuple[bytes, Write]] = [(b"f" + name, SetField(name, self.fields[name])) for name in self.fields]
        found += [(b"g" + id, SetEntry(id, self.entries[id])) for id in self.entries]
        found += [
            (b"h" + struct.pack(">IQ", slot, sequence), SetSlot(slot, sequence, ids))
            for slot, slab in self.slabs.items()
            for sequence, ids in slab
        ]
        return sorted(found, key=lambda piece: piece[0])


@dataclass(frozen=True, slots=True)
class MemoryStoreSnapshot:
    """The whole server at one moment."""

    tokens: dict[int, bytes]
    states: dict[int, _State]


_EMPTY = _State()


class MemoryStore:
    """See ``Store`` for the contract.

    A snapshot copies nothing: it shares the states, and a state that is shared is copied by the first call that
    changes it.
    """

    def __init__(self) -> None:
        self._tokens: dict[int, bytes] = {}
        self._states: dict[int, _State] = {}
        self._shared: set[int] = set()
        """partitions whose state is also in a snapshot"""
        self.checks_sizes = True
        """the simulation shows what happens where nobody does"""

    def claim(self, partition: int, token: bytes) -> None:
        self._tokens[partition] = token

    def look_up(
        self, partition: int, token: bytes, ids: Sequence[bytes], due: int, most: int, sweep: int | None = None
    ) -> LookupResult:
        state = self._whole(partition, token)
        slots = {slot: dict(parts) for slot, parts in state.slabs.items() if slot <= due}
        taken = due_slots(slots, due, sweep, state.entries.get, most)
        return LookupResult(state.identity, [state.entries.get(id) for id in ids], taken)

    def apply(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        answer = verdict(self._whole(partition, token).identity, before, after)
        if answer is not Applied.DONE:
            return answer
        operations = _parsed(writes)  # all of it before the first is taken: broken writes change nothing
        state = self._own(partition)
        state.left = None
        for write in operations:
            state.take(write)
        state.identity, state.left = after, state.sizes
        return Applied.DONE

    def fill(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        return self.apply(partition, token, after, before, writes)

    def fields(self, partition: int, token: bytes) -> Iterator[tuple[bytes, bytes]]:
        state = self._whole(partition, token)
        identity = state.identity
        for pair in list(state.fields.items()):
            if self._read(partition, token).identity != identity:
                raise StoreUnavailableError(f"Partition {partition} changed while its fields were read.")
            yield pair

    def page(self, partition: int, token: bytes, cursor: bytes, most: int) -> tuple[Identity | None, SnapshotPage]:
        state = self._whole(partition, token)
        pieces = state.pieces()
        rest = pieces[bisect_right(pieces, cursor, key=lambda piece: piece[0]) :]
        last, writes = _up_to(rest, most)
        return state.identity, SnapshotPage(b"" if not rest or last == rest[-1][0] else last, writes)

    def wipe(self, partition: int, token: bytes) -> None:
        self._read(partition, token)
        self._states.pop(partition, None)
        self._shared.discard(partition)

    def check(self) -> None:
        """Nothing can be wrong with memory."""

    def close(self) -> None: ...

    def peek(self, partition: int) -> Identity | None:
        """The identity of a state, without a claim; for the simulation."""
        return self._states.get(partition, _EMPTY).identity

    def snapshot(self) -> MemoryStoreSnapshot:
        """The server as it is now, for ``restore``."""
        self._shared.update(self._states)
        return MemoryStoreSnapshot(self._tokens.copy(), self._states.copy())

    def restore(self, snapshot: MemoryStoreSnapshot) -> None:
        """Fail over to a server that got no further than this snapshot, tokens included."""
        self._tokens, self._states = snapshot.tokens.copy(), snapshot.states.copy()
        self._shared = set(self._states)

    def flush(self) -> None:
        """Lose everything, tokens included."""
        self._tokens, self._states, self._shared = {}, {}, set()

    def delete_entries(self, partition: int, ids: Iterable[bytes]) -> None:
        """As a slip or an eviction does it, behind everybody's back."""
        entries = self._own(partition).entries
        for id in ids:
            entries.pop(id, None)

    def lose(self, partition: int) -> None:
        """Lose one partition's state."""
        self._states.pop(partition, None)
        self._shared.discard(partition)

    def entry_ids(self, partition: int) -> list[bytes]:
        return sorted(self._states.get(partition, _EMPTY).entries)

    def _whole(self, partition: int, token: bytes) -> _State:
        state = self._read(partition, token)
        if self.checks_sizes and state.left is not None and state.sizes != state.left:
            raise StoreDamagedError(
                f"Partition {partition} was left with {state.left[0]} entries, {state.left[1]} fields and "
                f"{state.left[2]} slots and has {state.sizes[0]}, {state.sizes[1]} and {state.sizes[2]}."
            )
        return state

    def _read(self, partition: int, token: bytes) -> _State:
        if self._tokens.get(partition) != token:
            raise StoreFencedError(f"Partition {partition} has been claimed by another process.")
        return self._states.get(partition, _EMPTY)

    def _own(self, partition: int) -> _State:
        """The state of a partition, to be changed."""
        if partition in self._shared or partition not in self._states:
            self._states[partition] = self._states.get(partition, _EMPTY).copy()
            self._shared.discard(partition)
        return self._states[partition]


def _parsed(writes: bytes) -> list[Write]:
    try:
        return list(unpack(writes))
    except struct.error as error:
        raise ValueError(f"The writes end in the middle of an operation: {error}") from None


def _up_to(pieces: Iterable[tuple[bytes, Write]], most: int) -> tuple[bytes, bytes]:
    """Pack pieces until there are ``most`` bytes; the key of the last one with the bytes."""
    last, parts, size = b"", [], 0
    for key, write in pieces:
        one = Writes()
        one.add(write)
        parts.append(one.packed())
        last, size = key, size + len(parts[-1])
        if size >= most:
            break
    return last, b"".join(parts)
