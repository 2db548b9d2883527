"""Options and habits that the operators' commands share.

Exit codes of them all: 0 fine, 1 problems found or refused, 2 wrong use or something unreachable.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from processor import config as configuration
from processor.config import Config, ConfigError
from processor.config.tenants import NO_SEED
from processor.config.values import Duration

CODES = "\n\nExit codes: 0 fine, 1 problems found or refused, 2 wrong use or unreachable."

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def loaded(path: Path | None) -> tuple[Config, str | None]:
    """The configuration for commands that decide nothing: a missing seed is no obstacle, but is told."""
    environment = dict(os.environ)
    try:
        return configuration.load(path, environment), None
    except ConfigError as wrong:
        if not all(NO_SEED in problem for problem in wrong.problems):
            raise
        environment["GFORCE_PROCESSING__SEED"] = secrets.token_hex(32)
        return configuration.load(path, environment), wrong.problems[0]


def milliseconds(text: str) -> int:
    """A duration as people write it.

    >>> milliseconds("90d")
    7776000000
    """
    try:
        return int(Duration.read(int(text) if text.isdigit() else text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def agreed(question: str, yes: bool, as_json: bool) -> None:
    """Go on only if a person says so; 1 if not."""
    if yes:
        return
    if as_json:
        raise typer.BadParameter("with --json nobody can be asked: add --yes")
    if not typer.confirm(question):
        raise typer.Exit(1)
