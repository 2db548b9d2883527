"""Recompute partitions from their inputs and their journal alone, batch by batch.

The journal holds how the two inputs were interleaved, what time it was and under which settings, so that everything
else follows. The audit, ``explain`` and what-if use the same replay; only the audit compares.

A step costs by the call more than by the record, so small batches of several partitions are stepped as one large batch
(``interleave_partitions``). Independent tasks run in several processes (``in_processes``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import get_context
from os import cpu_count
from typing import Any, TypeVar

from processor.audit.sources.source import Source
from processor.core.errors import GForceError
from processor.core.learner.cases import Drawn
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JournalRecord, digest
from processor.core.stream.partition import Partition
from processor.core.stream.step import (
    FEEDBACK,
    REQUESTS,
    DecodedBatch,
    Given,
    InputRecord,
    StepResult,
    advanced,
    decode,
    due_slot,
    split_by_source,
    steps,
)
from processor.core.stream.tenant import Tenant, fields_by_tenant
from processor.ports.codec import Codec, raw_of
from processor.ports.log import Record

from .findings import Finding, NotAuditableError
from .input_cursor import InputCursor
from .journal_chain import Chain, ChainLink, decode_journal
from .memory_state import MemoryState
from .recorded_settings import Override, RecordedSettings, Secrets, settings_digest

Transform = Callable[[JournalRecord, DecodedBatch], DecodedBatch]
"""Changes what a batch asks for, between decoding and stepping: leave an expert out, hold labels back."""


@dataclass(frozen=True)
class Start:
    """Where a replay begins that does not begin at the beginning: the state after a batch."""

    link: ChainLink
    partition: Partition
    mirror: MemoryState
    book: RecordedSettings


@dataclass
class ReplayedBatch:
    """One batch of the journal, and what follows from it."""

    offset: int
    """of the journal record"""
    journal: JournalRecord
    identity: Identity
    raws: list[InputRecord]
    """requests first, then feedback, each in order of offset"""
    before: Partition
    """the state this batch started from; that of the last batch that could be recomputed once the state is lost"""
    exact: bool = True
    """every input is what was processed"""
    asked: DecodedBatch | None = None
    entries: Mapping[bytes, bytes] = field(default_factory=dict)
    """what was stored, before the batch, of the decisions it asks for, as far as anything was; see ``keep_entries``"""
    outcome: StepResult | None = None
    """None where the state before this batch is not known"""
    findings: list[Finding] = field(default_factory=list)

    @property
    def clock(self) -> int:
        return self.journal.clock


@dataclass
class Replay:
    """One partition. ``batches`` reads the record once, from front to back; memory grows with the state only."""

    source: Source
    number: int
    secrets: Secrets = field(default_factory=Secrets)
    override: Override | None = None
    transform: Transform | None = None
    codec: Codec | None = None
    start: Start | None = None
    drawn: Callable[[JournalRecord, DecodedBatch, RecordedSettings], Mapping[str, Mapping[str, Drawn]]] | None = None
    """what was drawn according to the record, by tenant and decision, for tenants whose seed is not known"""
    keep_entries: bool = False
    """have batches say what was stored before them; the mirror has moved on when they are seen"""

    def __post_init__(self) -> None:
        self.topic = self.source.topic("journal")
        self.chain = Chain(self.topic, self.number)
        self.tapes = [InputCursor(self.source, role, self.number) for role in ("requests", "feedback")]
        self.lost = ""
        """why the state is no longer known; nothing is recomputed from then on"""
        self.mirror, self.book = MemoryState(), RecordedSettings(self.secrets, self.override)
        self.partition: Partition | None = None
        self._carried: list[Finding] = []
        if self.start is not None:
            self.chain.last, self.partition = self.start.link, self.start.partition
            self.mirror, self.book = self.start.mirror, self.start.book
            reached = self.start.link.record
            for tape, part in zip(self.tapes, (reached.requests, reached.feedback), strict=True):
                tape.wind(part.next)

    @property
    def read(self) -> int:
        """Input records read so far."""
        return sum(tape.read for tape in self.tapes)

    def lose(self, why: str) -> None:
        """From here on the state is not what it was: walk the chain and the hashes, but recompute no more."""
        self.lost = self.lost or why

    def batches(self) -> Iterator[ReplayedBatch]:
        """Every batch, recomputed. Raises NotAuditable where the record does not hold what is needed."""
        for batch in self.unstepped():
            self.recompute(batch)
            yield batch

    def unstepped(self) -> Iterator[ReplayedBatch]:
        """Every batch, as it was read: to be recomputed, or taken, before the next one is asked for."""
        first = self.start.link.offset + 1 if self.start else 0
        for record in self.source.read("journal", self.number, first):
            journal = self._decoded(record)
            if journal is not None:
                yield self._batch(ChainLink(journal, record.offset, digest(record.value or b"")))

    def recompute(self, batch: ReplayedBatch) -> None:
        """Step the batch by itself, unless the state is lost."""
        if not self.lost:
            self._recompute(batch)

    def given(self, batch: ReplayedBatch) -> Given:
        """What the batch is to be stepped from."""
        journal, terms = batch.journal, self.book.in_force()
        asked = batch.asked = self._asked(batch)
        entries, due = self.mirror.entries, self.mirror.due(due_slot(journal.clock, terms.slot), terms.sweep)
        if self.keep_entries:
            batch.entries = self.mirror.of(asked)
        drawn = self.drawn(journal, asked, self.book) if self.drawn else {}
        return Given(batch.before, asked, entries, due, journal.clock, terms, journal.acknowledged, drawn)

    def take(self, batch: ReplayedBatch, outcome: StepResult | Exception) -> None:
        """Go on from what the batch leads to, or without a state if it cannot be recomputed."""
        if isinstance(outcome, Exception):
            if isinstance(outcome, NotAuditableError) or self.override is not None or self.transform is not None:
                raise outcome
            self.lose(f"batch {batch.journal.sequence} cannot be recomputed")
            batch.findings.append(self._failed(batch, outcome))
        else:
            batch.outcome = outcome
            self.mirror.follow(outcome)
            self.partition = advanced(outcome.partition, batch.identity)
        if not batch.exact:
            self.lose(f"an input of batch {batch.journal.sequence} is not what was processed")

    def rest(self) -> list[Finding]:
        """What is only known at the end."""
        found, self._carried = [*self._carried, *self.chain.end()], []
        return found

    def _decoded(self, record: Record) -> JournalRecord | None:
        found = decode_journal(self.topic, self.number, record)
        if isinstance(found, JournalRecord):
            return found
        self._carried.append(found)  # if it was one of ours, the chain has a gap now
        return None

    def _batch(self, link: ChainLink) -> ReplayedBatch:
        journal = link.record
        findings, self._carried = self._carried, []
        if self.chain.begins(link):
            self._begin(journal)
        findings += self.chain.follow(link)
        if any(finding.kind == "journal-gap" for finding in findings):
            self.lose(f"the journal has a gap before batch {journal.sequence}")
        findings += self._configurations(link)
        raws, exact, wrong = self._raws(journal)
        findings += wrong
        assert self.partition is not None
        return ReplayedBatch(link.offset, journal, link.identity, raws, self.partition, exact, findings=findings)

    def _begin(self, journal: JournalRecord) -> None:
        """A new lineage forgets everything and may read its inputs again."""
        self.lost, self.mirror, self.book = "", MemoryState(), RecordedSettings(self.secrets, self.override)
        self.partition = Partition(self.number, journal.partitions, Identity(journal.lineage, 0, GENESIS))
        for tape, part in zip(self.tapes, (journal.requests, journal.feedback), strict=True):
            tape.wind(part.start)

    def adopt(self, batch: ReplayedBatch, writes: bytes) -> None:
        """Go on from these writes of the batch instead of those recomputed: the same but for what shadows drew."""
        assert self.partition is not None
        self.mirror.take(writes)
        before = batch.before.tenants
        touched = {name for name, tenant in self.partition.tenants.items() if tenant is not before.get(name)}
        self._refresh(lambda tenant: tenant.name in touched)

    # What the journal says

    def _configurations(self, link: ChainLink) -> list[Finding]:
        journal, found = link.record, []
        for name, text in journal.configs.items():
            self.book.configs[name] = text
            if settings_digest(text) != name:
                tenants = sorted(tenant for tenant, rules in journal.rules.items() if rules == name)
                found.append(
                    Finding(
                        kind="configuration",
                        topic=self.topic,
                        partition=self.number,
                        offset=link.offset,
                        lineage=journal.lineage,
                        batch=journal.sequence,
                        text=f"the configuration of {', '.join(tenants) or 'no tenant'} was changed in the journal",
                        recorded=f"digest {name}",
                        follows=f"digest {settings_digest(text)}",
                    )
                )
        if journal.terms and journal.terms != self.book.terms:
            self.book.set_terms(journal.terms)
            self._refresh(lambda tenant: True)
        self.book.assigned.update(journal.rules)
        self._refresh(lambda tenant: tenant.name in journal.rules)
        for tape in self.tapes:
            if journal.rules:
                tape.words |= self.book.words()
        return found

    def _refresh(self, affected: Callable[[Tenant], bool]) -> None:
        """Put tenants under the rules of the book, as a restart under a new configuration does: from their fields."""
        if self.lost or self.partition is None:
            return
        own = fields_by_tenant(self.mirror.fields)
        tenants = {
            name: Tenant.from_fields(tenant.number, own[tenant.number], self.book.settings_for)
            if affected(tenant)
            else tenant
            for name, tenant in self.partition.tenants.items()
        }
        self.partition = replace(self.partition, tenants=tenants)

    def _raws(self, journal: JournalRecord) -> tuple[list[InputRecord], bool, list[Finding]]:
        raws: list[InputRecord] = []
        exact, findings = True, []
        sources = ((REQUESTS, journal.requests), (FEEDBACK, journal.feedback))
        for tape, (source, part) in zip(self.tapes, sources, strict=True):
            if tape.position != part.start:
                before = f"and the one before it to {tape.position}"
                text = f"batch {journal.sequence} reads {tape.topic} from {part.start} {before}"
                findings.append(self._gap(journal, text))
                self.lose("the journal skips or repeats input")
            for named, first, after in journal.skipped:
                if named == source and not part.start <= first < after <= part.next:
                    text = f"batch {journal.sequence} leaves out offsets {first} to {after - 1} of {tape.topic}, which"
                    findings.append(self._gap(journal, f"{text} are not of those it speaks of"))
            taken = tape.take(journal, part)
            findings += taken.findings
            exact &= taken.exact
            if self.codec is None:
                raws += [InputRecord(source, r.offset, r.timestamp, r.key, r.value, r.headers) for r in taken.records]
            else:
                raws += [raw_of(source, record, self.codec) for record in taken.records]
        return raws, exact, findings

    def _gap(self, journal: JournalRecord, text: str) -> Finding:
        assert self.chain.last is not None
        return Finding(
            kind="journal-gap",
            topic=self.topic,
            partition=self.number,
            offset=self.chain.last.offset,
            lineage=journal.lineage,
            batch=journal.sequence,
            text=text,
        )

    # What follows

    def _asked(self, batch: ReplayedBatch) -> DecodedBatch:
        journal = batch.journal
        poison = {(source, offset) for source, offset in journal.poison}
        asked = decode(
            *split_by_source(batch.raws), self.number, journal.partitions, journal.now, self.book.in_force(), poison
        )
        return asked if self.transform is None else self.transform(journal, asked)

    def _recompute(self, batch: ReplayedBatch) -> None:
        self.take(batch, run_steps([self.given(batch)])[0])

    def _failed(self, batch: ReplayedBatch, error: Exception) -> Finding:
        said = str(error) if isinstance(error, GForceError) else f"{type(error).__name__}: {error}"
        return Finding(
            kind="recomputation",
            topic=self.topic,
            partition=self.number,
            offset=batch.offset,
            lineage=batch.journal.lineage,
            batch=batch.journal.sequence,
            text=f"batch {batch.journal.sequence} cannot be recomputed: {said}",
        )


def run_steps(given: Sequence[Given]) -> list[StepResult | Exception]:
    """What batches of different partitions lead to. Whatever the record holds, only the one at fault says so."""
    try:
        return [*steps(given)]
    except Exception as error:
        return [error] if len(given) == 1 else [run_steps([one])[0] for one in given]


def replay(
    source: Source,
    partition: int,
    secrets: Secrets | None = None,
    *,
    override: Override | None = None,
    transform: Transform | None = None,
    codec: Codec | None = None,
    start: Start | None = None,
) -> Iterator[ReplayedBatch]:
    """Every batch of a partition, recomputed in order; under other rules or on changed inputs if asked to."""
    return Replay(source, partition, secrets or Secrets(), override, transform, codec, start).batches()


R = TypeVar("R")
Stepping = Generator[Given, StepResult | Exception, R]
"""Goes through a partition: says what is to be stepped next, is told what that leads to, and ends with a result."""

MAX_INTERLEAVED_PARTITIONS = 4
"""So many partitions at a time: each has its state in memory, and what it reads is open."""
LARGE_BATCH_RECORDS = 2_000
"""A batch of so many records gains nothing from company, and leaves the processor's cache while it waits for some."""


