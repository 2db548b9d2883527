"""A report from a record: audit it, read it once more for the figures, write the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from processor.audit.opening import OpenedSource
from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.pool import in_processes
from processor.audit.verify import audit as auditing
from processor.audit.verify.result import AuditOptions
from processor.audit.whatif.asking import asked, partitions_of
from processor.audit.whatif.settings import SettingsChange, Sweep
from processor.audit.whatif.tables import WhatIf
from processor.core.errors import InvalidInputError

from . import rows
from .assembling import assembled
from .collecting import Reading, collected
from .coverage import covered
from .data import ReportData
from .redaction import Redaction
from .rendering import page


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
    place: OpenedSource, wish: ReportRequest, step: Callable[[str], Callable[[int], None]] = lambda what: lambda n: None
) -> ReportData:
    """``step`` is told what begins, and gives what is told how many input records have been read for it."""
    options = AuditOptions(place.secrets, auditing.heads(list(wish.heads)), None, place.codec)
    found = auditing.audit(place.source, options, None, wish.processes, step("auditing"))
    wanted = frozenset(wish.tenants)
    readings = [
        Reading(place.source, number, place.secrets, wanted, place.codec)
        for number in partitions_of(place.source, wanted)
    ]
    collections = in_processes(collected, readings, wish.processes, step("figures"))
    coverage = covered(place.source, found.partitions, collections, wanted)
    there = {name for one in collections for name in one.tenants} | {name for one in coverage for name in one.missing}
    if missing := sorted(wanted - there):
        raise InvalidInputError(f'there is no decision of tenant "{missing[0]}" in this record')
    whatif, notes = _whatif(place, wish, step("what-if"))
    report = assembled(place.source, place.where, found, collections, coverage, whatif, wish.redaction)
    return msgspec.structs.replace(report, notes=[*report.notes, *notes])


def _whatif(
    place: OpenedSource, wish: ReportRequest, progress: Callable[[int], None]
) -> tuple[WhatIf | None, list[str]]:
    """The answer, if one was asked for; or why there is none, on which the rest of the report does not depend."""
    if not wish.sweeps and wish.change == SettingsChange():
        return None, []
    try:
        answer = asked(
            place.source,
            place.secrets,
            wish.change,
            wish.sweeps,
            wish.tenants,
            place.codec,
            wish.processes,
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
        out.write_text(page(report), encoding="utf-8")
        if as_json:
            paths.append(out.with_suffix(".json"))
            paths[-1].write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        if as_csv:
            paths.append(out.with_suffix(".csv"))
            with paths[-1].open("w", newline="", encoding="utf-8") as file:
                rows.write(report, file)
    except OSError as error:
        raise InvalidInputError(f"cannot write {paths[-1]}: {error.strerror}") from None
    return paths
