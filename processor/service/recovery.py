"""Bring one partition's state to exactly what was committed, and say where to read on.

Kafka decides what happened; the store is a view that may be behind, empty, or from another lineage. It is never ahead
of what is committed, because it is written only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from processor.core.errors import ForeignRecordError, IncompatibleStateError
from processor.core.stream.decode import StreamSettings
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import SNAPSHOT_UNKNOWN, ChangelogRecord
from processor.core.stream.partition import Partition, SettingsFor, partition_from_fields, stored_partitions
from processor.ports.log import OperatorActionRequiredError, Reader, RetryableError, TopicPartition
from processor.ports.store import Applied, Store, StoreDamagedError

from .committed import CommittedState, CommittedStates, GroupOffsets, Notify, foreign_record
from .topics import TopicNames

FILL_BYTES = 2 << 20
"""bytes of the changelog that the store takes in one call: many, for its sake, and not so many that it blocks"""


@dataclass(frozen=True)
class RecoveredPartition:
    partition: Partition
    positions: dict[str, int]
    """next offset of each input"""
    replayed: int
    """batches taken from the changelog"""
    topic_ids: dict[str, str]
    """Kafka's ids of the inputs, by input"""
    snapshot: int
    """the batch with which the last whole snapshot in the changelog began; 0 if none is whole yet"""


def check_slot(partition: Partition, stream_settings: StreamSettings) -> None:
    """What waits is stored by slot: under another width all of it would be due at once, or never."""
    if not partition.terms:
        return
    before = msgspec.json.decode(partition.terms, type=_Slot).slot
    if before != stream_settings.slot:
        raise IncompatibleStateError(
            f"processing.slot_ms is {stream_settings.slot} and the state of partition {partition.number} was made with "
            f"{before}: all pending decisions would expire at once, or never. Set it back, or start a new lineage with "
            "`gforce reset`."
        )


class _Slot(msgspec.Struct):
    slot: int


