"""Bring one partition's state to exactly what was committed, and say where to read on.

Kafka decides what happened; the store is a view that may be behind, empty, or from another lineage. It is never ahead
of what is committed, because it is written only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from processor.adapters.log import At, Committed, Reader, Retry, Stop
from processor.adapters.store import Applied, Store
from processor.core.stream.batch import FEEDBACK, REQUESTS, Terms
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import ChangelogRecord, JournalRecord, digest
from processor.core.stream.partition import Partition, RulesFor, partition_from_fields, stored_partitions

AT_ONCE = 2 << 20
"""bytes of the changelog that the store takes in one call: many, for its sake, and not so many that it blocks"""


@dataclass(frozen=True)
class Topics:
    """Full topic names."""

    requests: str
    feedback: str
    decisions: str
    journal: str
    changelog: str
    dead_letters: str
    alerts: str

    @property
    def inputs(self) -> tuple[str, str]:
        return (self.requests, self.feedback)

    @property
    def alike(self) -> tuple[str, ...]:
        """Those that must have the same number of partitions."""
        return (self.requests, self.feedback, self.journal, self.changelog)

    @property
    def sources(self) -> dict[str, str]:
        """Which of the core's inputs each of them is."""
        return {self.requests: REQUESTS, self.feedback: FEEDBACK}


class Positions(Protocol):
    """What recovery asks of the group; a member answers it (``Input``), and an operator's command without being one."""

    def committed(self, partitions: Iterable[At]) -> dict[At, Committed | None]: ...


@dataclass(frozen=True)
class Recovered:
    partition: Partition
    positions: dict[str, int]
    """next offset of each input"""
    replayed: int
    """batches taken from the changelog"""


def check_slot(partition: Partition, terms: Terms) -> None:
    """What waits is stored by slot: under another width all of it would be due at once, or never."""
    if not partition.terms:
        return
    before = msgspec.json.decode(partition.terms, type=_Slot).slot
    if before != terms.slot:
        raise Stop(
            f"processing.slot_ms is {terms.slot} and the state of partition {partition.number} was made with {before}: "
            "all pending decisions would expire at once, or never. Set it back, or start a new lineage with "
            "`gforce reset`."
        )


class _Slot(msgspec.Struct):
    slot: int


