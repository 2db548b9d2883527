"""The broker's side of the in-memory log: partitions, transactions, the consumer group.

It models of Kafka what decides whether "exactly once" is true, and nothing else. Three things people get wrong:

- A commit is decided once, but its markers land on every touched partition, and on the group's offsets, one by one.
- The group checks member and generation when offsets are *sent*, not when the transaction commits, and never who owns
  the partitions. The generation changes when all have rejoined, not when the rebalance starts.
- Generation −1 with no member is accepted: that is how clients older than KIP-447 commit.

No threads, no clock of its own, no randomness: the same calls give the same history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from processor.core.stream.partitioner import partition_of
from processor.ports.log import (
    Committed,
    FencedError,
    Headers,
    Membership,
    OperatorActionRequiredError,
    Record,
    RetryableError,
    TopicPartition,
)

Hook = Callable[[str, str], None]


@dataclass(slots=True)
class MemoryPartition:
    """A log. An entry without a record is a marker or was aborted: it occupies its offset and is never seen."""

    start: int = 0
    entries: list[Record | None] = field(default_factory=list)
    open: dict[str, list[int]] = field(default_factory=dict)  # producer → offsets of its unfinished transaction
    unreadable: dict[int, int] = field(default_factory=dict)  # batches no client can take: first offset → next after it

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the earliest transaction whose marker has not landed begins."""
        earliest = min((offsets[0] for offsets in self.open.values()), default=self.end)
        return max(self.start, earliest)

    def finish(self, producer: str, commit: bool) -> None:
        """Land the marker."""
        for offset in self.open.pop(producer):
            if not commit and offset >= self.start:
                self.entries[offset - self.start] = None
        self.entries.append(None)

    def read(self, start: int, stop: int, most: int | None = None) -> tuple[list[Record], int]:
        """Committed records of a range, and the offset to go on from."""
        found: list[Record] = []
        stop = min(stop, self.stable_end)
        for offset in range(start, stop):
            if len(found) == most:
                return found, offset
            if self.unreadable_at(offset):
                return found, offset
            record = self.entries[offset - self.start]
            if record is not None:
                found.append(record)
        return found, max(start, stop)

    def unreadable_at(self, offset: int) -> tuple[int, int] | None:
        """The batch at this offset, if no client can take it."""
        return next((batch for batch in self.unreadable.items() if batch[0] <= offset < batch[1]), None)

    def count(self, start: int) -> int:
        """How many committed records there are from an offset on."""
        first = max(start - self.start, 0)
        return sum(record is not None for record in self.entries[first : self.stable_end - self.start])

    def check(self, at: TopicPartition, offset: int) -> None:
        """As ``auto.offset.reset=error``: never jump silently."""
        if not self.start <= offset <= self.end:
            raise OperatorActionRequiredError(
                f"{at.topic}-{at.partition}: offset {offset} is not kept, only {self.start} to {self.end}; "
                "restore the topic or reset the group's offsets on purpose",
                at.partition,
            )

    def delete_before(self, at: TopicPartition, offset: int) -> None:
        if offset > self.end:
            raise OperatorActionRequiredError(
                f"{at.topic}-{at.partition}: cannot delete up to {offset}, the log ends at {self.end}"
            )
        if offset > self.start:
            del self.entries[: offset - self.start]
            self.start = offset


@dataclass(slots=True)
class Member:
    """A group member as the coordinator knows it."""

    id: str
    instance: str
    topics: tuple[str, ...]
    rejoined: bool = False
    assignment: tuple[TopicPartition, ...] = ()


