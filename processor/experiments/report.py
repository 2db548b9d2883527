"""What every experiment ends with: a table, figures in two formats, and a JSON file if asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from processor import __version__
from processor.core.errors import InvalidInputError
from processor.terminal import terminal

console = terminal(piped_width=120)
STANDARD_OUTPUT = Path("-")


def checked_json(path: Path | None) -> Path | None:
    """Where the figures are to go: looked at now, and not when hours of work are done. "-" is standard output."""
    if path == STANDARD_OUTPUT:
        console.stderr = True  # the table goes where it does not mix with the figures
    elif path is not None and (path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK)):
        raise InvalidInputError(
            f"cannot write the figures to {path}: name a file in a folder that exists and is yours."
        )
    return path


def checked_folder(folder: Path) -> Path:
    """The folder for the pictures, made if need be; now, and not when hours of work are done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"cannot make the folder {folder} for the pictures: {error.strerror}. Name another with --figures."
        ) from None
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(
            f"the folder {folder} for the pictures is not yours to write: name another with --figures."
        )
    return folder


def runs_of(runs: int, rounds: int) -> str:
    """
    >>> runs_of(1, 200), runs_of(100, 10_000)
    ('1 run of 200 rounds', '100 runs of 10000 rounds')
    """
    return f"{runs} run{'' if runs == 1 else 's'} of {rounds} rounds"


def table(title: str, columns: list[str], rows: list[list[str]], notes: list[str]) -> None:
    """Print a table with text to the left and figures to the right, then the notes."""
    shown = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for i, column in enumerate(columns):
        shown.add_column(column, justify="left" if i < _leading_text(rows) else "right", overflow="fold")
    last = None
    for row in rows:
        if last is not None and row[0] != last:
            shown.add_section()
        shown.add_row(*row)
        last = row[0]
    console.print()
    console.print(shown)
    for note in notes:
        console.print(f"  {note}", style="dim", highlight=False)


def _leading_text(rows: list[list[str]]) -> int:
    first = rows[0] if rows else []
    numeric = [i for i, cell in enumerate(first) if cell.lstrip("−-.").lstrip(".")[:1].isdigit() and i > 0]
    return numeric[0] if numeric else len(first)


def write_json(path: Path | None, experiment: str, settings: dict[str, Any], body: dict[str, Any]) -> None:
    """One object: which experiment by which version and settings, then its figures."""
    if path is None:
        return
    document = {"experiment": experiment, "version": __version__, "settings": settings, **body}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(text)
        return
    try:
        path.write_bytes(text)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}. Name a file in a folder that exists."
        ) from None
    console.print(f"  figures as JSON: {path}", highlight=False)


def save_figure(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG and SVG and say where."""
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else None
        figure.savefig(folder / f"{name}.{ending}", dpi=160, bbox_inches="tight", metadata=metadata)
    console.print(f"  picture: {folder / name}.png and .svg", highlight=False)
