"""The report says no more than the record shows."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from matplotlib.collections import LineCollection

from processor.audit.command_inputs import OpenedSource
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.report import charts
from processor.audit.report.build import ReportRequest, build_report
from processor.audit.report.data import AlertLine, ReportData, TenantReport
from processor.audit.report.first_page import statements
from processor.audit.report.rendering import render_page
from processor.audit.report.words import METHOD, attainable_text, fairness_statement, flatten_settings
from processor.audit.sources.file_sources import RecordedSource
from processor.config import Config, load
from processor.core.errors import InvalidInputError
from processor.telemetry.figures import EQUALIZED_ODDS, CellRate, Estimate, TenantFigures, WindowFigures
from tests.recordings.stream import MemorySource

from .whatif_streams import cases, config, events, recorded

WATCHED = config(WATCH="true", TOLERANCE="0.02", ALPHA="0.2", FALSE_ALARM_PAIRS="50")


def reported(source: MemorySource, settings: Config = WATCHED, wish: ReportRequest | None = None) -> ReportData:
    return build_report(
        OpenedSource(source, Secrets.of_config(settings), None, "here"), wish or ReportRequest(processes=1)
    )


def of(report: ReportData, name: str) -> TenantReport:
    return next(one for one in report.tenants if one.figures.name == name)


def visible(html: str) -> str:
    """The text of a page, without charts."""
    body = re.sub(r"<(svg|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


@pytest.fixture(scope="module")
def two_partitions() -> MemorySource:
    """Two tenants, each on a partition of its own; the second one's groups differ."""
    stream = events(cases(200, seed=1), tenant="bank", step=1_000)
    stream += events(cases(400, seed=2, experts=("one",), skew=0.75), tenant="clinic", step=500)
    source = recorded(sorted(stream, key=lambda event: event.at), WATCHED, partitions=2)
    assert {record.key for record in source.read("requests", 0)} == {b"clinic"}
    assert {record.key for record in source.read("requests", 1)} == {b"bank"}
    assert list(source.read("alerts", 0))
    return source


def altered(source: MemorySource, role: str, number: int, keep: slice) -> MemorySource:
    records = {place: list(found) for place, found in source.records.items()}
    records[role, number] = records[role, number][keep]  # type: ignore[index]
    return replace(source, records=records)


# Figures that do not go to the end


def test_a_whole_record_is_not_called_partial(two_partitions: MemorySource) -> None:
    report = reported(two_partitions)
    assert [one.title for one in report.statements[:1]] == ["The record is verified"]
    assert all(one.batches == one.of and not one.why for one in report.coverage)
    assert "All labels of the record" in render_page(report)


def test_figures_that_end_early_are_called_partial_before_anything_else(two_partitions: MemorySource) -> None:
    cut = replace(two_partitions, records=dict(two_partitions.records))
    requests = list(cut.records["requests", 0])
    del requests[100]
    cut.records["requests", 0] = requests
    report = reported(cut)
    first = report.statements[0]
    used, there = (sum(getattr(one, name) for one in report.coverage) for name in ("batches", "of"))
    assert first.title == "The figures are partial"
    assert f"made of {used} of {there} batches" in first.text
    assert "Partition 0: “clinic” is shown up to 2023-" in first.text
    assert 0 < report.coverage[0].batches < report.coverage[0].of
    assert any(one.title == "Alerts for “clinic” could not be recomputed" for one in report.statements)
    assert of(report, "clinic").statement.text.startswith("This is up to 2023-")
    assert not of(report, "bank").partial
    said = visible(render_page(report))
    assert "over all labels of the record" not in said
    assert said.count("All labels of the record") == 1  # bank's, which are all there


def test_an_input_missing_from_the_last_batch_is_noticed(two_partitions: MemorySource) -> None:
    report = reported(altered(two_partitions, "feedback", 0, slice(0, -1)))
    assert report.statements[0].title == "The figures are partial"
    assert report.coverage[0].batches == report.coverage[0].of - 1


