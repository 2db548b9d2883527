"""What-if says when its figures are not to be believed: altered records, labels of one side only, no labels at all."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from processor.audit.replay.rules import Secrets
from processor.audit.whatif.asking import asked
from processor.audit.whatif.settings import Change, Sweep
from processor.audit.whatif.tables import WhatIf
from processor.cli import app
from tests.recordings.stream import MemorySource

from .whatif_streams import SEED, cases, config, events, recorded, written

SETTINGS = config(WATCH="true", TOLERANCE="0.1")
SECRETS = Secrets.of_config(SETTINGS)


@pytest.fixture(scope="module")
def kept() -> MemorySource:
    return recorded(events(cases(420, seed=1)), SETTINGS)


@pytest.fixture
def source(kept: MemorySource) -> MemorySource:
    return deepcopy(kept)


def ask(source: MemorySource, *sweeps: str, base: Change = Change(), tenants: tuple[str, ...] = ()) -> WhatIf:
    return asked(source, SECRETS, base, [Sweep.read(text) for text in sweeps], tenants, processes=1)


def said(source: MemorySource, folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and words of the command, in one line."""
    seeds = folder / "seeds.toml"
    seeds.write_text(f'seed = "{SEED}"\n')
    command = ["whatif", str(written(source, folder / "r")), "--seed-file", str(seeds), "--processes", "1", *options]
    done = CliRunner().invoke(app, command)
    return done.exit_code, " ".join(done.output.split())


def falsified(source: MemorySource, index: int = 200) -> None:
    record = source.records["decisions", 0][index]
    event = json.loads(record.value or b"")
    event["decision"] = "no" if event["decision"] == "yes" else "yes"
    value = json.dumps(event, separators=(",", ":")).encode()
    source.records["decisions", 0][index] = replace(record, value=value)


def test_a_falsified_published_decision_is_not_reproduced(source: MemorySource, tmp_path: Path) -> None:
    falsified(source)
    answer = ask(source)
    assert (answer.reproduced, answer.decisions) == (419, 420)
    assert answer.findings > 0
    code, text = said(source, tmp_path)
    assert code == 1
    assert "reproduces 419 of 420 decisions" in text
    assert "the record does not audit clean" in text


def test_an_altered_input_that_could_be_had_back_ends_with_1_all_the_same(source: MemorySource, tmp_path: Path) -> None:
    record = source.records["requests", 0][50]
    source.records["requests", 0][50] = replace(record, timestamp=record.timestamp + 7)
    code, text = said(source, tmp_path)
    assert code == 1
    assert "reproduces 420 of 420 decisions" in text
    assert "the record does not audit clean (1 differences)" in text


def test_without_the_published_decisions_the_journal_says_what_was_decided(source: MemorySource) -> None:
    del source.records["decisions", 0]
    answer = ask(source)
    assert (answer.reproduced, answer.decisions, answer.findings) == (420, 420, 0)
