"""One decision explained: what led to it adds up to what was recorded, and what was learnt later is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processor.audit.explain.explain import explain_decision
from processor.audit.explain.label_history import LabelHistory
from processor.audit.replay.recorded_settings import Secrets
from processor.cli import app
from tests.recordings.stream import START, Event, MemorySource, Running
from tests.recordings.writing import write_recording

from .audited import CONFIG, SEEDS, TENANTS, load
from .audited import recorded as recorded


def test_an_explanation_adds_up_to_the_recorded_probability(recorded: MemorySource) -> None:
    seen = set()
    for tenant in TENANTS:
        made = [
            json.loads(r.value or b"")
            for n in (0, 1)
            for r in recorded.records["decisions", n]
            if r.key == tenant.encode()
        ]
        for event in (made[1], made[len(made) // 2], made[-1]):
            found = explain_decision(recorded, tenant, event["decision_id"], SEEDS)
            assert found is not None
            assert found.parts == event["parts"]
            explore = found.explore or 0.0
            for label, chance in found.probabilities.items():
                asked = sum(i.chance * e.share for i in found.instances for e in i.experts if e.said == label)
                sure = explore if label == found.configuration["settings"]["positive"] else 0.0  # type: ignore[index]
                assert chance == pytest.approx(sure + (1 - explore) * asked, abs=1e-8)
            assert found.draws is not None
            assert all(draw.above <= draw.value < draw.below + 1e-9 for draw in found.draws)
            seen.add(found.aftermath.fate)
    assert seen >= {"labelled", "expired"}


def test_what_was_learnt_later_is_told(tmp_path: Path) -> None:
    def request(at: int, name: str) -> Event:
        said = {"tenant": "bank", "decision_id": name, "group": "A", "predictions": {"e": "grant", "f": "deny"}}
        return Event(START + at, "requests", "bank", json.dumps(said).encode())

    def label(at: int, name: str, label: str) -> Event:
        said = {"tenant": "bank", "decision_id": name, "label": label}
        return Event(START + at, "feedback", "bank", json.dumps(said).encode())

    stream = [
        label(0, "early", "grant"),
        request(1_000, "early"),
        request(2_000, "labelled"),
        request(3_000, "expired"),
        label(7_000, "labelled", "deny"),
        label(8_000, "labelled", "deny"),
        label(9_000, "labelled", "grant"),
        request(30_000, "meanwhile"),
        label(40_000, "expired", "grant"),
        request(60_000, "waiting"),
        label(60_500, "nobody", "grant"),
    ]
    running = Running(load(), 1)
    running.feed(stream, between=1)
    source = running.source()

    def later(name: str) -> LabelHistory:
        found = explain_decision(source, "bank", name, SEEDS)
        assert found is not None
        return found.aftermath

    early, labelled, expired, waiting = map(later, ("early", "labelled", "expired", "waiting"))
    assert (early.fate, early.label, early.delay) == ("labelled", "grant", -1_000)
    assert (labelled.fate, labelled.label, labelled.delay) == ("labelled", "deny", 5_000)
    assert [one.outcome for one in labelled.labels] == ["counted", "repeated", "contradicting"]
    assert (expired.fate, expired.label, [one.outcome for one in expired.labels]) == ("expired", None, ["too late"])
    assert (waiting.fate, waiting.label, waiting.labels) == ("pending", None, [])
    letters = {dict(r.headers)["gforce.reason"] for r in source.records["dead_letters", 0]}
    assert letters == {b"contradicting-label", b"expired-decision"}


def test_without_the_seed_an_explanation_has_no_draws(recorded: MemorySource) -> None:
    event = json.loads(recorded.records["decisions", 1][30].value or b"")
    found = explain_decision(recorded, event["tenant"], event["decision_id"], Secrets())
    assert found is not None
    assert found.draws is None
    assert found.parts == event["parts"]
    assert explain_decision(recorded, event["tenant"], "no such decision", SEEDS) is None


def test_the_command_explains_a_decision(recorded: MemorySource, tmp_path: Path) -> None:
    write_recording(recorded, tmp_path / "r")
    event = json.loads(recorded.records["decisions", 1][30].value or b"")
    asked = ["explain", event["decision_id"], "--tenant", event["tenant"], str(tmp_path / "r"), "--config", str(CONFIG)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert event["decision"] in done.stdout
    document = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert document["parts"] == event["parts"]
    missing = CliRunner().invoke(app, ["explain", "nothing", "--tenant", "bank", str(tmp_path / "r")])
    assert missing.exit_code == 1
