"""Run the scenarios one after the other on one broker and one Redis, and print a row for each."""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from . import control, cost, instances, offsets, quarantine, records, state, store  # noqa: F401  # they register themselves
from .registry import SCENARIOS
from .stage import Stage
from .supervisor import Servers
from .table import Row, shown

EXPIRIES = 200_000


def operators(
    only: Annotated[list[str] | None, typer.Option(help="names of scenarios [default: all]")] = None,
    list_: Annotated[bool, typer.Option("--list", help="print the names and what must happen, and stop")] = False,
    expiries: Annotated[int, typer.Option(help="decisions that are due at once", min=1_000)] = EXPIRIES,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the rows here")] = None,
) -> None:
    """What operators, other programs and servers do wrong, on a real broker and Redis."""
    console = Console(width=None if Console().is_terminal else 180)
    if list_:
        for name, play in SCENARIOS.items():
            console.print(f"{name:<26} {(play.__doc__ or '').splitlines()[0]}", highlight=False)
        return
    unknown = sorted(set(only or ()) - SCENARIOS.keys())
    if unknown:
        raise typer.BadParameter(f"no scenario {', '.join(unknown)}: --list prints the names")
    rows: list[Row] = []
    began = time.monotonic()
    with Servers() as servers:
        for name in SCENARIOS:
            if not only or name in only:
                found = played(name, servers, {"expiries": expiries})
                rows += found
                for row in found:
                    verdict = "pass" if row.passed else "FAIL"
                    at = f"{time.monotonic() - began:6.0f} s"
                    console.print(f"{at}  {verdict}  {row.name} ({row.seconds:.0f} s)", style="dim", highlight=False)
        shown(console, rows)
        console.print(f"logs: {servers.folder}; took {time.monotonic() - began:.0f} s", style="dim", highlight=False)
    if json_file is not None:
        content = [{**asdict(row), "passed": row.passed} for row in rows]
        json_file.write_text(json.dumps(content, indent=1) + "\n")
    raise typer.Exit(0 if all(row.passed for row in rows) else 1)


def played(name: str, servers: Servers, options: dict[str, int]) -> list[Row]:
    """One scenario. Whatever goes wrong in it is its own row's matter, and the others go on."""
    stage = Stage(name, servers, options)
    try:
        try:
            SCENARIOS[name](stage)
        except Exception as error:  # what was sent and decided until then is still worth a row
            stage.check(False, f"broke off: {type(error).__name__}: {str(error)[-500:]}")
            (servers.folder / f"{name}.traceback").write_text(traceback.format_exc())
            stage.settle = min(stage.settle, 5.0)
        return stage.finish()
    except Exception as error:
        (servers.folder / f"{name}.traceback").write_text(traceback.format_exc())
        found = [text for _, text in stage.problems]
        return [Row(name, problems=[*found, f"{type(error).__name__}: {str(error)[-500:]}"])]
    finally:
        stage.close()


if __name__ == "__main__":
    typer.run(operators)
