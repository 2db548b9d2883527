"""The options of an audit, the result of one partition, and how much of the record was verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from processor.audit.replay.findings import Finding, Kind
from processor.audit.replay.input_cursor import Skipped
from processor.audit.replay.recorded_settings import Secrets
from processor.core.stream.identity import Identity
from processor.ports.codec import Codec

Share = Literal["verified", "not verified", "in part"]
CHAIN_BREAKS: tuple[Kind, ...] = ("journal-altered", "journal-gap", "journal-unreadable")
MAX_NAMED_PARTITIONS = 5
"""partitions that are named before the rest is counted"""


class Lineage(msgspec.Struct, kw_only=True):
    """An unbroken history within a partition."""

    name: str
    first: int
    last: int
    digest: str
    """of the last journal record: with the lineage and the sequence it is the head of the chain"""


class PartitionAudit(msgspec.Struct, kw_only=True):
    """What came of one partition."""

    partition: int
    lineages: list[Lineage] = []
    batches: int = 0
    recomputed: int = 0
    """of the batches"""
    finished: bool = False
    """whether the record was read to its end"""
    requests: int = 0
    labels: int = 0
    decisions: int = 0
    dead_letters: int = 0
    alerts: int = 0
    states: int = 0
    """batches whose state digest was recomputed, or verified from the changelog"""
    from_batch: int = 1
    compared: list[str] = []
    """topics whose records were compared"""
    seedless: list[str] = []
    """tenants whose draws were taken from the record, because their seed is not known"""
    anchor: str = ""
    """the identity the chain was held against"""
    anchored: bool = False
    beyond: int = 0
    """batches after the anchor"""
    findings: list[Finding] = []
    """the first of each kind"""
    every_finding: list[Finding] = []
    """all of them in order, at most the first ``LISTED``; ``counts`` says how many there were of each kind"""
    counts: dict[str, int] = {}
    skipped: list[Skipped] = []
    """offsets of the inputs that were never processed, because the processor could not read them"""
    notes: list[str] = []
    not_auditable: str = ""
    versions: list[str] = []
    """of the processor, as the journal names them"""
    first_clock: int = 0
    last_clock: int = 0

    @property
    def head(self) -> str:
        last = self.lineages[-1] if self.lineages else None
        return Identity(last.name, last.last, last.digest).text() if last else ""


@dataclass(frozen=True)
class AuditOptions:
    """What an audit is to hold the record against."""

    secrets: Secrets = field(default_factory=Secrets)
    heads: Mapping[int, str] = field(default_factory=dict)
    """heads of the chain that somebody kept elsewhere, by partition"""
    from_batch: int | None = None
    """start at a snapshot, at this batch or (0) as early as there is one"""
    codec: Callable[[], Codec | None] | None = None


def draws_verified(done: Sequence[PartitionAudit]) -> tuple[Share, str]:
    """Whether every draw was recomputed, and why that can be said."""
    judged = [one for one in done if one.batches or _should_have_batches(one)]
    whole = [not one.seedless and _recomputed_in_full(one) for one in judged]
    if judged and all(whole):
        return "verified", "with the seeds: every draw was recomputed"
    if judged and all(one.seedless and _recomputed_in_full(one) for one in judged):
        return "not verified", "without the seeds: the draws were taken from the record, all else was recomputed"
    some = any(not one.seedless and one.recomputed for one in judged)
    return "in part" if some else "not verified", "; ".join(_reasons_for_draws(judged)) or "there is no batch"


def _reasons_for_draws(judged: Sequence[PartitionAudit]) -> Iterator[str]:
    if any(one.seedless for one in judged):
        yield "some tenants' seeds are not known: their draws were taken from the record"
    batches, left = sum(one.batches for one in judged), sum(one.batches - one.recomputed for one in judged)
    if left:
        yield f"{left} of {batches} batches were not recomputed"
    if unread := [one for one in judged if not one.finished]:
        yield f"{_partition_names(unread)} could not be read to the end"
    if empty := [one for one in judged if one.finished and not one.batches]:
        yield f"the journal of {_partition_names(empty)} is empty although something was committed"


def end_verified(done: Sequence[PartitionAudit]) -> tuple[Share, str]:
    """Whether every chain gets to its anchor, and why that can be said."""
    judged = [one for one in done if one.batches or _should_have_batches(one)]
    met = [one.anchored and one.finished and not _is_chain_broken(one) for one in judged]
    if judged and all(met):
        return "verified", "the chain gets to where the anchor says"
    share: Share = "in part" if any(met) else "not verified"
    if judged and not any(one.anchor for one in judged):
        return share, "nothing outside the journal says where the chain ends, so a cut-off end would not be noticed"
    return share, "; ".join(_reasons_for_end(judged)) or "there is no batch"


def _reasons_for_end(judged: Sequence[PartitionAudit]) -> Iterator[str]:
    if without := [one for one in judged if not one.anchor]:
        yield f"{_partition_names(without)} has no anchor"
    if missed := [one for one in judged if one.anchor and not one.anchored]:
        yield f"the chain of {_partition_names(missed)} does not get to its anchor"
    if broken := [one for one in judged if one.anchored and _is_chain_broken(one)]:
        yield f"the chain of {_partition_names(broken)} is broken before its anchor"
    if unread := [one for one in judged if one.anchored and not one.finished]:
        yield f"{_partition_names(unread)} could not be read to the end"


def _should_have_batches(one: PartitionAudit) -> bool:
    """Whether there should be batches, be there any or not."""
    return not one.finished or (bool(one.anchor) and not one.anchored)


def _is_chain_broken(one: PartitionAudit) -> bool:
    """Whether a record of the chain was altered or is missing: then its last one does not stand for all before it."""
    return any(kind in one.counts for kind in CHAIN_BREAKS)


def _recomputed_in_full(one: PartitionAudit) -> bool:
    return one.finished and 0 < one.batches == one.recomputed


def _partition_names(found: Sequence[PartitionAudit]) -> str:
    """
    >>> _partition_names([PartitionAudit(partition=n) for n in range(7)])
    'partitions 0, 1, 2, 3, 4 and 2 more'
    """
    names = ", ".join(str(one.partition) for one in found[:MAX_NAMED_PARTITIONS])
    more = f" and {len(found) - MAX_NAMED_PARTITIONS} more" if len(found) > MAX_NAMED_PARTITIONS else ""
    return f"partition{'s' if len(found) > 1 else ''} {names}{more}"
