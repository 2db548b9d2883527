"""``gforce run``: the processor, on Kafka and Redis or embedded."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from processor import config as configuration
from processor.config import Config
from processor.telemetry.logs import set_up
from processor.terminal import terminal

from .stopping import stopping

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; every value can also come from the environment.", exists=True),
]

MADE_UP = "seed made up: set GFORCE_PROCESSING__SEED to get the same decisions again"


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration from a file and the environment."""
    return configuration.load(path, os.environ if environment is None else environment)


def load_embedded(path: Path | None) -> tuple[Config, bool]:
    """The same for the embedded mode, where a missing seed is made up; and whether it was."""
    environment = dict(os.environ)
    try:
        return configuration.load(path, environment), False
    except configuration.ConfigError:
        environment.setdefault("GFORCE_PROCESSING__SEED", secrets.token_hex(32))
        return configuration.load(path, environment), True


def run(
    config: ConfigFile = None,
    embedded: Annotated[
        bool,
        typer.Option(
            "--embedded", help="Without Kafka: read JSON lines, write JSON lines, keep nothing; no journal, no audit."
        ),
    ] = False,
    source: Annotated[
        Path | None, typer.Option("--input", help="With --embedded: the file to read. \\[default: standard input]")
    ] = None,
    sink: Annotated[
        Path | None, typer.Option("--output", help="With --embedded: the file to write. \\[default: standard output]")
    ] = None,
) -> None:
    """Run the processor until it is told to stop (SIGTERM or Ctrl-C).

    With --embedded each input line is an event, {"tenant": "acme", "decision_id": "1", "group": "A", "predictions":
    {"model": true}} or {"tenant": "acme", "decision_id": "1", "label": true}, or a record that holds one, {"topic":
    "requests", "key": "acme", "payload": {…}, "ts": 1700000000000}: topic is requests or feedback, the key is the
    tenant, ts may be left out.

    A line that is neither becomes a line on topic dead-letters, with the reason in its headers, as does an event that
    cannot be used; the run goes on. To try it: gforce produce synthetic --out - | gforce run --embedded

    With --embedded a seed that is not configured is made up. Set GFORCE_PROCESSING__SEED (gforce doctor --new-seed
    makes one), and the same file gets the same decisions again.
    """
    if not embedded and (source or sink):
        raise typer.BadParameter("--input and --output go with --embedded: without it the processor reads Kafka")
    if embedded:
        _run_embedded(*load_embedded(config), source, sink)
        return
    from .process import Service

    settings = load(config)
    set_up(settings.log.format, settings.log.level)
    Service(settings).run()


def example() -> None:
    """Print a configuration file in which every setting is explained: gforce config > gforce.toml."""
    typer.echo(configuration.example_text(), nl=False)


def _run_embedded(config: Config, seed_made_up: bool, source: Path | None, sink: Path | None) -> None:
    from processor.embedded.line_files import OutputClosedError, read_from, refuse_same, written_to
    from processor.embedded.lines import as_they_come, run_lines, summary

    console = terminal(stderr=True)
    with ExitStack() as files:
        lines = files.enter_context(read_from(source))
        refuse_same(lines, sink)
        out = files.enter_context(written_to(sink, "--output"))
        console.print("embedded: in-memory log, own Valkey server; nothing outlives this process", style="dim")
        if seed_made_up:
            console.print(MADE_UP, style="dim", soft_wrap=True)
        with stopping() as stop, suppress(OutputClosedError):
            totals = run_lines(config, as_they_come(lines, lambda: stop.told), out.write)
            console.print(summary(totals), style="dim", highlight=False, soft_wrap=True)
