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
    InputRecord,
    StepInput,
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

from .findings import Finding, NotAuditableError, batch_finding
from .input_cursor import InputCursor
from .journal_chain import Chain, ChainLink, decode_journal
from .memory_state import MemoryState
from .recorded_settings import Override, RecordedSettings, Secrets, settings_digest

Transform = Callable[[JournalRecord, DecodedBatch], DecodedBatch]
"""Changes a decoded batch before it is stepped: leave an expert out, delay labels."""
R = TypeVar("R")
Stepping = Generator[StepInput, StepResult | Exception, R]
"""Goes through a partition: yields what is to be stepped next, receives the outcome, and returns a result."""
MAX_INTERLEAVED_PARTITIONS = 4
"""partitions at a time: each has its state in memory, and its files open"""
LARGE_BATCH_RECORDS = 2_000
"""records from which on a batch is stepped alone: it gains nothing from others, and would leave the CPU cache"""
T = TypeVar("T")
Progress = Callable[[int], None]
PROGRESS_INTERVAL_S = 0.2
"""seconds between two reports of progress"""
_READ_COUNTS: Any = None
"""In a process of the pool: the input records read by each task, shared by all processes."""


@dataclass(frozen=True)
class Start:
    """The state after a batch, to start a replay from."""

    link: ChainLink
    partition: Partition
    state: MemoryState
    recorded_settings: RecordedSettings


