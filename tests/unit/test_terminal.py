"""What a producer wrote is shown as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

import processor
from processor.cli import app
from processor.terminal import terminal


def test_ids_are_not_turned_into_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("decision")
    table.add_row("loan:100:7")
    terminal().print("tenant:smile:", table)
    shown = capsys.readouterr().out
    assert "tenant:smile:" in shown
    assert "loan:100:7" in shown


def test_everything_is_printed_there() -> None:
    folder = Path(processor.__file__).parent
    elsewhere = [file.name for file in folder.rglob("*.py") if re.search(r"\bConsole\(", file.read_text())]
    assert elsewhere == ["terminal.py"]


@pytest.mark.parametrize("command", ["audit", "explain", "record", "play", "whatif", "report", "run"])
def test_help_has_no_pictures(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert shown
    assert all(ord(letter) < 0x1F000 for letter in shown)
