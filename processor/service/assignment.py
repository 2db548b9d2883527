"""The partitions that this process has been assigned: how it gets them, recovers them, and stops one by itself.

Rebalances are served inside polls only. A partition that cannot be recovered, or whose batches Kafka refuses, is put
into quarantine: it stands still until a person says go on, and all others go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from processor.core.errors import IncompatibleStateError
from processor.core.stream.step import StreamSettings
from processor.ports.log import (
    FencedError,
    Membership,
    OperatorActionRequiredError,
    Reader,
    RetryableError,
    TopicPartition,
)
from processor.ports.store import StoreDamagedError, StoreError, StoreUnusableError

from .assigned import AssignedPartition, LoopSettings, Quarantine, Skip
from .buffer import InputBuffer
from .buffers import InputBuffers
from .committed import Notify
from .recovery import Recovery, check_slot
from .topics import TopicNames


class Assignment(ABC):
    """The partitions of a worker. ``monotonic_ms`` is a clock that never goes back, in milliseconds."""

    topics: TopicNames
    reader: Reader
    stream_settings: StreamSettings
    loop_settings: LoopSettings
    monotonic_ms: Callable[[], int]
    entropy: Callable[[int], bytes]
    notify: Notify
    buffers: InputBuffers
    recovery: Recovery

    def __init__(self) -> None:
        self.owned: dict[int, AssignedPartition] = {}
        self.totals: Counter[str] = Counter()
        self._assigned: set[TopicPartition] = set()

    @abstractmethod
    def _await_applied(self, those: Iterable[AssignedPartition]) -> None:
        """Until the store has what was committed of these."""

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
        self._invalidate(owned, "resumed")
        return True

    def skip(self, number: int, source: str, first: int, after: int) -> bool:
        """A person says to go on without offsets that nobody can read; False if these are not the next."""
        owned = self.owned.get(number)
        topic = next((topic for topic, name in self.topics.sources.items() if name == source), None)
        if owned is None or topic is None or not owned.ready or after <= first:
            return False
        if self.buffers.unreadable_at(owned, topic) != first:
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

    # A mutant of the simulation replaces this.
    def assigned(self, partitions: Sequence[TopicPartition], membership: Membership) -> None:
        """A partition is owned only when both its inputs are."""
        self._assigned.update(partitions)
        for owned in self.owned.values():
            owned.membership = membership  # not revoked, so still ours: the broker only counts on
        for number in sorted({at.partition for at in partitions}):
            if all(TopicPartition(topic, number) in self._assigned for topic in self.topics.inputs):
                now = self.monotonic_ms()
                self.owned[number] = AssignedPartition(
                    number, membership, self._token(number), progress_at=now, idle_at=now
                )
        self.notify("assigned", {"partitions": sorted(self.owned)})

    # A mutant of the simulation replaces this.
    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """The next owner need not catch up if the store has been told all."""
        self._assigned.difference_update(partitions)
        gone = [self.owned.pop(number) for number in {at.partition for at in partitions} if number in self.owned]
        self._await_applied(gone)
        self.notify("revoked", {"partitions": sorted({at.partition for at in partitions})})

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.totals["partitions_lost"] += len({at.partition for at in partitions})
        self.revoked(partitions)

    # A mutant of the simulation replaces this.
    def _token(self, number: int) -> bytes:
        """Unique per claim: a counter kept in the store could be lost with its tail, a generation repeats."""
        return self.entropy(16)

    # Recovery

    def _recover(self) -> None:
        """What is new. Where that takes long, those that are recovered go on in between."""
        began = self.monotonic_ms()
        for owned in list(self.owned.values()):
            if owned.ready or owned.stopped or self.monotonic_ms() < owned.retry_at:
                continue
            try:
                self._recover_one(owned)
            except (OperatorActionRequiredError, StoreUnusableError) as error:
                self._contain(error)
            except IncompatibleStateError as error:
                self._quarantine(owned, str(error), by_process=True)
            except (RetryableError, FencedError, StoreError) as error:
                owned.retry_at = self.monotonic_ms() + self.loop_settings.retry_after
                owned.last_error = str(error)
                owned.store_error = str(error) if isinstance(error, StoreError) else ""
            if self.monotonic_ms() - began >= self.loop_settings.transaction_budget:
                return

    def _told_in_recovery(self, event: str, details: dict[str, object]) -> None:
        self.totals["store_damaged"] += event == "store damaged"
        self.notify(event, details)

    # A mutant of the simulation replaces this.
    def _contain(self, error: OperatorActionRequiredError | StoreUnusableError) -> None:
        """Quarantine the partition that this concerns; what concerns the whole process ends it."""
        owned = self.owned.get(-1 if error.partition is None else error.partition)
        if owned is None:
            raise error
        self._quarantine(owned, str(error))

    def _quarantine(self, owned: AssignedPartition, why: str, by_process: bool = False) -> None:
        """Stop one partition until a person says go on: it must not take the others down."""
        self._invalidate(owned, why)
        owned.quarantine, owned.store_error, owned.suspect = Quarantine(why, by_process), "", False
        self.totals["quarantines"] += 1
        self.notify("quarantined", {"partition": owned.number, "why": why})

    # A mutant of the simulation replaces this.
    def _recover_one(self, owned: AssignedPartition) -> None:
        partitions = self._partitions()
        self._await_applied(self.owned.values())
        owned.token = self._token(owned.number)
        recovered = self.recovery.recover(owned.number, partitions, owned.token, owned.damaged)
        check_slot(recovered.partition, self.stream_settings)
        owned.partition, owned.positions = recovered.partition, dict(recovered.positions)
        owned.topic_ids, owned.store_error, owned.damaged = recovered.topic_ids, "", False
        owned.snapshots.whole = recovered.snapshot
        owned.buffers = {topic: InputBuffer(owned.positions[topic]) for topic in self.topics.inputs}
        owned.last_timestamp, owned.last_error = {}, ""
        owned.progress_at = self.monotonic_ms()
        self.buffers.start(owned)
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
        counts = {topic: self.reader.partitions(topic) for topic in self.topics.copartitioned}
        for topic, count in counts.items():
            if count is None:
                raise OperatorActionRequiredError(
                    f"there is no topic {topic}: create the topics with `gforce topics create`"
                )
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{topic} {count}" for topic, count in counts.items())
            raise OperatorActionRequiredError(
                f"these topics must have the same number of partitions and have not: {told}. Partitions cannot be "
                "taken away: give the others as many, then start a new lineage with `gforce reset`."
            )
        return counts[self.topics.requests] or 0

    def _mark_damaged(self, owned: AssignedPartition, damage: StoreDamagedError) -> None:
        """Something of the stored state is gone: none of it is believed."""
        self.totals["store_damaged"] += 1
        owned.damaged = True
        self._invalidate(owned, str(damage))

    def _invalidate(self, owned: AssignedPartition, why: str) -> None:
        """Drop what is in memory; the partition is recovered again before it moves on."""
        self.notify("recovering", {"partition": owned.number, "why": why})
        owned.partition, owned.buffers, owned.batch_limit, owned.snapshots.current = None, {}, {}, None
        owned.retry_at, owned.last_error, owned.lookup = 0, why, None
        if self.owned.get(owned.number) is owned:
            self.buffers.stop(owned)
