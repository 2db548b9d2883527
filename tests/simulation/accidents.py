"""What operators, other programs and unclean fail-overs do to a running system, and the person who mends it.

Deleted entries, offsets that lost their tail or were moved, a changelog that is gone, records that are not ours, inputs
that were deleted and created again. What heals by itself must heal; what cannot must put its partition into
quarantine, and nothing else.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from processor.adapters.memory.broker import Group, MemoryBroker, MemoryPartition
from processor.adapters.memory.store import MemoryStore
from processor.core.stream.journal import ChangelogRecord
from processor.ports.log import Committed, TopicPartition
from processor.service.topics import TopicNames

if TYPE_CHECKING:
    from processor.service.worker import Worker

ACCIDENTS = {
    "delete_entries": 0.008,
    "lose_offsets": 0.006,
    "move_offsets": 0.006,
    "lose_changelog": 0.004,
    "stray_record": 0.015,
}
"""How likely each is at a step of a seed that has them."""


MORE_THAN_BEFORE = 300
"""records in a topic that was created again: the old position is somewhere among them"""


class Accidents:
    """By a generator of its own, so that seeds without accidents keep their histories."""

    def __init__(self, seed: int, broker: MemoryBroker, store: MemoryStore, topics: TopicNames, group: str) -> None:
        self.rng = Random(f"accidents of {seed}")
        self.broker, self.store, self.topics, self.group_name = broker, store, topics, group
        self.temperament = {what: share * self.rng.choice([0, 1, 3]) for what, share in ACCIDENTS.items()}
        self.partitions = broker.partitions(topics.requests) or 0
        self.lost_changelogs: dict[int, tuple[int, int, list[Any]]] = {}
        self.moved: set[int] = set()
        self.created_again = False
        self.quarantined: dict[int, str] = {}
        self.count = 0
        self._offsets: list[dict[TopicPartition, tuple[int, Committed]]] = []

    def step(self) -> None:
        """At most one accident."""
        if self.rng.random() < 0.1:
            self._offsets.append(dict(self._group.committed))
        roll = self.rng.random()
        for accident, share in self.temperament.items():
            if roll < share:
                self.count += bool(getattr(self, f"_{accident}")())
                return
            roll -= share

    def expects(self, partition: int, why: str) -> bool:
        """Whether a partition may be put into quarantine for this reason."""
        return (
            (partition in self.lost_changelogs and "changelog" in why)
            or (partition in self.moved and "moved by hand" in why)
            or (self.created_again and "created again" in why)
        )

    def mend(self, worker: Worker) -> None:
        """A person reads the reason, puts it right, and resumes."""
        for number, owned in worker.owned.items():
            if owned.quarantine is not None and not self.created_again:
                self._restore_changelog(number)
                self._delete_offsets(number)
                self.quarantined.pop(number, None)
                worker.resume(number)

    def create_inputs_again(self) -> None:
        """While nothing runs; other records come to the same offsets."""
        self.created_again = True
        for topic in self.topics.inputs:
            self.broker.delete_topic(topic)
            self.broker.create_topic(topic, self.partitions)
        for number in range(self.partitions):
            for topic in self.topics.inputs:
                for n in range(MORE_THAN_BEFORE):
                    value = json.dumps({"tenant": "t0", "decision_id": f"new{n}"}).encode()
                    self.broker.produce(TopicPartition(topic, number), b"t0", value)

    @property
    def _group(self) -> Group:
        return self.broker.group(self.group_name)

    @property
    def _is_settled(self) -> bool:
        """No transaction has offsets under way: they would be written over what is done here."""
        return not self._group.unstable

    def _number(self) -> int:
        return self.rng.randrange(self.partitions)

    def _partition(self, topic: str, number: int) -> MemoryPartition:
        return self.broker.partition(TopicPartition(topic, number))

    # What happens

    def _delete_entries(self) -> bool:
        number = self._number()
        ids = self.store.entry_ids(number)
        self.store.delete_entries(number, self.rng.sample(ids, self.rng.randint(0, len(ids))))
        return bool(ids)

    def _lose_offsets(self) -> bool:
        if not self._offsets or not self._is_settled:
            return False
        self._group.committed = dict(self.rng.choice(self._offsets))
        if self.rng.random() < 0.7:
            self.store.flush()
        return True

    def _move_offsets(self) -> bool:
        at = TopicPartition(self.rng.choice(self.topics.inputs), self._number())
        if at not in self._group.committed or not self._is_settled:
            return False
        place, position = self._group.committed[at]
        partition = self._partition(*at)
        offset = min(max(position.offset + self.rng.choice([-3, -1, 1, 3]), partition.start), partition.stable_end)
        self._group.committed[at] = place, Committed(offset, position.metadata)
        self.moved.add(at.partition)
        return True

    def _lose_changelog(self) -> bool:
        """All of it, or what is before the last snapshot that has begun."""
        number = self._number()
        partition = self._partition(self.topics.changelog, number)
        if number in self.lost_changelogs or partition.open or not partition.entries:
            return False
        begun = [r.offset for r in partition.read(partition.start, partition.end)[0] if _is_snapshot(r.value)]
        before = begun[-1] if begun and self.rng.random() < 0.5 else partition.end
        self.lost_changelogs[number] = partition.start, before, partition.entries[: before - partition.start]
        self.broker.delete_records(TopicPartition(self.topics.changelog, number), before)
        self.store.lose(number)
        return True

    def _stray_record(self) -> bool:
        """Garbage, or a copy of an older record of ours."""
        topic, number = self.rng.choice((self.topics.changelog, self.topics.journal)), self._number()
        partition = self._partition(topic, self._number())
        older = [r.value for r in partition.read(partition.start, partition.stable_end)[0] if not _is_snapshot(r.value)]
        garbage = [b"test", b'{"form": 1}', b"\x93\x01\x02\x03", None]
        value = self.rng.choice(older if older and self.rng.random() < 0.1 else garbage)
        self.broker.produce(TopicPartition(topic, number), None, value)
        return True

    # What a person does

    def _restore_changelog(self, number: int) -> None:
        if number not in self.lost_changelogs:
            return
        start, end, entries = self.lost_changelogs.pop(number)
        partition = self._partition(self.topics.changelog, number)
        if partition.start == end:  # else a later snapshot is whole, and what was lost is not needed
            partition.entries, partition.start = [*entries, *partition.entries], start

    def _delete_offsets(self, number: int) -> None:
        """The journal then says where to go on."""
        if number in self.moved and self._is_settled:
            self.moved.discard(number)
            for topic in self.topics.inputs:
                self._group.committed.pop(TopicPartition(topic, number), None)


def _is_snapshot(value: bytes | None) -> bool:
    """A copy of where a snapshot begins would be taken for that."""
    try:
        return ChangelogRecord.decode(value or b"").snapshot
    except ValueError:
        return False
