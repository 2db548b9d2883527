"""The processor with one rule of the commit protocol broken. The simulation must find every one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from processor.core.stream.journal import SNAPSHOT_UNKNOWN, ChangelogRecord, JournalRecord
from processor.core.stream.partition import Partition
from processor.core.stream.step import SLOTS_PER_BATCH, InputRecord, StepResult, due_slot
from processor.ports.log import Committed, Membership, OperatorActionRequiredError, Output, TopicPartition
from processor.ports.store import Applied, Identity, LookupResult, StoreUnusableError
from processor.service.batches import BatchLookup, PreparedBatch
from processor.service.buffers import InputBuffers
from processor.service.committed import CommittedState, CommittedStates
from processor.service.recovery import RecoveredPartition, Recovery
from processor.service.transaction import Transactions
from processor.service.worker import AssignedPartition, Worker

from .world import World

T = TypeVar("T")


def _broken(part: object, kind: type[T]) -> T:
    """The same part of a worker, with a rule broken."""
    broken = kind.__new__(kind)
    vars(broken).update(vars(part))
    return broken


def _with_anchors(recovery: Recovery, kind: type[CommittedStates]) -> Recovery:
    """The same, finding the committed state in a broken way."""

    class Broken(Recovery):
        @property
        def committed_states(self) -> CommittedStates:
            return _broken(super().committed_states, kind)

    return _broken(recovery, Broken)


class _TellsTheStore(Transactions):
    worker: Worker

    def _send_offsets(self, output: Output, batches: Sequence[PreparedBatch]) -> None:
        for batch in batches:
            Worker._apply(self.worker, batch.owned, batch.identity, batch.identity.sequence - 1, batch.outcome.writes)
        super()._send_offsets(output, batches)


class StoreBeforeCommit(Worker):
    """Redis is written before the commit."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.transactions = _broken(self.transactions, _TellsTheStore)
        self.transactions.worker = self

    def _apply(self, owned: AssignedPartition, identity: Identity, before: int, writes: bytes) -> Applied:
        return Applied.DONE


class LookUpWithoutSequence(Worker):
    """The state looked up is taken for the one in memory."""

    def _is_current(self, view: LookupResult, partition: Partition) -> bool:
        return True


class ApplyWithoutSequence(Worker):
    """The script does not check which state it writes on, nor the look-up which it reads."""

    def _is_current(self, view: LookupResult, partition: Partition) -> bool:
        return view.identity is None or view.identity.lineage == partition.identity.lineage

    def _apply(self, owned: AssignedPartition, identity: Identity, before: int, writes: bytes) -> Applied:
        stored = self.store.look_up(owned.number, owned.token, [], 0, 0).identity
        return self.store.apply(owned.number, owned.token, identity, stored.sequence if stored else 0, writes)


class _TrustsOffsets(CommittedStates):
    def of(self, number: int) -> CommittedState | None:
        return self._from_offsets(number) or super().of(number)


class OffsetsWithoutJournal(Worker):
    """The group's offsets are believed without a look at the journal."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _with_anchors(self.recovery, _TrustsOffsets)


class _ReadsWhatIsAssigned(InputBuffers):
    assigned: set[TopicPartition]

    def read_on(self, owned: AssignedPartition, topic: str) -> None:
        if TopicPartition(topic, owned.number) in self.assigned:
            super().read_on(owned, topic)


class FreshMembership(OffsetsWithoutJournal):
    """A batch read before a rebalance is sent after it, with group metadata asked for anew.

    The journal would show the next owner most of what is committed so.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.buffers = _broken(self.buffers, _ReadsWhatIsAssigned)
        self.buffers.assigned = self._assigned

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned.difference_update(partitions)

    def assigned(self, partitions: Sequence[TopicPartition], membership: Membership) -> None:
        kept = dict(self.owned)
        super().assigned(partitions, membership)
        for number, owned in kept.items():
            owned.membership = membership
            self.owned[number] = owned
            owned.paused |= {at.topic for at in partitions if at.partition == number}  # to be read on from there

    # Apart from that it does nothing with partitions that are no longer its own.

    def _recover_one(self, owned: AssignedPartition) -> None:
        if all(TopicPartition(topic, owned.number) in self._assigned for topic in self.topics.inputs):
            super()._recover_one(owned)
        else:
            del self.owned[owned.number]


