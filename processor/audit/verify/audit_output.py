"""What ``gforce audit`` prints."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.markup import escape

from processor.audit.replay.findings import MEANING, Finding
from processor.operations.operator_output import document as print_document
from processor.operations.operator_output import payload, say, table, when
from processor.terminal import terminal

from .audit import Audit
from .result import PartitionAudit

COLOURS = {"verified": "green", "differences": "red", "not auditable": "yellow", "not verified": "yellow"}


def print_audit_json(found: Audit, where: str) -> None:
    """All of it as one JSON document."""
    heads = {str(one.partition): one.head for one in found.partitions if one.head}
    plain: dict[str, Any] = msgspec.to_builtins(found)
    print_document({"source": where, "heads": heads, **plain})


def print_audit(found: Audit, where: str) -> None:
    """For a person."""
    columns = ("partition", "verdict", "batches", "requests", "labels", "decisions")
    table("Audit", columns, [_row(one) for one in found.partitions])
    for finding in found.findings:
        others = next((one.counts[finding.kind] - 1 for one in found.partitions if finding in one.findings), 0)
        _print_finding(finding, others)
    for reason in found.reasons:
        _print_line("[yellow]not auditable[/]", reason)
    for skipped in [skipped for one in found.partitions for skipped in one.skipped]:
        _print_line("[yellow]skipped[/]", skipped.text)
    for note in [
        *found.notes,
        *(f"partition {one.partition}: {note}" for one in found.partitions for note in one.notes),
    ]:
        say(note)
    _print_conclusion(found, where)


def _row(one: PartitionAudit) -> tuple[str, ...]:
    state = "differences" if one.findings else "not auditable" if one.not_auditable else "verified"
    if not one.batches and state == "verified":
        state = "empty"
    shown = f"[{COLOURS[state]}]{state}[/]" if state in COLOURS else state
    first = "" if one.from_batch == 1 else f" from {one.from_batch}"
    counts = (one.requests, one.labels, one.decisions)
    return (str(one.partition), shown, f"{one.batches}{first}", *map(str, counts))


def _print_finding(finding: Finding, others: int) -> None:
    at = "" if finding.offset is None else f" at offset {finding.offset}"
    batch = "" if finding.batch is None else f", batch {finding.batch}"
    more = f" (and {others} more of this kind: --json lists them)" if others else ""
    _print_line(
        f"[red]{finding.kind}[/]", f"{finding.topic} [{finding.partition}]{at}{batch}: {MEANING[finding.kind]}{more}"
    )
    lines = [("", finding.text), ("recorded", finding.recorded), ("follows", finding.follows), ("", finding.cause)]
    for name, text in lines:
        if text:
            say(f"    {name + ': ' if name else ''}{payload(text.encode())}")


def _print_line(coloured: str, text: str) -> None:
    """Not wrapped where it goes into a pipe, as others look for words in it."""
    wrapped = sys.stdout.isatty()
    terminal().print(f"{coloured}  {escape(payload(text.encode()))}", highlight=False, soft_wrap=not wrapped)


def _print_conclusion(found: Audit, where: str) -> None:
    rate = f", {(found.requests + found.labels) / found.seconds:,.0f} records/s" if found.seconds > 0 else ""
    span = [one for one in found.partitions if one.batches]
    times = ""
    if span:
        times = f" of {when(min(p.first_clock for p in span))} to {when(max(p.last_clock for p in span))} (UTC)"
    letters, alerts = sum(one.dead_letters for one in span), sum(one.alerts for one in span)
    counts = f"{found.decisions} decisions in {found.batches} batches, {letters} dead letters, {alerts} alerts"
    say(f"{where}{times}: {counts}")
    left = f"all but {found.not_recomputed} batches " if found.not_recomputed else ""
    say(f"{left}recomputed in {found.seconds:.1f} s{rate}")
    say(f"draws: {found.draws} ({found.draws_because})")
    say(f"end: {found.end} ({found.end_because})")
    for one in span:
        # never broken into two lines: it is there to be copied
        text = escape(f"head, to be kept elsewhere: {one.partition}={one.head.removeprefix('1:')}")
        terminal().print(text, highlight=False, soft_wrap=True)
    terminal().print(f"[bold {COLOURS[found.verdict]}]{found.verdict}[/]", highlight=False)
