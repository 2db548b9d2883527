"""The command ``gforce``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from processor.terminal import terminal
from producers.commands import app as produce

from . import __version__
from .audit.audit_commands import register as register_audits
from .audit.record_commands import register as register_recordings
from .audit.report_commands import register as register_report
from .audit.whatif_commands import register as register_whatif
from .core.errors import GForceError
from .experiments.commands import app as experiment
from .runtime.commands import run
from .runtime.operator_commands import register

app = typer.Typer(
    name="gforce",
    help="G-FORCE: fair decisions on a live event stream. Chooses for each case whose advice to take, so that "
    "error rates become equal across groups with little loss of accuracy.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
app.command()(run)
register(app)
register_recordings(app)
register_audits(app)
register_whatif(app)
register_report(app)
app.add_typer(produce)
app.add_typer(experiment)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gforce {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def demo(
    rounds: Annotated[int, typer.Option(min=200, help="How many cases to decide.")] = 6_000,
    pace: Annotated[float, typer.Option(min=0.0, help="Cases per second; 0 is as fast as possible.")] = 400.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same demo.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the status page up afterwards, until Ctrl-C.")] = False,
) -> None:
    """Watch the whole processor close a gap, here and on its status page: labels come late, GroupAware in shadow."""
    from .demo import run

    run(rounds, pace, seed, keep)


def main() -> None:
    """Run a command; what a person did wrong ends in one line and exit code 2."""
    try:
        app()
    except GForceError as error:
        terminal(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
