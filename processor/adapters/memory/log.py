"""The log in memory, from the clients' side: the embedded mode runs on it, and so does the simulation.

What a client believes is kept here and what is true in the broker, so a client that does not poll is a zombie: it
goes on believing in its assignment, and only the broker's checks stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar

from processor.adapters.memory.broker import Member, MemoryBroker
from processor.core.stream.decode import InputRecord
from processor.ports.log import (
    Committed,
    CommitUnknownError,
    FencedError,
    Headers,
    Listener,
    LogError,
    Membership,
    OperatorActionRequiredError,
    PartitionRecords,
    ReadFailure,
    Record,
    Sources,
    TopicPartition,
    UnreadableBatchError,
)

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Client")


class Client:
    """A process that talks to the broker under a name."""

    def __init__(self, broker: MemoryBroker, name: str) -> None:
        self.broker = broker
        self.name = name


def visible(call: str) -> Callable[[Callable[Concatenate[C, P], R]], Callable[Concatenate[C, P], R]]:
    """Surround a call that reaches the broker with its hook: raised before, the request is lost; after, the answer.

    A client must learn nothing from a lost answer: epoch, state and positions are set outside such a method.
    """

    def decorate(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
        @wraps(method)
        def surrounded(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
            hook = self.broker.hook
            if hook is None:
                return method(self, *args, **kwargs)
            hook(self.name, f"{call}:before")
            answer = method(self, *args, **kwargs)
            hook(self.name, f"{call}:after")
            return answer

        return surrounded

    return decorate


class MemoryInput(Client):
    """A static member of a consumer group. It joins in its first poll; a poll does one step of a rebalance."""

    def __init__(self, broker: MemoryBroker, instance: str, group: str, sources: Sources, listener: Listener) -> None:
        super().__init__(broker, instance)
        self._group = broker.group(group)
        self._sources, self._topics = sources, tuple(sources)
        self._listener = listener
        self._member_id: str | None = None
        self._owned: tuple[TopicPartition, ...] | None = None  # None between an assignment and the next
        self._positions: dict[TopicPartition, int] = {}  # of the partitions that are not paused
        self._ended: set[TopicPartition] = set()
        self._turn = 0

    def poll(self, most: int, timeout: float) -> list[PartitionRecords]:
        pieces, heard = self._poll(most)
        for at, (position, end) in heard.items():
            self._positions[at] = position
            (self._ended.add if position == end else self._ended.discard)(at)
        return pieces

    @visible("poll")
    def _poll(self, most: int) -> tuple[list[PartitionRecords], dict[TopicPartition, tuple[int, int]]]:
        member = self._group.members.get(self._member_id or "")
        if member is None:
            self._join()
        elif self._group.rebalancing:
            self._rejoin(member)
        elif self._owned is None:
            self._take(member)
        else:
            return self._fetch(most)
        return [], {}

    def _join(self) -> None:
        """For the first time, or again after our session has expired."""
        self._drop(self._listener.lost)
        if self._member_id is not None and self._group.find(self.name) is not None:
            raise OperatorActionRequiredError(
                f'another process has joined group "{self._group.name}" as instance "{self.name}"'
            )
        for topic in self._topics:
            if self.broker.partitions(topic) is None:
                raise OperatorActionRequiredError(f'there is no topic "{topic}"; create it first')
        self._member_id = self._group.join(self.name, self._topics)

    def _rejoin(self, member: Member) -> None:
        if not member.rejoined:
            self._drop(self._listener.revoked)
            if member.id in self._group.members:  # the listener's own calls may have taken longer than our session
                self._group.rejoin(member.id)

    def _take(self, member: Member) -> None:
        self._owned = member.assignment
        self._listener.assigned(self._owned, Membership(self._group.generation, member.id, self._group.name))

    def _drop(self, tell: Callable[[Sequence[TopicPartition]], None]) -> None:
        """Tell the listener, which may still use what it is about to lose; then forget it."""
        if self._owned is not None:
            tell(self._owned)
        self._owned = None
        self.pause(list(self._positions))

    def _fetch(self, most: int) -> tuple[list[PartitionRecords], dict[TopicPartition, tuple[int, int]]]:
        """Records; and of each partition asked, where to go on and where it ends."""
        pieces: list[PartitionRecords] = []
        heard: dict[TopicPartition, tuple[int, int]] = {}
        for at in self._in_turn():
            if most == 0:
                break
            partition = self.broker.partition(at)
            partition.check(at, self._positions[at])
            found, position = partition.read(self._positions[at], partition.end, most)
            heard[at] = (position, partition.stable_end)
            most -= len(found)
            if found:
                source = self._sources[at.topic]
                raws = [
                    InputRecord(source, one.offset, one.timestamp, one.key, one.value, one.headers) for one in found
                ]
                pieces.append(PartitionRecords(at, raws))
        return pieces, heard

    def _in_turn(self) -> list[TopicPartition]:
        """Each poll begins with another partition, so that a busy one does not starve the rest."""
        running = sorted(self._positions)
        self._turn += 1
        first = self._turn % len(running) if running else 0
        return running[first:] + running[:first]

    @visible("committed")
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return self.broker.committed(self._group.name, partitions)

    @visible("committed")
    def committed_unstable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """Not part of the interface: for the mutant that reads offsets without waiting for open transactions."""
        return self.broker.committed_unstable(self._group.name, partitions)

    def start(self, at: TopicPartition, offset: int) -> None:
        if at not in (self._owned or ()):
            raise RuntimeError(f"{at.topic}-{at.partition} is not assigned to {self.name}")
        self._positions[at] = offset
        self._ended.discard(at)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self._positions.pop(at, None)
            self._ended.discard(at)

    def ended(self, at: TopicPartition) -> bool:
        return at in self._ended

    def moved_on(self, at: TopicPartition, ask: bool = False) -> bool:
        """Never: a poll hears the end anew."""
        return False

    def failure(self, at: TopicPartition) -> ReadFailure | None:
        position = self._positions.get(at, -1)
        if self.broker.partition(at).unreadable_at(position) is None:
            return None
        why = f"{at.topic}[{at.partition}] at offset {position}: the batch cannot be read"
        return ReadFailure(position, why, True)

    def lag(self, at: TopicPartition, position: int) -> int | None:
        """Without a hook: what a client has heard does not reach the broker."""
        return self.broker.partition(at).count(position)

    @visible("close")
    def close(self) -> None:
        member_id, self._member_id = self._member_id, None
        still_member = member_id in self._group.members
        self._drop(self._listener.revoked if still_member else self._listener.lost)
        if member_id is not None:
            self._group.remove(member_id)


class MemoryOutput(Client):
    """A transactional producer.

    As on Kafka: after Unknown, after an ``abort`` that failed, and once fenced by its epoch, it is finished and says
    Fenced to all but ``abort``, which then does nothing; ``open`` starts afresh. Fenced by the group (from
    ``send_offsets``) is milder: ``abort`` and go on. Calls out of order are mistakes of the program: RuntimeError.
    """

    def __init__(self, broker: MemoryBroker, name: str) -> None:
        super().__init__(broker, name)
        self._epoch = -1
        self._state: Literal["finished", "idle", "active"] = "finished"
        self._last: dict[TopicPartition, int] = {}

    def open(self) -> None:
        self._state = "finished"
        self._epoch = self._open()
        self._state = "idle"

    @visible("open")
    def _open(self) -> int:
        return self.broker.open_producer(self.name)

    def begin(self) -> None:
        """Without a hook: in Kafka, this does not reach the broker."""
        self._expect("idle")
        self.broker.begin(self.name, self._epoch)
        self._last = {}
        self._state = "active"

    def send(
        self,
        at: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        self._expect("active")
        record = self._send(at, key, value, headers, timestamp)
        if at.partition >= 0:
            self._last[at] = record.offset

    def send_all(self, topic: str, records: Iterable[tuple[bytes, bytes, Headers]]) -> None:
        at = TopicPartition(topic, -1)
        for key, value, headers in records:
            self.send(at, key, value, headers)

    @visible("send")
    def _send(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int | None
    ) -> Record:
        return self.broker.append(self.name, self._epoch, at, key, value, headers, timestamp)

    def send_offsets(self, positions: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        self._expect("active")
        self._send_offsets(positions, membership)

    @visible("send_offsets")
    def _send_offsets(self, positions: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        if not isinstance(membership.raw, str):
            raise RuntimeError("the membership names no group: use the one that Listener.assigned was given")
        self.broker.add_offsets(self.name, self._epoch, membership.raw, positions, membership)

    def commit(self) -> dict[TopicPartition, int]:
        self._expect("active")
        try:
            self._commit()
        except (CommitUnknownError, FencedError):
            self._state = "finished"
            raise
        self._state = "idle"
        return self._last

    @visible("commit")
    def _commit(self) -> None:
        self.broker.end(self.name, self._epoch, commit=True)

    def abort(self) -> None:
        if self._state == "active":
            self._state = "finished"  # unless we hear that it worked
            self._abort()
            self._state = "idle"

    @visible("abort")
    def _abort(self) -> None:
        self.broker.end(self.name, self._epoch, commit=False)

    def close(self) -> None:
        with suppress(LogError):  # else the transaction is open until it times out, or the name is opened again
            self.abort()
        self._state = "finished"

    def _expect(self, state: str) -> None:
        if self._state == "finished":
            raise FencedError(f'producer "{self.name}" is finished: open() it (again)')
        if self._state != state:
            raise RuntimeError(f'producer "{self.name}" is {self._state}; this call is for when it is {state}')


class MemoryReader(Client):
    """Reads partitions outside any group."""

    def __init__(self, broker: MemoryBroker, name: str = "reader") -> None:
        super().__init__(broker, name)

    @visible("bounds")
    def bounds(self, at: TopicPartition) -> tuple[int, int]:
        partition = self.broker.partition(at)
        return partition.start, partition.stable_end

    @visible("read")
    def read(self, at: TopicPartition, start: int, stop: int | None = None) -> Iterator[Record]:
        partition = self.broker.partition(at)
        partition.check(at, min(start, partition.end))
        records, position = partition.read(start, partition.end if stop is None else stop)
        return self._up_to(records, at, partition.unreadable_at(position))

    def _up_to(self, records: list[Record], at: TopicPartition, batch: tuple[int, int] | None) -> Iterator[Record]:
        yield from records
        if batch is not None:
            raise UnreadableBatchError(
                f"{at.topic}[{at.partition}] at offset {batch[0]}: the batch cannot be read", batch[0]
            )

    @visible("unreadable")
    def unreadable(self, at: TopicPartition, offset: int) -> tuple[int, int] | None:
        return self.broker.partition(at).unreadable_at(offset)

    @visible("partitions")
    def partitions(self, topic: str) -> int | None:
        return self.broker.partitions(topic)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.broker.topic_id(topic) for topic in topics}

    @visible("bounds")
    def settled(self, at: TopicPartition) -> bool:
        partition = self.broker.partition(at)
        return partition.stable_end == partition.end

    def close(self) -> None:
        """Nothing to give back."""
