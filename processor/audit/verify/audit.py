"""The audit of a whole record: all partitions, and one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import cpu_count
from typing import Literal

import msgspec

from processor import __version__
from processor.audit.replay.findings import Finding, NotAuditableError
from processor.audit.replay.replay import Progress, in_processes
from processor.audit.sources.file_sources import RecordedSource
from processor.audit.sources.manifest import verify_manifest
from processor.audit.sources.source import Source
from processor.core.errors import InvalidInputError
from processor.core.stream.identity import Identity

from .partition import audit_partitions
from .result import AuditOptions, PartitionAudit, Share, draws_verified, end_verified

Verdict = Literal["verified", "differences", "not auditable"]
EXIT_CODES: dict[Verdict, int] = {"verified": 0, "differences": 1, "not auditable": 2}
SINGLE_PROCESS_REQUESTS = 5_000


class Audit(msgspec.Struct, kw_only=True):
    """What came of an audit. ``verdict`` is the worst of all partitions'."""

    verdict: Verdict
    version: str = __version__
    """of gforce, which has recomputed it"""
    partitions: list[PartitionAudit]
    findings: list[Finding]
    """the first of each kind, in each partition"""
    reasons: list[str]
    """why something could not be audited"""
    batches: int
    requests: int
    labels: int
    decisions: int
    not_recomputed: int = 0
    """batches of which only the chain, the hashes of the inputs and the digests of the decisions were checked"""
    draws: Share
    draws_because: str = ""
    """why that can be said, and no more"""
    end: Share
    """whether the chain ends where something outside the journal says"""
    end_because: str = ""
    notes: list[str] = []
    """about the record as a whole"""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


@dataclass(frozen=True)
class _AuditTask:
    """What a process of the pool does."""

    source: Source
    options: AuditOptions

    def __call__(self, numbers: Sequence[int], further: Progress) -> list[PartitionAudit]:
        return audit_partitions(self.source, numbers, self.options, further)


def audit(
    source: Source,
    options: AuditOptions,
    partitions: Sequence[int] | None = None,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda records: None,
) -> Audit:
    """Audit these partitions, or all there are, shared out among as many processes as there are processors.

    Each process interleaves its partitions, see ``interleave_partitions``.
    ``progress`` gets the number of input records read so far.
    """
    started = time.monotonic()
    for role in ("journal", "requests", "feedback"):
        if not source.has(role):
            raise NotAuditableError(f"this record has nothing of topic {role}: without it nothing can be recomputed")
    there = source.partitions("journal")
    chosen = there if partitions is None else list(partitions)
    if missing := sorted(set(chosen) - set(there)):
        raise InvalidInputError(f"the journal at hand has no partition {missing[0]}: there are {there}")
    shares = share_partitions(source, chosen, 1 if _is_small(source, chosen) else processes or cpu_count() or 1)
    audited = [
        one for share in in_processes(_AuditTask(source, options), shares, len(shares), progress) for one in share
    ]
    done = sorted(audited, key=lambda one: chosen.index(one.partition))
    damage, notes = check_recording(source)
    return summarize(done, options, damage, notes, time.monotonic() - started)


def share_partitions(source: Source, numbers: Sequence[int], processes: int) -> list[list[int]]:
    """The partitions for each process, about as many requests for each: the largest first, to who has the fewest."""
    sizes = {number: _count_requests(source, number) for number in numbers}
    shares: list[list[int]] = [[] for _ in range(min(processes, len(numbers)))]
    for number in sorted(numbers, key=lambda number: -sizes[number]):
        min(shares, key=lambda share: (sum(map(sizes.__getitem__, share)), len(share))).append(number)
    return shares


def _count_requests(source: Source, number: int) -> int:
    """How many there are; 0 where that is not known."""
    bounds = source.bounds("requests", number)
    return bounds[1] - bounds[0] if bounds else 0


def check_recording(source: Source) -> tuple[list[Finding], list[str]]:
    """Files of a recording that are not what its manifest says, and what is unfinished about it."""
    if not isinstance(source, RecordedSource):
        return [], []
    problems = verify_manifest(source.folder)
    found = [
        Finding(
            kind="recording",
            topic=one.topic,
            partition=one.partition,
            offset=one.offsets[0] if one.offsets[0] >= 0 else None,
            text=f"{one.file} {one.text}",
        )
        for one in problems
        if one.file
    ]
    return found, [f"{one.topic} [{one.partition}] {one.text}" for one in problems if not one.file]


def _is_small(source: Source, chosen: Sequence[int]) -> bool:
    """Whether the audit is done before another process has even started."""
    known = all(source.bounds("requests", number) for number in chosen)
    return known and sum(_count_requests(source, number) for number in chosen) < SINGLE_PROCESS_REQUESTS


def parse_heads(texts: Sequence[str]) -> dict[int, str]:
    """Heads somebody kept elsewhere, each ``partition=lineage:sequence:digest``; a leading ``1:`` may be there, and the
    words before it that an audit prints.

    >>> parse_heads(["0=ab12:7:ffee", "head, to be kept elsewhere: 1=cd34:9:0011"])
    {0: '1:ab12:7:ffee', 1: '1:cd34:9:0011'}
    """
    found: dict[int, str] = {}
    for text in texts:
        number, _, identity = text.strip().rpartition(": ")[2].partition("=")
        identity = identity if identity.count(":") == 3 else f"1:{identity}"
        if not number.strip().isdigit() or Identity.parse(identity) is None:
            raise InvalidInputError(
                f'"{text}" is no head: write partition=lineage:sequence:digest, as an audit prints it'
            )
        found[int(number)] = identity
    return found


def summarize(
    done: list[PartitionAudit], options: AuditOptions, damage: list[Finding], notes: list[str], seconds: float
) -> Audit:
    findings = [finding for one in done for finding in one.findings] + damage
    reasons = [f"partition {one.partition}: {one.not_auditable}" for one in done if one.not_auditable]
    seedless = sorted({tenant for one in done for tenant in one.seedless})
    if options.secrets and seedless:
        names = ", ".join(f'"{name}"' for name in seedless[:5])
        more = f" and {len(seedless) - 5} more" if len(seedless) > 5 else ""
        reasons.append(
            f"the seed of tenant {names}{more} is missing: none of those given is the one the journal commits to. Give "
            "it with --seed-file, or give no seeds at all (GFORCE_PROCESSING__SEED is one) to audit everything but the "
            "draws"
        )
    (draws, draws_because), (end, end_because) = draws_verified(done), end_verified(done)
    verdict: Verdict = "differences" if findings else "not auditable" if reasons else "verified"
    return Audit(
        verdict=verdict,
        partitions=done,
        findings=findings,
        reasons=reasons,
        batches=sum(one.batches for one in done),
        requests=sum(one.requests for one in done),
        labels=sum(one.labels for one in done),
        decisions=sum(one.decisions for one in done),
        not_recomputed=sum(one.batches - one.recomputed for one in done),
        draws=draws,
        draws_because=draws_because,
        end=end,
        end_because=end_because,
        notes=notes,
        seconds=seconds,
    )
