"""The processor: read both inputs, step, commit one Kafka transaction, then tell the store.

A transaction is opened and closed between two polls, and rebalances are served inside polls only, so no transaction is
ever open when partitions change hands. One thread; the store may be asked and told beside it, in order, while the next
records are read: a batch is stepped when the answer to the apply before it is known to be good.

``intake`` says what a batch takes and what time it is, ``transactions`` commits it, ``recovery`` finds the state again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import islice

from processor.adapters.codec import Codec
from processor.adapters.log import At, Fenced, Input, LogError, Membership, Output, Reader, Retry, Stop
from processor.adapters.store import (
    Applied,
    Page,
    Store,
    StoreDamaged,
    StoreError,
    StoreFenced,
    StoreUnavailable,
    StoreUnusable,
    View,
)
from processor.core.errors import IncompatibleState
from processor.core.stream.expiry import is_cut_short
from processor.core.stream.identity import Identity
from processor.core.stream.partition import Partition
from processor.core.stream.step import SLOTS_PER_BATCH, Asked, Outcome, Raw, Terms, advanced, decode, due_slot

from .aside import Inline
from .batches import Batch, Question, digests_of, ranges_of
from .cost import Costs
from .faults import step_around_faults
from .held import Held
from .intake import TIMESTAMP, Intake
from .latencies import Latencies
from .owned import MOST_RECORDS, Owned, Pace, Quarantine, Skip
from .recovery import Recovery, check_slot
from .topics import Topics
from .transactions import Fate, Transactions
from .turns import Turns

MOST_JOURNALED = 2 << 20
"""Bytes of configurations in one batch: with more of them the journal's record would not fit into a message."""
LONG = 1_000
"""Milliseconds after which an answer that did not come was waited for."""
SOON = 60_000
"""Milliseconds: a partition that was idle for so long is looked after at once."""
LARGEST_TRANSACTION = 200_000
"""Records that are waited for, however many tenants there are."""

__all__ = ["Owned", "Pace", "Worker"]


