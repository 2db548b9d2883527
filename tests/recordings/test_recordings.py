"""Every recording kept here was made by some version of the processor, and is auditable by this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processor import config as configuration
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.sources.source import open_source
from processor.audit.verify.audit import audit
from processor.audit.verify.result import AuditOptions
from tests.unit.tiers import tier as tier

HERE = Path(__file__).parent
KEPT = sorted(path.parent for path in HERE.glob("v*/manifest.json"))
SEEDS = Secrets.of_config(configuration.load(HERE / "gforce.toml", {}))


def test_there_is_a_recording_of_every_version_that_had_one() -> None:
    assert [path.name for path in KEPT][:1] == ["v1"]


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
@pytest.mark.parametrize("secrets", [SEEDS, Secrets()], ids=["with seeds", "without seeds"])
def test_a_kept_recording_audits_clean(folder: Path, secrets: Secrets) -> None:
    with open_source([folder]) as source:
        found = audit(source, AuditOptions(secrets), processes=1)
    assert (found.verdict, found.findings, found.reasons) == ("verified", [], [])
    assert found.end == "verified"
    assert found.decisions > 400
    assert sum(one.dead_letters for one in found.partitions) > 50
    assert sum(one.alerts for one in found.partitions) > 0
    assert sum(one.states for one in found.partitions) == found.batches


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
def test_a_kept_recording_audits_clean_from_its_snapshot(folder: Path) -> None:
    with open_source([folder]) as source:
        found = audit(source, AuditOptions(SEEDS, from_batch=0), processes=1)
        assert found.verdict == "verified"
        assert all(one.from_batch > 1 for one in found.partitions)


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
def test_a_kept_recording_holds_everything_that_can_happen(folder: Path) -> None:
    with open_source([folder]) as source:
        journal = [
            json.loads(record.value or b"")
            for number in source.partitions("journal")
            for record in source.read("journal", number)
        ]
        reasons = {
            dict(record.headers)["gforce.reason"]
            for number in source.partitions("dead_letters")
            for record in source.read("dead_letters", number)
        }
    assert any(record.get("acknowledged") for record in journal)
    assert sum(len(record.get("configs", {})) for record in journal) > 4
    assert {b"not-utf8", b"unknown-tenant", b"expired-decision", b"unknown-decision", b"label-not-expected"} <= reasons
    assert {b"contradicting-label", b"conflicting-request"} <= reasons