@dataclass(frozen=True)
class Recovery:
    """How partitions are recovered; one object for all of them."""

    topics: Topics
    input: Positions
    reader: Reader
    store: Store
    rules_for: RulesFor
    new_lineage: Callable[[], str]
    at_once: int = AT_ONCE

    def recover(self, number: int, partitions: int, token: bytes) -> Recovered:
        """Raises Retry to be tried again, Stop where a person must act."""
        self.store.claim(number, token)
        anchor = self.anchor(number)
        if anchor is None:
            return self._fresh(number, partitions, token)
        committed, positions = anchor
        if committed.sequence == 0:
            return self._begun(number, partitions, token, committed, positions)
        replayed = self._bring_to(number, token, committed)
        fields = self._fields(number, token, committed)
        count = stored_partitions(fields)
        if count != partitions:
            raise Stop(
                f"partition {number} was made with {count} partitions of {self.topics.requests} and there are now "
                f"{partitions}: tenants would move between partitions and lose their state. Restore the count, or "
                "start a new lineage with `gforce reset`."
            )
        partition = partition_from_fields(number, partitions, committed, fields, self.rules_for)
        return Recovered(partition, positions, replayed)

    def _fresh(self, number: int, partitions: int, token: bytes) -> Recovered:
        """Nothing was ever committed: start at the beginning, under a new lineage."""
        positions = {topic: self.reader.bounds(At(topic, number))[0] for topic in self.topics.inputs}
        return self._begun(number, partitions, token, Identity(self.new_lineage(), 0, GENESIS), positions)

    def _begun(
        self, number: int, partitions: int, token: bytes, identity: Identity, positions: dict[str, int]
    ) -> Recovered:
        """The beginning of a lineage; ``gforce reset`` commits one with where it is to start."""
        self.store.wipe(number, token)
        return Recovered(Partition(number, partitions, identity), positions, 0)

    # What was committed

    def anchor(self, number: int) -> tuple[Identity, dict[str, int]] | None:
        """The committed state and where it reads on, None if nothing was ever committed. Changes nothing."""
        places = [At(topic, number) for topic in self.topics.inputs]
        committed = self._committed(places)
        known = [committed.get(place) for place in places]
        if all(position is None for position in known):
            return self._anchor_from_journal(number)
        identities = set()
        positions = {}
        for place, position in zip(places, known, strict=True):
            identity = Identity.parse(position.metadata) if position else None
            if position is None or identity is None:
                raise Stop(
                    f"the group's offset of {place.topic} [{number}] is {'foreign' if position else 'missing'}: "
                    "somebody else commits for this group, or offsets were reset by hand. Use a group of its own, or "
                    "start a new lineage with `gforce reset`."
                )
            self._check_kept(place, position.offset)
            identities.add(identity)
            positions[place.topic] = position.offset
        if len(identities) != 1:
            raise Stop(
                f"the two inputs of partition {number} were committed at different states "
                f"{sorted(map(str, identities))}: offsets were reset by hand. Start a new lineage with `gforce reset`."
            )
        return identities.pop(), positions

    def _committed(self, places: list[At]) -> dict[At, Committed | None]:
        return self.input.committed(places)

    def _check_kept(self, place: At, offset: int) -> None:
        first, _ = self.reader.bounds(place)
        if offset < first:
            raise Stop(
                f"{place.topic} [{place.partition}] was read up to {offset} and now starts at {first}: records were "
                "deleted before they were processed. Raise the topic's retention; to go on without them use "
                "`gforce reset`."
            )

    def _anchor_from_journal(self, number: int) -> tuple[Identity, dict[str, int]] | None:
        """The group's offsets have expired, or there never were any: the last journal record is the authority."""
        last = self._last(At(self.topics.journal, number))
        if last is None:
            return None
        record, digest = last
        identity = Identity(record.lineage, record.sequence, digest)
        positions = {self.topics.requests: record.requests.next, self.topics.feedback: record.feedback.next}
        for topic, offset in positions.items():
            self._check_kept(At(topic, number), offset)
        return identity, positions

    def _last(self, at: At) -> tuple[JournalRecord, str] | None:
        first, end = self.reader.bounds(at)
        step = 16
        while end > first:
            start = max(first, end - step)
            records = [record for record in self.reader.read(at, start, end) if record.value]
            if records:
                value = records[-1].value or b""
                return JournalRecord.decode(value), digest(value)
            if start == first:
                break
            step *= 4
        return None

    # Bringing the store there

    def _fields(self, number: int, token: bytes, committed: Identity) -> dict[bytes, bytes]:
        """The stored fields of exactly this state: the store may fail over while they are read."""
        fields = dict(self.store.fields(number, token))
        if self.store.look_up(number, token, [], due=0, most=0).identity != committed:
            raise Retry(f"the store lost state of partition {number} while it was read")
        return fields

    def _bring_to(self, number: int, token: bytes, committed: Identity) -> int:
        stored = self.store.look_up(number, token, [], due=0, most=0).identity
        if stored == committed:
            return 0
        if stored is not None and stored.lineage == committed.lineage and stored.sequence > committed.sequence:
            raise Stop(
                f"the store holds batch {stored.sequence} of partition {number} and Kafka committed only "
                f"{committed.sequence}: Kafka has lost committed data (an unclean leader election?). Check the broker; "
                "`gforce rebuild` makes the store follow Kafka."
            )
        behind = stored is not None and stored.lineage == committed.lineage and stored.sequence < committed.sequence
        if behind and stored is not None:
            try:
                return self._catch_up(number, token, stored, committed)
            except _NotContinuous:
                pass  # the changelog no longer reaches back, or the store is not of this history
        self.store.wipe(number, token)
        try:
            return self._catch_up(number, token, Identity(committed.lineage, 0, GENESIS), committed)
        except _NotContinuous as gap:
            raise Stop(
                f"the changelog of partition {number} does not lead to batch {committed.sequence}: {gap}. Records of "
                f"{self.topics.changelog} were deleted or altered. Restore them from a copy; to go on without them use "
                "`gforce reset`."
            ) from None

    def _catch_up(self, number: int, token: bytes, stored: Identity, committed: Identity) -> int:
        """Apply the changelog from the stored state on, until it is what was committed."""
        replayed = 0
        filling = _Filling(self.store, number, token, stored, self.at_once)
        for batch in self._batches(number, stored):
            reached = filling.reached
            starts_over = reached.sequence == 0 and batch.snapshot
            if batch.lineage != committed.lineage or batch.sequence <= reached.sequence:
                continue
            if not starts_over and (batch.sequence, batch.previous) != (reached.sequence + 1, reached.digest):
                raise _NotContinuous(f"batch {reached.sequence} is followed by {batch.sequence}")
            after = Identity(batch.lineage, batch.sequence, batch.digest)
            if after.sequence == committed.sequence and after != committed:
                raise _NotContinuous(f"batch {after.sequence} is not the one that was committed")
            filling.add(after, batch.writes)
            replayed += 1
            if after == committed:
                filling.flush()
                return replayed
        filling.flush()
        # An end of file before the committed batch means wait: the markers of one transaction land one by one.
        raise Retry(f"the changelog of partition {number} has not reached batch {committed.sequence} yet")

    def _batches(self, number: int, stored: Identity) -> Iterator[ChangelogRecord]:
        """Whole batches of the changelog, from somewhere before the one that is needed next."""
        at = At(self.topics.changelog, number)
        parts: list[ChangelogRecord] = []
        for record in self.reader.read(at, self._start_of(at, stored)):
            piece = ChangelogRecord.decode(record.value or b"")
            if piece.part == 0:
                parts = []
            parts.append(piece)
            if len(parts) == piece.parts and [p.part for p in parts] == list(range(piece.parts)):
                yield ChangelogRecord(
                    piece.lineage,
                    piece.sequence,
                    0,
                    1,
                    piece.digest,
                    piece.previous,
                    piece.snapshot,
                    b"".join(p.writes for p in parts),
                )

    def _start_of(self, at: At, stored: Identity) -> int:
        """An offset at or before the batch after ``stored``: sequences grow with offsets, so bisect."""
        low, high = self.reader.bounds(at)
        if stored.sequence == 0:
            return low
        while high - low > 64:
            middle = (low + high) // 2
            piece = self._first_piece(at, middle, high)
            if piece is not None and piece.lineage == stored.lineage and piece.sequence <= stored.sequence:
                low = middle
            else:
                high = middle
        return low

    def _first_piece(self, at: At, start: int, stop: int) -> ChangelogRecord | None:
        for record in self.reader.read(at, start, min(start + 16, stop)):
            return ChangelogRecord.decode(record.value or b"")
        return None


@dataclass
class _Filling:
    """Batches on their way to the store, several in one call."""

    store: Store
    number: int
    token: bytes
    stored: Identity
    at_once: int
    reached: Identity = field(init=False)
    """what the store will hold after ``flush``"""
    _writes: list[bytes] = field(default_factory=list)
    _size: int = 0

    def __post_init__(self) -> None:
        self.reached = self.stored

    def add(self, after: Identity, writes: bytes) -> None:
        self.reached = after
        self._writes.append(writes)
        self._size += len(writes)
        if self._size >= self.at_once:
            self.flush()

    def flush(self) -> None:
        if self.reached == self.stored:
            return
        writes, before = b"".join(self._writes), self.stored.sequence
        if self.store.fill(self.number, self.token, self.reached, before, writes) is Applied.GAP:
            raise Retry(f"the store lost state of partition {self.number} during its recovery")
        self.stored, self._writes, self._size = self.reached, [], 0


class _NotContinuous(Exception):
    """The changelog does not lead from the stored state to the committed one."""
