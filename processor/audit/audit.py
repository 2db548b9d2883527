"""The audit of a whole record: its partitions side by side, and one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from processor import __version__
from processor.adapters.codec import Codec
from processor.core.errors import InvalidInput
from processor.core.identity import Identity
from processor.runtime.config import Config

from .findings import Finding, NotAuditable
from .manifest import verify_manifest
from .partition_audit import audit_partition
from .partition_result import Options, PartitionAudit
from .pool import Progress, in_processes
from .recorded_source import RecordedSource
from .sources import Source

Verdict = Literal["verified", "differences", "not auditable"]
EXIT: dict[Verdict, int] = {"verified": 0, "differences": 1, "not auditable": 2}
FEW = 5_000


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
    draws: Literal["verified", "not verified", "in part"]
    end: Literal["verified", "not verified", "in part"]
    """whether the chain ends where something outside the journal says"""
    notes: list[str] = []
    """about the record as a whole"""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]


@dataclass(frozen=True)
class CodecOf:
    """How to read other formats than JSON; made anew in every process."""

    config: Config

    def __call__(self) -> Codec | None:
        from processor.runtime.assembly import codec_of

        return codec_of(self.config)


@dataclass(frozen=True)
class _OnePartition:
    """What a process of the pool does."""

    source: Source
    options: Options

    def __call__(self, number: int, further: Progress) -> PartitionAudit:
        before = 0

        def progress(read: int) -> None:
            nonlocal before
            further(read - before)
            before = read

        return audit_partition(self.source, number, self.options, progress)


def audit(
    source: Source,
    options: Options,
    partitions: Sequence[int] | None = None,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda records: None,
) -> Audit:
    """Audit these partitions, or all there are; one process for each, as many at a time as there are processors.

    ``progress`` is told how many input records have been read in all.
    """
    started = time.monotonic()
    for role in ("journal", "requests", "feedback"):
        if not source.has(role):
            raise NotAuditable(f"there are no {role} in this record: without them nothing can be recomputed")
    there = source.partitions("journal")
    chosen = there if partitions is None else list(partitions)
    if missing := sorted(set(chosen) - set(there)):
        raise InvalidInput(f"the journal at hand has no partition {missing[0]}: there are {there}")
    done = in_processes(_OnePartition(source, options), chosen, 1 if _few(source, chosen) else processes, progress)
    damage, notes = damages(source)
    return summed_up(done, options, damage, notes, time.monotonic() - started)


def damages(source: Source) -> tuple[list[Finding], list[str]]:
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


def _few(source: Source, chosen: Sequence[int]) -> bool:
    """Whether all is done before another process has even started."""
    bounds = [source.bounds("requests", number) for number in chosen]
    return all(bounds) and sum(b[1] - b[0] for b in bounds if b) < FEW


def heads(texts: Sequence[str]) -> dict[int, str]:
    """Heads somebody kept elsewhere, each ``partition=lineage:sequence:digest``; a leading ``1:`` may be there.

    >>> heads(["0=ab12:7:ffee"])
    {0: '1:ab12:7:ffee'}
    """
    found: dict[int, str] = {}
    for text in texts:
        number, _, identity = text.strip().partition("=")
        identity = identity if identity.count(":") == 3 else f"1:{identity}"
        if not number.strip().isdigit() or Identity.parse(identity) is None:
            raise InvalidInput(f'"{text}" is no head: write partition=lineage:sequence:digest, as an audit prints it')
        found[int(number)] = identity
    return found


def summed_up(
    done: list[PartitionAudit], options: Options, damage: list[Finding], notes: list[str], seconds: float
) -> Audit:
    findings = [finding for one in done for finding in one.findings] + damage
    reasons = [f"partition {one.partition}: {one.not_auditable}" for one in done if one.not_auditable]
    seedless = sorted({tenant for one in done for tenant in one.seedless})
    if options.secrets and seedless:
        names = ", ".join(f'"{name}"' for name in seedless[:5])
        more = f" and {len(seedless) - 5} more" if len(seedless) > 5 else ""
        reasons.append(
            f"the seed of tenant {names}{more} is missing: none of those given is the one the journal commits to. Give "
            "it with --seed-file, or give no seeds at all to audit everything but the draws"
        )
    judged = [one for one in done if one.batches]
    drawn = [not one.seedless and one.recomputed > 0 for one in judged]
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
        draws=_share_of(drawn),
        end=_share_of([one.anchored for one in judged]),
        notes=notes,
        seconds=seconds,
    )


def _share_of(flags: Sequence[bool]) -> Literal["verified", "not verified", "in part"]:
    return "verified" if flags and all(flags) else "in part" if any(flags) else "not verified"
