"""The audit of partitions: recompute, compare, and report what was verified of each and what not."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import numpy as np

from processor.audit.replay.changelog import Changelog, own_writes, start_from_snapshot
from processor.audit.replay.findings import Finding, Findings, Kind, NotAuditableError, batch_finding
from processor.audit.replay.output_reader import OutputReader
from processor.audit.replay.recorded_settings import RecordedSettings
from processor.audit.replay.replay import LARGE_BATCH_RECORDS, Replay, ReplayedBatch, Stepping, interleave_partitions
from processor.audit.sources.source import RecordingError, Role, Source
from processor.core import IN_FORCE
from processor.core.learner.cases import Drawn
from processor.core.stream.identity import Identity
from processor.core.stream.journal import JournalRecord, state_digest
from processor.core.stream.step import DecodedBatch, StepResult

from .decisions import Decisions, head_of, recorded_draws, tenants_without_seed
from .result import AuditOptions, Lineage, PartitionAudit
from .side_outputs import Alerts, DeadLetters

NO_ANCHOR = "the end cannot be verified: nothing outside the journal says where it ends"


@dataclass
class ExpectedIdentity:
    """The identity that the chain must pass through."""

    identity: Identity | None
    topic: str
    partition: int

    def check_batch(self, identity: Identity, result: PartitionAudit) -> list[Finding]:
        """Compare a batch with it."""
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

    def check_end(self, replay: Replay, result: PartitionAudit) -> list[Finding]:
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

    def add_unclaimed(self, replay: Replay, result: PartitionAudit, found: Findings) -> None:
        """Outputs that no batch has claimed."""
        last = replay.chain.last
        if last is None:
            return
        later = 0
        for record in self.decisions.unclaimed():
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
            for record, place, role, offset in self.letters.unclaimed():
                if self.floors[role] <= offset < replay.cursors[role].position:
                    found.add([self.letters.added(record, place)])
        if self.alerts is not None:
            found.add([self.alerts.added(record) for record in self.alerts.unclaimed()])

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


def add_notes(replay: Replay, result: PartitionAudit, found: Findings) -> None:
    """Add what is no difference, but should be known."""
    for cursor in replay.cursors:
        if count := cursor.count_remaining():
            result.notes.append(f"{count} records of {cursor.topic} come after the last batch and are not decided yet")
    if replay.lost:
        left = result.batches - result.recomputed
        result.notes.append(
            f"{left} batches were not recomputed, because {replay.lost}: of them only the chain, the hashes of the "
            "inputs and the digests of the decisions were checked"
        )
    missing = result.recomputed - result.states
    if missing and replay.recorded_settings.seedless and "state" not in found.counts:
        result.notes.append(
            f"the state digests of {missing} batches were not verified: they hold what shadow policies drew, for which "
            "the seed or the changelog is needed"
        )


def audit_partitions(
    source: Source,
    numbers: Sequence[int],
    options: AuditOptions,
    progress: Callable[[int], None] = lambda records: None,
) -> list[PartitionAudit]:
    """Audit these partitions. Never raises for what is wrong with the record: that is in the results.

    ``progress`` gets the number of further input records read.
    """
    with rare_garbage_collection():
        return interleave_partitions(_PartitionAuditor(source, number, options).run(progress) for number in numbers)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: records hold no cycles, and the usual threshold of 700 objects costs a tenth."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _PartitionAuditor:
    def __init__(self, source: Source, number: int, options: AuditOptions) -> None:
        self.source, self.number, self.options = source, number, options
        self.result = PartitionAudit(partition=number)
        self.found = Findings()
        self.codec = options.codec() if options.codec else None
        self.outputs: Outputs | None = None
        self.changelog: Changelog | None = None
        self.result.anchor = options.heads.get(number) or source.anchor(number) or ""
        self.anchor = ExpectedIdentity(Identity.parse(self.result.anchor), source.topic("journal"), number)
        self.seedless: set[str] = set()

    def run(self, progress: Callable[[int], None]) -> Stepping[PartitionAudit]:
        """Audit the partition. An error in its record ends this partition only."""
        try:
            yield from self._all(progress)
        except NotAuditableError as reason:
            self.result.not_auditable = str(reason)
        except RecordingError as error:
            self._damaged(error)
        result, found = self.result, self.found
        result.findings, result.counts = list(found.first.values()), dict(found.counts)
        result.every_finding = found.every
        result.seedless = sorted(self.seedless)
        return result

    def _all(self, progress: Callable[[int], None]) -> Stepping[None]:
        start = None
        if self.options.from_batch is not None:
            start, found = start_from_snapshot(self.source, self.number, self.options.from_batch, self.options.secrets)
            self.found.add(found)
            self.result.from_batch = start.link.record.sequence + 1
            self.found.add(self.anchor.check_batch(start.link.identity, self.result))
        replay = Replay(self.source, self.number, self.options.secrets, codec=self.codec, start=start)
        replay.drawn = self._drawn
        read = 0
        for batch in replay.read_batches():
            if replay.lost or len(batch.inputs) >= LARGE_BATCH_RECORDS:
                replay.recompute(batch)
            else:
                replay.take(batch, (yield replay.given(batch)))
            self._batch(replay, batch)
            progress(replay.read - read)
            read = replay.read
            del batch  # before the next one is made: its memory is used again
        self.found.add(replay.final_findings())
        self.result.skipped = [one for cursor in replay.cursors for one in cursor.skipped]
        self.found.add(self.anchor.check_end(replay, self.result))
        if self.outputs is not None:
            self.outputs.add_unclaimed(replay, self.result, self.found)
        add_notes(replay, self.result, self.found)
        if self.changelog is not None and self.changelog.trimmed:
            self.result.notes.append(
                f"the changelog at hand lacks the writes of {self.changelog.trimmed} batches, which were trimmed "
                "before they were recorded: their state digests were verified without it"
            )
        self.result.finished = True

    def _open_outputs(self, journal: JournalRecord) -> Outputs:
        """Open the outputs at the first batch: the journal has the partition count of the inputs."""
        if self.outputs is not None:
            return self.outputs
        source, number, partitions = self.source, self.number, journal.partitions
        outputs = Outputs(
            decisions=Decisions(OutputReader(source, "decisions", number, partitions), number),
            letters=DeadLetters(source, number) if source.has("dead_letters") else None,
            alerts=Alerts(OutputReader(source, "alerts", number, partitions), number) if source.has("alerts") else None,
        )
        if source.has("changelog"):
            self.changelog = Changelog(source, number)
        if self.options.from_batch is not None:
            outputs.decisions.skip_to(journal)
            if outputs.letters:
                outputs.letters.skip_to(journal)
            if outputs.alerts:
                outputs.alerts.skip_to(journal)
            outputs.floors = (journal.requests.start, journal.feedback.start)
        compared: tuple[Role, ...] = ("decisions", "dead_letters", "alerts", "changelog")
        self.result.compared = [source.topic(role) for role in compared if source.has(role)]
        self.outputs = outputs
        return outputs

    # One batch

    def _drawn(
        self, journal: JournalRecord, decoded: DecodedBatch, recorded_settings: RecordedSettings
    ) -> Mapping[str, Mapping[str, Drawn]]:
        tenants = tenants_without_seed(decoded, recorded_settings)
        if not tenants:
            return {}
        self.seedless |= tenants
        return recorded_draws(decoded, recorded_settings, tenants, self._open_outputs(journal).decisions.of(journal))

    def _batch(self, replay: Replay, batch: ReplayedBatch) -> None:
        result, journal = self.result, batch.journal
        self._count(batch)
        found = list(batch.findings)
        outcome = batch.outcome
        if outcome is None:
            if self.source.has("decisions"):
                found += self._open_outputs(journal).decisions.digest_only(journal, batch.offset)
        else:
            result.recomputed += 1
            found += self._outcome(replay, batch, outcome)
        self.found.add(self._with_causes(found, batch))
        self.found.add(self.anchor.check_batch(batch.identity, result))

    def _outcome(self, replay: Replay, batch: ReplayedBatch, outcome: StepResult) -> list[Finding]:
        result, journal, outputs = self.result, batch.journal, self._open_outputs(batch.journal)
        values = [made.value for made in outcome.decisions]
        topic, codec = outputs.decisions.topic, self.codec
        published = [codec.from_json(topic, value) for value in values] if codec else values
        found: list[Finding] = []
        if self.source.has("decisions"):
            found += outputs.decisions.compare(journal, outcome.decisions, published)
        follows = outputs.decisions.digest_of(values)
        if follows != journal.decisions_digest:
            text = f"the {journal.decisions} decisions of batch {journal.sequence} are not those that follow"
            found.append(self._in_journal("decisions-digest", batch, text, journal.decisions_digest, follows))
        found += self._state(replay, batch, outcome)
        if outcome.rules != journal.rules:
            text = "the tenants that are said to be under new rules are not those that follow"
            found.append(self._in_journal("configuration", batch, text, str(journal.rules), str(outcome.rules)))
        if outputs.letters is not None:
            found += outputs.letters.compare(journal, outcome.dead_letters)
        if outputs.alerts is not None:
            found += outputs.alerts.compare(journal, outcome.alerts)
        result.dead_letters += len(outcome.dead_letters)
        result.alerts += len(outcome.alerts)
        return found

    def _state(self, replay: Replay, batch: ReplayedBatch, outcome: StepResult) -> list[Finding]:
        """The state digest; where shadows' draws are not known, by way of the changelog."""
        journal = batch.journal
        follows = state_digest(journal.previous, outcome.writes)
        if follows == journal.state_digest:
            self.result.states += 1
            return self.changelog.compare(journal, batch.identity, outcome.writes) if self.changelog else []
        if not replay.recorded_settings.seedless:
            text = f"the state after batch {journal.sequence} is not the one that follows"
            return [self._in_journal("state", batch, text, journal.state_digest, follows)]
        entry = self.changelog.of(journal) if self.changelog else None
        own = own_writes(entry.writes, journal.previous, journal.state_digest) if entry else None
        if own is not None:
            replay.adopt(batch, own)
            wrong = _tenant_that_differs(outcome, replay)
            if not wrong:
                self.result.states += 1
                return []
            text = f"the counters of {wrong} after batch {journal.sequence} are not those that follow"
            return [self._in_journal("state", batch, text)]
        if entry is not None and self.changelog is not None:
            return self.changelog.unlike(journal, entry)
        return []  # the result says for how many batches the state was verified

    def _count(self, batch: ReplayedBatch) -> None:
        result, journal = self.result, batch.journal
        result.batches += 1
        result.decisions += journal.decisions
        result.requests += journal.requests.count
        result.labels += journal.feedback.count
        result.first_clock = result.first_clock or journal.clock
        result.last_clock = journal.clock
        if journal.version not in result.versions:
            result.versions.append(journal.version)
        if not result.lineages or result.lineages[-1].name != journal.lineage:
            first = Lineage(name=journal.lineage, first=journal.sequence, last=journal.sequence, digest="")
            result.lineages.append(first)
        lineage = result.lineages[-1]
        lineage.last, lineage.digest = journal.sequence, batch.identity.digest

    def _with_causes(self, found: list[Finding], batch: ReplayedBatch) -> list[Finding]:
        """Say of a difference in what came out whether what went in was as it was processed."""
        inputs = [f for f in found if f.kind.startswith("input-")]
        if inputs:
            one = inputs[0]
            cause = f"an input of the batch differs: {one.topic} [{one.partition}] at {one.offset} ({one.kind})"
        else:
            cause = "every input of the batch is as it was processed, by its hash"
        effects = ("decision", "probability", "decision-added", "decision-missing", "decisions-digest", "state")
        return [msgspec.structs.replace(f, cause=f.cause or cause) if f.kind in effects else f for f in found]

    def _in_journal(
        self, kind: Kind, batch: ReplayedBatch, text: str, recorded: str = "", follows: str = ""
    ) -> Finding:
        topic = self.source.topic("journal")
        return batch_finding(kind, topic, self.number, batch.journal, batch.offset, text, recorded, follows)

    def _damaged(self, error: RecordingError) -> None:
        self.found.add(
            [
                Finding(
                    kind="recording",
                    topic=error.topic,
                    partition=error.partition if error.partition >= 0 else self.number,
                    offset=error.offset if error.offset >= 0 else None,
                    text=str(error),
                )
            ]
        )


def _tenant_that_differs(outcome: StepResult, replay: Replay) -> str:
    """The first tenant whose counters, apart from the shadows', are not those adopted; empty if there is none."""
    assert replay.partition is not None
    for name, tenant in outcome.partition.tenants.items():
        mine, theirs = tenant.learner.state.lifetime, replay.partition.tenants[name].learner.state.lifetime
        force = tenant.learner.state.axes.policy_index[IN_FORCE]
        pairs = [*zip(mine.arrays()[:5], theirs.arrays()[:5], strict=True)]
        pairs.append((mine.outcomes[:, force], theirs.outcomes[:, force]))
        if mine is not theirs and not all(np.array_equal(a, b) for a, b in pairs):
            return f'tenant "{name}"'
    return ""