class Group:
    """A classic consumer group of static members, rebalancing eagerly, and its committed offsets."""

    def __init__(self, name: str, sizes: Callable[[str], int]) -> None:
        self.name = name
        self.generation = 0
        self.rebalancing = False
        self.members: dict[str, Member] = {}
        self.committed: dict[TopicPartition, tuple[int, Committed]] = {}
        self.unstable: dict[str, dict[TopicPartition, tuple[int, Committed]]] = {}  # producer → positions it has sent
        self._sizes = sizes
        self._joins = 0
        self._appends = 0

    def find(self, instance: str) -> Member | None:
        return next((member for member in self.members.values() if member.instance == instance), None)

    def join(self, instance: str, topics: tuple[str, ...]) -> str:
        """Join, or take the place of an earlier process of this instance, which is fenced by its member id.

        As in Kafka, the latter does not rebalance a stable group: assignment and generation stay.
        """
        self._joins += 1
        member = Member(f"{instance}-{self._joins}", instance, topics)
        earlier = self.find(instance)
        if earlier is None or earlier.topics != topics:
            self._start_rebalance()
        if earlier is not None:
            del self.members[earlier.id]
            member.assignment = earlier.assignment
        self.members[member.id] = member
        self.rejoin(member.id)
        return member.id

    def rejoin(self, member_id: str) -> None:
        self.members[member_id].rejoined = True
        self._complete_if_all_rejoined()

    def remove(self, member_id: str) -> None:
        """The member left, or its session expired."""
        if self.members.pop(member_id, None) is not None:
            self._start_rebalance()
            self._complete_if_all_rejoined()

    def _start_rebalance(self) -> None:
        if not self.rebalancing:  # those that wait at the barrier already need not come again
            self.rebalancing = True
            for member in self.members.values():
                member.rejoined = False

    def _complete_if_all_rejoined(self) -> None:
        if self.rebalancing and all(member.rejoined for member in self.members.values()):
            self.rebalancing = False
            self.generation += 1
            for member in self.members.values():
                member.assignment = self._range_of(member)

    def _range_of(self, member: Member) -> tuple[TopicPartition, ...]:
        """The range assignor: equal partition counts give a member the same partitions of every topic."""
        mine: list[TopicPartition] = []
        for topic in sorted(member.topics):
            instances = sorted(other.instance for other in self.members.values() if topic in other.topics)
            each, extra = divmod(self._sizes(topic), len(instances))
            place = instances.index(member.instance)
            first = place * each + min(place, extra)
            mine += (TopicPartition(topic, i) for i in range(first, first + each + (place < extra)))
        return tuple(mine)

    def check(self, membership: Membership) -> None:
        if membership.generation < 0 and not membership.member_id:
            return
        if membership.member_id not in self.members:
            raise FencedError(f'"{membership.member_id}" is not a member of group "{self.name}" (any more)')
        if membership.generation != self.generation:
            raise FencedError(
                f'"{membership.member_id}" sends offsets of generation {membership.generation}, '
                f'group "{self.name}" is at {self.generation}'
            )

    def add(self, producer: str, positions: Mapping[TopicPartition, Committed]) -> None:
        sent = self.unstable.setdefault(producer, {})
        for at, position in positions.items():
            self._appends += 1
            sent[at] = (self._appends, position)

    def finish(self, producer: str, commit: bool) -> None:
        """Land the marker. What was sent earlier never replaces what was sent later, whichever lands first."""
        for at, sent in self.unstable.pop(producer).items():
            if commit and sent[0] > self.committed.get(at, (0, None))[0]:
                self.committed[at] = sent


@dataclass(slots=True)
class Transaction:
    """What a producer's transaction has touched; an outcome means: decided, and its markers are landing."""

    touched: list[TopicPartition | str] = field(default_factory=list)  # a text is a group
    outcome: bool | None = None


@dataclass(slots=True)
class Producer:
    """A transactional id as the coordinator knows it."""

    epoch: int = 0
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction on its way to a partition, or to a group's offsets (then ``where`` is its name)."""

    producer: str
    where: TopicPartition | str
    commit: bool


