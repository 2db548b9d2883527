"""The processor: read both inputs, step, commit one Kafka transaction, then tell the store.

A transaction is opened and closed between two polls, and rebalances are served inside polls only, so no transaction is
ever open when partitions change hands. One thread; the store may be asked and told beside it, in order, while the next
records are read: a batch is stepped when the answer to the apply before it is known to be good.

``buffers`` says what a batch takes and what time it is, ``transactions`` commits it, ``assignment`` has the partitions
and ``recovery`` finds their state again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import islice

from processor.core.stream.expiry import is_cut_short
from processor.core.stream.identity import Identity
from processor.core.stream.partition import Partition
from processor.core.stream.step import (
    SLOTS_PER_BATCH,
    DecodedBatch,
    InputRecord,
    StepResult,
    StreamSettings,
    advanced,
    decode,
    due_slot,
)
from processor.ports.codec import Codec
from processor.ports.log import (
    FencedError,
    Input,
    LogError,
    OperatorActionRequiredError,
    Output,
    Reader,
    RetryableError,
    TopicPartition,
)
from processor.ports.store import (
    Applied,
    LookupResult,
    SnapshotPage,
    Store,
    StoreDamagedError,
    StoreError,
    StoreFencedError,
    StoreUnavailableError,
    StoreUnusableError,
)

from .assigned import MAX_BATCH_RECORDS, AssignedPartition, LoopSettings, Skip
from .assignment import Assignment
from .batches import BatchLookup, PreparedBatch, digests_of, ranges_of
from .budget import TransactionBudget
from .buffers import TIMESTAMP, InputBuffers
from .cost import CostModel
from .executors import InlineExecutor
from .latencies import Latencies
from .poison import step_around_faults
from .recovery import Recovery
from .topics import TopicNames
from .transaction import ENDING_ERRORS, TransactionFate, Transactions

MAX_JOURNALED_CONFIG_BYTES = 2 << 20
"""Bytes of configurations in one batch: with more of them the journal's record would not fit into a message."""
SLOW_ANSWER_MS = 1_000
"""Milliseconds after which an answer that did not come was waited for."""
IDLE_CHECK_OVERDUE_MS = 60_000
"""Milliseconds: a partition that was idle for so long is looked after at once."""
MAX_TRANSACTION_RECORDS = 200_000
"""Records that are waited for, however many tenants there are."""

__all__ = ["AssignedPartition", "LoopSettings", "Worker"]