@pytest.mark.parametrize("anchored", [True, False])
def test_tenants_of_a_partition_without_a_journal_are_named(two_partitions: MemorySource, anchored: bool) -> None:
    gone = altered(two_partitions, "journal", 0, slice(0, 0))
    gone = gone if anchored else replace(gone, anchors={})
    report = reported(gone)
    assert report.statements[0].title == "The figures are partial"
    assert "“clinic” is missing altogether" in report.statements[0].text
    assert "Of 2 tenants" in report.statements[2].text
    assert "1 is missing from the figures" in report.statements[2].text
    named = reported(gone, wish=ReportRequest(tenants=("clinic",), processes=1))
    assert named.statements[2].text == "There are no figures of “clinic”."
    with pytest.raises(InvalidInputError, match="no decision of tenant"):
        reported(gone, wish=ReportRequest(tenants=("nobody",), processes=1))


def test_a_cut_off_end_counts_among_the_batches_there_were(two_partitions: MemorySource) -> None:
    report = reported(altered(two_partitions, "journal", 0, slice(0, -3)))
    assert report.coverage[0].of == report.coverage[0].batches + 3
    assert report.statements[0].title == "The figures are partial"


def test_a_tenant_asked_for_by_name_is_not_partial_because_of_another(two_partitions: MemorySource) -> None:
    broken = altered(two_partitions, "journal", 0, slice(0, -3))
    report = reported(broken, wish=ReportRequest(tenants=("bank",), processes=1))
    assert report.statements[0].title == "The record is not as it was made"
    assert [one.partition for one in report.coverage] == [1]


# Labels that come for some decisions only


@pytest.fixture(scope="module")
def one_sided() -> ReportData:
    """Only who was decided “yes” ever gets a label. With one expert the decision is what it says."""
    found = cases(300, seed=5, experts=("one",))
    stream = events(found, step=500)
    heard = {f"case-{i:05}".encode() for i, case in enumerate(found) if case.said["one"] == "yes"}
    kept = [event for event in stream if event.role == "requests" or any(one in event.value for one in heard)]
    return reported(recorded(kept, WATCHED))


def test_one_sided_labels_get_no_verdict(one_sided: ReportData) -> None:
    court = of(one_sided, "court")
    assert court.figures.one_sided == ["no"]
    assert one_sided.statements[1].title == "It cannot be judged whether it is fair"
    assert "labels come only for cases that were decided “yes”, never for “no”" in one_sided.statements[1].text
    assert not court.attainable_text
    said = visible(render_page(one_sided))
    assert "could not be avoided" not in said
    assert "not fair" not in said
    assert "cannot be judged" in said


def test_an_alert_that_is_still_open_is_not_called_cleared(one_sided: ReportData) -> None:
    assert [alert.kind for alert in of(one_sided, "court").figures.alerts] == ["one-sided"]
    assert not any("cleared" in one.text for one in one_sided.statements)
    assert any(one.title == "One-sided labels for “court”" for one in one_sided.statements)


# How sure a sentence may be


def figures(gap: Estimate, n: int = 500, least: float = 0.01, tolerance: float = 0.05) -> TenantFigures:
    nothing = Estimate(0.1, 0.05, 0.15)
    rates = [CellRate(group, label, n, nothing) for group in "AB" for label in ("no", "yes")]
    window = WindowFigures("lifetime", 0, 4 * n, {EQUALIZED_ODDS: gap}, rates, {}, {})
    tally = {"decisions": 4 * n, "labels_joined": 4 * n}
    return TenantFigures(name="t", partition=0, windows=[window], attainable=least, tolerance=tolerance, tally=tally)


def test_a_band_is_no_more_certain_than_its_confidence() -> None:
    within, above = Estimate(0.01, 0.0, 0.03), Estimate(0.2, 0.1, 0.3)
    for gap in (within, above):
        said = fairness_statement(figures(gap)).text
        assert said.endswith("with 95 % confidence.")
        assert "beyond doubt" not in said


@pytest.mark.parametrize(
    ("gap", "n", "least", "said"),
    [
        (Estimate(0.2, 0.1, 0.3), 500, 0.01, "may have room to improve"),
        (Estimate(0.2, 0.0, 0.4), 500, 0.01, "may be no larger than that"),
        (Estimate(0.2, 0.1, 0.3), 20, 0.01, "an estimate from few labels (20 of one group and true label)"),
        (Estimate(0.2, 0.19, 0.21), 500, 0.18, "seems to be the experts’ own"),
    ],
)
def test_whose_the_gap_is_is_said_only_where_the_labels_tell(gap: Estimate, n: int, least: float, said: str) -> None:
    text = attainable_text(figures(gap, n, least))
    assert said in text
    assert "estimate" in text
    assert ("room to improve" in text) == ("room to improve" in said)


