"""The commands ``gforce audit``, ``gforce explain``, ``gforce whatif`` and ``gforce report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from processor.operations.options import AsJson

from .command_inputs import (
    ConfigFile,
    Recording,
    SeedFile,
    input_progress,
    open_record,
    parse_partitions,
    read_head_lines,
    step_progress,
)

AUDIT_CODES = "\n\nExit codes: 0 verified, 1 differences found, 2 not auditable (the reason is told), or wrong use."
EXPLAIN_CODES = (
    "\n\nExit codes: 0 explained, 1 no such decision, or the record of decisions says otherwise than what follows "
    "from the inputs (which is explained), 2 not auditable (the reason is told), or wrong use."
)
WHATIF_CODES = (
    "\n\nExit codes: 0 answered, 1 the record has differences, or the recorded setting does not reproduce the recorded "
    "decisions, 2 the record does not allow it (the reason is told), or wrong use."
)
REPORT_CODES = "\n\nExit codes, those of the audit: 0 verified, 1 differences found, 2 not auditable, or wrong use."


def audit(
    recording: Recording = None,
    config: ConfigFile = None,
    seed_file: SeedFile = None,
    partitions: Annotated[list[str] | None, typer.Option(help='As "0,2,5-7". \\[default: all]')] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="Where the chain must get to, kept by you since an earlier audit: partition=lineage:sequence:digest, "
            "or a file of such lines. \\[default: what the recording or the group's commits say]"
        ),
    ] = None,
    from_snapshot: Annotated[
        bool, typer.Option("--from-snapshot", help="Start after the first whole snapshot in the changelog.")
    ] = False,
    from_batch: Annotated[
        int | None, typer.Option(min=2, help="Start at this batch, with the state from the changelog.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="At a time. \\[default: one for each core]")] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every decision from the record alone, and compare.

    From requests, feedback and journal follow all decisions, probabilities and states; they are compared with what was
    recorded, and the hash chain of the journal is walked. The first difference of each kind is told with its place.
    With the seeds (--config or --seed-file) the draws are verified too, without them everything else.
    """
    from .replay.findings import NotAuditableError
    from .verify import audit as auditing
    from .verify.audit_output import print_audit, print_audit_json
    from .verify.result import AuditOptions

    start = from_batch if from_batch is not None else 0 if from_snapshot else None
    try:
        with open_record(recording, config, seed_file) as opened:
            options = AuditOptions(opened.secrets, auditing.parse_heads(read_head_lines(head)), start, opened.codec)
            chosen = parse_partitions(partitions) if partitions else None
            with input_progress(opened.source, chosen) as progress:
                found = auditing.audit(opened.source, options, chosen, processes, progress)
    except NotAuditableError as reason:
        typer.echo(f"not auditable: {reason}", err=True)
        raise typer.Exit(2) from None
    print_audit_json(found, opened.where) if as_json else print_audit(found, opened.where)
    raise typer.Exit(found.exit_code)


def explain(
    decision_id: Annotated[str, typer.Argument(help="The decision's id, as in the events.")],
    recording: Recording = None,
    tenant: Annotated[str, typer.Option(help="Whose decision.")] = "",
    config: ConfigFile = None,
    seed_file: SeedFile = None,
    as_json: AsJson = False,
) -> None:
    """One decision as a person reads it: who was asked, how likely each answer was and why, what was learnt from it.

    Recomputes the tenant's partition up to the decision, so it is no better than the record: run an audit to know that.
    """
    from .explain.explain import explain_decision
    from .explain.explain_output import document, print_explanation
    from .replay.findings import NotAuditableError

    if not tenant:
        raise typer.BadParameter("name the tenant with --tenant: ids are its own")
    try:
        with open_record(recording, config, seed_file) as opened:
            found = explain_decision(opened.source, tenant, decision_id, opened.secrets, opened.codec)
    except NotAuditableError as reason:
        typer.echo(f"cannot be explained: {reason}", err=True)
        raise typer.Exit(2) from None
    if found is None:
        typer.echo(f'there is no decision "{decision_id}" of tenant "{tenant}" in {opened.where}', err=True)
        raise typer.Exit(1)
    document(found) if as_json else print_explanation(found)
    if found.differences:
        raise typer.Exit(1)


