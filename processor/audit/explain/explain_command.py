"""``gforce explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from processor.audit.opening import ConfigFile, Recording, SeedFile, opened
from processor.operations.options import AsJson

CODES = (
    "\n\nExit codes: 0 explained, 1 no such decision, or the record of decisions says otherwise than what follows "
    "from the inputs (which is explained), 2 not auditable (the reason is told), or wrong use."
)


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
    from processor.audit.replay.findings import NotAuditableError

    from .explain import explained
    from .explain_output import document, tell

    if not tenant:
        raise typer.BadParameter("name the tenant with --tenant: ids are its own")
    try:
        with opened(recording, config, seed_file) as place:
            found = explained(place.source, tenant, decision_id, place.secrets, place.codec)
    except NotAuditableError as reason:
        typer.echo(f"cannot be explained: {reason}", err=True)
        raise typer.Exit(2) from None
    if found is None:
        typer.echo(f'there is no decision "{decision_id}" of tenant "{tenant}" in {place.where}', err=True)
        raise typer.Exit(1)
    document(found) if as_json else tell(found)
    if found.differences:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add it to ``gforce``."""
    app.command(epilog=CODES)(explain)