@dataclass
class ReplayedBatch:
    """One batch of the journal, and what follows from it."""

    offset: int
    """of the journal record"""
    journal: JournalRecord
    identity: Identity
    inputs: list[InputRecord]
    """requests first, then feedback, each in order of offset"""
    before: Partition
    """the state this batch started from; once the state is lost, that of the last batch that could be recomputed"""
    exact: bool = True
    """every input is what was processed"""
    decoded: DecodedBatch | None = None
    entries: Mapping[bytes, bytes] = field(default_factory=dict)
    """the stored entries of its decisions before the batch; see ``keep_entries``"""
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
    """keep in each batch the entries stored before it; the state is already later when the batch is returned"""

    def __post_init__(self) -> None:
        self.topic = self.source.topic("journal")
        self.chain = Chain(self.topic, self.number)
        self.cursors = [InputCursor(self.source, role, self.number) for role in ("requests", "feedback")]
        self.lost = ""
        """why the state is no longer known; nothing is recomputed from then on"""
        self.state, self.recorded_settings = MemoryState(), RecordedSettings(self.secrets, self.override)
        self.partition: Partition | None = None
        self._carried: list[Finding] = []
        if self.start is not None:
            self.chain.last, self.partition = self.start.link, self.start.partition
            self.state, self.recorded_settings = self.start.state, self.start.recorded_settings
            reached = self.start.link.record
            for cursor, part in zip(self.cursors, (reached.requests, reached.feedback), strict=True):
                cursor.seek(part.next)

    @property
    def read(self) -> int:
        """Input records read so far."""
        return sum(cursor.read for cursor in self.cursors)

    def mark_lost(self, why: str) -> None:
        """The state is no longer known: from here on check the chain and the hashes, and recompute nothing."""
        self.lost = self.lost or why

    def batches(self) -> Iterator[ReplayedBatch]:
        """Every batch, recomputed. Raises NotAuditableError where the record does not hold what is needed."""
        for batch in self.read_batches():
            self.recompute(batch)
            yield batch

    def read_batches(self) -> Iterator[ReplayedBatch]:
        """Every batch as it was read. The caller recomputes or takes it before it asks for the next one."""
        first = self.start.link.offset + 1 if self.start else 0
        for record in self.source.read("journal", self.number, first):
            journal = self._decode_journal(record)
            if journal is not None:
                yield self._batch(ChainLink(journal, record.offset, digest(record.value or b"")))

    def recompute(self, batch: ReplayedBatch) -> None:
        """Step the batch by itself, unless the state is lost."""
        if not self.lost:
            self._recompute(batch)

    def given(self, batch: ReplayedBatch) -> StepInput:
        """What the batch is to be stepped from."""
        journal, settings = batch.journal, self.recorded_settings.stream_settings()
        decoded = batch.decoded = self._decode_inputs(batch)
        entries, due = self.state.entries, self.state.due(due_slot(journal.clock, settings.slot), settings.sweep)
        if self.keep_entries:
            batch.entries = self.state.of(decoded)
        drawn = self.drawn(journal, decoded, self.recorded_settings) if self.drawn else {}
        return StepInput(batch.before, decoded, entries, due, journal.clock, settings, journal.acknowledged, drawn)

    def take(self, batch: ReplayedBatch, outcome: StepResult | Exception) -> None:
        """Continue with the outcome of the batch, or without a state if it could not be recomputed."""
        if isinstance(outcome, Exception):
            if isinstance(outcome, NotAuditableError) or self.override is not None or self.transform is not None:
                raise outcome
            self.mark_lost(f"batch {batch.journal.sequence} cannot be recomputed")
            batch.findings.append(self._failed(batch, outcome))
        else:
            batch.outcome = outcome
            self.state.follow(outcome)
            self.partition = advanced(outcome.partition, batch.identity)
        if not batch.exact:
            self.mark_lost(f"an input of batch {batch.journal.sequence} is not what was processed")

    def final_findings(self) -> list[Finding]:
        """The findings that are only known at the end."""
        found, self._carried = [*self._carried, *self.chain.end()], []
        return found

    def _decode_journal(self, record: Record) -> JournalRecord | None:
        found = decode_journal(self.topic, self.number, record)
        if isinstance(found, JournalRecord):
            return found
        self._carried.append(found)  # if it was a journal record, the chain has a gap now
        return None

    def _batch(self, link: ChainLink) -> ReplayedBatch:
        journal = link.record
        findings, self._carried = self._carried, []
        if self.chain.begins(link):
            self._begin(journal)
        findings += self.chain.follow(link)
        if any(finding.kind == "journal-gap" for finding in findings):
            self.mark_lost(f"the journal has a gap before batch {journal.sequence}")
        findings += self._configurations(link)
        inputs, exact, wrong = self._read_inputs(journal)
        findings += wrong
        assert self.partition is not None
        return ReplayedBatch(link.offset, journal, link.identity, inputs, self.partition, exact, findings=findings)

    def _begin(self, journal: JournalRecord) -> None:
        """A new lineage starts with an empty state and may read its inputs again."""
        self.lost, self.state, self.recorded_settings = "", MemoryState(), RecordedSettings(self.secrets, self.override)
        self.partition = Partition(self.number, journal.partitions, Identity(journal.lineage, 0, GENESIS))
        for cursor, part in zip(self.cursors, (journal.requests, journal.feedback), strict=True):
            cursor.seek(part.start)

    def adopt(self, batch: ReplayedBatch, writes: bytes) -> None:
        """Use these writes of the batch instead of those recomputed; they differ only in what shadows drew."""
        assert self.partition is not None
        self.state.take(writes)
        before = batch.before.tenants
        touched = {name for name, tenant in self.partition.tenants.items() if tenant is not before.get(name)}
        self._refresh(lambda tenant: tenant.name in touched)

    # What the journal says

    def _configurations(self, link: ChainLink) -> list[Finding]:
        journal, found = link.record, []
        for name, text in journal.configs.items():
            self.recorded_settings.configs[name] = text
            if settings_digest(text) != name:
                tenants = sorted(tenant for tenant, rules in journal.rules.items() if rules == name)
                what = f"the configuration of {', '.join(tenants) or 'no tenant'} was changed in the journal"
                digests = (f"digest {name}", f"digest {settings_digest(text)}")
                place = (self.topic, self.number, journal, link.offset)
                found.append(batch_finding("configuration", *place, what, *digests))
        if journal.terms and journal.terms != self.recorded_settings.stream_text:
            self.recorded_settings.set_stream_settings(journal.terms)
            self._refresh(lambda tenant: True)
        self.recorded_settings.assigned.update(journal.rules)
        self._refresh(lambda tenant: tenant.name in journal.rules)
        for cursor in self.cursors:
            if journal.rules:
                cursor.known_words |= self.recorded_settings.known_words()
        return found

    def _refresh(self, affected: Callable[[Tenant], bool]) -> None:
        """Rebuild tenants from their fields under the settings now in force, as a restart does."""
        if self.lost or self.partition is None:
            return
        own = fields_by_tenant(self.state.fields)
        tenants = {
            name: Tenant.from_fields(tenant.number, own[tenant.number], self.recorded_settings.settings_for)
            if affected(tenant)
            else tenant
            for name, tenant in self.partition.tenants.items()
        }
        self.partition = replace(self.partition, tenants=tenants)

    def _read_inputs(self, journal: JournalRecord) -> tuple[list[InputRecord], bool, list[Finding]]:
        inputs: list[InputRecord] = []
        exact, findings = True, []
        sources = ((REQUESTS, journal.requests), (FEEDBACK, journal.feedback))
        for cursor, (source, part) in zip(self.cursors, sources, strict=True):
            if cursor.position != part.start:
                before = f"and the one before it to {cursor.position}"
                text = f"batch {journal.sequence} reads {cursor.topic} from {part.start} {before}"
                findings.append(self._gap(journal, text))
                self.mark_lost("the journal skips or repeats input")
            for named, first, after in journal.skipped:
                if named == source and not part.start <= first < after <= part.next:
                    text = (
                        f"batch {journal.sequence} leaves out offsets {first} to {after - 1} of {cursor.topic}, which"
                    )
                    findings.append(self._gap(journal, f"{text} are not of those it speaks of"))
            taken = cursor.take(journal, part)
            findings += taken.findings
            exact &= taken.exact
            if self.codec is None:
                inputs += [InputRecord(source, r.offset, r.timestamp, r.key, r.value, r.headers) for r in taken.records]
            else:
                inputs += [raw_of(source, record, self.codec) for record in taken.records]
        return inputs, exact, findings

    def _gap(self, journal: JournalRecord, text: str) -> Finding:
        assert self.chain.last is not None
        return batch_finding("journal-gap", self.topic, self.number, journal, self.chain.last.offset, text)

    # What follows

    def _decode_inputs(self, batch: ReplayedBatch) -> DecodedBatch:
        journal = batch.journal
        poison = {(source, offset) for source, offset in journal.poison}
        decoded = decode(
            *split_by_source(batch.inputs),
            self.number,
            journal.partitions,
            journal.now,
            self.recorded_settings.stream_settings(),
            poison,
        )
        return decoded if self.transform is None else self.transform(journal, decoded)

    def _recompute(self, batch: ReplayedBatch) -> None:
        self.take(batch, run_steps([self.given(batch)])[0])

    def _failed(self, batch: ReplayedBatch, error: Exception) -> Finding:
        message = str(error) if isinstance(error, GForceError) else f"{type(error).__name__}: {error}"
        text = f"batch {batch.journal.sequence} cannot be recomputed: {message}"
        return batch_finding("recomputation", self.topic, self.number, batch.journal, batch.offset, text)


