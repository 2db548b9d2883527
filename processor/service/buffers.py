"""Both inputs of the partitions owned: what is read of them, how much the next batch takes, what time it is by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from processor.core.stream.step import InputRecord, StreamSettings
from processor.ports.codec import Codec, in_json
from processor.ports.log import Input, PartitionRecords, ReadFailure, TopicPartition

from .assigned import AssignedPartition, LoopSettings, Skip
from .buffer import batch_limit
from .topics import TopicNames

MAX_BUFFERED_BYTES_PER_INPUT = 64 << 20
"""of one input of a partition, or it is paused"""
MAX_BUFFERED_BATCHES = 2
"""An input of a partition is paused once it holds this many batches."""
CAUGHT_UP_DIVISOR = 20
"""An input of which no more than this part of a batch is left to be read has caught up."""

NOTHING_COMES_REMEDY = "Remedy: look at the broker that leads it, and restart this process"

TIMESTAMP = attrgetter("timestamp")


class UnreadableRange(NamedTuple):
    """An input that gives nothing."""

    since: int
    """milliseconds of ``monotonic_ms``"""
    why: str
    unreadable: bool
    """nobody can read what comes next: to wait does not help"""


class InputBuffers:
    """Reads, and holds what is read until a batch takes it."""

    def __init__(
        self,
        topics: TopicNames,
        source: Input,
        stream_settings: StreamSettings,
        loop_settings: LoopSettings,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        codec: Codec | None,
    ) -> None:
        self.topics, self.source, self.stream_settings, self.loop_settings = (
            topics,
            source,
            stream_settings,
            loop_settings,
        )
        self.wall_ms, self.monotonic_ms, self.codec = wall_ms, monotonic_ms, codec
        self.polled_at = 0

    # Reading

    def poll(self, most: int, timeout: float) -> Sequence[PartitionRecords]:
        """The next records of any input. Rebalances are served in here, and nowhere else."""
        self.polled_at = self.wall_ms()
        return self.source.poll(most, timeout)

    def hold(self, pieces: Iterable[PartitionRecords], those: Mapping[int, AssignedPartition]) -> None:
        """Keep what was read for the next batches of its partition."""
        now = self.wall_ms()
        for at, records in pieces:
            owned = those.get(at.partition)
            if owned is not None and owned.ready:
                owned.buffers[at.topic].add(records, now)
                owned.heard_at[at.topic] = self.monotonic_ms()

    def throttle(self, those: Iterable[AssignedPartition], enough: int) -> None:
        """Read no more of an input that holds plenty, because its partition cannot commit or the other input is far
        behind; and read on, after what is held, when half of it is gone. Both are dear, so they must be rare."""
        plenty = max(MAX_BUFFERED_BATCHES * enough, self.loop_settings.most_held)
        for owned in those:
            for topic, buffer in owned.buffers.items():
                full = max(len(buffer) / plenty, buffer.size / MAX_BUFFERED_BYTES_PER_INPUT)
                if topic not in owned.paused and full >= 1:
                    owned.paused.add(topic)
                    self.source.pause([TopicPartition(topic, owned.number)])
                elif topic in owned.paused and 2 * full < 1:
                    self.read_on(owned, topic)

    def start(self, owned: AssignedPartition) -> None:
        """Read a partition from where its state is."""
        for topic in self.topics.inputs:
            self.read_on(owned, topic)

    def stop(self, owned: AssignedPartition) -> None:
        self.source.pause([TopicPartition(topic, owned.number) for topic in self.topics.inputs])

    # A mutant of the simulation replaces this.
    def read_on(self, owned: AssignedPartition, topic: str) -> None:
        self.source.start(TopicPartition(topic, owned.number), owned.buffers[topic].next)
        owned.paused.discard(topic)
        owned.heard_at[topic] = self.monotonic_ms()

    # What the next batch takes

    def look_ahead(self, those: Iterable[AssignedPartition], enough: int) -> None:
        """Work out what the next batch of each may take."""
        now, present = self.monotonic_ms(), self.wall_ms() - self.loop_settings.present
        for owned in those:
            requests, feedback = (owned.buffers[topic] for topic in self.topics.inputs)
            most = min(enough, owned.at_most, requests.fitting(enough), feedback.fitting(enough))
            caught_up = (
                self._caught_up(owned, self.topics.requests, most // CAUGHT_UP_DIVISOR),
                self._caught_up(owned, self.topics.feedback, most // CAUGHT_UP_DIVISOR),
            )
            counts = batch_limit(
                requests, feedback, min(requests.fitting(most), feedback.fitting(most)), caught_up, present
            )
            owned.may_take(dict(zip(self.topics.inputs, counts, strict=True)), now)

    def taken(self, owned: AssignedPartition) -> dict[str, list[InputRecord]]:
        """The next records of each input."""
        taken = {topic: owned.buffers[topic].records[: owned.batch_limit.get(topic, 0)] for topic in self.topics.inputs}
        if self.codec is None:
            return taken
        return {topic: [in_json(raw, topic, self.codec) for raw in raws] for topic, raws in taken.items()}

    def has_lag(self, owned: AssignedPartition) -> bool:
        """Whether there is input this partition has not processed."""
        return bool(owned.buffered) or not all(self._ended(owned, topic) for topic in self.topics.inputs)

    def _ended(self, owned: AssignedPartition, topic: str) -> bool:
        return self.source.ended(TopicPartition(topic, owned.number))

    def _caught_up(self, owned: AssignedPartition, topic: str, few: int) -> bool:
        """Whether hardly anything of an input is left to be read. Under load its end itself is hardly ever heard."""
        if self._ended(owned, topic):
            return True
        left = self.source.lag(TopicPartition(topic, owned.number), owned.buffers[topic].next)
        return left is not None and left <= few

    # What does not come

    def unread(self, owned: AssignedPartition, now: int, patience: int) -> UnreadableRange | None:
        """The input that gives nothing although there is something to be read; times are in milliseconds.

        The broker is asked only when it must be known whether an end that has moved on is a stable one.
        """
        if not owned.ready:
            return None
        for topic, buffer in owned.buffers.items():
            at = TopicPartition(topic, owned.number)
            failure = self.source.failure(at)
            since = owned.heard_at.setdefault(topic, now)
            if failure is not None:
                return UnreadableRange(since, self._failed(owned, topic, failure), failure.unreadable)
            ended, moved_on = self.source.ended(at), self.source.moved_on(at)
            if buffer or (ended and not moved_on):
                owned.heard_at[topic] = now
            elif now - since > patience:
                if moved_on and not self.source.moved_on(at, ask=True):
                    owned.heard_at[topic] = now  # a transaction is open there: nobody may read on
                    continue
                silence = f"{topic}[{owned.number}]: nothing comes from offset {buffer.next} on"
                return UnreadableRange(since, f"{silence}, though the log goes on. {NOTHING_COMES_REMEDY}", False)
        return None

    def _failed(self, owned: AssignedPartition, topic: str, failure: ReadFailure) -> str:
        if not failure.unreadable:
            return failure.why
        skip = f"gforce skip {owned.number} --topic {self.topics.sources[topic]} --offset {failure.offset}"
        return (
            f"{failure.why}. Remedy: raise receive.message.max.bytes in [kafka.consumer_properties] and restart, or "
            f"go on without this batch: {skip}"
        )

    def skipping(self, owned: AssignedPartition) -> Skip | None:
        """What is to be skipped now: nothing that was read before it is left to be committed."""
        skip = owned.skip
        if skip is None or not owned.ready:
            return None
        buffer = owned.buffers[skip.topic]
        if buffer.next > skip.first:
            owned.skip = None  # it was, or could be read after all
            return None
        return None if buffer or self.unreadable_at(owned, skip.topic) != skip.first else skip

    def unreadable_at(self, owned: AssignedPartition, topic: str) -> int | None:
        """The next offset of an input, if nobody can read it."""
        failure = self.source.failure(TopicPartition(topic, owned.number))
        return failure.offset if failure is not None and failure.unreadable else None

    def skipped(self, owned: AssignedPartition, skip: Skip) -> None:
        """It is committed: read on after it."""
        owned.skip = None
        owned.buffers[skip.topic].next = skip.next
        self.read_on(owned, skip.topic)

    # What time it is

    def knows_the_time(self, owned: AssignedPartition) -> bool:
        """Whether every input has shown a record or its end since the recovery.

        Before that the clock would be that of the last batch, or zero for a new partition: whatever is decided or
        parked would be due as of then, and expire as soon as the clock catches up.
        """
        return all(
            owned.buffers[topic] or topic in owned.last_timestamp or self._ended(owned, topic)
            for topic in self.topics.inputs
        )

    # A mutant of the simulation replaces this.
    def clock(self, owned: AssignedPartition, taken: Mapping[str, Sequence[InputRecord]], now: int) -> int:
        """The time of the slower input; the wall clock only where both have been read to their end.

        The faster input's time would expire decisions whose labels still wait in the slower one.
        """
        assert owned.partition is not None
        before = owned.partition.clock
        latest = now + self.stream_settings.max_future
        times = []
        for topic, raws in taken.items():
            if raws:
                owned.last_timestamp[topic] = min(max(map(TIMESTAMP, raws)), latest)
            if len(raws) < len(owned.buffers[topic]) or not self._ended(owned, topic):
                times.append(owned.last_timestamp.get(topic, before))
        # "Ended" was true when we last polled: a process that slept since must not take the present for that moment.
        reached = min(times) if times else self.polled_at - self.loop_settings.grace
        return max(before, reached, 0)