class Worker:
    """Owns partitions and moves them forward. ``run_once`` is one turn of the loop.

    ``wall`` gives the time of the world in milliseconds, ``tick`` a clock that never goes back, for pacing only.
    ``aside`` run calls to the store, those of one partition one after the other, each in a thread of its own if it
    likes: a look-up that is asked for after an apply comes after it. ``hashing`` likewise, for the journal's hashes.
    """

    def __init__(
        self,
        *,
        topics: Topics,
        make_input: Callable[[Worker], Input],
        make_output: Callable[[], Output],
        reader: Reader,
        store: Store,
        terms: Terms,
        pace: Pace,
        wall: Callable[[], int],
        tick: Callable[[], int],
        entropy: Callable[[int], bytes],
        aside: Sequence[Executor] = (),
        hashing: Executor | None = None,
        codec: Codec | None = None,
        trim: Callable[[At, int], None] = lambda at, offset: None,
        notify: Callable[[str, dict[str, object]], None] = lambda event, details: None,
    ) -> None:
        self.topics, self.reader, self.store, self.terms, self.pace = topics, reader, store, terms, pace
        self.wall, self.tick, self.entropy, self.notify = wall, tick, entropy, notify
        self.trim, self.codec = trim, codec
        self.aside, self.hashing = list(aside) or [Inline()], hashing or Inline()
        self.owned: dict[int, Owned] = {}
        self.totals: Counter[str] = Counter()
        self.latencies = Latencies()
        self.costs, self.turns = Costs(), Turns(tick, pace.transaction_budget)
        self._assigned: set[At] = set()
        self._quiet = False
        self._store_away_until = 0
        self.input = make_input(self)
        self.intake = Intake(topics, self.input, terms, pace, wall, tick, codec)
        self.transactions = Transactions(topics, make_output, codec, tick, pace.retry_after // 10, self.totals)
        self.recovery = Recovery(
            topics, self.input, reader, store, terms.rules_for, lambda: entropy(8).hex(), notify=notify
        )

    # The loop

    def run_once(self, timeout: float = 0.05) -> bool:
        """One turn: read, recover what is new, commit what is due. True if anything was committed."""
        self._quiet = False
        try:
            pieces = self.intake.poll(self._enough(), timeout)
            self.intake.hold(pieces, self.owned)
            self._quiet = not pieces
        except (Retry, Fenced) as error:
            # What was lost the listener has been told; a broker that is away comes back.
            self.totals["polls_failed"] += 1
            for owned in self.owned.values():
                owned.trouble = str(error)
        except Stop as error:
            self._contain(error)
        committed = False
        if self.transactions.open():
            self._hear_applied()
            self._recover()
            committed = self._commit_due()
        self.intake.throttle(self.owned.values(), self._enough())
        return committed

    def drain(self) -> None:
        """Commit what has been read and is not held back, for a graceful stop."""
        ready = [owned for owned in self.owned.values() if owned.ready]
        if self.transactions.output is not None:  # else Kafka is away, and what was read is read again
            self.intake.look_ahead(ready, self._enough())
            self._commit([owned for owned in ready if owned.takeable])
        self._await_applied(self.owned.values())

    def close(self) -> None:
        self.input.close()
        for executor in (*self.aside, self.hashing):
            executor.shutdown()
        self.transactions.close()

    @property
    def ready(self) -> bool:
        """It owns something and all of it is recovered, but for what waits for a person through no fault of ours."""
        return bool(self.owned) and all(
            owned.ready or (owned.quarantine is not None and not owned.quarantine.by_process)
            for owned in self.owned.values()
        )

    def resume(self, number: int) -> bool:
        """A person says go on: the stream is right, or what kept the partition in quarantine is mended."""
        owned = self.owned.get(number)
        if owned is None or not owned.stopped:
            return False
        if owned.breaker.open:
            owned.breaker.resume()
        owned.quarantine = None
        self._forget(owned, "resumed")
        return True

    def skip(self, number: int, source: str, first: int, after: int) -> bool:
        """A person says to go on without offsets that nobody can read; False if these are not the next."""
        owned = self.owned.get(number)
        topic = next((topic for topic, name in self.topics.sources.items() if name == source), None)
        if owned is None or topic is None or not owned.ready or after <= first:
            return False
        if self.intake.unreadable_at(owned, topic) != first:
            return False
        owned.skip = Skip(topic, source, first, after)
        return True

    def acknowledge(self, tenant: str, alert: int) -> bool:
        """A person has seen a tolerance alert; False if this process does not have it. Others clear by themselves."""
        for owned in self.owned.values():
            if owned.partition is not None and tenant in owned.partition.tenants:
                watch = owned.partition.tenants[tenant].watch
                known = watch is not None and any(a.number == alert and a.kind == "tolerance" for a in watch.alerts)
                if known and (tenant, alert) not in owned.acknowledged:
                    owned.acknowledged.append((tenant, alert))
                return known
        return False

    # Rebalances, from inside poll

    def assigned(self, partitions: Sequence[At], membership: Membership) -> None:
        """A partition is owned only when both its inputs are."""
        self._assigned.update(partitions)
        for owned in self.owned.values():
            owned.membership = membership  # not revoked, so still ours: the broker only counts on
        for number in sorted({at.partition for at in partitions}):
            if all(At(topic, number) in self._assigned for topic in self.topics.inputs):
                now = self.tick()
                self.owned[number] = Owned(number, membership, self._token(number), progress_at=now, idle_at=now)
        self.notify("assigned", {"partitions": sorted(self.owned)})

    def revoked(self, partitions: Sequence[At]) -> None:
        """The next owner need not catch up if the store has been told all."""
        self._assigned.difference_update(partitions)
        gone = [self.owned.pop(number) for number in {at.partition for at in partitions} if number in self.owned]
        self._await_applied(gone)
        self.notify("revoked", {"partitions": sorted({at.partition for at in partitions})})

    def lost(self, partitions: Sequence[At]) -> None:
        self.totals["partitions_lost"] += len({at.partition for at in partitions})
        self.revoked(partitions)

    def _token(self, number: int) -> bytes:
        """Unique per claim: a counter kept in the store could be lost with its tail, a generation repeats."""
        return self.entropy(16)

    # Recovery

    def _recover(self) -> None:
        """What is new. Where that takes long, those that are recovered go on in between."""
        began = self.tick()
        for owned in list(self.owned.values()):
            if owned.ready or owned.stopped or self.tick() < owned.retry_at:
                continue
            try:
                self._recover_one(owned)
            except (Stop, StoreUnusable) as error:
                self._contain(error)
            except IncompatibleState as error:
                self._quarantine(owned, str(error), by_process=True)
            except (Retry, Fenced, StoreError) as error:
                owned.retry_at = self.tick() + self.pace.retry_after
                owned.trouble = str(error)
                owned.store_error = str(error) if isinstance(error, StoreError) else ""
            if self.tick() - began >= self.pace.transaction_budget:
                return

    def _contain(self, error: Stop | StoreUnusable) -> None:
        """Quarantine the partition that this concerns; what concerns the whole process ends it."""
        owned = self.owned.get(-1 if error.partition is None else error.partition)
        if owned is None:
            raise error
        self._quarantine(owned, str(error))

    def _quarantine(self, owned: Owned, why: str, by_process: bool = False) -> None:
        """Stop one partition until a person says go on: it must not take the others down."""
        self._forget(owned, why)
        owned.quarantine, owned.store_error, owned.suspect = Quarantine(why, by_process), "", False
        self.totals["quarantines"] += 1
        self.notify("quarantined", {"partition": owned.number, "why": why})

    def _recover_one(self, owned: Owned) -> None:
        partitions = self._partitions()
        self._await_applied(self.owned.values())
        owned.token = self._token(owned.number)
        recovered = self.recovery.recover(owned.number, partitions, owned.token)
        check_slot(recovered.partition, self.terms)
        owned.partition, owned.positions = recovered.partition, dict(recovered.positions)
        owned.topic_ids, owned.store_error = recovered.topic_ids, ""
        owned.held = {topic: Held(owned.positions[topic]) for topic in self.topics.inputs}
        owned.last_timestamp, owned.trouble = {}, ""
        owned.progress_at = self.tick()
        self.intake.start(owned)
        self.totals["recoveries"] += 1
        self.totals["batches_replayed"] += recovered.replayed
        self.notify(
            "recovered",
            {
                "partition": owned.number,
                "sequence": recovered.partition.identity.sequence,
                "replayed": recovered.replayed,
            },
        )

    def _partitions(self) -> int:
        """How many each of these topics has. With fewer in one of them, records of some tenants would never be read."""
        counts = {topic: self.reader.partitions(topic) for topic in self.topics.alike}
        for topic, count in counts.items():
            if count is None:
                raise Stop(f"there is no topic {topic}: create the topics with `gforce topics create`")
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{topic} {count}" for topic, count in counts.items())
            raise Stop(
                f"these topics must have the same number of partitions and have not: {told}. Partitions cannot be "
                "taken away: give the others as many, then start a new lineage with `gforce reset`."
            )
        return counts[self.topics.requests] or 0

    def _restore(self, owned: Owned, damage: StoreDamaged) -> None:
        self.totals["store_damaged"] += 1
        self._forget(owned, str(damage))

    def _forget(self, owned: Owned, why: str) -> None:
        """Drop what is in memory; the partition is recovered again before it moves on."""
        self.notify("recovering", {"partition": owned.number, "why": why})
        owned.partition, owned.held, owned.takeable, owned.snapshots.current = None, {}, {}, None
        owned.retry_at, owned.trouble, owned.question = 0, why, None
        if self.owned.get(owned.number) is owned:
            self.intake.stop(owned)

    # Committing

    def _commit_due(self) -> bool:
        """All that have something to take, as soon as one has waited long enough or all together have enough.

        Waiting gathers records for one transaction. When none has come for a while there is nothing to wait for.
        """
        if skipping := [owned for owned in self.owned.values() if self._may_skip(owned)]:
            return self._commit(skipping)
        now, able = self.tick(), self._able()
        self.intake.look_ahead(able, self._enough())
        wait = 0 if self._quiet else self.pace.commit_interval
        waited = any(owned.takeable and now - owned.takeable_since >= wait for owned in able)
        if waited or sum(sum(owned.takeable.values()) for owned in able) >= self._enough():
            return self._commit([owned for owned in able if owned.takeable or self._idle_due(owned, now)])
        return self._commit([owned for owned in able if self._idle_due(owned, now)])

    def _able(self) -> list[Owned]:
        """The partitions that may commit now."""
        now = self.tick()
        ready = [owned for owned in self.owned.values() if owned.ready and not owned.stopped]
        return [owned for owned in ready if now >= owned.retry_at and self.intake.knows_the_time(owned)]

    def _may_skip(self, owned: Owned) -> bool:
        """Whether the next batch of a partition is one that holds no records and leaves offsets out."""
        return self.tick() >= owned.retry_at and not owned.stopped and self.intake.skipping(owned) is not None

    def _enough(self) -> int:
        """How many records make a transaction."""
        tenants = sum(len(owned.partition.tenants) for owned in self.owned.values() if owned.partition is not None)
        return max(self.pace.most_records, min(self.pace.for_each_tenant * tenants, LARGEST_TRANSACTION))

    def _idle_due(self, owned: Owned, now: int) -> bool:
        """Without input time goes on too: look once per slot whether something has become due. A person waits for
        nothing."""
        if owned.buffered:
            return False
        return bool(owned.acknowledged) or now - owned.idle_at >= min(self.terms.slot, 1_000)

    def _commit(self, due: Sequence[Owned]) -> bool:
        """One transaction for all of these; True if anything was committed."""
        if suspects := [owned for owned in due if owned.suspect]:
            due = suspects[:1]
        ended = self.transactions.send(self._stepped(self._questions(self.turns.order(due))))
        again_at = self.tick() + self.pace.retry_after // 10
        theirs = [batch.owned for batch in ended.batches]
        match ended.fate:
            case Fate.COMMITTED:
                for batch in ended.batches:
                    self._settle(batch)
                return bool(ended.batches)
            case Fate.ABORTED:
                for owned in theirs:
                    owned.retry_at, owned.trouble = again_at, ended.why
            case Fate.REFUSED if len(theirs) == 1:
                self._quarantine(theirs[0], ended.why)
            case Fate.REFUSED:
                for owned in theirs:  # each by itself, to see whose it is
                    owned.suspect, owned.trouble = True, ended.why
            case Fate.UNKNOWN | Fate.FENCED:
                for owned in theirs if ended.fate is Fate.UNKNOWN else list(self.owned.values()):
                    self._forget(owned, ended.why)
                    owned.retry_at = again_at
        return False

    # A batch, from question to answer

    def _questions(self, due: Iterable[Owned]) -> Iterator[Question]:
        """Some ahead, so that the store works on these while the batch before them is worked out; not all of a large
        transaction, which would have left the processor's cache before its turn comes."""
        ahead: deque[Question] = deque()
        for owned in due:
            if self.turns.over:
                self.turns.leave_out(owned)
                continue
            if (question := self._ask(owned)) is not None:
                ahead.append(question)
            if sum(one.seen for one in islice(ahead, 1, None)) >= self.pace.most_records:
                yield ahead.popleft()
        yield from ahead

    def _ask(self, owned: Owned) -> Question | None:
        """Decode a batch and ask the store for what it needs; or the question that was left out of a transaction."""
        assert owned.partition is not None
        if owned.question is not None:
            question, owned.question = owned.question, None
            return question
        skip = self.intake.skipping(owned)
        if skip is None and not self.intake.knows_the_time(owned):
            return None
        now = self.wall()
        owned.idle_at = self.tick()
        try:
            taken, asked, cost = self._fitting(owned, owned.partition, now, skip)
        except Retry as error:
            owned.retry_at, owned.trouble = self.tick() + self.pace.retry_after, str(error)
            return None
        clock = self.intake.clock(owned, taken, now)
        ranges = self.hashing.submit(ranges_of, owned.positions, taken, skip)
        ids = asked.ids
        cursor = owned.snapshots.cursor(self.pace.snapshot_bytes) if any(taken.values()) else None
        answer = self._aside(owned).submit(self._read, owned, ids, clock, cursor)
        return Question(owned, taken, asked, ids, clock, now, answer, ranges, skip, cost)

    def _fitting(
        self, owned: Owned, partition: Partition, now: int, skip: Skip | None
    ) -> tuple[dict[str, list[Raw]], Asked, float]:
        """The next batch, decoded, cut to what can be worked out in time; and how long that will take."""
        while True:
            taken = self.intake.taken(owned) if skip is None else {topic: [] for topic in self.topics.inputs}
            requests, feedback = taken.values()
            asked = decode(requests, feedback, owned.number, partition.partitions, now, self.terms, owned.poison)
            cost = self.costs.of(partition, asked, self.terms)
            if cost <= self.pace.step_budget or max(map(len, taken.values())) <= 1:
                return taken, asked, cost
            owned.at_most = self.costs.fitting(partition, asked, self.terms, self.pace.step_budget)
            self.intake.look_ahead([owned], self._enough())

    def _aside(self, owned: Owned) -> Executor:
        return self.aside[owned.number % len(self.aside)]

    def _read(self, owned: Owned, ids: list[bytes], clock: int, cursor: bytes | None) -> tuple[View, Page | None]:
        """What the batch needs, and the next slice of a snapshot if one is under way. Runs aside.

        Where it was just waited for in vain, nobody waits for it again: each wait is as long as its timeout.
        """
        if self.tick() < self._store_away_until:
            raise StoreUnavailable("the store has not answered the question before this one")
        view = self._look_up(owned, ids, clock)
        if cursor is None:
            return view, None
        identity, page = self.store.page(owned.number, owned.token, cursor, self.pace.slice_bytes)
        return view, page if identity == view.identity else None

    def _step(self, question: Question) -> Batch | None:
        """Decide, on exactly the state before the batch."""
        owned, asked = question.owned, question.asked
        self._await_applied([owned])
        asked_at = self.tick()
        try:
            view, page = question.answer.result()
        except StoreFenced:
            self.totals["fenced_by_store"] += owned.ready  # if not, the apply before this was told so already
            self._forget(owned, "another process has claimed this partition")
            return None
        except StoreDamaged as error:
            self._restore(owned, error)
            return None
        except StoreUnusable as error:
            self._contain(error)
            return None
        except StoreError as error:
            now = self.tick()
            if now - asked_at > LONG:
                self._store_away_until = now + self.pace.retry_after
            if owned.ready:
                owned.retry_at, owned.trouble = now + self.pace.retry_after, str(error)
            owned.store_error = str(error)
            return None
        owned.store_error = ""
        partition = owned.partition
        if partition is None:
            return None
        if not self._is_current(view, partition):
            self._forget(owned, "the store is not at the state in memory")
            return None
        if not question.seen and not view.due and not owned.acknowledged and question.skip is None:
            return None
        if is_cut_short(view.due):
            owned.idle_at = self.tick() - SOON
        if self._breaks(owned, asked, question.seen):
            return None
        began = self.tick()
        outcome = step_around_faults(
            partition,
            question.inputs,
            asked,
            dict(zip(question.ids, view.entries, strict=True)),
            view.due,
            question.clock,
            question.now,
            self.terms,
            lambda error: self.notify("internal", {"partition": owned.number, "error": repr(error)}),
            owned.poison,
            owned.acknowledged,
        )
        self.costs.took(question.cost, self.tick() - began)
        if _journal_bytes(outcome) > MOST_JOURNALED and question.seen > 1:
            owned.at_most = max(question.seen // 4, 1)
            return None
        taken = {(raw.source, raw.offset) for raws in question.inputs for raw in raws} if owned.poison else set()
        batch = self._batch(question, outcome, sorted(owned.poison & taken))
        batch.page = page
        return batch

    def _look_up(self, owned: Owned, ids: list[bytes], clock: int) -> View:
        due = due_slot(clock, self.terms.slot)
        return self.store.look_up(owned.number, owned.token, ids, due, SLOTS_PER_BATCH, self.terms.sweep)

    def _is_current(self, view: View, partition: Partition) -> bool:
        if view.identity is None:
            return partition.identity.sequence == 0
        return view.identity == partition.identity

    def _breaks(self, owned: Owned, asked: Asked, records: int) -> bool:
        """Somebody has pointed the wrong stream here: stop this partition until a person says go on."""
        breaker, pace = owned.breaker, self.pace
        if not breaker.trips(records, asked.garbage, pace.breaker_records, pace.breaker_share):
            return False
        self._forget(owned, "breaker")
        self.totals["breaker_trips"] += 1
        self.notify("breaker", {"partition": owned.number, "records": breaker.seen, "unreadable": breaker.garbage})
        return True

    def _batch(self, question: Question, outcome: Outcome, poison: list[tuple[str, int]]) -> Batch:
        owned, partition = question.owned, question.owned.partition
        assert partition is not None
        digests = self.hashing.submit(digests_of, partition, outcome)
        return Batch(question, partition, outcome, poison, self.terms, list(owned.acknowledged), digests)

    def _stepped(self, questions: Iterable[Question]) -> Iterator[Batch]:
        """Once the store has failed one partition the others would only wait for it, with a transaction open. Where
        it is slow, or steps are, those for which there is no time are left for the next transaction."""
        for question in questions:
            if not self.turns.fits(question):
                question.owned.question = question
                self.turns.leave_out(question.owned)
                continue
            batch = self._step(question)
            if batch is not None:
                self.turns.begin()
                yield batch
            elif question.owned.retry_at > self.tick():
                return

    # After the commit

    def _settle(self, batch: Batch) -> None:
        """The batch is committed: move on in memory and tell the store."""
        owned = batch.owned
        if told := batch.reconfigured:
            self.notify("configuration", {"partition": owned.number, **told})
        owned.partition = advanced(batch.outcome.partition, batch.identity)
        owned.positions = batch.positions
        self.latencies.note(map(TIMESTAMP, batch.taken[self.topics.requests]), self.wall())
        owned.let_go({topic: len(raws) for topic, raws in batch.taken.items()})
        del owned.acknowledged[: len(batch.journal.acknowledged)]
        owned.progress_at, owned.trouble, owned.suspect = self.tick(), "", False
        if skip := batch.question.skip:
            self.intake.skipped(owned, skip)
            self.notify(
                "skipped",
                {"partition": owned.number, "topic": skip.topic, "offset": skip.first, "to": skip.next},
            )
        self._advance_snapshot(batch)
        owned.breaker.passed(
            batch.question.seen, batch.question.asked.garbage, self.pace.breaker_records, self.pace.breaker_share
        )
        owned.poison.difference_update(batch.poison)
        owned.at_most = min(2 * owned.at_most, MOST_RECORDS)
        self.totals["batches"] += 1
        self.totals["records"] += batch.question.seen
        self.totals.update(batch.outcome.tally)
        before = batch.identity.sequence - 1
        owned.applying = self._aside(owned).submit(self._apply, owned, batch.identity, before, batch.outcome.writes)

    def _hear_applied(self) -> None:
        """What the store has answered meanwhile."""
        self._await_applied([owned for owned in self.owned.values() if owned.applying and owned.applying.done()])

    def _await_applied(self, those: Iterable[Owned]) -> None:
        """Until the store has what was committed. Should it not take it, the partition is recovered."""
        for owned in those:
            applying, owned.applying = owned.applying, None
            if applying is None:
                continue
            try:
                applied = applying.result()
            except StoreFenced:
                self.totals["fenced_by_store"] += 1
                self._forget(owned, "another process has claimed this partition")
            except StoreDamaged as error:
                self._restore(owned, error)
            except StoreUnusable as error:
                self._contain(error)
            except StoreError as error:
                self._forget(owned, str(error))
                owned.store_error = str(error)
            else:
                owned.store_error = ""
                if applied is Applied.GAP:
                    self._forget(owned, "the store had lost state")

    def _advance_snapshot(self, batch: Batch) -> None:
        """Once a snapshot is whole, drop what is before it."""
        parts, at = batch.changelog, At(self.topics.changelog, batch.owned.number)
        first = self.transactions.written[at] - len(parts) + 1 if at in self.transactions.written else None
        whole = batch.owned.snapshots.advance(batch.page, sum(len(part.writes) for part in parts), first)
        if whole is not None:
            self.totals["snapshots"] += 1
            if whole.start is not None:
                self._trim(at, whole.start)

    def _trim(self, at: At, offset: int) -> None:
        try:
            self.trim(at, offset)
        except LogError as error:  # the log is only longer than it need be
            self.notify("not trimmed", {"topic": at.topic, "partition": at.partition, "why": str(error)})

    def _apply(self, owned: Owned, identity: Identity, before: int, writes: bytes) -> Applied:
        return self.store.apply(owned.number, owned.token, identity, before, writes)


def _journal_bytes(outcome: Outcome) -> int:
    """What the journal's record holds beside hashes: who is under which rules, and rules it has not seen."""
    return sum(len(name) + len(text) for told in (outcome.rules, outcome.configs) for name, text in told.items())
