"""What-if on a recorded stream made from COMPAS, held against the learner used by itself on the same cases.

    python -m benchmarks.whatif_compas --data-dir folder [--out folder]

Five trained experts decide on the people of COMPAS; the stream runs through the processor on the in-memory log and is
written down as a recording. Then a λ sweep and leaving each expert out: every figure must be the learner's own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from processor.audit.command_inputs import OpenedSource
from processor.audit.replay.recorded_settings import RecordedSettings, Secrets
from processor.audit.report.build import ReportRequest, build_report, write_report
from processor.audit.sources.file_sources import RecordedSource
from processor.audit.whatif.figures import SettingFigures
from processor.audit.whatif.settings import SettingsChange, Sweep
from processor.config import load
from processor.core.stream.journal import JournalRecord
from processor.experiments.experts import EXPERTS, predictions
from processor.telemetry.figures import EQUALIZED_ODDS
from producers.datasets import load as load_data
from tests.unit.whatif_streams import SEED, Case, direct, events, recorded
from tests.unit.whatif_streams import written as recording

TENANT = "compas"
DAY = 86_400_000
EXACT = 1e-12


def main(
    data_dir: Annotated[Path, typer.Option(help="Folder with compas-two-years.csv.")],
    out: Annotated[Path | None, typer.Option(help="Keep the recording and the report here.")] = None,
    steps: Annotated[int, typer.Option(help="Values of λ.")] = 13,
    split: Annotated[int, typer.Option(help="Seed of the split.")] = 1,
) -> None:
    with TemporaryDirectory() as temporary:
        sys.exit(0 if _run(data_dir, out or Path(temporary), steps, split) else 1)


def _run(data_dir: Path, out: Path, steps: int, split: int) -> bool:
    data = load_data("compas", data_dir)
    people = predictions(data, split)
    names = data.label_names
    stream = [
        Case(data.group_names[g], names[y], {f: names[p] for f, p in zip(EXPERTS, said, strict=True)})
        for g, y, said in zip(people.group, people.label, people.predictions, strict=True)
    ]
    settings = {
        "LABELS": f'["{names[0]}", "{names[1]}"]',
        "POSITIVE": f'"{names[1]}"',
        "WATCH": "true",
        "TOLERANCE": "0.2",
        "SHADOWS": '["groupaware"]',
    }
    environment = {f"GFORCE_TENANTS__DEFAULT__{name}": value for name, value in settings.items()}
    config = load(None, {"GFORCE_PROCESSING__SEED": SEED, **environment})
    late = (DAY // 2, 2 * DAY, 5 * DAY, 9 * DAY)
    source = recorded(events(stream, late, step=DAY // 16, tenant=TENANT), config)
    folder = recording(source, out / "recording")
    print(f"{len(stream)} people, five experts: recorded in {folder}")

    place = OpenedSource(RecordedSource(folder), Secrets.of_config(config), None, "COMPAS, recorded")
    sweeps = (Sweep.read(f"lambda=0.01:100:{steps}"), Sweep.read("without"), Sweep.read("objective=mixture"))
    started = time.monotonic()
    report = build_report(place, ReportRequest(sweeps=sweeps))
    print(f"audit, figures and {steps + 6} settings: {time.monotonic() - started:.1f} s")
    for path in write_report(report, out / "report.html", as_json=True, as_csv=True):
        print(f"written: {path}")
    answer = report.tenants[0].whatif
    assert answer is not None
    print(report.reproduced)

    rules = _rules(place)
    wrong = 0
    for one in (answer.recorded, *answer.settings):
        change = one.change or SettingsChange()
        without = change.without[0] if change.without else None
        alone = direct(place.source, change.apply_to(TENANT, rules).settings, rules.seed, without)
        worst = _largest_difference(one, alone, data.group_names, names)
        wrong += worst > EXACT
        print(
            f"{one.setting:<22} gap {one.gaps[EQUALIZED_ODDS].value:.4f} expected {one.gap:.4f}   loss "
            f"{one.loss.value:.4f} expected {one.expected_loss:.4f}   differs from the learner by {worst:.1e} at most"
        )
    print(report.tenants[0].whatif_text)
    print("every figure is the learner's own" if not wrong else f"{wrong} settings differ")
    whole = report.reproduced == f"the recorded setting reproduces {len(stream)} of {len(stream)} decisions"
    return not wrong and whole and report.verification.verdict == "verified"


def _rules(place: OpenedSource):  # type: ignore[no-untyped-def]
    book = RecordedSettings(place.secrets)
    for record in place.source.read("journal", 0):
        journal = JournalRecord.decode(record.value or b"")
        book.configs.update(journal.configs)
        book.assigned.update(journal.rules)
    return book.settings_for(TENANT)


def _largest_difference(one: SettingFigures, alone, groups, labels) -> float:  # type: ignore[no-untyped-def]
    pairs = [
        (one.loss.value, alone.loss),
        (one.expected_loss, alone.expected_loss),
        (one.gaps[EQUALIZED_ODDS].value, alone.gap(groups, labels)),
        (one.gap, alone.gap(groups, labels, expected=True)),
        *((cell.rate.value, alone.rate(cell.group, cell.label)) for cell in one.rates),
        *((cell.expected, alone.rate(cell.group, cell.label, expected=True)) for cell in one.rates),
    ]
    assert one.labels == alone.drawn.total()
    return float(max(abs(mine - theirs) for mine, theirs in pairs))


if __name__ == "__main__":
    typer.run(main)