def interleave_partitions(partitions: Iterable[Stepping[R]]) -> list[R]:
    """The results, in order. In memory are at most ``MAX_INTERLEAVED_PARTITIONS`` states, and a batch of each."""
    coming = enumerate(partitions)
    results: dict[int, R] = {}
    under_way: list[tuple[int, Stepping[R], StepResult | Exception | None]] = []
    while True:
        under_way += [
            (number, one, None) for number, one in islice(coming, MAX_INTERLEAVED_PARTITIONS - len(under_way))
        ]
        if not under_way:
            return [results[number] for number in sorted(results)]
        waiting: list[tuple[int, Stepping[R], Given]] = []
        for number, one, outcome in under_way:
            try:
                waiting.append((number, one, next(one) if outcome is None else one.send(outcome)))
            except StopIteration as end:
                results[number] = end.value
        outcomes = run_steps([given for _, _, given in waiting])
        under_way = [(number, one, outcome) for (number, one, _), outcome in zip(waiting, outcomes, strict=True)]


T = TypeVar("T")
Progress = Callable[[int], None]

PROGRESS_INTERVAL_S = 0.2
"""Seconds between two looks at how far the pieces are."""

_READ_COUNTS: Any = None
"""In a process of the pool: how far each piece is, shared with all of them."""


