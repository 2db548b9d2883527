"""The committed state of a partition: the group's offsets, compared with the end of its journal.

Both are written in one transaction. The offsets say where to read on, and their metadata which state that is; the
journal's last record says the same. So they agree, unless one of them was changed or lost:

    the journal is ahead      Kafka has lost offsets: the journal is the authority, and nothing is decided twice
    the journal is behind     refuse: Kafka has lost journal records
    the offsets differ        somebody moved them: refuse
    an input has another id   it was deleted and created again: refuse
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from processor.core.errors import ForeignRecordError
from processor.core.stream.identity import Identity
from processor.core.stream.journal import SNAPSHOT_UNKNOWN, JournalRecord, Range, digest
from processor.ports.log import Committed, OperatorActionRequiredError, Reader, RetryableError, TopicPartition

from .topics import TopicNames

Notify = Callable[[str, dict[str, object]], None]

FIRST_WINDOW = 16
"""offsets at the end of the journal that are read at first: a record and a marker for each transaction"""
LARGEST_WINDOW = 16_384
"""offsets at the end of the journal among which the committed batch is looked for"""


class GroupOffsets(Protocol):
    """What recovery asks of the group; a member answers it (``Input``), and an operator's command without being one."""

    # A mutant of the simulation replaces this.
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]: ...


@dataclass(frozen=True)
class CommittedState:
    """A committed state, and where it reads on."""

    identity: Identity
    positions: dict[str, int]
    """next offset of each input, by topic"""
    snapshot: int = SNAPSHOT_UNKNOWN
    """the batch with which the last whole snapshot in the changelog began; 0 if none is whole yet"""


@dataclass(frozen=True)
class JournalLink:
    """A record of the journal's chain."""

    record: JournalRecord
    digest: str

    @property
    def identity(self) -> Identity:
        return Identity(self.record.lineage, self.record.sequence, self.digest)

    def follows(self, before: JournalLink) -> bool:
        return (
            self.record.previous == before.digest
            and self.record.lineage == before.record.lineage
            and self.record.sequence == before.record.sequence + 1
        )


