"""The hash chain of a journal: every record holds the digest of the one before."""

from __future__ import annotations

from dataclasses import dataclass, field

from processor.core.errors import IncompatibleStateError
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JournalRecord
from processor.ports.log import Record

from .findings import Finding, NotAuditableError, batch_finding


def decode_journal(topic: str, partition: int, record: Record) -> JournalRecord | Finding:
    """The record decoded, or what is wrong with it. Raises NotAuditableError for one of a later version."""
    try:
        return JournalRecord.decode(record.value or b"")
    except IncompatibleStateError as error:
        if "is of form" in str(error):
            place = f"{topic} [{partition}] at {record.offset}"
            raise NotAuditableError(f"{place}: {error}", partition=partition) from None
        return Finding(
            kind="journal-unreadable", topic=topic, partition=partition, offset=record.offset, text=str(error)
        )


@dataclass(frozen=True)
class ChainLink:
    """A record of the chain, with its offset and digest."""

    record: JournalRecord
    offset: int
    digest: str

    @property
    def identity(self) -> Identity:
        return Identity(self.record.lineage, self.record.sequence, self.digest)


@dataclass
class Chain:
    """Follows the journal of one partition. A break is blamed on one record once the next has been seen."""

    topic: str
    partition: int
    last: ChainLink | None = None
    _broken: tuple[ChainLink, ChainLink] | None = None
    links: int = 0
    heads: list[Identity] = field(default_factory=list)
    """the last state of each lineage that has ended"""

    def begins(self, link: ChainLink) -> bool:
        """Whether this record begins a lineage."""
        return self.last is None or self.last.record.lineage != link.record.lineage

    def follow(self, link: ChainLink) -> list[Finding]:
        """Add a record. Raises NotAuditableError where the beginning is not there."""
        self.links += 1
        before, self.last = self.last, link
        record = link.record
        if before is None or before.record.lineage != record.lineage:
            if before is not None:
                self.heads.append(before.identity)
            found = self.end()
            if record.sequence == 1 and record.previous in ("", GENESIS):
                return found
            if before is None:
                raise NotAuditableError(
                    f"the journal at hand starts with batch {record.sequence} at offset {link.offset} of {self.topic} "
                    f"[{self.partition}]: what was before is not recorded or no longer kept. Record the journal from "
                    "its beginning, or start the audit at a snapshot (--from-snapshot).",
                    partition=self.partition,
                )
            text = f"lineage {record.lineage} begins with batch {record.sequence} instead of 1"
            return [*found, self._gap(link, text)]
        if record.sequence != before.record.sequence + 1:
            found = self.end()
            text = f"batch {record.sequence} follows batch {before.record.sequence}: " + (
                "the same batch twice" if record.sequence <= before.record.sequence else "batches are missing"
            )
            return [*found, self._gap(link, text)]
        if record.previous == before.digest:
            return self.end()
        if self._broken is not None and self._broken[1] is before:
            self._broken = None  # the one in the middle matches neither neighbour
            return [self._altered(before, f"neither the record before it nor that of batch {record.sequence} fits it")]
        self._broken = (before, link)
        return []

    def end(self) -> list[Finding]:
        """What there is still to say about a break."""
        if self._broken is None:
            return []
        (altered, after), self._broken = self._broken, None
        return [
            self._altered(
                altered,
                f"batch {after.record.sequence} at offset {after.offset} was chained to another one",
                recorded=f"digest {after.record.previous} in batch {after.record.sequence}",
            )
        ]

    def _altered(self, link: ChainLink, why: str, recorded: str = "") -> Finding:
        journal, offset = link.record, link.offset
        text = f"the journal record of batch {journal.sequence} is not the one that was written: {why}"
        follows = f"digest {link.digest} of the record at offset {offset}"
        return batch_finding("journal-altered", self.topic, self.partition, journal, offset, text, recorded, follows)

    def _gap(self, link: ChainLink, text: str) -> Finding:
        return batch_finding("journal-gap", self.topic, self.partition, link.record, link.offset, text)