def in_processes(
    work: Callable[[T, Progress], R],
    pieces: Sequence[T],
    processes: int | None = None,
    progress: Progress = lambda records: None,
) -> list[R]:
    """The results in the order of the pieces. ``progress`` is told how many records have been read in all."""
    most = min(processes or cpu_count() or 1, len(pieces))
    if most > 1:
        return _run_in_pool(work, pieces, most, progress)
    total = [0]

    def further(records: int) -> None:
        total[0] += records
        progress(total[0])

    return [work(piece, further) for piece in pieces]


def _share_counts(read: Any) -> None:
    global _READ_COUNTS
    _READ = read


def _in_process(work: Callable[[T, Progress], R], piece: T, index: int) -> R:
    def further(records: int) -> None:
        _READ_COUNTS[index] += records

    return work(piece, further)


def _run_in_pool(work: Callable[[T, Progress], R], pieces: Sequence[T], most: int, progress: Progress) -> list[R]:
    context = get_context("spawn")  # threads of a Kafka client do not survive a fork
    read = context.Array("q", len(pieces), lock=False)
    with ProcessPoolExecutor(most, mp_context=context, initializer=_share_counts, initargs=(read,)) as pool:
        futures: list[Future[R]] = [pool.submit(_in_process, work, piece, i) for i, piece in enumerate(pieces)]
        waiting: set[Future[R]] = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=PROGRESS_INTERVAL_S)
                progress(sum(read))
                for one in done:
                    one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
