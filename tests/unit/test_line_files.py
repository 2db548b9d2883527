"""What a person may get wrong with the files of ``gforce run --embedded``: one line says it, and nothing is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processor.cli import main
from processor.core.errors import GForceError
from processor.embedded.line_files import LineOutput, OutputClosedError

Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """What the command says when it will not run."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["gforce", "run", "--embedded", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        shown = capfd.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1, shown.err
        return shown.err

    return run


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.jsonl"
    file.write_text("precious\n")
    return file


def test_the_input_is_not_overwritten(lines: Path, refused: Refused) -> None:
    assert f'"{lines}" is both input and output' in refused("--input", lines, "--output", lines)
    link = lines.with_name("link.jsonl")
    link.symlink_to(lines)
    assert "write to another file" in refused("--input", lines, "--output", link)
    assert "write to another file" in refused("--input", link, "--output", lines)
    assert lines.read_text() == "precious\n"


def test_a_redirected_input_is_not_overwritten(lines: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    with lines.open() as redirected:
        monkeypatch.setattr(sys, "stdin", redirected)
        assert "is both input and output" in refused("--output", lines)
    assert lines.read_text() == "precious\n"


def test_a_missing_input_costs_the_output_nothing(lines: Path, tmp_path: Path, refused: Refused) -> None:
    assert f'there is no file "{tmp_path}/none"' in refused("--input", tmp_path / "none", "--output", lines)
    assert f'cannot read "{tmp_path}" (Is a directory)' in refused("--input", tmp_path)
    assert lines.read_text() == "precious\n"


def test_an_output_that_cannot_be_written_is_named(lines: Path, tmp_path: Path, refused: Refused) -> None:
    said = refused("--input", lines, "--output", tmp_path / "none" / "out.jsonl")
    assert f'there is no folder "{tmp_path}/none" for --output' in said
    assert f'cannot write "{tmp_path}" (Is a directory)' in refused("--input", lines, "--output", tmp_path)


def test_a_closed_standard_input_is_named(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused()


def test_a_pipe_that_nobody_reads_is_no_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as stream:
        out = LineOutput("standard output", stream)
        with pytest.raises(OutputClosedError):
            out.write(b"a\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("wb") as stream, pytest.raises(GForceError, match="No space left on device"):
        LineOutput('"out.jsonl"', stream).write(b"a\n")
