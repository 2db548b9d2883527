"""``gforce audit``."""

from __future__ import annotations

from typing import Annotated

import typer

from processor.audit.opening import ConfigFile, Recording, SeedFile, head_lines, opened, partition_numbers
from processor.audit.progress import input_records
from processor.operations.options import AsJson

CODES = "\n\nExit codes: 0 verified, 1 differences found, 2 not auditable (the reason is told), or wrong use."


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
    from processor.audit.replay.findings import NotAuditableError

    from . import audit as auditing
    from .audit_output import document, report
    from .result import AuditOptions

    start = from_batch if from_batch is not None else 0 if from_snapshot else None
    try:
        with opened(recording, config, seed_file) as place:
            options = AuditOptions(place.secrets, auditing.heads(head_lines(head)), start, place.codec)
            chosen = partition_numbers(partitions) if partitions else None
            with input_records(place.source, chosen) as progress:
                found = auditing.audit(place.source, options, chosen, processes, progress)
    except NotAuditableError as reason:
        typer.echo(f"not auditable: {reason}", err=True)
        raise typer.Exit(2) from None
    document(found, place.where) if as_json else report(found, place.where)
    raise typer.Exit(found.exit_code)


def register(app: typer.Typer) -> None:
    """Add it to ``gforce``."""
    app.command(epilog=CODES)(audit)