def test_the_method_says_what_is_not_covered() -> None:
    method = " ".join(text for _, text in METHOD)
    assert "changed anywhere" not in method
    assert "headers and timestamps of decisions" in method
    assert "details in dead letters" in method
    assert "who knows it, as the operator does, can foresee draws" in method


def test_without_seeds_nothing_follows_to_the_last_bit(two_partitions: MemorySource) -> None:
    report = build_report(OpenedSource(two_partitions, Secrets(), None, "here"), ReportRequest(processes=1))
    assert report.verification.draws == "not verified"
    assert report.statements[0].title == "The record is verified, but not all draws"
    assert "could not be checked" in report.statements[0].text
    assert "last bit" not in report.statements[0].text


# Labels that never came


@pytest.fixture(scope="module")
def kept_recording() -> ReportData:
    folder = Path(__file__).parents[1] / "recordings"
    secrets = Secrets.of_config(load(folder / "gforce.toml", {}))
    return build_report(OpenedSource(RecordedSource(folder / "v1"), secrets, None, "v1"), ReportRequest(processes=1))


def test_assumed_labels_are_counted_apart(kept_recording: ReportData) -> None:
    shop = of(kept_recording, "shop")
    assert (shop.label_counts.joined, shop.label_counts.assumed) == (35, 31)
    assert "31 of these count as labels, assumed" in shop.labels_text
    assert "31 of the 66 labels were assumed at expiry" in shop.statement.text
    assert any(one.title == "Labels of “shop” are assumed" for one in kept_recording.statements)
    said = visible(render_page(kept_recording))
    assert "31 of them assumed at expiry" in said
    assert "35 + 31 assumed" in said
    assert of(kept_recording, "bank").label_counts.assumed == 0


def test_decisions_that_get_no_label_by_design_do_not_wait(kept_recording: ReportData) -> None:
    lender = of(kept_recording, "lender")
    assert lender.labels_text == (
        "Labels have come for 46 of the 51 decisions “yes”; 5 still wait. "
        "The 48 other decisions get no label by design."
    )
    assert "53 still wait" not in visible(render_page(kept_recording))


# What comes first


def test_alerts_come_before_other_settings_which_must_be_beyond_noise(kept_recording: ReportData) -> None:
    dominating = SimpleNamespace(beyond_noise=True)
    doubtful = SimpleNamespace(beyond_noise=False)
    bank, clinic = of(kept_recording, "bank"), of(kept_recording, "clinic")
    tenants = [
        msgspec.structs.replace(clinic, whatif=SimpleNamespace(dominating=[doubtful, dominating])),
        msgspec.structs.replace(clinic, whatif=SimpleNamespace(dominating=[doubtful])),
        bank,
    ]
    found = statements(kept_recording.verification, tenants, kept_recording.dead_letters)[2:]
    tones = [one.tone for one in found]
    assert found[0].title == "1 alert is raised for “bank”"
    assert tones == sorted(tones)  # bad before note
    assert [one.title for one in found if "Another setting" in one.title] == [found[-1].title]
    assert found[-1].title == "Another setting may suit “clinic” better"


# Charts


@pytest.fixture(scope="module")
def clinic(kept_recording: ReportData) -> TenantReport:
    """All its labels are of one stretch."""
    found = of(kept_recording, "clinic")
    assert len(found.stretches) == 1
    return found


def many_labels(tenant: TenantReport, count: int, alerted: str) -> TenantReport:
    names = tuple(f"label {i}" for i in range(count))
    cell = tenant.stretches[0].rates[0]
    rates = [msgspec.structs.replace(cell, label=name) for name in names]
    return msgspec.structs.replace(
        tenant,
        figures=msgspec.structs.replace(tenant.figures, labels=names),
        stretches=[msgspec.structs.replace(tenant.stretches[0], rates=rates)],
        alerts=[AlertLine(at=1, number=1, kind="drift", state="cleared", label=alerted, text="", evidence="")],
    )


