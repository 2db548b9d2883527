"""What `--help` prints is what was written: nothing in brackets is taken for markup, no line is broken twice."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from processor.cli import app


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_all_that_it_says(path: tuple[str, ...]) -> None:
    command = ALL[path]
    texts = [command.help or "", *(getattr(param, "help", None) or "" for param in command.params)]
    for text in texts:
        assert Text.from_markup(text).plain == text.replace("\\[", "[")
        assert not any("\n" in paragraph for paragraph in text.split("\n\n"))
    assert CliRunner().invoke(app, [*path, "--help"]).exit_code == 0


def test_the_example_of_a_configuration_can_be_printed() -> None:
    result = CliRunner().invoke(app, ["config"])
    assert "[tenants.default]" in result.output
    assert result.exit_code == 0


def test_files_without_embedded_are_refused() -> None:
    result = CliRunner().invoke(app, ["run", "--input", "x.jsonl"])
    assert result.exit_code == 2
    assert "go with --embedded" in result.output


def test_a_reason_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    result = CliRunner().invoke(app, ["dead-letters", "list", "--reason", "label-not-exp"])
    assert result.exit_code == 2
    assert 'Did you mean "label-not-expected"' in " ".join(result.output.replace("│", "").split())