def run_steps(given: Sequence[StepInput]) -> list[StepResult | Exception]:
    """Step batches of different partitions together. An error is returned for the batch that caused it only."""
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
    """Every batch of a partition, recomputed in order; with other settings or changed inputs if given."""
    return Replay(source, partition, secrets or Secrets(), override, transform, codec, start).batches()


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
        waiting: list[tuple[int, Stepping[R], StepInput]] = []
        for number, one, outcome in under_way:
            try:
                waiting.append((number, one, next(one) if outcome is None else one.send(outcome)))
            except StopIteration as end:
                results[number] = end.value
        outcomes = run_steps([given for _, _, given in waiting])
        under_way = [(number, one, outcome) for (number, one, _), outcome in zip(waiting, outcomes, strict=True)]


def in_processes(
    work: Callable[[T, Progress], R],
    tasks: Sequence[T],
    processes: int | None = None,
    progress: Progress = lambda records: None,
) -> list[R]:
    """The results in the order of the tasks. ``progress`` gets the number of records read so far."""
    most = min(processes or cpu_count() or 1, len(tasks))
    if most > 1:
        return _run_in_pool(work, tasks, most, progress)
    total = [0]

    def further(records: int) -> None:
        total[0] += records
        progress(total[0])

    return [work(task, further) for task in tasks]


def _share_counts(read: Any) -> None:
    global _READ_COUNTS
    _READ_COUNTS = read


def _in_process(work: Callable[[T, Progress], R], task: T, index: int) -> R:
    def further(records: int) -> None:
        _READ_COUNTS[index] += records

    return work(task, further)


def _run_in_pool(work: Callable[[T, Progress], R], tasks: Sequence[T], most: int, progress: Progress) -> list[R]:
    context = get_context("spawn")  # threads of a Kafka client do not survive a fork
    read = context.Array("q", len(tasks), lock=False)
    with ProcessPoolExecutor(most, mp_context=context, initializer=_share_counts, initargs=(read,)) as pool:
        futures: list[Future[R]] = [pool.submit(_in_process, work, task, i) for i, task in enumerate(tasks)]
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
