"""What cannot be audited is said to be so, with the reason, and seeds are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.verify.audit import parse_heads
from processor.audit.verify.result import AuditOptions
from processor.core.errors import GForceError, InvalidInputError
from tests.recordings.stream import MemorySource

from .audited import SEEDS, changed, run
from .audited import recorded as recorded
from .audited import source as source


def test_a_journal_without_its_beginning_is_not_auditable(source: MemorySource) -> None:
    del source.records["journal", 1][:3]
    found = run(source)
    assert found.exit_code == 2
    assert "starts with batch 4" in found.partitions[1].not_auditable
    assert "--from-snapshot" in found.partitions[1].not_auditable
    assert run(source, start=0).verdict == "verified"


def test_inputs_that_retention_has_taken_are_not_auditable_from_the_beginning(source: MemorySource) -> None:
    del source.records["requests", 1][:10]
    source.limits["requests", 1] = (source.records["requests", 1][0].offset, source.limits["requests", 1][1])
    found = run(source)
    assert found.exit_code == 2
    assert "retention" in found.reasons[0]
    assert run(source, start=0).verdict == "verified"


def test_a_record_without_journal_is_not_auditable(source: MemorySource) -> None:
    source.records = {place: kept for place, kept in source.records.items() if place[0] != "journal"}
    with pytest.raises(NotAuditableError, match="nothing of topic journal"):
        run(source)


def test_a_journal_of_an_unknown_form_is_not_auditable(source: MemorySource) -> None:
    source.records["journal", 1][2] = changed(source.records["journal", 1][2], form=99)
    assert "use a later version" in run(source).partitions[1].not_auditable


def test_a_configuration_that_is_not_there_is_not_auditable_unless_somebody_has_it(source: MemorySource) -> None:
    """As in a recording of a window, which begins after the configuration was written down."""
    for index, record in enumerate(source.records["journal", 0]):
        if b'"configs"' in (record.value or b"") and index > 0:
            break
    del source.records["journal", 0][: index + 1]
    without = Secrets(masters=SEEDS.masters, tenants=SEEDS.tenants)
    assert "the configuration" in run(source, without, start=0).partitions[0].not_auditable


def test_seeds_are_never_shown() -> None:
    shown = repr(AuditOptions(SEEDS))
    assert "5eed" not in shown
    assert "1e4de4" not in shown


def test_a_seed_file_is_checked_without_quoting_it(tmp_path: Path) -> None:
    for text in ("seed = 7", 'seed = "not hexadecimal"', 'sed = "00"', "[tenants]\nacme = [1]", "secret"):
        (tmp_path / "seeds").write_text(text)
        with pytest.raises(GForceError) as wrong:
            Secrets.of_file(tmp_path / "seeds")
        assert "secret" not in str(wrong.value).replace("keep it secret", "")
    (tmp_path / "seeds").write_text("ab" * 32 + "\n")
    assert Secrets.of_file(tmp_path / "seeds").masters == ("ab" * 32,)


def test_a_head_is_written_as_it_is_printed() -> None:
    assert parse_heads(["3=abc:7:ff"]) == {3: "1:abc:7:ff"}
    with pytest.raises(InvalidInputError, match="is no head"):
        parse_heads(["abc"])
