"""``gforce whatif``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from processor.audit.opening import ConfigFile, Recording, SeedFile, opened
from processor.operations.options import AsJson

if TYPE_CHECKING:
    from .settings import SettingsChange
    from .tables import WhatIf

CODES = (
    "\n\nExit codes: 0 answered, 1 the record has differences, or the recorded setting does not reproduce the recorded "
    "decisions, 2 the record does not allow it (the reason is told), or wrong use."
)


def change_of(
    policy: str | None,
    objective: str | None,
    fairness: float | None,
    regret: float | None,
    eta: str | None,
    window: str | None,
    without: list[str] | None,
    delay: str | None,
) -> SettingsChange:
    """The options of the command as one change."""
    from .settings import SettingsChange, changed

    change = SettingsChange()
    given = {
        "policy": policy,
        "objective": objective,
        "lambda": None if fairness is None else str(fairness),
        "lambda-regret": None if regret is None else str(regret),
        "eta": eta,
        "window": window,
        "delay": delay,
    }
    for what, value in given.items():
        if value is not None:
            change = changed(change, what, value)
    for expert in without or ():
        change = changed(change, "without", expert)
    return change


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
    from processor.audit.progress import input_records
    from processor.audit.replay.findings import NotAuditableError
    from processor.operations.operator_output import document

    from .asking import asked
    from .settings import Sweep
    from .whatif_output import tell

    base = change_of(policy, objective, fairness, regret, eta, window, without, delay)
    sweeps = [Sweep.read(text) for text in sweep or ()]
    try:
        with opened(recording, config, seed_file) as place, input_records(place.source) as progress:
            answer = asked(place.source, place.secrets, base, sweeps, tenant or (), place.codec, processes, progress)
    except NotAuditableError as reason:
        typer.echo(f"cannot be answered: {reason}", err=True)
        raise typer.Exit(2) from None
    if csv is not None:
        write_rows(answer, csv)
    pictures = save_pictures(answer, out) if out is not None else []
    if as_json:
        document(answer)
    else:
        tell(answer, pictures)
    asked_for = [one for tenant in answer.tenants for one in tenant.settings]
    if asked_for and all(one.refused for one in asked_for):
        raise typer.Exit(2)
    raise typer.Exit(0 if answer.reproduced == answer.decisions and not answer.findings else 1)


def write_rows(answer: WhatIf, path: Path) -> None:
    import csv

    from processor.core.errors import InvalidInputError

    from .tables import COLUMNS, rows

    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows(answer))
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}. Name a file in a folder that exists."
        ) from None


def save_pictures(answer: WhatIf, folder: Path) -> list[Path]:
    from . import pareto

    return [
        path
        for number, one in enumerate(answer.tenants, start=1)
        if len(pareto.plottable(one)) > 1
        for path in pareto.save(one, folder, f"pareto-{number:03}")
    ]


def register(app: typer.Typer) -> None:
    """Add it to ``gforce``."""
    app.command(epilog=CODES)(whatif)
