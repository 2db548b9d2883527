"""What an audit is to hold the record against, and what came of one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from processor.audit.replay.findings import Finding
from processor.audit.replay.input_cursor import Skipped
from processor.audit.replay.rules import Secrets
from processor.core.stream.identity import Identity
from processor.ports.codec import Codec


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
