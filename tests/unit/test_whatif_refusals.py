"""What-if says when its figures are not to be believed: altered records, labels of one side only, no labels at all."""

from __future__ import annotations

import csv
import json
from copy import deepcopy
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from processor.audit.replay.recorded_settings import Secrets
from processor.audit.whatif.answer import WhatIf, short
from processor.audit.whatif.figures import gap_change
from processor.audit.whatif.outcomes import PairedCases
from processor.audit.whatif.settings import SettingsChange, Sweep
from processor.audit.whatif.whatif import answer_whatif
from processor.cli import app
from tests.recordings.stream import MemorySource

from .whatif_streams import SEED, TENANT, cases, config, events, recorded, written

SETTINGS = config(WATCH="true", TOLERANCE="0.1")
SECRETS = Secrets.of_config(SETTINGS)


@pytest.fixture(scope="module")
def kept() -> MemorySource:
    return recorded(events(cases(420, seed=1)), SETTINGS)


@pytest.fixture
def source(kept: MemorySource) -> MemorySource:
    return deepcopy(kept)


def ask(
    source: MemorySource, *sweeps: str, base: SettingsChange = SettingsChange(), tenants: tuple[str, ...] = ()
) -> WhatIf:
    return answer_whatif(source, SECRETS, base, [Sweep.read(text) for text in sweeps], tenants, processes=1)


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
    assert "the record does not audit clean (1 difference)" in text


def test_without_the_published_decisions_the_journal_says_what_was_decided(source: MemorySource) -> None:
    del source.records["decisions", 0]
    answer = ask(source)
    assert (answer.reproduced, answer.decisions, answer.findings) == (420, 420, 0)


# Labels of one side only


@pytest.fixture(scope="module")
def one_sided() -> MemorySource:
    """Labels come for positive decisions only, and the tenant does not say so: what was labelled "no" has none."""
    stream = events(cases(420, seed=2), late=(60_000,))
    first = recorded(stream, SETTINGS)
    decided = [json.loads(record.value or b"") for record in first.records["decisions", 0]]
    refused = {one["decision_id"] for one in decided if one["decision"] == "no"}
    for _ in range(8):  # without their labels others are refused: until nothing changes any more
        kept = [e for e in stream if e.role == "requests" or json.loads(e.value)["decision_id"] not in refused]
        found = recorded(kept, SETTINGS)
        decided = [json.loads(record.value or b"") for record in found.records["decisions", 0]]
        now = {one["decision_id"] for one in decided if one["decision"] == "no"}
        if now <= refused:
            return found
        refused |= now
    raise AssertionError("it does not settle")


def test_labels_of_one_side_only_make_no_valid_figures(one_sided: MemorySource, tmp_path: Path) -> None:
    (tenant,) = ask(one_sided, "lambda=10").tenants
    assert tenant.unlabelled == ("no",)
    assert tenant.not_valid.startswith("no case that was decided “no” has a label, and others have")
    rows = tmp_path / "rows.csv"
    code, text = said(one_sided, tmp_path, "--lambda", "10", "--csv", str(rows))
    assert code == 0
    assert "these figures are not valid: no case that was decided “no” has a label" in text
    assert "Nothing follows from these figures" in text
    assert "on the front" not in text
    told = [
        row
        for row in csv.DictReader(rows.read_text().splitlines())
        if row["figure"] == "not_valid_no_labels_for_decision"
    ]
    assert [(row["setting"], row["label"]) for row in told] == [("as recorded", "no"), ("λ 10", "no")]


def test_labels_of_both_sides_are_not_warned_about(kept: MemorySource) -> None:
    (tenant,) = ask(kept).tenants
    assert (tenant.unlabelled, tenant.not_valid) == ((), "")


# No labels to judge by, and which decisions were reproduced


def test_without_labels_to_judge_by_nothing_is_concluded(kept: MemorySource, tmp_path: Path) -> None:
    code, text = said(kept, tmp_path, "--delay", "+365d")
    assert code == 0
    assert "There are no labels to judge by" in text
    assert "None of the settings" not in text


def test_decisions_of_other_tenants_in_the_partition_are_said_to_be_among_those_reproduced(
    kept: MemorySource, tmp_path: Path
) -> None:
    _, text = said(kept, tmp_path, "--tenant", "court")
    assert "reproduces 420 of 420 decisions of all tenants in partition 0" in text


def test_a_gap_changes_by_no_more_than_one() -> None:
    few = PairedCases()
    few.cases.update({("A", "yes"): 1, ("B", "yes"): 400})
    few.wrong.update({("B", "yes"): 5})
    few.only_other.update({("A", "yes"): 1})
    change = gap_change(few)
    assert -1.0 <= change.lower <= change.value <= change.upper <= 1.0


# The tables


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_word_of_a_table_is_broken(
    kept: MemorySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, text = said(kept, tmp_path, "--lambda", "10")
    assert code == 0
    words = text.split()
    assert {"setting", "gap", "expected", "change", "loss", "regret"} <= set(words)
    assert "expecte" not in words


def test_rates_stand_beside_gaps_and_the_recorded_lambda_is_told(kept: MemorySource, tmp_path: Path) -> None:
    (tenant,) = ask(kept).tenants
    rates = {(cell.group, cell.label): cell for cell in tenant.recorded.rates}
    _, text = said(kept, tmp_path)
    assert f"as recorded (λ {tenant.recorded.fairness:.3g})" in text
    for label in ("no", "yes"):
        mine = [rates[group, label] for group in ("A", "B")]
        by_group = ", ".join(f"{one.group} {short(one.rate.value)} of {one.n}" for one in mine)
        assert f"{label} {by_group}" in text


@pytest.mark.parametrize("options", [(), ("--tenant", TENANT)], ids=["all", "one tenant"])
def test_a_journal_that_begins_with_garbage_is_not_asked(
    source: MemorySource, tmp_path: Path, options: tuple[str, ...]
) -> None:
    source.records["journal", 0][0] = replace(source.records["journal", 0][0], value=b"garbage")
    code, text = said(source, tmp_path, *options)
    assert code == 2
    assert "cannot be answered: the journal at hand starts with batch 2" in text
