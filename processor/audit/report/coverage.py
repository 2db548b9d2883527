"""How much of the record the figures are made of, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from processor.audit.sources.source import RecordingError, Role, Source
from processor.audit.verify.result import PartitionAudit
from processor.core.alerts.alert_events import AlertEvent

from .collecting import Collection
from .data import Coverage, LaterAlert

NO_JOURNAL = "there is no journal of it"


def covered(
    source: Source, audits: Sequence[PartitionAudit], collections: Sequence[Collection], wanted: frozenset[str]
) -> list[Coverage]:
    """Every partition with one of the tenants ``wanted`` (none: all of them), and how far its figures go."""
    audit_of = {one.partition: one for one in audits}
    seen = {one.number: one for one in collections}
    found = []
    for number in sorted({*audit_of, *seen, *source.partitions("requests")}):
        audit, collection = audit_of.get(number), seen.get(number, Collection(number))
        if wanted and number not in seen and audit is not None and audit.batches:
            continue  # none of them belongs there
        batches = _there_were(audit) if audit else 0
        if collection.batches >= batches > 0 and not collection.ended:
            found.append(Coverage(partition=number, batches=collection.batches, of=batches, until=collection.until))
            continue
        one = _in_part(source, collection, batches, audit, wanted)
        if one.missing or one.tenants or (one.of and not wanted):
            found.append(one)
    return found


def _in_part(
    source: Source, collection: Collection, batches: int, audit: PartitionAudit | None, wanted: frozenset[str]
) -> Coverage:
    decided = _tenants(source, "decisions", source.partitions("decisions")) if source.has("decisions") else None
    asked = _tenants(source, "requests", [collection.number])
    there = asked if decided is None else asked & decided
    there = there & wanted if wanted else there
    shown = {name for name, tenant in collection.tenants.items() if tenant.tenant is not None}
    ends = [finding.text for finding in audit.findings if finding.kind == "end-missing"] if audit else []
    why = collection.ended or next(iter(ends), "") or (audit.not_auditable if audit else "") or NO_JOURNAL
    return Coverage(
        partition=collection.number,
        batches=collection.batches,
        of=max(batches, collection.batches),
        until=collection.until,
        why=why,
        tenants=sorted(shown),
        missing=sorted(there - shown),
        later_alerts=list(_later_alerts(source, there | shown, collection.until)),
    )


def _there_were(audit: PartitionAudit) -> int:
    """Batches of the journal, and those after its end that something else speaks of."""
    last = audit.lineages[-1] if audit.lineages else None
    reached = last.last if last else 0
    beyond = [
        finding.batch - (reached if last and finding.lineage in ("", last.name) else 0)
        for finding in audit.findings
        if finding.kind == "end-missing" and finding.batch is not None
    ]
    return audit.batches + max(beyond, default=0)


def _tenants(source: Source, role: Role, partitions: Iterable[int]) -> set[str]:
    found: set[bytes] = set()
    for number in partitions:
        try:
            found.update(record.key for record in source.read(role, number) if record.key)
        except RecordingError:
            continue  # the audit says so
    return {key.decode(errors="replace") for key in found}


def _later_alerts(source: Source, tenants: set[str], until: int) -> Iterator[LaterAlert]:
    """What the topic of alerts holds of the time that could not be recomputed."""
    for number in source.partitions("alerts"):
        try:
            for record in source.read("alerts", number):
                alert = _alert(record.value)
                if alert is not None and alert.at > until and alert.tenant in tenants:
                    yield LaterAlert(tenant=alert.tenant, at=alert.at, kind=alert.kind, state=alert.state)
        except RecordingError:
            continue


def _alert(value: bytes | None) -> AlertEvent | None:
    try:
        return msgspec.json.decode(value or b"", type=AlertEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