@dataclass(frozen=True)
class CommittedStates:
    """Finds the committed state of partitions. Changes nothing."""

    topics: TopicNames
    group: GroupOffsets
    reader: Reader
    notify: Notify = lambda event, details: None

    # A mutant of the simulation replaces this.
    def of(self, number: int) -> CommittedState | None:
        """None if nothing was ever committed.

        Raises RetryableError to be asked again, OperatorActionRequiredError where a person must act.
        """
        committed = self._from_offsets(number)
        # The markers of a transaction land one by one. Were offsets lost, the journal alone knows of its last batch.
        if not self.reader.settled(TopicPartition(self.topics.journal, number)):
            raise RetryableError(f"a transaction is still open on {self.topics.journal} [{number}]")
        links = self._journal_end(number, committed.identity if committed else None)
        link = self._authority(number, committed, links)
        if link is None:
            found = committed
        else:
            positions = {topic: part.next for topic, part in self._ranges(link.record)}
            found = CommittedState(link.identity, positions, link.record.snapshot)
            self._check_topic_ids(number, link.record)
        if found is not None:
            for topic, offset in found.positions.items():
                self._check_kept(TopicPartition(topic, number), offset)
        return found

    # The group's offsets

    def _from_offsets(self, number: int) -> CommittedState | None:
        places = [TopicPartition(topic, number) for topic in self.topics.inputs]
        committed = self.committed(places)
        known = [committed.get(place) for place in places]
        if all(position is None for position in known):
            return None
        identities = set()
        positions = {}
        for place, position in zip(places, known, strict=True):
            identity = Identity.parse(position.metadata) if position else None
            if position is None or identity is None:
                raise OperatorActionRequiredError(
                    f"the group's offset of {place.topic} [{number}] is {'foreign' if position else 'missing'}: "
                    "somebody else commits for this group, or offsets were reset by hand. Use a group of its own, or "
                    "start a new lineage with `gforce reset`.",
                    number,
                )
            identities.add(identity)
            positions[place.topic] = position.offset
        if len(identities) != 1:
            raise OperatorActionRequiredError(
                f"the two inputs of partition {number} were committed at different states "
                f"{sorted(map(str, identities))}: offsets were reset by hand. Start a new lineage with `gforce reset`.",
                number,
            )
        return CommittedState(identities.pop(), positions)

    def committed(self, places: list[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """The group's offsets, after every open transaction that could change them has ended."""
        return self.group.committed(places)

    def _check_kept(self, place: TopicPartition, offset: int) -> None:
        first, end = self.reader.bounds(place)
        if offset < first:
            raise OperatorActionRequiredError(
                f"{place.topic} [{place.partition}] was read up to {offset} and now starts at {first}: records were "
                "deleted before they were processed. Raise the topic's retention; to go on without them use "
                "`gforce reset`.",
                place.partition,
            )
        if offset > end and self.reader.settled(place):
            raise OperatorActionRequiredError(
                f"{place.topic} [{place.partition}] was read up to {offset} and now ends at {end}: it has lost "
                "records, or was created again. Restore it; to go on without them use `gforce reset`.",
                place.partition,
            )

    # The journal

    def _authority(self, number: int, committed: CommittedState | None, links: list[JournalLink]) -> JournalLink | None:
        """The journal record of the committed state; None at the beginning of a lineage."""
        if committed is None:
            return _last(links)
        identity = committed.identity
        own = [link for link in links if link.record.lineage == identity.lineage]
        if identity.sequence == 0:
            if not own:
                return None  # a new lineage without a batch yet
            at = _last(own)
        else:
            at = next((link for link in own if link.identity == identity), None)
        if at is None:
            raise self._without_committed(number, identity, _last(links))
        last = at
        for link in links[links.index(at) + 1 :]:
            if link.follows(last):
                last = link
            elif link.record.lineage != identity.lineage:
                raise OperatorActionRequiredError(
                    f"the journal of partition {number} goes on under lineage {link.record.lineage} after batch "
                    f"{identity.sequence} of {identity.lineage}, which the group's offsets name: Kafka has lost the "
                    "offsets of a reset, or another cluster writes to this journal. Start a new lineage with "
                    "`gforce reset`.",
                    number,
                )
        if last.identity != identity:
            self.notify(
                "offsets lost",
                {"partition": number, "offsets": identity.sequence, "journal": last.record.sequence},
            )
            return last
        self._check_positions(number, committed.positions, last.record)
        return last

    def _without_committed(
        self, number: int, committed: Identity, last: JournalLink | None
    ) -> OperatorActionRequiredError:
        """What to raise where the journal does not hold the committed batch."""
        name, sequence = self.topics.journal, committed.sequence
        if last is None or (last.record.lineage == committed.lineage and last.record.sequence < sequence):
            ends = f"ends with batch {last.record.sequence}" if last else "is empty"
            text = f"{name} [{number}] {ends} and the group's offsets are at batch {sequence}: journal records are lost"
        else:
            text = (
                f"{name} [{number}] does not hold batch {sequence} of lineage {committed.lineage}, which the group's "
                f"offsets name, but batch {last.record.sequence} of {last.record.lineage}: offsets or journal were "
                "replaced"
            )
        return OperatorActionRequiredError(
            f"{text}. Restore what was changed, or start a new lineage with `gforce reset`.", number
        )

    # A mutant of the simulation replaces this.
    def _check_positions(self, number: int, positions: Mapping[str, int], record: JournalRecord) -> None:
        for topic, part in self._ranges(record):
            if positions[topic] != part.next:
                raise OperatorActionRequiredError(
                    f"the group's offset of {topic} [{number}] is {positions[topic]} and the journal read it up to "
                    f"{part.next} at the same batch {record.sequence}: the offset was moved by hand. Stop the "
                    "processors and delete the group's offsets of both inputs: the journal then says where to go on. "
                    "To leave records out or to decide them again, use `gforce reset`.",
                    number,
                )

    # A mutant of the simulation replaces this.
    def _check_topic_ids(self, number: int, record: JournalRecord) -> None:
        """A topic that was deleted and created again has other records at the same offsets."""
        sources = self.topics.sources
        now = self.reader.topic_ids(self.topics.inputs) if record.topics else {}
        for topic, id in now.items():
            if (was := record.topics.get(sources[topic], id)) != id:
                raise OperatorActionRequiredError(
                    f"{topic} was deleted and created again (its id is {id}, batch {record.sequence} read {was}): its "
                    "offsets mean other records now. Start a new lineage with `gforce reset --from earliest`.",
                    number,
                )

    def _ranges(self, record: JournalRecord) -> tuple[tuple[str, Range], ...]:
        return (self.topics.requests, record.requests), (self.topics.feedback, record.feedback)

    def _journal_end(self, number: int, committed: Identity | None) -> list[JournalLink]:
        """The last records of the journal, from the committed batch or an earlier one on."""
        at = TopicPartition(self.topics.journal, number)
        first, end = self.reader.bounds(at)
        window = FIRST_WINDOW if committed else 16 * FIRST_WINDOW  # without offsets only the chain tells what is ours
        while True:
            start = max(first, end - window)
            links = list(self._links(at, start, end))
            if start == first or window >= LARGEST_WINDOW or _reaches(links, committed):
                return links
            window *= 4

    def _links(self, at: TopicPartition, start: int, end: int) -> Iterator[JournalLink]:
        for record in self.reader.read(at, start, end):
            try:
                found = JournalRecord.decode(record.value or b"")
                if found.partition != at.partition:
                    raise ForeignRecordError(f"this is a journal record of partition {found.partition}")
            except ForeignRecordError as error:
                foreign_record(self.notify, at, record.offset, error)
            else:
                yield JournalLink(found, digest(record.value or b""))


def foreign_record(notify: Notify, at: TopicPartition, offset: int, error: ForeignRecordError) -> None:
    """Tell of a record that is not ours, which is skipped."""
    notify("foreign record", {"topic": at.topic, "partition": at.partition, "offset": offset, "why": str(error)})


def _reaches(links: list[JournalLink], committed: Identity | None) -> bool:
    """Whether these records go back to the committed batch."""
    if committed is None or committed.sequence == 0:
        return len(links) > 1
    return any(
        link.record.lineage == committed.lineage and link.record.sequence <= committed.sequence for link in links
    )


def _last(links: list[JournalLink]) -> JournalLink | None:
    """The end of the chain: a record that somebody else put here follows nothing, and a copy leads no further."""
    digests = {link.digest for link in links}
    chained = [link for link in links if link.record.previous in digests or link.record.sequence == 1] or links
    lineage = chained[-1].record.lineage if chained else ""
    own = [link for link in chained if link.record.lineage == lineage]
    return max(own, key=lambda link: link.record.sequence, default=None)
