"""A member of the consumer group, on confluent-kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from processor.adapters.kafka.assigned_input import AssignedInput, ReadState
from processor.adapters.kafka.errors import (
    NOT_KEPT,
    REMEDY,
    UNREADABLE,
    create_client,
    error_of,
    has_code,
    translate_error,
)
from processor.adapters.kafka.headers import headers_of
from processor.adapters.kafka.membership import parsed
from processor.adapters.kafka.runs import NEVER, runs
from processor.adapters.kafka.settings import GroupProtocol, Properties, consumer_properties
from processor.ports.log import (
    Committed,
    Listener,
    LogError,
    Membership,
    OperatorActionRequiredError,
    PartitionRecords,
    ReadFailure,
    Record,
    RetryableError,
    Sources,
    TopicPartition,
)

# librdkafka mends these itself, and poll has nothing to give meanwhile. After _MAX_POLL_EXCEEDED it calls `lost`.
TRANSIENT_CODES = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
MAX_REJOINS, REJOIN_WINDOW_SECONDS = 5, 60.0
MAX_CONSUMED_RECORDS = 1_000_000
"""The client takes no more."""
UNREADABLE_RETRY_SECONDS = 30.0
"""Seconds until a batch that could not be taken is tried again: others wait while it is decompressed."""
END_OFFSET_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for an end that is asked for."""
# The partition's fetcher has not started yet, or is about to stop.
RETRYABLE_SEEK_CODES = frozenset({KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._UNKNOWN_PARTITION})


def record_of(message: Message) -> Record:
    """The message as our own record."""
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers_of(message),
    )


