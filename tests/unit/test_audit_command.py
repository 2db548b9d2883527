"""``gforce audit`` ends with 0, 1 or 2 and says why, whatever form the record has."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processor.audit.verify.audit import audit
from processor.audit.verify.result import AuditOptions
from processor.cli import app
from tests.recordings.stream import MemorySource
from tests.recordings.writing import write_plain, write_recording

from .audited import CONFIG, SEEDS, load
from .audited import recorded as recorded


def test_the_command_verifies_a_recording_and_ends_with_0(recorded: MemorySource, tmp_path: Path) -> None:
    write_recording(recorded, tmp_path / "r")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["verdict"], document["draws"], document["end"]) == ("verified", "verified", "verified")
    head = f"0={document['heads']['0'].removeprefix('1:')}"
    again = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--head", head, "--partitions", "0"])
    assert again.exit_code == 0, again.output
    assert "verified" in again.stdout


def test_the_command_reads_plain_files_and_says_that_the_end_is_not_verified(
    recorded: MemorySource, tmp_path: Path
) -> None:
    paths = write_plain(recorded, tmp_path)
    seeds = tmp_path / "seeds.toml"
    lender = load().tenants.named["lender"].seed
    master = load().processing.seed
    assert lender is not None
    assert master is not None
    seeds.write_text(f'seed = "{master.reveal()}"\n[tenants]\nlender = ["{"00" * 16}", "{lender.reveal()}"]\n')
    done = CliRunner().invoke(app, ["audit", *map(str, paths), "--seed-file", str(seeds)])
    assert done.exit_code == 0, done.output
    assert "draws: verified" in done.stdout
    assert "the end cannot be verified" in " ".join(done.stdout.split())


def test_the_command_ends_with_1_and_names_the_place_of_a_difference(recorded: MemorySource, tmp_path: Path) -> None:
    tampered = deepcopy(recorded)
    gone = tampered.records["requests", 1].pop(40)
    write_recording(tampered, tmp_path / "r")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG)])
    assert done.exit_code == 1, done.output
    assert f"requests [1] at offset {gone.offset}" in " ".join(done.stdout.split())


def test_a_file_of_a_recording_that_was_changed_is_named(recorded: MemorySource, tmp_path: Path) -> None:
    """In a header, which the chain does not cover."""
    write_recording(recorded, tmp_path / "r")
    path = tmp_path / "r" / "dead-letters-1.jsonl"
    path.write_bytes(path.read_bytes().replace(b"gforce.detail", b"gforce.retail"))
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG), "--json"])
    assert done.exit_code == 1, done.output
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["kind"], finding["topic"], finding["partition"]) == ("recording", "dead-letters", 1)
    assert "SHA-256 differs" in finding["text"]


def test_the_command_ends_with_2_and_says_why(recorded: MemorySource, tmp_path: Path) -> None:
    tampered = deepcopy(recorded)
    del tampered.records["journal", 1][:2]
    write_recording(tampered, tmp_path / "r")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "r"), "--config", str(CONFIG)])
    assert done.exit_code == 2, done.output
    assert "starts with batch 3" in " ".join(done.stdout.split())


def test_partitions_are_audited_by_processes_of_their_own(
    recorded: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("processor.audit.verify.audit.SINGLE_PROCESS_REQUESTS", 0)
    told: list[int] = []
    found = audit(recorded, AuditOptions(SEEDS), processes=2, progress=told.append)
    assert found.verdict == "verified"
    assert told[-1] == found.requests + found.labels
