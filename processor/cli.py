"""The command ``gforce``."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer
from rich.markup import escape

from processor.terminal import terminal
from producers.produce_commands import app as produce

from . import __version__
from .adapters.kafka.settings import LastWords
from .audit.audit_commands import register as register_audits
from .audit.recording.record_commands import register as register_recordings
from .core.errors import GForceError
from .experiments.experiment_commands import app as experiment
from .operations.operator_commands import register
from .ports.log import RetryableError
from .ports.store import StoreUnavailableError
from .run.run_command import example, run

UNREACHED = (
    "Is Kafka up where kafka.bootstrap_servers says (--config, or GFORCE_KAFKA__BOOTSTRAP_SERVERS)? "
    "[bold]gforce doctor[/] tries it, and Redis too."
)
STORE_UNREACHED = (
    "Is Redis or Valkey up where redis.url says (--config, or GFORCE_REDIS__URL)? "
    "[bold]gforce doctor[/] tries it, and Kafka too."
)

app = typer.Typer(
    name="gforce",
    help="G-FORCE: fair decisions on a live event stream. Chooses for each case whose advice to take, so that "
    "error rates become equal across groups with little loss of accuracy.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
app.command()(run)
app.command("config")(example)
register(app)
register_recordings(app)
register_audits(app)
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


def _flowing(commands: typer.Typer) -> None:
    """Have help texts broken where the terminal ends, and not a second time where the source does."""
    for command in commands.registered_commands:
        paragraphs = inspect.getdoc(command.callback) if command.callback else None
        command.help = "\n\n".join(part.replace("\n", " ") for part in (paragraphs or "").split("\n\n"))
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _flowing(group.typer_instance)


_flowing(app)


def main() -> None:
    """Run a command; what a person did wrong ends in one line and exit code 2."""
    try:
        app()
    except GForceError as error:
        _complain(f"[bold red]error:[/] {escape(str(error))}")
        if isinstance(error, RetryableError):
            if LastWords.text:
                _complain(escape(f"The last trouble was: {LastWords.text}"))
            _complain(UNREACHED)
        if isinstance(error, StoreUnavailableError):
            _complain(STORE_UNREACHED)
        sys.exit(2)


def _complain(text: str) -> None:
    """One line on standard error; only a terminal has a width to break it at."""
    terminal(stderr=True).print(text, highlight=False, soft_wrap=not sys.stderr.isatty())


if __name__ == "__main__":
    main()