def whatif(
    recording: Recording = None,
    config: ConfigFile = None,
    seed_file: SeedFile = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Only this tenant. \\[default: all]")] = None,
    policy: Annotated[str | None, typer.Option(help="gforce, groupaware or mw.")] = None,
    objective: Annotated[str | None, typer.Option(help="gap, mixture, bound or paper.")] = None,
    fairness: Annotated[float | None, typer.Option("--lambda", help="λ: what equal error rates count for.")] = None,
    regret: Annotated[float | None, typer.Option("--lambda-regret", help="What accuracy counts for.")] = None,
    eta: Annotated[str | None, typer.Option(help="Learning rate: a number below 0.5, or auto.")] = None,
    window: Annotated[str | None, typer.Option(help="Learn from so many of the newest buckets; or lifetime.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="Leave this expert out.")] = None,
    delay: Annotated[
        str | None,
        typer.Option(help="Other label delays: none, original, 1h (after the request), +1h (later), x2 (twice)."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Several settings: lambda=0.1:10:13 (from, to, how many), eta=0.1,auto, objective=gap,mixture, "
            "delay=none,+1d …, or without (each expert in turn)."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for pictures of the Pareto front, PNG and SVG.")] = None,
    csv: Annotated[Path | None, typer.Option(help="All figures as rows into this file.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="At a time. \\[default: one for each core]")] = None,
    as_json: AsJson = False,
) -> None:
    """The same stream under other settings: gaps, rates, losses, and how they differ from what was recorded.

    Exact, because every expert's prediction was recorded: the stream is recomputed batch by batch, with the same
    requests, labels, times and draws. Without any option it checks that the recorded setting reproduces the record.
    """
    from processor.operations.operator_output import document

    from .replay.findings import NotAuditableError
    from .whatif.settings import Sweep, read_change
    from .whatif.whatif import answer_whatif
    from .whatif.whatif_output import print_answer, save_pictures, write_rows

    base = read_change(policy, objective, fairness, regret, eta, window, without, delay)
    sweeps = [Sweep.read(text) for text in sweep or ()]
    try:
        with open_record(recording, config, seed_file) as opened, input_progress(opened.source) as progress:
            answer = answer_whatif(
                opened.source, opened.secrets, base, sweeps, tenant or (), opened.codec, processes, progress
            )
    except NotAuditableError as reason:
        typer.echo(f"cannot be answered: {reason}", err=True)
        raise typer.Exit(2) from None
    if csv is not None:
        write_rows(answer, csv)
    pictures = save_pictures(answer, out) if out is not None else []
    if as_json:
        document(answer)
    else:
        print_answer(answer, pictures)
    asked_for = [one for tenant in answer.tenants for one in tenant.settings]
    if asked_for and all(one.refused for one in asked_for):
        raise typer.Exit(2)
    raise typer.Exit(0 if answer.reproduced == answer.decisions and not answer.findings else 1)


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
    from processor.operations.operator_output import say

    from .replay.findings import NotAuditableError
    from .report.build import ReportRequest, build_report, write_report
    from .report.data import Redaction
    from .verify.audit import EXIT_CODES
    from .whatif.settings import Sweep

    request = ReportRequest(
        tenants=tuple(tenant or ()),
        heads=read_head_lines(head),
        sweeps=tuple(Sweep.read(text) for text in with_whatif or ()),
        redaction=Redaction(redact_key) if redact or redact_key else None,
        processes=processes,
    )
    try:
        with open_record(recording, config, seed_file) as opened, step_progress(opened.source) as step:
            found = build_report(opened, request, step)
    except NotAuditableError as reason:
        typer.echo(f"not auditable: {reason}", err=True)
        raise typer.Exit(2) from None
    for path in write_report(found, out, as_json, as_csv):
        say(f"written: {path}")
    for statement in found.statements[: found.answers]:
        say(f"{statement.title}. {statement.text}")
    verdict = found.verification.verdict
    raise typer.Exit(EXIT_CODES[verdict])  # type: ignore[index]


def register(app: typer.Typer) -> None:
    """Add the four commands to ``gforce``."""
    app.command(epilog=AUDIT_CODES)(audit)
    app.command(epilog=EXPLAIN_CODES)(explain)
    app.command(epilog=WHATIF_CODES)(whatif)
    app.command(epilog=REPORT_CODES)(report)