class KafkaInput:
    """See ``log.Input``. All rebalance callbacks come from inside ``poll`` and ``close``, on the caller's thread.

    Under the classic protocol librdkafka is given a partition only when it is started, at its offset. Assigned at its
    end, paused, sought and resumed instead, it skipped half a second of records in 12 of 344 starts (librdkafka of
    confluent-kafka 2.16, partitions under load): presumably the look-up of the end is answered after the seek.
    Under the consumer protocol the broker wants to see at once what it gave, so partitions are assigned at an absolute
    offset there, which needs no look-up, and sought from there.
    """

    def __init__(
        self,
        properties: Properties,
        group: str,
        instance: str,
        sources: Sources,
        listener: Listener,
        *,
        protocol: GroupProtocol = "classic",
        request_timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._listener = listener
        self._protocol = protocol
        self._timeout = request_timeout
        self._clock = clock
        self._assigned: dict[TopicPartition, AssignedInput] = {}
        self._positions: dict[TopicPartition, int] = {}
        """the lowest offset still to be handed out, of partitions that are started and do not rest"""
        self._membership: object = None
        self._problems: list[LogError] = []
        self._fatal: KafkaError | None = None
        self._fenced_owning = False
        self._rejoined: list[float] = []
        self._sources, self._topics = sources, list(sources)
        self._settings = consumer_properties(properties, group, instance, protocol)
        self._consumer = create_client(Consumer, {**self._settings, "error_cb": self._noted})
        self._check_exist(self._topics)
        self._subscribe()

    def _check_exist(self, topics: Sequence[str]) -> None:
        """A subscription to a missing topic would wait for ever and say nothing."""
        try:
            known = self._consumer.list_topics(timeout=self._timeout).topics
        except KafkaException as problem:
            raise translate_error(problem, "reading the list of topics") from problem
        missing = [name for name in topics if name not in known]
        if missing:
            raise OperatorActionRequiredError(
                f"no such topic: {', '.join(missing)}. Remedy: create it, or correct the topic settings, or grant this "
                "user READ on it: without that a topic looks as if it were not there"
            )

    # Rebalances

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _rejoin(self, fatal: KafkaError) -> None:
        """Go on with a new consumer after an error that finished the old one.

        A static member can be fenced although nobody uses its name: seen when the broker was away for longer than the
        session, and then always after the loss of its partitions, while joining again (presumably the broker gets two
        of our requests to join). One that is fenced while it owns partitions, or again and again, has a double.
        """
        now = self._clock()
        self._rejoined = [then for then in self._rejoined if now - then < REJOIN_WINDOW_SECONDS] + [now]
        taken = has_code(fatal, KafkaError.UNRELEASED_INSTANCE_ID)
        if self._fenced_owning or (len(self._rejoined) > MAX_REJOINS and not taken):
            raise OperatorActionRequiredError(
                f'another process has joined the group as "{self._instance}" ({fatal.str()}). '
                'Remedy: give every process its own "instance"'
            )
        old, self._consumer = self._consumer, create_client(Consumer, {**self._settings, "error_cb": self._noted})
        old.close()
        lost, self._fatal, self._problems = sorted(self._assigned), None, []
        self._assigned.clear()
        self._positions.clear()
        self._subscribe()
        if lost:
            self._listener.lost(lost)
        if taken:
            time.sleep(1.0)  # asking faster would not make the broker forget the old session earlier
            raise RetryableError(
                f'the name "{self._instance}" is taken until the session of its last user has timed out'
            )

    def _on_assign(self, consumer: Consumer, given: list[KafkaTopicPartition]) -> None:
        partitions = [TopicPartition(each.topic, each.partition) for each in given]
        if self._protocol == "consumer":
            places = [KafkaTopicPartition(at.topic, at.partition, self._first(consumer, at)) for at in partitions]
            consumer.incremental_assign(places)
            if places:
                consumer.pause(places)
        else:
            consumer.assign([])
            for assigned in self._assigned.values():
                assigned.placed = False
        for at in partitions:
            self._forget(at)
            self._assigned[at] = AssignedInput()
        self._listener.assigned(partitions, self._current_membership())

    def _first(self, consumer: Consumer, at: TopicPartition) -> int:
        """An absolute offset to stand at until started: a symbolic one would be looked up in the background, and the
        answer could undo the seek that ``start`` makes meanwhile."""
        try:
            bounds = consumer.get_watermark_offsets(KafkaTopicPartition(at.topic, at.partition), timeout=5.0)
        except KafkaException:
            return 0
        return int(bounds[0]) if bounds else 0

    def _on_revoke(self, consumer: Consumer, taken: list[KafkaTopicPartition]) -> None:
        self._give_up(consumer, taken, self._listener.revoked)

    def _on_lost(self, consumer: Consumer, taken: list[KafkaTopicPartition]) -> None:
        self._give_up(consumer, taken, self._listener.lost)

    def _give_up(
        self, consumer: Consumer, taken: list[KafkaTopicPartition], told: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        partitions = [TopicPartition(each.topic, each.partition) for each in taken]
        try:
            if consumer is self._consumer:  # else a finished one is being closed, and its partitions are lost
                told(partitions)
        finally:
            # Whatever the listener met: without this the group waits for us until the rebalance times out.
            for at in partitions:
                self._forget(at)
                self._assigned.pop(at, None)
            if self._protocol == "consumer":
                consumer.incremental_unassign(taken)
            else:
                consumer.unassign()

    def _forget(self, at: TopicPartition) -> None:
        """It is assigned and not started."""
        self._positions.pop(at, None)
        if at in self._assigned:
            self._assigned[at] = AssignedInput(placed=self._assigned[at].placed)

    def _current_membership(self) -> Membership:
        self._membership = self._consumer.consumer_group_metadata()
        return parsed(self._membership)

    def _follow_epoch(self) -> None:
        """Under the consumer protocol the member epoch grows without a callback when others' partitions move.

        What we own we then still own, since the broker takes nothing before we have let go; so the new membership
        holds for batches already read, and is announced as an assignment of nothing.
        """
        raw = self._consumer.consumer_group_metadata()
        if self._protocol == "classic" or self._membership is None or raw == self._membership:
            return
        membership = parsed(raw)
        if membership.generation > 0 and membership.member_id:
            self._membership = raw
            self._listener.assigned([], membership)

    # Reading

    def poll(self, most: int, timeout: float) -> list[PartitionRecords]:
        if self._fatal is not None:
            self._rejoin(self._fatal)
        self._raise_noted()
        self._try_again()
        self._seek_all()
        # While a seek is outstanding a long wait would be a wait for nothing.
        wait = min(timeout, 0.05) if self._in(ReadState.STARTING) else timeout
        try:
            messages = self._consumer.consume(min(most, MAX_CONSUMED_RECORDS), wait)
        except KafkaException as problem:
            self._noted(error_of(problem))
            raise self._meaning(error_of(problem), "reading") from problem
        if self._protocol == "consumer":
            self._follow_epoch()
        pieces = self._taken(messages)
        if not pieces:
            self._raise_noted()
        return pieces

    def _in(self, state: ReadState) -> list[TopicPartition]:
        return [at for at, assigned in self._assigned.items() if assigned.state is state]

    def _taken(self, messages: list[Message]) -> list[PartitionRecords]:
        """Records that are wanted, in runs of one partition, as they come."""
        pieces: list[PartitionRecords] = []
        for run in runs(messages, self._positions, self._sources):
            if not isinstance(run, PartitionRecords):
                self._noted(run.error(), run)  # type: ignore[arg-type]
            elif run.records:
                assigned = self._assigned[run.at]
                assigned.failure = None
                if assigned.state is ReadState.AT_END:
                    assigned.state = ReadState.READING
                pieces.append(run)
        return pieces

    def ended(self, at: TopicPartition) -> bool:
        return at in self._assigned and self._assigned[at].state is ReadState.AT_END

    def moved_on(self, at: TopicPartition, ask: bool = False) -> bool:
        """What is heard along with a fetch counts open transactions too; asked, the broker names the stable end."""
        if not self.ended(at) or self._end(at) <= self._assigned[at].end:
            return False
        return not ask or self._end(at, cached=False) > self._assigned[at].end

    def failure(self, at: TopicPartition) -> ReadFailure | None:
        return self._assigned[at].failure if at in self._assigned else None

    def lag(self, at: TopicPartition, position: int) -> int | None:
        """From the end that came along with the last fetch; at the end, markers of transactions do not count."""
        assigned = self._assigned.get(at, AssignedInput())
        if assigned.state is ReadState.AT_END:
            return max(self._positions[at] - position, 0)
        end = assigned.end if assigned.state is ReadState.RESTING else self._end(at)
        return max(end - position, 0) if end >= 0 else None

    def _end(self, at: TopicPartition, cached: bool = True) -> int:
        """Negative if it is not known."""
        try:
            bounds = self._consumer.get_watermark_offsets(
                KafkaTopicPartition(*at), timeout=END_OFFSET_TIMEOUT_SECONDS, cached=cached
            )
        except KafkaException:  # not assigned any more, or no answer
            return -1
        return int(bounds[1]) if bounds else -1

    def _noted(self, error: KafkaError, message: Message | None = None) -> None:
        """Keep problems for the next calls, one for each: records of the same fetch must reach the caller before it."""
        if error.code() == KafkaError._PARTITION_EOF and message is not None:
            self._heard_end(message)
        elif error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = self._fatal or error
            # In order: librdkafka reports the fencing first and the loss after, a session's end the other way round.
            self._fenced_owning |= bool(self._assigned) and has_code(error, KafkaError.FENCED_INSTANCE_ID)
        elif message is None and error.code() not in REMEDY:
            pass  # a broker's trouble, reported aside; librdkafka logs and mends it
        elif error.code() not in TRANSIENT_CODES:
            self._noted_trouble(error, message)

    def _noted_trouble(self, error: KafkaError, message: Message | None) -> None:
        """That of one partition is told of this one and holds up no other, unless a person must act on it."""
        if message is None or message.topic() is None:
            self._problems.append(self._meaning(error, "reading"))
            return
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        problem = self._meaning(error, f"reading {at.topic}[{at.partition}]", at.partition)
        if error.code() in UNREADABLE:
            self._rest(at, message.offset() or 0, f"{error.str()} ({error.name()})")
        elif not isinstance(problem, RetryableError):
            self._problems.append(problem)
        elif at in self._positions:
            assigned = self._assigned[at]
            assigned.failure = ReadFailure(self._positions[at], str(problem), False)
            if assigned.state is ReadState.AT_END:
                assigned.state = ReadState.READING

    def _rest(self, at: TopicPartition, batch: int, why: str) -> None:
        """Leave a partition alone for a while: librdkafka would try twice a second to take what it cannot take.

        ``batch`` is the first offset of that batch, which may have been begun or come after markers of transactions.
        """
        position = self._positions.get(at)
        if position is None:
            return
        offset = max(position, batch)
        end = self._end(at)
        self._forget(at)
        assigned = self._assigned[at]
        assigned.state, assigned.end = ReadState.RESTING, end
        assigned.retry_at, assigned.resume_from = self._clock() + UNREADABLE_RETRY_SECONDS, position
        assigned.failure = ReadFailure(offset, f"{at.topic}[{at.partition}] at offset {offset}: {why}", True)
        if self._protocol == "consumer":  # under the classic one the next poll takes it away
            with contextlib.suppress(KafkaException):
                self._consumer.pause([KafkaTopicPartition(*at)])

    def _try_again(self) -> None:
        """Read those that have rested long enough; what is said of them stands until something comes."""
        for at in self._in(ReadState.RESTING):
            assigned = self._assigned[at]
            if self._clock() >= assigned.retry_at:
                assigned.state = ReadState.STARTING
                self._positions[at] = assigned.resume_from

    def _heard_end(self, message: Message) -> None:
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        if (message.offset() or 0) < self._positions.get(at, NEVER):
            return
        assigned = self._assigned[at]
        assigned.failure = None
        if assigned.state is not ReadState.STARTING:  # after the seek the end is heard again
            assigned.state, assigned.end = ReadState.AT_END, message.offset() or 0

    def _raise_noted(self) -> None:
        if self._problems:
            raise self._problems.pop(0)

    def _meaning(self, error: KafkaError, doing: str, partition: int | None = None) -> LogError:
        if error.code() in NOT_KEPT:
            return OperatorActionRequiredError(
                f"{doing}: the position to read from is not in the log any more ({error.str()}). "
                "Remedy: restore the topic, or reset the group's offsets on purpose, and raise retention.ms",
                partition,
            )
        if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
            # It was there when we joined; a broker that is coming up may not know it yet.
            return RetryableError(f"{doing}: {error.str()}")
        return translate_error(error, doing)

    # Positions

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """With ``read_committed`` librdkafka asks for stable offsets, which the broker refuses while one is pending."""
        wanted = list(partitions)
        deadline = self._clock() + self._timeout
        found: dict[TopicPartition, Committed | None] = {}
        while pending := [at for at in wanted if at not in found]:
            left = deadline - self._clock()
            if left <= 0:
                raise RetryableError(f"the committed offset of {pending[0]} is not stable: a transaction is still open")
            found.update(self._fetch_committed(pending, left))
        return {at: found[at] for at in wanted}

    def _fetch_committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> dict[TopicPartition, Committed | None]:
        """Those that are stable now; a little rest if some are not."""
        try:
            answers = self._consumer.committed([KafkaTopicPartition(*at) for at in partitions], timeout)
        except KafkaException as problem:
            error = error_of(problem)
            if error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise self._meaning(error, "reading the committed offsets") from problem
            answers = []
        found: dict[TopicPartition, Committed | None] = {}
        for answer in answers:
            at = TopicPartition(answer.topic, answer.partition)
            if answer.error is None:
                found[at] = Committed(answer.offset, answer.metadata or "") if answer.offset >= 0 else None
            elif answer.error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise self._meaning(answer.error, f"reading the committed offset of {at.topic}[{at.partition}]")
        if len(found) < len(partitions):
            time.sleep(min(0.02, timeout))
        return found

    def start(self, at: TopicPartition, offset: int) -> None:
        """The seek is taken now if the partition's fetcher runs, else by one of the next polls."""
        self._assigned[at] = AssignedInput(ReadState.STARTING)
        self._positions[at] = offset
        if self._protocol == "consumer":
            self._seek(at, offset)

    def _seek_all(self) -> None:
        if self._protocol == "consumer":
            for at in self._in(ReadState.STARTING):
                self._seek(at, self._positions[at])
        elif {at for at, assigned in self._assigned.items() if assigned.placed} != self._positions.keys():
            self._place()

    def _place(self) -> None:
        """Have all that is started read, and nothing else, each from the next record to be handed out."""
        places = [KafkaTopicPartition(at.topic, at.partition, offset) for at, offset in self._positions.items()]
        try:
            self._consumer.assign(places)
        except KafkaException as problem:
            raise self._meaning(error_of(problem), "placing the partitions") from problem
        for at, assigned in self._assigned.items():
            assigned.placed = at in self._positions
            if assigned.state is ReadState.STARTING:
                assigned.state = ReadState.READING

    def _seek(self, at: TopicPartition, offset: int) -> None:
        place = KafkaTopicPartition(at.topic, at.partition, offset)
        try:
            self._consumer.seek(place)
            self._consumer.resume([place])
        except KafkaException as problem:
            error = error_of(problem)
            if error.code() not in RETRYABLE_SEEK_CODES:
                raise self._meaning(error, f"seeking in {at.topic}[{at.partition}]") from problem
        else:
            self._assigned[at].state = ReadState.READING

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Records fetched but not handed out are dropped: only ``start`` reads on, from where it is told."""
        resting = self._in(ReadState.RESTING)
        started = [at for at in partitions if at in self._positions or at in resting]
        for at in started:
            self._forget(at)
        if started and self._protocol == "consumer":  # under the classic one the next poll takes them away
            with contextlib.suppress(KafkaException):  # not assigned any more: then there is nothing to pause
                self._consumer.pause([KafkaTopicPartition(*at) for at in started])

    def close(self) -> None:
        """A static member: the broker keeps its partitions for it until the session times out."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._consumer.close()

    def __enter__(self) -> KafkaInput:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
