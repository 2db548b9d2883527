"""What an audit says of a record that was recorded, or could be checked, in part only."""

from __future__ import annotations

import dataclasses
import json
from copy import deepcopy
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from processor import config as configuration
from processor.audit.recording.plan import PlannedRange, RecordingOrder, _resume
from processor.audit.replay.changelog import changelog_batches
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.sources import manifest as manifests
from processor.audit.sources.source import open_source
from processor.audit.verify.audit import Audit, audit
from processor.audit.verify.result import AuditOptions
from processor.cli import app
from processor.ports.log import Record, TopicPartition
from tests.recordings.stream import SHAPES, MemorySource, Running, events
from tests.recordings.writing import write_plain, write_recording

CONFIG = Path(__file__).parents[1] / "recordings" / "gforce.toml"
SEEDS = Secrets.of_config(configuration.load(CONFIG, {}))


@pytest.fixture(scope="module")
def recorded() -> MemorySource:
    running = Running(configuration.load(CONFIG, {}), 2)
    running.feed(events(SHAPES, 300, seed=3))
    return running.source()


@pytest.fixture
def source(recorded: MemorySource) -> MemorySource:
    return deepcopy(recorded)


def run(source: MemorySource, secrets: Secrets = SEEDS, **heads: str) -> Audit:
    kept = {int(name.removeprefix("p")): text for name, text in heads.items()}
    return audit(source, AuditOptions(secrets, kept), processes=1)