class Worker(Assignment):
    """Owns partitions and moves them forward. ``run_once`` is one turn of the loop.

    ``wall_ms`` gives the time of day in milliseconds, ``monotonic_ms`` a clock that never goes back, for pacing only.
    ``store_executors`` make the calls to the store; those of one partition are made in order, so a look-up that is
    submitted after an apply comes after it. ``hashing`` computes the journal's hashes. ``trimming`` deletes old records
    of the changelog, which may take the broker seconds.
    """

    def __init__(
        self,
        *,
        topics: TopicNames,
        make_input: Callable[[Worker], Input],
        make_output: Callable[[], Output],
        reader: Reader,
        store: Store,
        stream_settings: StreamSettings,
        loop_settings: LoopSettings,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        store_executors: Sequence[Executor] = (),
        hashing: Executor | None = None,
        trimming: Executor | None = None,
        codec: Codec | None = None,
        trim: Callable[[TopicPartition, int], None] = lambda at, offset: None,
        notify: Callable[[str, dict[str, object]], None] = lambda event, details: None,
    ) -> None:
        super().__init__()
        self.topics, self.reader, self.store, self.stream_settings, self.loop_settings = (
            topics,
            reader,
            store,
            stream_settings,
            loop_settings,
        )
        self.wall_ms, self.monotonic_ms, self.entropy, self.notify = wall_ms, monotonic_ms, entropy, notify
        self.trim, self.codec = trim, codec
        self.store_executors, self.hashing = list(store_executors) or [InlineExecutor()], hashing or InlineExecutor()
        self.trimming = trimming or InlineExecutor()
        self.latencies = Latencies()
        self.costs, self.budget = CostModel(), TransactionBudget(monotonic_ms, loop_settings.transaction_budget)
        self._last_poll_empty = False
        self._store_away_until = 0
        self.input = make_input(self)
        self.buffers = InputBuffers(topics, self.input, stream_settings, loop_settings, wall_ms, monotonic_ms, codec)
        self.transactions = Transactions(
            topics, make_output, codec, monotonic_ms, loop_settings.retry_after // 10, self.totals
        )
        self.recovery = Recovery(
            topics,
            self.input,
            reader,
            store,
            stream_settings.settings_for,
            lambda: entropy(8).hex(),
            notify=self._told_in_recovery,
        )

    # The loop

    def run_once(self, timeout: float = 0.05) -> bool:
        """One turn: read, recover what is new, commit what is due. True if anything was committed."""
        self._last_poll_empty = False
        try:
            # 1. Read records of both inputs into the buffers of their partitions.
            pieces = self.buffers.poll(self._transaction_target(), timeout)
            self.buffers.hold(pieces, self.owned)
            self._last_poll_empty = not pieces
        except (RetryableError, FencedError) as error:
            # What was lost the listener has been told; a broker that is away comes back.
            self.totals["polls_failed"] += 1
            for owned in self.owned.values():
                owned.last_error = str(error)
        except OperatorActionRequiredError as error:
            self._contain(error)
        committed = False
        if self.transactions.ensure_producer():
            self._hear_applied()
            self._recover()
            committed = self._commit_due()
        self.buffers.throttle(self.owned.values(), self._transaction_target())
        return committed

    def drain(self) -> None:
        """Commit what has been read and is not held back, for a graceful stop."""
        ready = [owned for owned in self.owned.values() if owned.ready]
        if self.transactions.output is not None:  # else Kafka is away, and what was read is read again
            self.buffers.look_ahead(ready, self._transaction_target())
            self._commit([owned for owned in ready if owned.batch_limit])
        self._await_applied(self.owned.values())

    def close(self) -> None:
        self.input.close()
        for executor in (*self.store_executors, self.hashing, self.trimming):
            executor.shutdown()
        self.transactions.close()

    # Committing

    def _commit_due(self) -> bool:
        """All that have something to take, as soon as one has waited long enough or all together have enough.

        Waiting gathers records for one transaction. When none has come for a while there is nothing to wait for.
        """
        if skipping := [owned for owned in self.owned.values() if self._may_skip(owned)]:
            return self._commit(skipping)
        now, able = self.monotonic_ms(), self._committable()
        self.buffers.look_ahead(able, self._transaction_target())
        wait = 0 if self._last_poll_empty else self.loop_settings.commit_interval
        waited = any(owned.batch_limit and now - owned.batchable_since >= wait for owned in able)
        if waited or sum(sum(owned.batch_limit.values()) for owned in able) >= self._transaction_target():
            return self._commit([owned for owned in able if owned.batch_limit or self._idle_due(owned, now)])
        return self._commit([owned for owned in able if self._idle_due(owned, now)])

    def _committable(self) -> list[AssignedPartition]:
        """The partitions that may commit now."""
        now = self.monotonic_ms()
        ready = [owned for owned in self.owned.values() if owned.ready and not owned.stopped]
        return [owned for owned in ready if now >= owned.retry_at and self.buffers.knows_the_time(owned)]

    def _may_skip(self, owned: AssignedPartition) -> bool:
        """Whether the next batch of a partition is one that holds no records and leaves offsets out."""
        return self.monotonic_ms() >= owned.retry_at and not owned.stopped and self.buffers.skipping(owned) is not None

    def _transaction_target(self) -> int:
        """How many records make a transaction."""
        tenants = sum(len(owned.partition.tenants) for owned in self.owned.values() if owned.partition is not None)
        return max(
            self.loop_settings.most_records, min(self.loop_settings.for_each_tenant * tenants, MAX_TRANSACTION_RECORDS)
        )

    def _idle_due(self, owned: AssignedPartition, now: int) -> bool:
        """Without input time goes on too: look once per slot whether something has become due. A person waits for
        nothing."""
        if owned.buffered:
            return False
        return bool(owned.acknowledged) or now - owned.idle_at >= min(self.stream_settings.slot, 1_000)

    def _commit(self, due: Sequence[AssignedPartition]) -> bool:
        """One transaction for all of these; True if anything was committed."""
        if suspects := [owned for owned in due if owned.suspect]:
            due = suspects[:1]
        self.transactions.begin()
        try:
            self._fill_transaction(due)
        except ENDING_ERRORS as error:
            self.transactions.fail(error)
        # 4. Commit one transaction.
        ended = self.transactions.end()
        again_at = self.monotonic_ms() + self.loop_settings.retry_after // 10
        theirs = [batch.owned for batch in ended.batches]
        match ended.fate:
            case TransactionFate.COMMITTED:
                for batch in ended.batches:
                    self._after_commit(batch)
                return bool(ended.batches)
            case TransactionFate.ABORTED:
                for owned in theirs:
                    owned.retry_at, owned.last_error = again_at, ended.why
            case TransactionFate.REFUSED if len(theirs) == 1:
                self._quarantine(theirs[0], ended.why)
            case TransactionFate.REFUSED:
                for owned in theirs:  # each by itself, to see whose it is
                    owned.suspect, owned.last_error = True, ended.why
            case TransactionFate.UNKNOWN | TransactionFate.FENCED:
                for owned in theirs if ended.fate is TransactionFate.UNKNOWN else list(self.owned.values()):
                    self._invalidate(owned, ended.why)
                    owned.retry_at = again_at
        return False

    def _fill_transaction(self, due: Sequence[AssignedPartition]) -> None:
        """Look up, step and send the next batch of each partition, as far as there is time."""
        for lookup in self._lookups(self.budget.order(due)):
            if not self.budget.fits(lookup):
                # The store is slow, or steps are long: these come first in the next transaction.
                lookup.owned.lookup = lookup
                self.budget.leave_out(lookup.owned)
                continue
            batch = self._step(lookup)
            if batch is not None:
                self.budget.begin()
                self.transactions.add(batch)
            elif lookup.owned.retry_at > self.monotonic_ms():
                return  # the store has failed: the others would only wait for it, with a transaction open

    # A batch, from question to answer

    def _lookups(self, due: Iterable[AssignedPartition]) -> Iterator[BatchLookup]:
        """Some ahead, so that the store works on these while the batch before them is worked out; not all of a large
        transaction, which would have left the processor's cache before its turn comes."""
        ahead: deque[BatchLookup] = deque()
        for owned in due:
            if self.budget.over:
                self.budget.leave_out(owned)
                continue
            if (lookup := self._ask(owned)) is not None:
                ahead.append(lookup)
            if sum(one.record_count for one in islice(ahead, 1, None)) >= self.loop_settings.most_records:
                yield ahead.popleft()
        yield from ahead

    def _ask(self, owned: AssignedPartition) -> BatchLookup | None:
        """Decode a batch and ask the store for what it needs; or the question that was left out of a transaction."""
        assert owned.partition is not None
        if owned.lookup is not None:
            lookup, owned.lookup = owned.lookup, None
            return lookup
        skip = self.buffers.skipping(owned)
        if skip is None and not self.buffers.knows_the_time(owned):
            return None
        now = self.wall_ms()
        owned.idle_at = self.monotonic_ms()
        try:
            taken, asked, cost = self._fitting(owned, owned.partition, now, skip)
        except RetryableError as error:
            owned.retry_at, owned.last_error = self.monotonic_ms() + self.loop_settings.retry_after, str(error)
            return None
        clock = self.buffers.clock(owned, taken, now)
        ranges = self.hashing.submit(ranges_of, owned.positions, taken, skip)
        ids = asked.ids
        cursor = owned.snapshots.cursor(self.loop_settings.snapshot_bytes) if any(taken.values()) else None
        # 2. Look up what the batch needs, beside the loop.
        answer = self._store_executor(owned).submit(self._read, owned, ids, clock, cursor)
        return BatchLookup(owned, taken, asked, ids, clock, now, answer, ranges, skip, cost)

    def _fitting(
        self, owned: AssignedPartition, partition: Partition, now: int, skip: Skip | None
    ) -> tuple[dict[str, list[InputRecord]], DecodedBatch, float]:
        """The next batch, decoded, cut to what can be worked out in time; and how long that will take."""
        while True:
            taken = self.buffers.taken(owned) if skip is None else {topic: [] for topic in self.topics.inputs}
            requests, feedback = taken.values()
            asked = decode(
                requests, feedback, owned.number, partition.partitions, now, self.stream_settings, owned.poison
            )
            cost = self.costs.of(partition, asked, self.stream_settings)
            if cost <= self.loop_settings.step_budget or max(map(len, taken.values())) <= 1:
                return taken, asked, cost
            owned.at_most = self.costs.fitting(partition, asked, self.stream_settings, self.loop_settings.step_budget)
            self.buffers.look_ahead([owned], self._transaction_target())

    def _store_executor(self, owned: AssignedPartition) -> Executor:
        return self.store_executors[owned.number % len(self.store_executors)]

    def _read(
        self, owned: AssignedPartition, ids: list[bytes], clock: int, cursor: bytes | None
    ) -> tuple[LookupResult, SnapshotPage | None]:
        """What the batch needs, and the next slice of a snapshot if one is under way. Runs aside.

        Where it was just waited for in vain, nobody waits for it again: each wait is as long as its timeout.
        """
        if self.monotonic_ms() < self._store_away_until:
            raise StoreUnavailableError("the store has not answered the question before this one")
        view = self._look_up(owned, ids, clock)
        if cursor is None:
            return view, None
        identity, page = self.store.page(owned.number, owned.token, cursor, self.loop_settings.slice_bytes)
        return view, page if identity == view.identity else None

    def _step(self, lookup: BatchLookup) -> PreparedBatch | None:
        """Decide, on exactly the state before the batch."""
        owned, asked = lookup.owned, lookup.asked
        self._await_applied([owned])
        asked_at = self.monotonic_ms()
        try:
            view, page = lookup.answer.result()
        except StoreFencedError:
            self.totals["fenced_by_store"] += owned.ready  # if not, the apply before this was told so already
            self._invalidate(owned, "another process has claimed this partition")
            return None
        except StoreDamagedError as error:
            self._mark_damaged(owned, error)
            return None
        except StoreUnusableError as error:
            self._contain(error)
            return None
        except StoreError as error:
            now = self.monotonic_ms()
            if now - asked_at > SLOW_ANSWER_MS:
                self._store_away_until = now + self.loop_settings.retry_after
            if owned.ready:
                owned.retry_at, owned.last_error = now + self.loop_settings.retry_after, str(error)
            owned.store_error = str(error)
            return None
        owned.store_error = ""
        partition = owned.partition
        if partition is None:
            return None
        if not self._is_current(view, partition):
            self._invalidate(owned, "the store is not at the state in memory")
            return None
        if not lookup.record_count and not view.due and not owned.acknowledged and lookup.skip is None:
            return None
        if is_cut_short(view.due):
            owned.idle_at = self.monotonic_ms() - IDLE_CHECK_OVERDUE_MS
        if self._breaks(owned, asked, lookup.record_count):
            return None
        began = self.monotonic_ms()
        # 3. Step: nothing in memory changes yet.
        outcome = step_around_faults(
            partition,
            lookup.inputs,
            asked,
            dict(zip(lookup.ids, view.entries, strict=True)),
            view.due,
            lookup.clock,
            lookup.now,
            self.stream_settings,
            lambda error: self.notify("internal", {"partition": owned.number, "error": repr(error)}),
            owned.poison,
            owned.acknowledged,
        )
        self.costs.took(lookup.cost, self.monotonic_ms() - began)
        if _journal_bytes(outcome) > MAX_JOURNALED_CONFIG_BYTES and lookup.record_count > 1:
            owned.at_most = max(lookup.record_count // 4, 1)
            return None
        taken = {(raw.source, raw.offset) for raws in lookup.inputs for raw in raws} if owned.poison else set()
        batch = self._batch(lookup, outcome, sorted(owned.poison & taken))
        batch.page = page
        return batch

    # A mutant of the simulation replaces this.
    def _look_up(self, owned: AssignedPartition, ids: list[bytes], clock: int) -> LookupResult:
        due = due_slot(clock, self.stream_settings.slot)
        return self.store.look_up(owned.number, owned.token, ids, due, SLOTS_PER_BATCH, self.stream_settings.sweep)

    # A mutant of the simulation replaces this.
    def _is_current(self, view: LookupResult, partition: Partition) -> bool:
        if view.identity is None:
            return partition.identity.sequence == 0
        return view.identity == partition.identity

    def _breaks(self, owned: AssignedPartition, asked: DecodedBatch, records: int) -> bool:
        """Somebody has pointed the wrong stream here: stop this partition until a person says go on."""
        breaker, loop_settings = owned.breaker, self.loop_settings
        if not breaker.trips(records, asked.garbage, loop_settings.breaker_records, loop_settings.breaker_share):
            return False
        self._invalidate(owned, "breaker")
        self.totals["breaker_trips"] += 1
        self.notify("breaker", {"partition": owned.number, "records": breaker.seen, "unreadable": breaker.garbage})
        return True

    # A mutant of the simulation replaces this.
    def _batch(self, lookup: BatchLookup, outcome: StepResult, poison: list[tuple[str, int]]) -> PreparedBatch:
        owned, partition = lookup.owned, lookup.owned.partition
        assert partition is not None
        digests = self.hashing.submit(digests_of, partition, outcome)
        return PreparedBatch(
            lookup, partition, outcome, poison, self.stream_settings, list(owned.acknowledged), digests
        )

    # After the commit

    def _after_commit(self, batch: PreparedBatch) -> None:
        """The batch is committed: move on in memory and tell the store."""
        owned = batch.owned
        if told := batch.reconfigured:
            self.notify("configuration", {"partition": owned.number, **told})
        owned.partition = advanced(batch.outcome.partition, batch.identity)
        owned.positions = batch.positions
        self.latencies.note(map(TIMESTAMP, batch.taken[self.topics.requests]), self.wall_ms())
        owned.drop_committed({topic: len(raws) for topic, raws in batch.taken.items()})
        del owned.acknowledged[: len(batch.journal.acknowledged)]
        owned.progress_at, owned.last_error, owned.suspect = self.monotonic_ms(), "", False
        if skip := batch.lookup.skip:
            self.buffers.skipped(owned, skip)
            self.notify(
                "skipped",
                {"partition": owned.number, "topic": skip.topic, "offset": skip.first, "to": skip.next},
            )
        self._advance_snapshot(batch)
        owned.breaker.passed(
            batch.lookup.record_count,
            batch.lookup.asked.garbage,
            self.loop_settings.breaker_records,
            self.loop_settings.breaker_share,
        )
        owned.poison.difference_update(batch.poison)
        owned.at_most = min(2 * owned.at_most, MAX_BATCH_RECORDS)
        self.totals["batches"] += 1
        self.totals["records"] += batch.lookup.record_count
        self.totals.update(batch.outcome.tally)
        before = batch.identity.sequence - 1
        # 5. Apply the writes, beside the loop, now that the commit is known.
        owned.applying = self._store_executor(owned).submit(
            self._apply, owned, batch.identity, before, batch.outcome.writes
        )

    def _hear_applied(self) -> None:
        """What the store has answered meanwhile."""
        self._await_applied([owned for owned in self.owned.values() if owned.applying and owned.applying.done()])

    def _await_applied(self, those: Iterable[AssignedPartition]) -> None:
        """Until the store has what was committed. Should it not take it, the partition is recovered."""
        for owned in those:
            applying, owned.applying = owned.applying, None
            if applying is None:
                continue
            try:
                applied = applying.result()
            except StoreFencedError:
                self.totals["fenced_by_store"] += 1
                self._invalidate(owned, "another process has claimed this partition")
            except StoreDamagedError as error:
                self._mark_damaged(owned, error)
            except StoreUnusableError as error:
                self._contain(error)
            except StoreError as error:
                self._invalidate(owned, str(error))
                owned.store_error = str(error)
            else:
                owned.store_error = ""
                if applied is Applied.GAP:
                    self._invalidate(owned, "the store had lost state")

    def _advance_snapshot(self, batch: PreparedBatch) -> None:
        """Once a snapshot is whole, drop what is before it."""
        parts, at = batch.changelog, TopicPartition(self.topics.changelog, batch.owned.number)
        first = self.transactions.written[at] - len(parts) + 1 if at in self.transactions.written else None
        written = sum(len(part.writes) for part in parts)
        whole = batch.owned.snapshots.advance(batch.page, batch.identity.sequence, written, first)
        if whole is not None:
            self.totals["snapshots"] += 1
            if whole.start is not None:
                self.trimming.submit(self._trim, at, whole.start)

    def _trim(self, at: TopicPartition, offset: int) -> None:
        """Runs aside."""
        try:
            self.trim(at, offset)
        except LogError as error:  # the log is only longer than it need be
            self.notify("not trimmed", {"topic": at.topic, "partition": at.partition, "why": str(error)})

    # A mutant of the simulation replaces this.
    def _apply(self, owned: AssignedPartition, identity: Identity, before: int, writes: bytes) -> Applied:
        return self.store.apply(owned.number, owned.token, identity, before, writes)


def _journal_bytes(outcome: StepResult) -> int:
    """What the journal's record holds beside hashes: who is under which rules, and rules it has not seen."""
    return sum(len(name) + len(text) for told in (outcome.rules, outcome.configs) for name, text in told.items())