@dataclass(frozen=True)
class Recovery:
    """How partitions are recovered; one object for all of them."""

    topics: TopicNames
    input: GroupOffsets
    reader: Reader
    store: Store
    settings_for: SettingsFor
    new_lineage: Callable[[], str]
    at_once: int = FILL_BYTES
    notify: Notify = lambda event, details: None

    # A mutant of the simulation replaces this.
    @property
    def committed_states(self) -> CommittedStates:
        return CommittedStates(self.topics, self.input, self.reader, self.notify)

    # A mutant of the simulation replaces this.
    def committed_state(self, number: int) -> CommittedState | None:
        """The committed state and where it reads on, None if nothing was ever committed. Changes nothing."""
        return self.committed_states.of(number)

    # A mutant of the simulation replaces this.
    def recover(self, number: int, partitions: int, token: bytes, damaged: bool = False) -> RecoveredPartition:
        """Bring the store to the committed state and load it. A ``damaged`` store is wiped first.

        Raises RetryableError to be tried again, OperatorActionRequiredError where a person must act.
        """
        self.store.claim(number, token)
        committed_state = self.committed_state(number)
        if committed_state is None:
            return self._fresh(number, partitions, token)
        committed, positions = committed_state.identity, committed_state.positions
        if committed.sequence == 0:
            return self._begun(number, partitions, token, committed, positions)
        if damaged:
            self.store.wipe(number, token)
        replayed = self._bring_to(number, token, committed_state)
        fields = self._fields(number, token, committed)
        count = stored_partitions(fields)
        if count != partitions:
            raise OperatorActionRequiredError(
                f"partition {number} was made with {count} partitions of {self.topics.requests} and there are now "
                f"{partitions}: tenants would move between partitions and lose their state. Restore the count, or "
                "start a new lineage with `gforce reset`.",
                number,
            )
        partition = partition_from_fields(number, partitions, committed, fields, self.settings_for)
        return RecoveredPartition(partition, positions, replayed, self._topic_ids(), committed_state.snapshot)

    def _fresh(self, number: int, partitions: int, token: bytes) -> RecoveredPartition:
        """Nothing was ever committed: start at the beginning, under a new lineage."""
        positions = {topic: self.reader.bounds(TopicPartition(topic, number))[0] for topic in self.topics.inputs}
        return self._begun(number, partitions, token, Identity(self.new_lineage(), 0, GENESIS), positions)

    def _begun(
        self, number: int, partitions: int, token: bytes, identity: Identity, positions: dict[str, int]
    ) -> RecoveredPartition:
        """The beginning of a lineage; ``gforce reset`` commits one with where it is to start."""
        self.store.wipe(number, token)
        return RecoveredPartition(Partition(number, partitions, identity), positions, 0, self._topic_ids(), 0)

    def _topic_ids(self) -> dict[str, str]:
        sources = self.topics.sources
        return {sources[topic]: id for topic, id in self.reader.topic_ids(self.topics.inputs).items()}

    # Bringing the store there

    # A mutant of the simulation replaces this.
    def _fields(self, number: int, token: bytes, committed: Identity) -> dict[bytes, bytes]:
        """The stored fields of exactly this state: the store may fail over while they are read."""
        fields = dict(self.store.fields(number, token))
        if self.store.look_up(number, token, [], due=0, most=0).identity != committed:
            raise RetryableError(f"the store lost state of partition {number} while it was read")
        return fields

    # A mutant of the simulation replaces this.
    def _bring_to(self, number: int, token: bytes, committed_state: CommittedState) -> int:
        committed = committed_state.identity
        try:
            stored = self.store.look_up(number, token, [], due=0, most=0).identity
        except StoreDamagedError as error:
            self.notify("store damaged", {"partition": number, "why": str(error)})
            stored = None
        if stored == committed:
            return 0
        if stored is not None and stored.lineage == committed.lineage and stored.sequence > committed.sequence:
            raise OperatorActionRequiredError(
                f"the store holds batch {stored.sequence} of partition {number} and Kafka committed only "
                f"{committed.sequence}: Kafka has lost committed data (an unclean leader election?). Check the broker; "
                "`gforce rebuild` makes the store follow Kafka.",
                number,
            )
        behind = stored is not None and stored.lineage == committed.lineage and stored.sequence < committed.sequence
        if behind and stored is not None:
            try:
                return self._catch_up(number, token, stored, committed_state)
            except (ChangelogGapError, StoreDamagedError):
                pass  # the changelog no longer reaches back, or the store is not of this history
        self.store.wipe(number, token)
        try:
            return self._catch_up(number, token, Identity(committed.lineage, 0, GENESIS), committed_state)
        except ChangelogGapError as gap:
            raise self.refusal(number, committed, gap) from None

    def refusal(self, number: int, committed: Identity, gap: ChangelogGapError) -> OperatorActionRequiredError:
        """What to tell a person of a changelog that does not lead to the committed state."""
        return OperatorActionRequiredError(
            f"the changelog of partition {number} does not lead to batch {committed.sequence}: {gap}. Records of "
            f"{self.topics.changelog} were deleted or altered. Restore them from a copy; to go on without them use "
            "`gforce reset`.",
            number,
        )

    def _catch_up(self, number: int, token: bytes, stored: Identity, committed_state: CommittedState) -> int:
        """Apply the changelog from the stored state on, until it is what was committed."""
        replayed = 0
        filling = _Filling(self.store, number, token, stored, self.at_once)
        try:
            for batch in self.missing_batches(number, stored, committed_state):
                filling.add(Identity(batch.lineage, batch.sequence, batch.digest), batch.writes)
                replayed += 1
        except RetryableError:
            filling.flush()  # the next attempt goes on from here
            raise
        filling.flush()
        return replayed

    def missing_batches(
        self, number: int, stored: Identity, committed_state: CommittedState
    ) -> Iterator[ChangelogRecord]:
        """The batches that lead from the stored state to the committed one. Changes nothing.

        Each names the digest of the one before it, so a record that is not of this chain is told from one that is,
        and skipped. Where nothing is stored the chain starts with the first batch, or with a snapshot that became
        whole: after one that did not, a part of the state would be missing. Raises ChangelogGapError where
        the chain has a gap, RetryableError where its end may still come.
        """
        committed, reached, beyond = committed_state.identity, stored, ""
        for batch in self._batches(number, stored):
            starts_over = reached.sequence == 0 and batch.snapshot and _may_be_whole(batch.sequence, committed_state)
            if batch.lineage != committed.lineage or batch.sequence <= reached.sequence:
                continue
            if not starts_over and (batch.sequence, batch.previous) != (reached.sequence + 1, reached.digest):
                beyond = beyond or f"batch {reached.sequence} is followed by {batch.sequence}"
                continue
            reached = Identity(batch.lineage, batch.sequence, batch.digest)
            if reached.sequence == committed.sequence and reached != committed:
                raise ChangelogGapError(f"batch {reached.sequence} is not the one that was committed")
            yield batch
            if reached == committed:
                return
        # An end of file before the committed batch means wait: the markers of one transaction land one by one.
        if beyond or self._has_ended(number, reached, committed):
            raise ChangelogGapError(beyond or f"it ends at batch {reached.sequence}")
        raise RetryableError(f"the changelog of partition {number} has not reached batch {committed.sequence} yet")

    def _has_ended(self, number: int, reached: Identity, committed: Identity) -> bool:
        """Whether nothing more will come: no transaction is open, and none has ended since the changelog was read."""
        if not self.reader.settled(TopicPartition(self.topics.changelog, number)):
            return False
        more = [b for b in self._batches(number, reached) if b.lineage == committed.lineage]
        return not any(batch.sequence > reached.sequence for batch in more)

    def _batches(self, number: int, stored: Identity) -> Iterator[ChangelogRecord]:
        """Whole batches of the changelog, from somewhere before the one that is needed next."""
        at = TopicPartition(self.topics.changelog, number)
        parts: list[ChangelogRecord] = []
        for _, piece in self._pieces(at, self._start_of(at, stored)):
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

    def _start_of(self, at: TopicPartition, stored: Identity) -> int:
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

    def _first_piece(self, at: TopicPartition, start: int, stop: int) -> ChangelogRecord | None:
        return next((piece for _, piece in self._pieces(at, start, min(start + 16, stop))), None)

    # A mutant of the simulation replaces this.
    def _pieces(self, at: TopicPartition, start: int, stop: int | None = None) -> Iterator[tuple[int, ChangelogRecord]]:
        """Records of the changelog with their offsets; those that are not ours are skipped and told of."""
        for record in self.reader.read(at, start, stop):
            try:
                yield record.offset, ChangelogRecord.decode(record.value or b"")
            except ForeignRecordError as error:
                foreign_record(self.notify, at, record.offset, error)


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
            raise RetryableError(f"the store lost state of partition {self.number} during its recovery")
        self.stored, self._writes, self._size = self.reached, [], 0


def _may_be_whole(sequence: int, committed_state: CommittedState) -> bool:
    """Whether a snapshot that starts with this batch leads to a whole state."""
    return committed_state.snapshot == SNAPSHOT_UNKNOWN or sequence <= committed_state.snapshot


class ChangelogGapError(Exception):
    """The changelog does not lead from the stored state to the committed one."""