def said(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and words of the command, in one line."""
    done = CliRunner().invoke(app, ["audit", str(folder), "--config", str(CONFIG), *options])
    return done.exit_code, " ".join(done.output.split())


# A changelog with a hole


def holed(source: MemorySource, number: int) -> tuple[int, int]:
    """Take the changelog of some batches away, up to where a snapshot begins; the offsets that are gone."""
    found = list(changelog_batches(source, number))
    after = next(entry.offset for entry in found[8:] if entry.snapshot)
    before = found[2].offset
    assert after - before > 3
    kept = source.records["changelog", number]
    source.records["changelog", number] = [r for r in kept if r.offset <= before or r.offset >= after]
    return before + 1, after


def test_a_changelog_that_begins_anew_after_a_gap_of_the_manifest_is_no_difference(
    source: MemorySource, tmp_path: Path
) -> None:
    gap = holed(source, 1)
    assert [finding.kind for finding in run(source).findings] == ["changelog"]  # nobody said it was gone
    source.holes["changelog", 1] = [gap]
    found = run(source)
    assert (found.verdict, found.findings) == ("verified", [])
    (note,) = [note for note in found.partitions[1].notes if "changelog" in note]
    assert "trimmed before they were recorded" in note
    write_recording(source, tmp_path / "r")
    with open_source([tmp_path / "r"]) as kept:
        assert audit(kept, AuditOptions(SEEDS), processes=1).verdict == "verified"
        assert audit(kept, AuditOptions(Secrets()), processes=1).verdict == "verified"
        assert audit(kept, AuditOptions(SEEDS, from_batch=0), processes=1).verdict == "verified"


def test_a_gap_excuses_nothing_beside_it(source: MemorySource) -> None:
    source.holes["changelog", 1] = [holed(source, 1)]
    del source.records["changelog", 1][-2]
    (finding,) = run(source).findings
    assert finding.text.endswith("the writes of this batch are missing")


def test_a_changelog_whose_end_was_gone_is_no_difference_either(source: MemorySource) -> None:
    del source.records["changelog", 1][-5:]
    (finding,) = run(source).findings
    assert "record into it once more" in finding.cause
    source.holes["changelog", 1] = [(source.records["changelog", 1][-1].offset + 1, source.limits["changelog", 1][1])]
    assert run(source).verdict == "verified"


def test_of_plain_files_nobody_knows_what_the_changelog_should_cover(source: MemorySource, tmp_path: Path) -> None:
    holed(source, 1)
    with open_source(write_plain(source, tmp_path)) as plain:
        assert audit(plain, AuditOptions(SEEDS), processes=1).verdict == "verified"


def test_a_recording_is_gone_on_with_after_its_changelog_was_trimmed(recorded: MemorySource, tmp_path: Path) -> None:
    write_recording(recorded, tmp_path)
    earlier = manifests.load(tmp_path)
    entry = earlier.range_of("changelog", 1)
    assert entry is not None
    at, end = TopicPartition(entry.topic, 1), entry.end
    order = RecordingOrder(folder=tmp_path, topics={"changelog": entry.topic}, group="gforce")
    stretch = PlannedRange("changelog", at, end + 30, end + 50)
    work = _resume(earlier, [stretch], {at: (end + 30, end + 50)}, earlier.cluster, order)
    assert [(one.since, one.until) for one in work.gone] == [(end, end + 30)]
    assert (entry.gaps, entry.end, entry.target) == ([(end, end + 30)], end + 30, end + 50)
    assert work.left == [entry]
    manifests.save(tmp_path, earlier)
    assert manifests.load(tmp_path).range_of("changelog", 1) == entry


# What could not be checked


def test_draws_of_batches_that_were_not_recomputed_are_not_called_verified(
    source: MemorySource, tmp_path: Path
) -> None:
    source.records["requests", 1].pop(40)
    found = run(source)
    one = found.partitions[1]
    left = one.batches - one.recomputed
    assert (found.draws, found.not_recomputed) == ("in part", left)
    assert left > 0
    assert found.draws_because == f"{left} of {found.batches} batches were not recomputed"
    write_recording(source, tmp_path)
    code, text = said(tmp_path)
    assert code == 1
    assert f"draws: in part ({left} of {found.batches} batches were not recomputed)" in text
    assert f"all but {left} batches recomputed" in text


def test_a_partition_without_its_journal_is_no_verified_end(source: MemorySource) -> None:
    source.records["journal", 1].clear()
    found = run(source)
    assert (found.draws, found.end) == ("in part", "in part")
    assert found.draws_because == "the journal of partition 1 is empty although something was committed"
    assert found.end_because == "the chain of partition 1 does not get to its anchor"
    source.records["journal", 0].clear()
    found = run(source)
    assert (found.draws, found.end) == ("not verified", "not verified")


def test_an_anchor_that_is_not_reached_is_told_from_one_that_is_not_there(source: MemorySource) -> None:
    del source.records["journal", 1][-3:]
    assert run(source).end_because == "the chain of partition 1 does not get to its anchor"
    del source.anchors[1]
    assert run(source).end_because == "partition 1 has no anchor"
    source.anchors.clear()
    assert run(source).end_because.startswith("nothing outside the journal says where the chain ends")


def test_what_could_not_be_read_to_its_end_is_verified_in_part(source: MemorySource) -> None:
    del source.records["journal", 1][:2]
    found = run(source)
    assert (found.draws, found.end) == ("in part", "in part")
    assert found.draws_because == "partition 1 could not be read to the end"


# One decision


def changed(record: Record, **fields: object) -> Record:
    """The record with some fields of its JSON replaced, written as the producer writes it."""
    document = {**json.loads(record.value or b""), **fields}
    return replace(record, value=json.dumps(document, separators=(",", ":")).encode())


def test_an_explanation_says_that_the_published_decision_is_another(source: MemorySource, tmp_path: Path) -> None:
    index = next(i for i, r in enumerate(source.records["decisions", 1]) if i > 60 and r.key == b"bank")
    record = source.records["decisions", 1][index]
    event = json.loads(record.value or b"")
    other = "grant" if event["decision"] == "deny" else "deny"
    source.records["decisions", 1][index] = changed(record, decision=other)
    write_recording(source, tmp_path)
    asked = ["explain", event["decision_id"], "--tenant", "bank", str(tmp_path), "--config", str(CONFIG)]
    done = CliRunner().invoke(app, asked)
    text = " ".join(done.output.split())
    assert done.exit_code == 1
    assert f"the record of decisions says otherwise decisions [1] at offset {record.offset}" in text
    assert f"recorded is decision {other}; decision {event['decision']} follows" in text
    document = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert document["decision"] == event["decision"]
    assert len(document["differences"]) == 1
    beside = json.loads(source.records["decisions", 1][index + 1].value or b"")
    asked[1], asked[3] = beside["decision_id"], beside["tenant"]
    assert CliRunner().invoke(app, asked).exit_code == 0


def test_an_explanation_says_that_the_published_decision_is_gone(source: MemorySource, tmp_path: Path) -> None:
    event = json.loads(source.records["decisions", 1].pop(70).value or b"")
    write_recording(source, tmp_path)
    asked = ["explain", event["decision_id"], "--tenant", event["tenant"], str(tmp_path), "--config", str(CONFIG)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1
    assert f'the decision "{event["decision_id"]}" of tenant "{event["tenant"]}" is missing' in " ".join(
        done.output.split()
    )


# All that was found


def test_json_lists_every_finding_and_the_text_says_so(
    source: MemorySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [20, 40, 60]
    for index in places:
        record = source.records["decisions", 1][index]
        source.records["decisions", 1][index] = changed(record, config="0" * 32)
    offsets = [source.records["decisions", 1][index].offset for index in places]
    write_recording(source, tmp_path)
    done = CliRunner().invoke(app, ["audit", str(tmp_path), "--config", str(CONFIG), "--json"])
    one = json.loads(done.stdout)["partitions"][1]
    assert [finding["offset"] for finding in one["every_finding"]] == offsets
    assert (len(one["findings"]), one["counts"]) == (1, {"decision": 3})
    assert "(and 2 more of this kind: --json lists them)" in said(tmp_path)[1]
    monkeypatch.setattr("processor.audit.replay.findings.MAX_LISTED_FINDINGS", 2)
    short = run(source).partitions[1]
    assert ([f.offset for f in short.every_finding], short.counts) == (offsets[:2], {"decision": 3})


@pytest.mark.parametrize("width", [60, 80])
def test_no_word_of_the_table_is_broken_and_no_headline_in_a_pipe(
    source: MemorySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    record = source.records["decisions", 1][20]
    source.records["decisions", 1][20] = changed(record, config="0" * 32)
    write_recording(source, tmp_path)
    done = CliRunner().invoke(app, ["audit", str(tmp_path), "--config", str(CONFIG)])
    assert {"partition", "verdict", "batches", "requests", "labels", "decisions", "differences"} <= set(
        done.output.replace("│", " ").replace("┃", " ").split()
    )
    (headline,) = [line for line in done.output.splitlines() if line.startswith("decision ")]
    assert headline.endswith("a decision is not the one that follows from the record")


# Where it is, and what it looks like


def test_a_missing_decision_is_told_between_its_neighbours(source: MemorySource) -> None:
    records = source.records["decisions", 1]
    batches = [json.loads(record.value or b"")["batch"] for record in records]
    index = next(i for i in range(30, len(records)) if batches[i - 1] == batches[i] == batches[i + 1])
    before, gone, after = records[index - 1], records.pop(index), records[index]
    (finding,) = run(source).findings
    assert (finding.kind, finding.offset) == ("decision-missing", None)
    assert finding.text.endswith(f"is missing: it was between offsets {before.offset} and {after.offset}")
    assert finding.follows == (gone.value or b"").decode()


@pytest.fixture(scope="module")
def alerted() -> MemorySource:
    running = Running(configuration.load(CONFIG, {}), 1)
    shape = dataclasses.replace(SHAPES["bank"], late=(500,), labelled=1.0)
    running.feed(events({"bank": shape}, 350, seed=4))
    found = running.source()
    first, end = found.records["alerts", 0][0], found.limits["alerts", 0][1]
    assert end > first.offset
    return found


def test_a_missing_alert_is_not_blamed_on_the_next_one(alerted: MemorySource) -> None:
    """Two alerts that follow, and only the later of them is there."""
    (record,) = alerted.records["alerts", 0][:1]
    event = json.loads(record.value or b"")
    later = changed(record, number=event["number"] + 1, batch=event["batch"] + 3)
    source = deepcopy(alerted)
    source.records["alerts", 0] = [later]
    found = run(source)
    (finding,) = [one for one in found.partitions[0].every_finding if one.kind == "alert" and one.batch is not None][:1]
    assert finding.offset is None
    assert finding.text.endswith(f"is missing: it was before offset {later.offset}")


def test_a_letter_that_looks_like_another_is_told_by_its_code_point(source: MemorySource) -> None:
    index = next(
        i
        for i, record in enumerate(source.records["requests", 1])
        if i > 40 and record.key == b"bank" and b'"group":"A"' in (record.value or b"")
    )
    record = source.records["requests", 1][index]
    value = (record.value or b"").replace(b'"group":"A"', '"group":"\u0410"'.encode())
    source.records["requests", 1][index] = replace(record, value=value)
    (finding,) = run(source).findings
    assert '"group" was changed from A to \u0410 (\u0410 is U+0410)' in finding.cause


def test_a_key_is_told_in_plain_words(source: MemorySource) -> None:
    index = next(i for i, r in enumerate(source.records["decisions", 1]) if i > 40 and r.key == b"bank")
    source.records["decisions", 1][index] = replace(source.records["decisions", 1][index], key=b"lender")
    (finding,) = run(source).findings
    assert finding.text == 'the decision has the key "lender" instead of its tenant "bank"'


@pytest.mark.parametrize("garbage", [b"{", b"\xff\xfe", b'{"form": "x"}', b""])
def test_garbage_in_the_journal_is_an_altered_record(source: MemorySource, garbage: bytes) -> None:
    record = source.records["journal", 1][5]
    source.records["journal", 1][5] = replace(record, value=garbage)
    found = run(source)
    assert found.exit_code == 1
    (finding,) = [one for one in found.findings if one.kind == "journal-unreadable"]
    assert finding.offset == record.offset
    again = audit(source, AuditOptions(SEEDS, from_batch=0), processes=1)
    assert again.exit_code == 1


@pytest.mark.parametrize("broken", ["altered", "missing", "unreadable"])
def test_a_chain_that_is_broken_on_the_way_is_no_verified_end(source: MemorySource, broken: str) -> None:
    records = source.records["journal", 1]
    if broken == "missing":
        records.pop(5)
    else:
        records[5] = changed(records[5], now=1) if broken == "altered" else replace(records[5], value=b"{")
    found = run(source)
    assert (found.end, found.end_because) == ("in part", "the chain of partition 1 is broken before its anchor")