class MemoryBroker:
    """Topics, transaction coordinator and group coordinator in one object.

    ``clock`` gives the milliseconds of records sent without a timestamp. ``hook(process, "commit:before")`` and
    ``":after"`` surround every call of a client that reaches the broker; what it raises, the caller sees.
    """

    def __init__(self, clock: Callable[[], int], manual_markers: bool = False, hook: Hook | None = None) -> None:
        self.clock = clock
        self.manual_markers = manual_markers
        self.hook = hook
        self._topics: dict[str, list[MemoryPartition]] = {}
        self._ids: dict[str, str] = {}
        self._groups: dict[str, Group] = {}
        self._producers: dict[str, Producer] = {}
        self._pending: list[Marker] = []

    # topics

    def create_topic(self, name: str, partitions: int) -> None:
        if name in self._topics:
            raise OperatorActionRequiredError(f'topic "{name}" exists already')
        self._topics[name] = [MemoryPartition() for _ in range(partitions)]
        self._ids[name] = f"{name}#{len(self._ids)}" if name not in self._ids else self._ids[name] + "'"

    def delete_topic(self, name: str) -> None:
        """As in Kafka, what groups have committed of it goes along."""
        del self._topics[name]
        for group in self._groups.values():
            group.committed = {at: position for at, position in group.committed.items() if at.topic != name}

    def topic_id(self, name: str) -> str:
        """A topic that was deleted and created again has another one."""
        return self._ids[name]

    def partitions(self, topic: str) -> int | None:
        found = self._topics.get(topic)
        return None if found is None else len(found)

    def partition(self, at: TopicPartition) -> MemoryPartition:
        if not 0 <= at.partition < self._size(at.topic):
            raise OperatorActionRequiredError(
                f'topic "{at.topic}" has no partition {at.partition}, only {self._size(at.topic)} of them'
            )
        return self._topics[at.topic][at.partition]

    def produce(
        self,
        at: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Record:
        """Append outside any transaction."""
        if at.partition == -1:
            at = TopicPartition(at.topic, partition_of(key or b"", self._size(at.topic)))
        partition = self.partition(at)
        time = self.clock() if timestamp is None else timestamp
        record = Record(at.topic, at.partition, partition.end, time, key, value, headers)
        partition.entries.append(record)
        return record

    def delete_records(self, at: TopicPartition, before_offset: int) -> None:
        self.partition(at).delete_before(at, before_offset)

    def _size(self, topic: str) -> int:
        if topic not in self._topics:
            raise OperatorActionRequiredError(f'there is no topic "{topic}"; create it first')
        return len(self._topics[topic])

    # transactions

    def open_producer(self, name: str) -> int:
        """A new epoch. RetryableError while the markers of the last transaction land, as CONCURRENT_TRANSACTIONS."""
        producer = self._producers.setdefault(name, Producer())
        self.expire_transaction(name)
        self._check_landed(name, producer)
        producer.epoch += 1
        return producer.epoch

    def begin(self, name: str, epoch: int) -> None:
        self._check_landed(name, self._producer(name, epoch))

    def append(
        self,
        name: str,
        epoch: int,
        at: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Record:
        """Append within the producer's transaction."""
        transaction = self._transaction(name, epoch)
        record = self.produce(at, key, value, headers, timestamp)
        offsets = self.partition(record.at).open.setdefault(name, [])
        if not offsets:
            transaction.touched.append(record.at)
        offsets.append(record.offset)
        return record

    def add_offsets(
        self, name: str, epoch: int, group: str, positions: Mapping[TopicPartition, Committed], membership: Membership
    ) -> None:
        transaction = self._transaction(name, epoch)
        self.group(group).check(membership)
        if positions:
            if group not in transaction.touched:
                transaction.touched.append(group)
            self.group(group).add(name, positions)

    def end(self, name: str, epoch: int, commit: bool) -> None:
        """Decide; without anything sent there is nothing to decide."""
        producer = self._producer(name, epoch)
        if producer.transaction is not None and producer.transaction.outcome is None:
            self._decide(name, producer.transaction, commit)

    def expire_transaction(self, name: str) -> None:
        """Its timeout passed: abort it and fence its producer."""
        producer = self._producers[name]
        if producer.transaction is not None and producer.transaction.outcome is None:
            producer.epoch += 1
            self._decide(name, producer.transaction, commit=False)

    def open_transactions(self) -> list[str]:
        """Producers with an undecided transaction."""
        return [
            name
            for name, producer in self._producers.items()
            if producer.transaction is not None and producer.transaction.outcome is None
        ]

    def pending_markers(self) -> list[Marker]:
        return list(self._pending)

    def land_marker(self, index: int) -> None:
        marker = self._pending.pop(index)
        log = self.partition(marker.where) if isinstance(marker.where, TopicPartition) else self.group(marker.where)
        log.finish(marker.producer, marker.commit)
        if not any(other.producer == marker.producer for other in self._pending):
            self._producers[marker.producer].transaction = None

    def land_markers(self) -> None:
        """Land all that are on their way."""
        while self._pending:
            self.land_marker(0)

    def _decide(self, name: str, transaction: Transaction, commit: bool) -> None:
        transaction.outcome = commit
        if not transaction.touched:
            self._producers[name].transaction = None
        self._pending += (Marker(name, where, commit) for where in transaction.touched)
        if not self.manual_markers:
            self.land_markers()

    def _producer(self, name: str, epoch: int) -> Producer:
        producer = self._producers[name]
        if producer.epoch != epoch:
            raise FencedError(f'producer "{name}" of epoch {epoch} was fenced by epoch {producer.epoch}')
        return producer

    def _transaction(self, name: str, epoch: int) -> Transaction:
        """The open transaction; it begins on the broker with the first thing that is sent."""
        producer = self._producer(name, epoch)
        self._check_landed(name, producer)
        if producer.transaction is None:
            producer.transaction = Transaction()
        return producer.transaction

    def _check_landed(self, name: str, producer: Producer) -> None:
        if producer.transaction is not None and producer.transaction.outcome is not None:
            raise RetryableError(f'markers of the last transaction of "{name}" are still landing')

    # the consumer group

    def group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = Group(name, self._size)
        return self._groups[name]

    def expire_session(self, member: str) -> None:
        """Remove a member, given by member id or instance, from its groups; it learns of it when it polls."""
        for group in self._groups.values():
            for known in [known for known in group.members.values() if member in (known.id, known.instance)]:
                group.remove(known.id)

    def awaited(self, group: str) -> list[str]:
        """The instances a rebalance waits for."""
        known = self.group(group)
        return [member.instance for member in known.members.values() if known.rebalancing and not member.rejoined]

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        asked: Sequence[TopicPartition] = tuple(partitions)
        for producer, positions in self.group(group).unstable.items():
            if not positions.keys().isdisjoint(asked):
                raise RetryableError(f'a transaction of "{producer}" may still change the offsets of group "{group}"')
        return self.committed_unstable(group, asked)

    def committed_unstable(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        """What has landed, without waiting for what may. Wrong for recovery: the simulation shows why."""
        known = self.group(group).committed
        return {at: known[at][1] if at in known else None for at in partitions}

    def expire_group_offsets(self, group: str) -> None:
        """Forget them, as after the group was idle for longer than ``offsets.retention.minutes``."""
        self.group(group).committed.clear()
