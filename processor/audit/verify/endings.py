"""What can only be said at the end of a partition: does the chain end where it should, and is anything left over?"""

from __future__ import annotations

from dataclasses import dataclass

from processor.audit.replay.findings import Finding, Findings, Kind
from processor.audit.replay.replay import Replay
from processor.core.stream.identity import Identity

from .decisions import Decisions, head_of
from .result import PartitionAudit
from .side_outputs import Alerts, DeadLetters

NO_ANCHOR = "the end cannot be verified: nothing outside the journal says where it ends"


@dataclass
class ExpectedIdentity:
    """The identity that the chain must pass through."""

    identity: Identity | None
    topic: str
    partition: int

    def met_by(self, identity: Identity, result: PartitionAudit) -> list[Finding]:
        """Hold a batch against it."""
        wanted = self.identity
        if wanted is None:
            return []
        if result.anchored:
            result.beyond += 1
        elif (identity.lineage, identity.sequence) == (wanted.lineage, wanted.sequence):
            result.anchored = identity.digest == wanted.digest
            if not result.anchored:
                text = f"batch {wanted.sequence} is not the one the anchor was taken from"
                return [self._finding("anchor", text, wanted.digest, identity.digest)]
        return []

    def missed_by(self, replay: Replay, result: PartitionAudit) -> list[Finding]:
        """The journal has ended without it."""
        wanted, last = self.identity, replay.chain.last
        if wanted is None:
            if last is not None:
                result.notes.append(NO_ANCHOR)
            return []
        if wanted.sequence == 0 and not result.anchored:
            result.anchored = last is None or last.record.lineage != wanted.lineage  # a lineage that is still to begin
            return []
        reached = last is not None and last.record.lineage == wanted.lineage and last.record.sequence >= wanted.sequence
        if result.anchored or reached:
            return []
        ends = f"ends with batch {last.record.sequence} of lineage {last.record.lineage}" if last else "is empty"
        text = f"the journal {ends}, and batch {wanted.sequence} of lineage {wanted.lineage} was committed"
        return [self._finding("end-missing", text, wanted.text(), "", last.offset + 1 if last else 0)]

    def _finding(self, kind: Kind, text: str, recorded: str, follows: str, offset: int | None = None) -> Finding:
        assert self.identity is not None
        return Finding(
            kind=kind,
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            lineage=self.identity.lineage,
            batch=self.identity.sequence,
            text=text,
            recorded=recorded,
            follows=follows,
        )


@dataclass
class Outputs:
    """What was published, as far as it was recorded."""

    decisions: Decisions
    letters: DeadLetters | None
    alerts: Alerts | None
    floors: tuple[int, int] = (0, 0)
    """where the audit starts in the two inputs"""

    def left_over(self, replay: Replay, result: PartitionAudit, found: Findings) -> None:
        """Outputs that no batch has claimed."""
        last = replay.chain.last
        if last is None:
            return
        later = 0
        for record in self.decisions.rest():
            head = head_of(record)
            if head is None or head.batch <= last.record.sequence:
                found.add([self.decisions.added(last.record, record)])
                continue
            later += 1
            if later == 1 and not result.anchored:
                found.add([self._cut_off(record.offset, head.batch, last.record.sequence)])
        if later and result.anchored:
            result.notes.append(f"{later} decisions come after the last batch at hand")
        if not replay.lost and not later:  # else it is not known what should be there
            self._other_outputs(replay, found)

    def _other_outputs(self, replay: Replay, found: Findings) -> None:
        if self.letters is not None:
            for record, place, role, offset in self.letters.rest():
                if self.floors[role] <= offset < replay.tapes[role].position:
                    found.add([self.letters.added(record, place)])
        if self.alerts is not None:
            found.add([self.alerts.added(record) for record in self.alerts.rest()])

    def _cut_off(self, offset: int, batch: int, reached: int) -> Finding:
        return Finding(
            kind="end-missing",
            topic=self.decisions.topic,
            partition=self.decisions.number,
            offset=offset,
            batch=batch,
            text=f"there are decisions of batch {batch}, and the journal ends with batch {reached}",
            cause="the end of the journal was cut off, or it was recorded before the decisions were",
        )


def notes(replay: Replay, result: PartitionAudit, found: Findings) -> None:
    """What is no difference, but should be known."""
    for tape in replay.tapes:
        if count := tape.rest():
            result.notes.append(f"{count} records of {tape.topic} come after the last batch and are not decided yet")
    if replay.lost:
        left = result.batches - result.recomputed
        result.notes.append(
            f"{left} batches were not recomputed, because {replay.lost}: of them only the chain, the hashes of the "
            "inputs and the digests of the decisions were checked"
        )
    missing = result.recomputed - result.states
    if missing and replay.book.seedless and "state" not in found.counts:
        result.notes.append(
            f"the state digests of {missing} batches were not verified: they hold what shadow policies drew, for which "
            "the seed or the changelog is needed"
        )
