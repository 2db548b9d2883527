"""Build a report from a record: audit it, read it once more for the figures, assemble and write the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from processor.audit.command_inputs import OpenedSource
from processor.audit.replay.findings import MEANING, Finding, NotAuditableError
from processor.audit.replay.replay import in_processes
from processor.audit.sources.manifest import manifest_digest
from processor.audit.sources.source import ROLES, Source
from processor.audit.verify import audit as auditing
from processor.audit.verify.audit import Audit
from processor.audit.verify.result import AuditOptions, PartitionAudit
from processor.audit.whatif.answer import WhatIf, conclusion, reproduction
from processor.audit.whatif.settings import SettingsChange, Sweep
from processor.audit.whatif.whatif import answer_whatif, partitions_with
from processor.core.errors import InvalidInputError
from processor.core.exact import ONE
from processor.core.learner.estimates import estimate
from processor.core.metrics.attainable import least_gap
from processor.core.metrics.confidence import interval
from processor.core.stream.tenant import Tenant
from processor.telemetry.figures import Estimate, TenantFigures
from processor.telemetry.measuring import TenantSnapshot, measured
from processor.telemetry.window_figures import ALPHA

from .collection import Collection, CollectionTask, TenantCollection, collect, cumulative, intervals, measure_coverage
from .data import (
    AlertLine,
    ConfigLine,
    Coverage,
    DeadReason,
    ExpertRow,
    Extent,
    LabelCounts,
    Redaction,
    ReportData,
    ReportFinding,
    Sample,
    TenantReport,
    Verification,
)
from .first_page import statements
from .rendering import render_page, write_csv
from .words import (
    DEAD_REASONS,
    alert_evidence,
    alert_text,
    attainable_text,
    fairness_statement,
    labels_text,
    partial_text,
    settings_changes,
)


def assemble_report(
    source: Source,
    where: str,
    found: Audit,
    collections: Sequence[Collection],
    coverage: Sequence[Coverage],
    whatif: WhatIf | None = None,
    redaction: Redaction | None = None,
    created: datetime | None = None,
) -> ReportData:
    """All that the report says. ``redaction`` hides the ids of decisions."""
    answers = {answer.tenant: answer for answer in whatif.tenants} if whatif else {}
    tenants, partial = [], {one.partition: partial_text(one) for one in coverage if one.why}
    for one in collections:
        for name, seen in one.tenants.items():
            if seen.tenant is not None:
                report = _tenant(seen, partial.get(one.number, ""), redaction)
                if name in answers:
                    report = msgspec.structs.replace(
                        report, whatif=answers[name], whatif_text=conclusion(answers[name])
                    )
                tenants.append(report)
    tenants.sort(key=lambda report: report.figures.name)
    verification = _verification(found, redaction)
    dead = _dead_reasons(collections)
    judged = [one for one in found.partitions if one.batches]
    return ReportData(
        created=(created or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC"),
        source=where,
        redacted=redaction is not None,
        first=min((t.first for t in tenants if t.first), default=min((p.first_clock for p in judged), default=0)),
        last=max((p.last_clock for p in judged), default=0),
        processor_versions=sorted({version for one in judged for version in one.versions if version}),
        manifest_sha256=_manifest_digest(source),
        extents=_extents(source),
        statements=statements(verification, tenants, dead, coverage),
        answers=3 if partial else 2,
        coverage=list(coverage),
        verification=verification,
        tenants=tenants,
        dead_letters=dead,
        reproduced=reproduction(whatif) if whatif else "",
        notes=[
            f"partition {one.number}: the figures end early, because {one.ended}" for one in collections if one.ended
        ],
    )


def _manifest_digest(source: Source) -> str:
    folder = getattr(source, "folder", None)
    return manifest_digest(folder) if isinstance(folder, Path) else ""


def _extents(source: Source) -> list[Extent]:
    found = []
    for role in ROLES:
        if source.has(role):
            numbers = source.partitions(role)
            bounds = [source.bounds(role, number) for number in numbers]
            known = [end - start for start, end in (one for one in bounds if one is not None)]
            offsets = sum(known) if len(known) == len(bounds) else None
            found.append(Extent(role=role, topic=source.topic(role), partitions=len(numbers), offsets=offsets))
    return found


# The audit


def _verification(found: Audit, redaction: Redaction | None) -> Verification:
    partitions = found.partitions
    return Verification(
        verdict=found.verdict,
        draws=found.draws,
        end=found.end,
        batches=found.batches,
        recomputed=sum(one.recomputed for one in partitions),
        requests=found.requests,
        feedback=found.labels,
        decisions=found.decisions,
        dead_letters=sum(one.dead_letters for one in partitions),
        alerts=sum(one.alerts for one in partitions),
        compared=sorted({topic for one in partitions for topic in one.compared}),
        findings=[_finding(finding, one, redaction) for one in partitions for finding in one.findings],
        reasons=found.reasons,
        notes=[
            *(skipped.text for one in partitions for skipped in one.skipped),
            *(f"partition {one.partition}: {note}" for one in partitions for note in one.notes),
        ],
        heads={str(one.partition): one.head for one in partitions if one.head},
    )


def _finding(finding: Finding, one: PartitionAudit, redaction: Redaction | None) -> ReportFinding:
    finding = redaction.finding(finding) if redaction else finding
    place = f"{finding.topic} [{finding.partition}]" + ("" if finding.offset is None else f" at {finding.offset}")
    batch = "" if finding.batch is None else f", batch {finding.batch}"
    return ReportFinding(
        kind=finding.kind,
        meaning=MEANING[finding.kind],
        place=place + batch,
        text=finding.text,
        recorded=finding.recorded,
        follows=finding.follows,
        cause=finding.cause,
        count=one.counts.get(finding.kind, 1),
    )


def _dead_reasons(collections: Sequence[Collection]) -> list[DeadReason]:
    reasons = sorted({reason for one in collections for reason in one.dead})
    return [
        DeadReason(
            reason=reason,
            meaning=DEAD_REASONS.get(reason, ""),
            count=sum(one.dead[reason] for one in collections),
            example=next(one.places[reason] for one in collections if reason in one.places),
        )
        for reason in reasons
    ]


# A tenant


def _tenant(seen: TenantCollection, partial: str, redaction: Redaction | None) -> TenantReport:
    assert seen.tenant is not None
    tenant = seen.tenant
    figures = _figures(seen, tenant)
    labels, counts = sum(figures.delays), _label_counts(seen, figures)
    return TenantReport(
        figures=figures,
        statement=fairness_statement(figures, partial, counts.assumed),
        partial=partial,
        first=seen.first,
        last=seen.last,
        so_far=cumulative(seen),
        stretches=intervals(seen),
        alerts=[
            AlertLine(
                at=alert.at,
                number=alert.number,
                kind=alert.kind,
                state=alert.state,
                label=alert.label,
                text=alert_text(alert),
                evidence=alert_evidence(alert),
            )
            for alert in seen.alerts
        ],
        alerts_left_out=seen.alerts_left_out,
        experts=_experts(seen),
        label_counts=counts,
        labels_text=labels_text(counts, figures),
        mean_delay=figures.delay_sum / labels if labels else float("nan"),
        dead_letters={
            name.removeprefix("dead_"): count
            for name, count in sorted(tenant.tally.items())
            if name.startswith("dead_")
        },
        attainable_text=attainable_text(figures),
        configs=_configs(seen),
        samples=_samples(seen, redaction),
    )


def _figures(seen: TenantCollection, tenant: Tenant) -> TenantFigures:
    figures = measured([TenantSnapshot.of(seen.partition, tenant, seen.clock)])[0]
    axes, settings = tenant.learner.state.axes, tenant.rules.settings
    least = float("nan")
    if axes.groups and axes.experts:
        least = least_gap(estimate(tenant.learner.counters(settings.window), settings.prior).error[0]).figure
    oldest = tenant.waits.oldest
    waits = float("nan") if oldest is None else max(seen.clock / 1_000 - oldest, 0.0)
    return msgspec.structs.replace(figures, attainable=least, oldest_pending=waits)


def _label_counts(seen: TenantCollection, figures: TenantFigures) -> LabelCounts:
    joined, expired = figures.tally.get("labels_joined", 0), figures.tally.get("decisions_expired", 0)
    counted = figures.windows[0].labels if figures.windows else joined
    return LabelCounts(
        decisions=figures.tally.get("decisions", 0),
        joined=joined,
        assumed=max(counted - joined, 0),
        expired=max(expired - (seen.without - seen.without_pending), 0),
        waiting=figures.pending - seen.without_pending,
        without=seen.without,
    )


def _experts(seen: TenantCollection) -> list[ExpertRow]:
    groups = sorted({group for group, _ in seen.decided})
    totals = {group: sum(count for (one, _), count in seen.decided.items() if one == group) for group in groups}
    rows = []
    for expert in sorted({expert for _, expert in seen.decided}):
        labelled, wrong = seen.labelled[expert], seen.wrong[expert]
        low, high = interval(wrong, labelled, ALPHA)
        error = Estimate(wrong / labelled, float(low), float(high)) if labelled else Estimate(*[float("nan")] * 3)
        rows.append(
            ExpertRow(
                expert=expert,
                decisions={group: seen.decided[group, expert] for group in groups},
                shares={group: seen.decided[group, expert] / totals[group] for group in groups},
                labelled=labelled,
                wrong=wrong,
                error=error,
            )
        )
    return rows


def _configs(seen: TenantCollection) -> list[ConfigLine]:
    lines, before = [], ""
    for at, batch, digest, canonical in seen.configs:
        differences = settings_changes(before, canonical) if before else []
        lines.append(ConfigLine(at=at, batch=batch, digest=digest, changes=differences, canonical=canonical))
        before = canonical
    return lines


def _samples(seen: TenantCollection, redaction: Redaction | None) -> list[Sample]:
    return [
        Sample(
            id=redaction.id(one.made.decision_id) if redaction else one.made.decision_id,
            at=one.at,
            group=one.made.group,
            said=dict(sorted(one.said.items())),
            chances={label: parts / ONE for label, parts in one.made.parts.items()},
            expert=one.made.expert,
            decision=one.made.decision,
            label=one.label,
        )
        for one in sorted(seen.examples.values(), key=lambda one: one.at)
    ]


@dataclass(frozen=True)
class ReportRequest:
    """What the report is to be about."""

    tenants: tuple[str, ...] = ()
    """none: all of them"""
    heads: Sequence[str] = ()
    change: SettingsChange = field(default_factory=SettingsChange)
    sweeps: tuple[Sweep, ...] = ()
    """none, and no change: no what-if"""
    redaction: Redaction | None = None
    processes: int | None = None


def build_report(
    opened: OpenedSource,
    request: ReportRequest,
    step: Callable[[str], Callable[[int], None]] = lambda what: lambda n: None,
) -> ReportData:
    """``step`` gets the name of each step, and returns a callback for the input records read in it."""
    options = AuditOptions(opened.secrets, auditing.parse_heads(list(request.heads)), None, opened.codec)
    found = auditing.audit(opened.source, options, None, request.processes, step("auditing"))
    wanted = frozenset(request.tenants)
    readings = [
        CollectionTask(opened.source, number, opened.secrets, wanted, opened.codec)
        for number in partitions_with(opened.source, wanted)
    ]
    collections = in_processes(collect, readings, request.processes, step("figures"))
    coverage = measure_coverage(opened.source, found.partitions, collections, wanted)
    there = {name for one in collections for name in one.tenants} | {name for one in coverage for name in one.missing}
    if missing := sorted(wanted - there):
        raise InvalidInputError(f'there is no decision of tenant "{missing[0]}" in this record')
    whatif, notes = _answer_whatif(opened, request, step("what-if"))
    report = assemble_report(opened.source, opened.where, found, collections, coverage, whatif, request.redaction)
    return msgspec.structs.replace(report, notes=[*report.notes, *notes])


def _answer_whatif(
    opened: OpenedSource, request: ReportRequest, progress: Callable[[int], None]
) -> tuple[WhatIf | None, list[str]]:
    """The answer, if one was asked for; or why there is none, on which the rest of the report does not depend."""
    if not request.sweeps and request.change == SettingsChange():
        return None, []
    try:
        answer = answer_whatif(
            opened.source,
            opened.secrets,
            request.change,
            request.sweeps,
            request.tenants,
            opened.codec,
            request.processes,
            progress,
        )
    except NotAuditableError as reason:
        return None, [f"The what-if could not be answered: {reason}"]
    return answer, []


def write_report(report: ReportData, out: Path, as_json: bool = False, as_csv: bool = False) -> list[Path]:
    """Write the page, and the same figures beside it."""
    paths = [out]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render_page(report), encoding="utf-8")
        if as_json:
            paths.append(out.with_suffix(".json"))
            paths[-1].write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        if as_csv:
            paths.append(out.with_suffix(".csv"))
            with paths[-1].open("w", newline="", encoding="utf-8") as file:
                write_csv(report, file)
    except OSError as error:
        raise InvalidInputError(f"cannot write {paths[-1]}: {error.strerror}") from None
    return paths
