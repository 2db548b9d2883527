"""The same stream under other settings. Exact, because every expert's prediction was recorded.

The record is read once for each task, and every batch of it is stepped once as it was recorded and once under each
other setting. Labels are paired by their decision, so that differences are between outcomes of the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.output_reader import OutputReader
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.replay.replay import Progress, Replay, ReplayedBatch, in_processes
from processor.audit.sources.source import Source
from processor.audit.verify.decisions import Decisions
from processor.core.errors import IncompatibleStateError, InvalidInputError
from processor.core.stream.journal import JournalRecord, decisions_digest
from processor.core.stream.partition import Partition
from processor.core.stream.partitioner import partition_of
from processor.ports.codec import Codec

from .answer import WhatIf, settings_on_front
from .figures import TenantAnswer, tenant_answers
from .outcomes import PairedCases, PendingLabels, TenantRun, count_batch
from .settings import SettingsChange, Sweep, expand_settings
from .variation import HIDDEN_LABELS, LabelStore, Pairing, Variation

EXPERT_SEARCH_REQUESTS = 50_000
"""Of each partition, in which experts are looked for that are to be left out."""


@dataclass(frozen=True)
class WhatIfTask:
    """One partition under some settings; it can be given to another process."""

    source: Source
    number: int
    secrets: Secrets
    changes: tuple[SettingsChange, ...]
    tenants: frozenset[str] = frozenset()
    """none: all of them"""
    codec: Callable[[], Codec | None] | None = None


@dataclass
class TaskResult:
    """What came of a task."""

    runs: list[TenantRun] = field(default_factory=list)
    """those as recorded, then those of each setting"""
    decisions: int = 0
    reproduced: int = 0
    """of the recorded decisions, those that came out the same to the byte as they were published"""
    findings: int = 0
    """differences met on the way: then this is about an altered record"""
    outstanding: dict[str, int] = field(default_factory=dict)
    """labels not there by the end of the record, by setting"""


def run_task(task: WhatIfTask, progress: Callable[[int], None] = lambda records: None) -> TaskResult:
    """Run a task. Raises NotAuditableError where the record cannot be recomputed as it was."""
    with ExitStack() as stack:
        return _TaskRunner(task, stack).run(progress)


class _TaskRunner:
    def __init__(self, task: WhatIfTask, stack: ExitStack) -> None:
        self.task = task
        codec = task.codec() if task.codec else None
        self.replay = Replay(task.source, task.number, task.secrets, codec=codec)
        store = _store_labels(task, codec, stack) if any(change.delay for change in task.changes) else None
        self.variations = [Variation(change, task.number, task.secrets, task.tenants, store) for change in task.changes]
        self.answer = TaskResult()
        self.published: Decisions | None = None
        self.lineage = ""
        self._begin()

    def _begin(self) -> None:
        """A new lineage starts with an empty state, and so do the figures."""
        self.pending = PendingLabels()
        self.recorded: dict[str, TenantRun] = {}
        self.pairing = [Pairing(self.pending, other) for other in self.variations]

    def run(self, progress: Callable[[int], None]) -> TaskResult:
        read = 0
        for batch in self.replay.batches():
            self._batch(batch)
            progress(self.replay.read - read)
            read = self.replay.read
        self._end()
        return self.answer

    def _batch(self, batch: ReplayedBatch) -> None:
        if batch.outcome is None or batch.decoded is None:
            why = self.replay.lost or (batch.findings[0].text if batch.findings else "a batch cannot be recomputed")
            raise NotAuditableError(
                f"the record cannot be recomputed from batch {batch.journal.sequence} of partition {self.task.number} "
                f"on: {why}. Run `gforce audit` to see what is wrong with it.",
                partition=self.task.number,
            )
        if batch.journal.lineage != self.lineage:
            self.lineage = batch.journal.lineage
            self._begin()
        self.answer.findings += len(batch.findings)
        self._check_seeds()
        self._compare(batch)
        made, labelled, expired = self.pending.take(batch.outcome, batch.decoded)
        count_batch(self.recorded, made, labelled, self.task.tenants)
        for alert in batch.outcome.alerts:
            if alert.state == "raised" and alert.tenant in self.recorded:
                self.recorded[alert.tenant].alerts += 1
        for other, pairing in zip(self.variations, self.pairing, strict=True):
            theirs, gone = other.follow(batch)
            pairing.take(labelled, theirs, expired, gone)

    def _check_seeds(self) -> None:
        without = self.replay.recorded_settings.seedless & (self.task.tenants or self.replay.recorded_settings.seedless)
        if without:
            raise NotAuditableError(
                f'the seed of tenant "{min(without)}" is not known, and other settings are drawn with it: give it '
                "with --config or --seed-file",
                partition=self.task.number,
            )

    def _compare(self, batch: ReplayedBatch) -> None:
        """Do the decisions come out as they were recorded, in the journal and as they were published?"""
        assert batch.outcome is not None
        journal, made = batch.journal, batch.outcome.decisions
        values = [one.value for one in made]
        self.answer.decisions += journal.decisions
        same = decisions_digest(values) == journal.decisions_digest
        self.answer.findings += not same
        if not self.task.source.has("decisions"):
            self.answer.reproduced += len(values) if same else 0
            return
        if self.published is None:
            reader = OutputReader(self.task.source, "decisions", self.task.number, journal.partitions)
            self.published = Decisions(reader, self.task.number)
        codec, topic = self.replay.codec, self.published.topic
        expected = [codec.from_json(topic, value) for value in values] if codec else values
        self.answer.findings += len(self.published.compare(journal, made, expected))
        there = {record.value for record in self.published.of(journal)}
        self.answer.reproduced += sum(value in there for value in expected)

    def _end(self) -> None:
        self._conclude(self.recorded.values(), self.replay.partition)
        self.answer.runs += self.recorded.values()
        for other, pairing in zip(self.variations, self.pairing, strict=True):
            self._conclude(other.runs.values(), other.partition)
            for name, run in other.runs.items():
                run.change, run.pairs = other.change, pairing.by_tenant.get(name, PairedCases())
                run.refused = other.refused.get(name, "") or run.refused
                self.answer.runs.append(run)
            if other.retimed:
                self.answer.outstanding[other.change.name] = other.retimed.outstanding

    def _conclude(self, runs: Iterable[TenantRun], partition: Partition | None) -> None:
        for run in runs:
            run.partition = self.task.number
            if partition is not None and run.tenant in partition.tenants:
                run.describe(partition.tenants[run.tenant])
                if run.weighted:
                    run.refused = HIDDEN_LABELS


def _store_labels(task: WhatIfTask, codec: Codec | None, stack: ExitStack) -> LabelStore:
    folder = stack.enter_context(TemporaryDirectory(prefix="gforce-labels-"))
    store = LabelStore(Path(folder) / "labels.sqlite")
    stack.callback(store.close)
    store.fill(task.source, task.number, codec)
    return store


# Several tasks at once


def tasks_for(
    source: Source,
    numbers: Sequence[int],
    secrets: Secrets,
    changes: Sequence[SettingsChange],
    tenants: frozenset[str] = frozenset(),
    codec: Callable[[], Codec | None] | None = None,
    processes: int | None = None,
) -> list[WhatIfTask]:
    """One task for each partition; where there are fewer of them than processors, their settings are shared out."""
    shares = -(-(processes or cpu_count() or 1) // max(len(numbers), 1))
    shares = max(1, min(shares, len(changes)))
    return [
        WhatIfTask(source, number, secrets, tuple(changes[share::shares]), tenants, codec)
        for number in numbers
        for share in range(shares)
    ]


def run_tasks(
    tasks: Sequence[WhatIfTask], processes: int | None = None, progress: Progress = lambda records: None
) -> list[TaskResult]:
    """The answers in the order of the tasks. ``progress`` gets the number of input records read so far."""
    return in_processes(run_task, tasks, processes, progress)


class AskedExperts(msgspec.Struct, gc=False):
    """The part of a request that says who was asked."""

    tenant: str
    predictions: dict[str, object]


def answer_whatif(
    source: Source,
    secrets: Secrets,
    base: SettingsChange,
    sweeps: Sequence[Sweep],
    tenants: Sequence[str] = (),
    codec: Callable[[], Codec | None] | None = None,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda records: None,
) -> WhatIf:
    """Try every setting on every tenant, or on those named. Raises NotAuditableError where that is not possible."""
    for role in ("journal", "requests", "feedback"):
        if not source.has(role):
            raise NotAuditableError(f"there are no {role} in this record: without them nothing can be recomputed")
    wanted = frozenset(tenants)
    numbers = partitions_with(source, wanted)
    leaving_out = base.without or any(sweep.what == "without" for sweep in sweeps)
    experts = find_experts(source, numbers, wanted, codec() if codec else None) if leaving_out else []
    changes = expand_settings(base, sweeps, experts)
    tasks = tasks_for(source, numbers, secrets, changes, wanted, codec, processes)
    done = run_tasks(tasks, processes, progress)
    runs = {(run.tenant, run.change): run for one in done for run in one.runs}
    answers = tenant_answers(list(runs.values()), changes)
    if missing := sorted(wanted - {answer.tenant for answer in answers}):
        raise InvalidInputError(f'there is no decision of tenant "{missing[0]}" in this record')
    return _combine(done, answers, bool(wanted))


def partitions_with(source: Source, tenants: frozenset[str] = frozenset()) -> list[int]:
    """Those with a journal, and with one of the tenants, where some are named."""
    found = []
    for number in source.partitions("journal"):
        first = next(iter(source.read("journal", number)), None)
        if first is None:
            continue
        if not tenants or _may_hold(first.value or b"", number, tenants):
            found.append(number)
    return found


def _may_hold(journal: bytes, number: int, tenants: frozenset[str]) -> bool:
    """Whether one of the tenants is of this partition; a journal that cannot be read is looked into all the same."""
    try:
        count = JournalRecord.decode(journal).partitions
    except IncompatibleStateError:
        return True
    return any(partition_of(tenant.encode(), count) == number for tenant in tenants)


def find_experts(source: Source, numbers: Sequence[int], tenants: frozenset[str], codec: Codec | None) -> list[str]:
    """The experts of the first requests of each partition."""
    from processor.ports.codec import raw_of

    decoder = msgspec.json.Decoder(AskedExperts)
    found: set[str] = set()
    for number in numbers:
        for record in islice(source.read("requests", number), EXPERT_SEARCH_REQUESTS):
            try:
                advice = decoder.decode(raw_of("requests", record, codec).value or b"")
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if not tenants or advice.tenant in tenants:
                found |= advice.predictions.keys()
    return sorted(found)


def _combine(done: Sequence[TaskResult], answers: list[TenantAnswer], some_tenants: bool) -> WhatIf:
    """The answers of all tasks as one."""
    by_partition: dict[int, TaskResult] = {}
    outstanding: dict[str, int] = {}
    for one in done:
        for run in one.runs[:1]:
            by_partition.setdefault(run.partition, one)
        for setting, outstanding_count in one.outstanding.items():
            outstanding[setting] = outstanding.get(setting, 0) + outstanding_count
    return WhatIf(
        decisions=sum(one.decisions for one in by_partition.values()),
        reproduced=sum(one.reproduced for one in by_partition.values()),
        findings=sum(one.findings for one in by_partition.values()),
        tenants=answers,
        front={answer.tenant: settings_on_front(answer) for answer in answers},
        dominating={answer.tenant: [one.setting for one in answer.dominating] for answer in answers},
        outstanding=outstanding,
        beyond_asked=sorted(by_partition) if some_tenants else [],
    )
