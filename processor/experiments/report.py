"""What every experiment ends with: a table, figures in two formats, and a JSON file if asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from processor import __version__
from processor.core.errors import InvalidInput
from processor.terminal import terminal

console = terminal(piped_width=120)


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
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}. Name a file in a folder that exists.") from None
    console.print(f"  figures as JSON: {path}", highlight=False)


def save_figure(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG and SVG and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else None
        figure.savefig(folder / f"{name}.{ending}", dpi=160, bbox_inches="tight", metadata=metadata)
    console.print(f"  picture: {folder / name}.png and .svg", highlight=False)
