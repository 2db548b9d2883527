"""``gforce report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from processor.audit.opening import ConfigFile, Recording, SeedFile, head_lines, opened
from processor.audit.progress import steps

CODES = "\n\nExit codes, those of the audit: 0 verified, 1 differences found, 2 not auditable, or wrong use."


def report(
    recording: Recording = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    config: ConfigFile = None,
    seed_file: SeedFile = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Only this tenant's figures. \\[default: all]")] = None,
    head: Annotated[
        list[str] | None, typer.Option(help="Where the chain must get to: partition=lineage:sequence:digest.")
    ] = None,
    with_whatif: Annotated[
        list[str] | None,
        typer.Option(help="Other settings too, as --sweep of whatif: lambda=0.1:10:13, without, objective=mixture …"),
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Keyed hashes instead of decision ids.")] = False,
    redact_key: Annotated[
        str | None,
        typer.Option(
            envvar="GFORCE_REDACT_KEY",
            help="The key of the hashes, if those of several reports are to be comparable. \\[default: random]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same figures as JSON beside it.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The same figures as CSV beside it.")] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="At a time. \\[default: one for each core]")] = None,
) -> None:
    """Audit a record and write a report: one HTML file that can be handed over, printed, and opened offline.

    What was audited and by which version, verified or not, gaps with their bands, rates, alerts, delays, who decided,
    dead letters, and the method in plain words.
    """
    from processor.audit.replay.findings import NotAuditableError
    from processor.audit.verify.audit import EXIT
    from processor.audit.whatif.settings import Sweep
    from processor.operations.operator_output import say

    from .build import ReportRequest, build_report, write_report
    from .redaction import Redaction

    wish = ReportRequest(
        tenants=tuple(tenant or ()),
        heads=head_lines(head),
        sweeps=tuple(Sweep.read(text) for text in with_whatif or ()),
        redaction=Redaction(redact_key) if redact or redact_key else None,
        processes=processes,
    )
    try:
        with opened(recording, config, seed_file) as place, steps(place.source) as step:
            found = build_report(place, wish, step)
    except NotAuditableError as reason:
        typer.echo(f"not auditable: {reason}", err=True)
        raise typer.Exit(2) from None
    for path in write_report(found, out, as_json, as_csv):
        say(f"written: {path}")
    for statement in found.statements[: found.answers]:
        say(f"{statement.title}. {statement.text}")
    verdict = found.verification.verdict
    raise typer.Exit(EXIT[verdict])  # type: ignore[index]


def register(app: typer.Typer) -> None:
    """Add it to ``gforce``."""
    app.command(epilog=CODES)(report)
