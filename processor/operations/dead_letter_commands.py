"""``gforce dead-letters``: list, show, resubmit."""

from __future__ import annotations

from typing import Annotated

import typer

from processor.run.run_command import ConfigFile

from .options import CODES, AsJson, DryRun, Yes, agreed, loaded, milliseconds

app = typer.Typer(
    name="dead-letters",
    help="Records that could not be used: what they are, why, and how to send them again.",
    no_args_is_help=True,
)


def _known(reason: str | None) -> str | None:
    from processor.core.errors import nearest, one_of
    from processor.core.events import Reason as Known

    known = [str(one) for one in Known]
    if reason is not None and reason not in known:
        raise typer.BadParameter(f'"{reason}" is no reason: use {one_of(known)}.{nearest(reason, known)}')
    return reason


Reason = Annotated[str | None, typer.Option(callback=_known, help="Only of this reason, for example unknown-decision.")]
Tenant = Annotated[str | None, typer.Option(help="Only of this tenant (the record's key).")]
Since = Annotated[str | None, typer.Option(help='Only of the last "2h", "7d", … .')]


def _time(since: str | None) -> int | None:
    from processor.run.assembly import wall_ms

    return None if since is None else wall_ms() - milliseconds(since)


@app.command("list", epilog=CODES)
def list_letters(
    config: ConfigFile = None,
    reason: Reason = None,
    tenant: Tenant = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters by reason, with the latest of each. docs/operations.md says what to do about each."""
    from . import operator_output
    from .dead_letters import Wanted, letters, summarised
    from .group import opened

    settings, _ = loaded(config)
    with opened(settings) as place:
        wanted = Wanted(reason, tenant, _time(since))
        found = summarised(letters(place.reader, place.topics.dead_letters, wanted))
    if as_json:
        rows = [
            {"reason": one.reason, "count": one.count, "latest": operator_output.letter_document(one.latest)}
            for one in found
        ]
        operator_output.document({"reasons": rows})
    elif found:
        operator_output.summaries(found)
    else:
        operator_output.say("no dead letters")


@app.command("show", epilog=CODES)
def show(
    where: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="Its place, as `list` prints it.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: its headers, key and payload. It may hold personal data."""
    from . import operator_output
    from .dead_letters import Wanted, letters
    from .group import opened

    settings, _ = loaded(config)
    with opened(settings) as place:
        found = list(letters(place.reader, place.topics.dead_letters, Wanted(places=frozenset({where}))))
    if not found:
        typer.echo(f"there is no dead letter at {where}", err=True)
        raise typer.Exit(1)
    operator_output.document(operator_output.letter_document(found[0])) if as_json else operator_output.letter(found[0])


@app.command("resubmit", epilog=CODES)
def resubmit(
    where: Annotated[list[str] | None, typer.Argument(metavar="[PARTITION:OFFSET]...", help="Single letters.")] = None,
    config: ConfigFile = None,
    reason: Reason = None,
    tenant: Tenant = None,
    since: Since = None,
    everything: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to the topic they came from: original key, bytes and time.

    Remove the cause first, or they come back. To repeat it does no harm: duplicates are recognised. Letters over
    900 kB were cut and cannot be sent.
    """
    from processor.run.assembly import client_properties

    from . import operator_output
    from .dead_letters import Wanted, letters, obstacle, summarised
    from .dead_letters import resubmit as carry_out
    from .group import opened

    settings, _ = loaded(config)
    wanted = Wanted(reason, tenant, _time(since), frozenset(where or ()))
    if not wanted and not everything:
        raise typer.BadParameter("which ones? Give their places, --reason, --tenant, --since, or --all")
    with opened(settings) as place:
        found = list(letters(place.reader, place.topics.dead_letters, wanted))
        chosen = [one for one in found if obstacle(one, place.topics.inputs) is None]
        if not as_json:
            operator_output.summaries(summarised(chosen))
            for one in found:
                if why := obstacle(one, place.topics.inputs):
                    operator_output.say(f"not {one.place}: {why}")
            for missing in sorted(wanted.places - {one.place for one in found}):
                operator_output.say(f"not {missing}: there is no such letter")
        if chosen and not dry_run:
            agreed(f"Send {len(chosen)} letters back to their topics?", yes, as_json)
            carry_out(client_properties(settings), chosen)
    left = max(len(found), len(wanted.places)) - len(chosen)
    if as_json:
        operator_output.document({"sent": 0 if dry_run else len(chosen), "would_send": len(chosen), "left": left})
    else:
        operator_output.say("nothing was sent" if dry_run else f"{len(chosen)} sent, {left} left")
    if left or not found:
        raise typer.Exit(1)
