"""``gforce audit`` and ``gforce explain``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from processor.core.errors import InvalidInput
from processor.runtime.operator_options import AsJson
from processor.terminal import terminal

from .opening import ConfigFile, Recording, SeedFile, opened
from .record_commands import _numbers as numbers
from .sources import Role, Source

CODES = "\n\nExit codes: 0 verified, 1 differences found, 2 not auditable (the reason is told), or wrong use."
EXPLAIN_CODES = "\n\nExit codes: 0 explained, 1 no such decision, 2 not auditable (the reason is told), or wrong use."


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
    from . import audit as auditing
    from .audit_output import document, report
    from .findings import NotAuditable
    from .partition_result import Options

    start = from_batch if from_batch is not None else 0 if from_snapshot else None
    try:
        with opened(recording, config, seed_file) as place:
            options = Options(place.secrets, auditing.heads(_lines(head)), start, place.codec)
            chosen = numbers(partitions) if partitions else None
            with _bar(place.source, chosen) as progress:
                found = auditing.audit(place.source, options, chosen, processes, progress)
    except NotAuditable as reason:
        typer.echo(f"not auditable: {reason}", err=True)
        raise typer.Exit(2) from None
    document(found, place.where) if as_json else report(found, place.where)
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
    from .explain import explained
    from .explain_output import document, tell
    from .findings import NotAuditable

    if not tenant:
        raise typer.BadParameter("name the tenant with --tenant: ids are its own")
    try:
        with opened(recording, config, seed_file) as place:
            found = explained(place.source, tenant, decision_id, place.secrets, place.codec)
    except NotAuditable as reason:
        typer.echo(f"cannot be explained: {reason}", err=True)
        raise typer.Exit(2) from None
    if found is None:
        typer.echo(f'there is no decision "{decision_id}" of tenant "{tenant}" in {place.where}', err=True)
        raise typer.Exit(1)
    document(found) if as_json else tell(found)


def _lines(heads: list[str] | None) -> list[str]:
    """Heads as given, or the lines of the files that were given instead."""
    found: list[str] = []
    for text in heads or ():
        path = Path(text)
        if "=" in text and not path.is_file():
            found.append(text)
            continue
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise InvalidInput(f"the file of heads {text} cannot be read: {error.strerror}") from None
        found += [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return found


@contextmanager
def _bar(source: Source, partitions: tuple[int, ...] | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; gives what is told how many input records have been read."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(stderr=True), transient=True) as progress:
        task = progress.add_task("input records", total=_inputs(source, partitions))
        yield lambda read: progress.update(task, completed=read)


def _inputs(source: Source, partitions: tuple[int, ...] | None) -> int | None:
    """About how many there are: offsets covered, where that is known."""
    total = 0
    roles: tuple[Role, ...] = ("requests", "feedback")
    for role in roles:
        for number in source.partitions(role) if partitions is None else partitions:
            bounds = source.bounds(role, number)
            if bounds is None:
                return None
            total += bounds[1] - bounds[0]
    return total


def register(app: typer.Typer) -> None:
    """Add both to ``gforce``."""
    app.command(epilog=CODES)(audit)
    app.command(epilog=EXPLAIN_CODES)(explain)
