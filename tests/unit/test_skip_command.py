"""``gforce skip``: what a person is shown and asked, and what the processor is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processor.cli import app
from processor.operations.skipping import SkipAnswer, Skipping, judged, refused
from processor.telemetry.http import HttpServer
from processor.telemetry.status import PartitionStatus, Status
from tests.servers.redis_server import free_port

STUCK = PartitionStatus(0, "stalled", "", 1, 1, 0, 0, 0, 0.0, next={"requests": 17}, unreadable={"requests": 17})


@pytest.fixture
def skips(tmp_path: Path) -> Iterator[tuple[Path, list[Skipping]]]:
    """The configuration of a processor whose requests [0] cannot be read at offsets 17 to 21, and what it is asked."""
    asked: list[Skipping] = []

    def skip(number: int, wanted: Skipping) -> tuple[SkipAnswer, int]:
        asked.append(wanted)
        return refused(number, wanted, STUCK if number == 0 else None) or judged(number, wanted, (17, 22))

    port = free_port()
    server = HttpServer("127.0.0.1", port, Status, lambda number: None, skip=skip)
    path = tmp_path / "gforce.toml"
    path.write_text(f'[http]\nport = {port}\n[kafka]\ninstance = "one"\n')
    server.start()
    yield path, asked
    server.stop()


def skip_command(config: Path, *words: str, said: str | None = None) -> tuple[int, str]:
    given = ["skip", "0", "--topic", "requests", "--offset", "17", "--config", str(config), *words]
    result = CliRunner().invoke(app, given, input=said, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return result.exit_code, result.output


def test_a_person_is_shown_how_far_an_unreadable_batch_reaches_before_it_is_skipped(
    skips: tuple[Path, list[Skipping]],
) -> None:
    config, asked = skips
    code, text = skip_command(config, said="n\n")
    assert code == 1
    assert "offsets 17 to 21 of requests [0] would be skipped" in text
    assert [one.dry_run for one in asked] == [True]
    code, text = skip_command(config, said="y\n")
    assert code == 0
    assert "reading goes on at offset 22" in text
    assert asked[1:] == [Skipping("requests", 17, None, dry_run=True), Skipping("requests", 17, 22)]


def test_skipping_needs_no_person_if_one_says_so_and_tells_nothing_but_json(skips: tuple[Path, list[Skipping]]) -> None:
    config, asked = skips
    assert skip_command(config, "--json")[0] == 2  # nobody can be asked
    code, text = skip_command(config, "--json", "--yes", "--to", "19")
    assert (code, json.loads(text)["to"], asked[-1]) == (0, 19, Skipping("requests", 17, 19))
    code, text = skip_command(config, "--json", "--dry-run")
    assert (code, json.loads(text)["done"], asked[-1].dry_run) == (0, False, True)


def test_what_cannot_be_skipped_ends_with_1_and_nothing_is_asked_for(skips: tuple[Path, list[Skipping]]) -> None:
    config, asked = skips
    code, text = skip_command(config, "--yes", "--to", "23")
    assert code == 1
    assert "--to can be 18 to 22" in text
    code, text = skip_command(config, "--yes", "--offset", "16")
    assert code == 1
    assert "skip it instead of 16" in text
    assert all(one.dry_run for one in asked)