class _UnstableOffsets(_TrustsOffsets):
    def committed(self, places: list[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return self.group.committed_unstable(places)  # type: ignore[attr-defined, no-any-return]


class OffsetsWithoutWaiting(Worker):
    """Committed offsets are read without waiting for open transactions, and the journal is not asked."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _with_anchors(self.recovery, _UnstableOffsets)


class _CommitsTwice(Transactions):
    def _send_offsets(self, output: Output, batches: Sequence[PreparedBatch]) -> None:
        output.commit()
        output.begin()
        super()._send_offsets(output, batches)


class OffsetsOutsideTransaction(Worker):
    """Offsets are committed by themselves, after the records."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.transactions = _broken(self.transactions, _CommitsTwice)


class _StopsAtTheEnd(Recovery):
    def recover(self, number: int, partitions: int, token: bytes, damaged: bool = False) -> RecoveredPartition:
        recovered = super().recover(number, partitions, token, damaged)
        stored = self.store.look_up(number, token, [], 0, 0).identity
        if stored is None:
            return recovered
        return replace(recovered, partition=replace(recovered.partition, identity=stored))

    def _fields(self, number: int, token: bytes, committed: Identity) -> dict[bytes, bytes]:
        return dict(self.store.fields(number, token))

    def _bring_to(self, number: int, token: bytes, committed_state: CommittedState) -> int:
        committed = committed_state.identity
        stored = self.store.look_up(number, token, [], 0, 0).identity
        base = stored or Identity(committed.lineage, 0, "00" * 16)
        batches = [b for b in super()._batches(number, base) if b.lineage == committed.lineage]
        reachable = [Identity(b.lineage, b.sequence, b.digest) for b in batches if b.sequence <= committed.sequence]
        if stored is None and not reachable:
            return super()._bring_to(number, token, committed_state)
        reached = max([base, *reachable], key=lambda i: i.sequence)
        return super()._bring_to(number, token, replace(committed_state, identity=reached))


class RestoreToEndOfFile(Worker):
    """A restore ends where the changelog does at that moment."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _broken(self.recovery, _StopsAtTheEnd)


class CounterAsToken(Worker):
    """The fencing token is a counter kept in the store."""

    world: World

    def _token(self, number: int) -> bytes:
        return self.world.next_token(number)


class _GoesByTheWall(InputBuffers):
    proper: dict[int, int]

    def clock(self, owned: AssignedPartition, taken: Mapping[str, Sequence[InputRecord]], now: int) -> int:
        self.proper[owned.number] = super().clock(owned, taken, now)
        return max(now, self.proper[owned.number])


class ExpiryByWallClock(Worker):
    """Expiry goes by the wall clock of the process and not by the journal's."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.proper: dict[int, int] = {}
        self.buffers = _broken(self.buffers, _GoesByTheWall)
        self.buffers.proper = self.proper

    def _batch(self, lookup: BatchLookup, outcome: StepResult, poison: list[tuple[str, int]]) -> PreparedBatch:
        return super()._batch(replace(lookup, clock=self.proper[lookup.owned.number]), outcome, poison)


class _ComparesNoPositions(CommittedStates):
    def of(self, number: int) -> CommittedState | None:
        committed, found = self._from_offsets(number), super().of(number)
        return committed if committed and found and committed.identity == found.identity else found

    def _check_positions(self, number: int, positions: Mapping[str, int], record: JournalRecord) -> None: ...


class PositionsNotCompared(Worker):
    """Offsets that belong to the journal's last batch are believed, wherever they point to."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _with_anchors(self.recovery, _ComparesNoPositions)


class _ComparesNoTopics(CommittedStates):
    def _check_topic_ids(self, number: int, record: JournalRecord) -> None: ...


class TopicsNotCompared(Worker):
    """An input is taken for the one that was read before, whatever its id."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _with_anchors(self.recovery, _ComparesNoTopics)


class _ReadsOursOnly(Recovery):
    def _pieces(self, at: TopicPartition, start: int, stop: int | None = None) -> Iterator[tuple[int, ChangelogRecord]]:
        for record in self.reader.read(at, start, stop):
            yield record.offset, ChangelogRecord.decode(record.value or b"")


class ForeignRecordsNotSkipped(Worker):
    """Every record of the changelog is taken for one of ours."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _broken(self.recovery, _ReadsOursOnly)


class SizesNotChecked(Worker):
    """Nobody looks whether the store still has as many entries as it was left with."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        vars(self.store)["inner"].checks_sizes = False


class StopEndsTheProcess(Worker):
    """What concerns one partition ends the process, which a supervisor starts again."""

    def _contain(self, error: OperatorActionRequiredError | StoreUnusableError) -> None:
        raise error


class TransactionWithoutBound(Worker):
    """A transaction takes every partition that is due, however long the store takes."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.budget.budget = 1 << 40


class _TakesHalfSnapshots(Recovery):
    def committed_state(self, number: int) -> CommittedState | None:
        committed_state = super().committed_state(number)
        return None if committed_state is None else replace(committed_state, snapshot=SNAPSHOT_UNKNOWN)


class HalfASnapshot(Worker):
    """A snapshot that has begun is taken for one that is whole."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recovery = _broken(self.recovery, _TakesHalfSnapshots)


class SweepWithoutBound(Worker):
    """A batch empties all due slots at once, whatever its terms say."""

    def _look_up(self, owned: AssignedPartition, ids: list[bytes], clock: int) -> LookupResult:
        due = due_slot(clock, self.stream_settings.slot)
        return self.store.look_up(owned.number, owned.token, ids, due, SLOTS_PER_BATCH)


MUTANTS: dict[str, type[Worker]] = {
    "Redis written before the commit": StoreBeforeCommit,
    "look-up without sequence": LookUpWithoutSequence,
    "no sequence check in the script": ApplyWithoutSequence,
    "group metadata refreshed after a rebalance": FreshMembership,
    "offsets read without waiting for open transactions": OffsetsWithoutWaiting,
    "offsets committed outside the transaction": OffsetsOutsideTransaction,
    "restore that stops at end of file": RestoreToEndOfFile,
    "a counter in Redis as the token": CounterAsToken,
    "expiry by the wall clock": ExpiryByWallClock,
    "offsets trusted without the journal": OffsetsWithoutJournal,
    "positions not compared with the journal": PositionsNotCompared,
    "ids of the inputs not compared": TopicsNotCompared,
    "foreign records not skipped": ForeignRecordsNotSkipped,
    "deleted entries not noticed": SizesNotChecked,
    "an error of one partition ends the process": StopEndsTheProcess,
    "due slots emptied without bound": SweepWithoutBound,
    "transactions that wait for a slow store": TransactionWithoutBound,
    "an incomplete snapshot used": HalfASnapshot,
}