@pytest.mark.parametrize("width", [charts.WIDE_INCHES, charts.NARROW_INCHES])
def test_every_label_is_drawn(clinic: TenantReport, width: float) -> None:
    figure = charts.rates_over_time(many_labels(clinic, 7, "label 6"), width)
    titles = [axis.get_title(loc="left") for axis in figure.axes if axis.get_visible()]
    assert titles == [f"cases that were\n“label {i}”" for i in range(7)] or titles == [
        f"cases that were “label {i}”" for i in range(7)
    ]


def test_labels_that_are_not_drawn_are_named_and_those_with_alerts_are_drawn(
    clinic: TenantReport, kept_recording: ReportData
) -> None:
    tenant = many_labels(clinic, 15, "label 14")
    drawn, left_out = charts.panels(tenant)
    assert "label 14" in drawn
    assert left_out == ["label 11", "label 12", "label 13"]
    html = render_page(msgspec.structs.replace(kept_recording, tenants=[tenant]))
    assert "Not drawn, but in the table: label 11, label 12, label 13." in html


def test_titles_of_panels_do_not_overlap(clinic: TenantReport) -> None:
    named = many_labels(clinic, 3, "")
    long = tuple(f"{label}, which was given after a second look by somebody" for label in named.figures.labels)
    rates = [msgspec.structs.replace(named.stretches[0].rates[0], label=label) for label in long]
    tenant = msgspec.structs.replace(
        named,
        figures=msgspec.structs.replace(named.figures, labels=long),
        stretches=[msgspec.structs.replace(named.stretches[0], rates=rates)],
    )
    figure = charts.rates_over_time(tenant, charts.WIDE_INCHES)
    figure.draw_without_rendering()
    boxes = [axis._left_title.get_window_extent() for axis in figure.axes]
    assert all(one.x1 <= other.x0 for one, other in pairwise(boxes))
    assert boxes[-1].x1 <= figure.bbox.x1


def test_one_moment_is_drawn_as_a_point_with_its_band_in_a_short_time(clinic: TenantReport) -> None:
    moment = clinic.so_far[-1]
    at_once = msgspec.structs.replace(moment, since=moment.until)
    single = msgspec.structs.replace(clinic, so_far=[at_once], stretches=[at_once])
    for draw in (charts.gap_over_time, charts.rates_over_time):
        axis = draw(single, charts.WIDE_INCHES).axes[0]
        first, last = axis.get_xlim()  # days
        assert last - first < 1 / 24
        assert axis.lines[0].get_marker() not in ("", "None")
        assert any(isinstance(one, LineCollection) for one in axis.collections)


def test_bands_end_below_the_upper_edge(kept_recording: ReportData) -> None:
    bank = of(kept_recording, "bank")
    top = charts.gap_over_time(bank, charts.WIDE_INCHES).axes[0].get_ylim()[1]
    assert top > max(one.gaps[EQUALIZED_ODDS].upper for one in bank.so_far)
    top = charts.rates_over_time(bank, charts.WIDE_INCHES).axes[0].get_ylim()[1]
    assert top > max(cell.rate.upper for one in bank.stretches for cell in one.rates)


# Names, headings and settings as they are read


def test_marks_of_direction_and_signs_without_a_shape_are_shown(kept_recording: ReportData) -> None:
    clinic = of(kept_recording, "clinic")
    hostile = msgspec.structs.replace(
        clinic,
        figures=msgspec.structs.replace(clinic.figures, name="cl\u202einic\u200b", labels=("fal\u2066se", "true")),
    )
    html = render_page(msgspec.structs.replace(kept_recording, tenants=[hostile]))
    assert not re.findall("[\u200b-\u200f\u202a-\u202e\u2066-\u2069]", html)
    assert "cl⟨U+202E⟩inic⟨U+200B⟩" in html


def test_offsets_are_said_to_count_markers(kept_recording: ReportData) -> None:
    assert "offsets: records and markers of transactions" in visible(render_page(kept_recording))


def test_every_setting_has_a_line_of_its_own(kept_recording: ReportData) -> None:
    settings = flatten_settings(of(kept_recording, "bank").configs[0].canonical)
    assert settings["shadows 1.policy"] == "groupaware"
    assert settings["shadows 2.policy"] == "mw"
    assert "shadows" not in settings
