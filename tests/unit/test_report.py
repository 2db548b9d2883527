"""The report: nothing from elsewhere, names escaped, no id where none should be, the same figures in every form."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from processor.audit.command_inputs import OpenedSource
from processor.audit.replay.findings import Finding
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.report.build import ReportRequest, build_report, write_report
from processor.audit.report.data import Redaction, ReportData
from processor.audit.report.rendering import render_page
from processor.audit.whatif.answer import short
from processor.audit.whatif.settings import Sweep
from processor.cli import app
from processor.telemetry.figures import EQUALIZED_ODDS
from tests.recordings.stream import Event, MemorySource

from .whatif_streams import SEED, START, cases, config, events, recorded
from .whatif_streams import written as recording

SETTINGS = config(WATCH="true", TOLERANCE="0.05", SHADOWS='["groupaware"]', FALSE_ALARM_PAIRS="20")
HOSTILE = "</title></style><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)> $x^2$ =1+1"
EXPERTS = ("$\\frac{1}{2}$", "<b>lr</b>", "=HYPERLINK()")


def place(source: MemorySource, secrets: Secrets | None = None) -> OpenedSource:
    return OpenedSource(source, Secrets.of_config(SETTINGS) if secrets is None else secrets, None, "a <test> record")


@pytest.fixture(scope="module")
def source() -> MemorySource:
    """A tenant with hostile names throughout, and one whose groups drift apart."""
    fair = cases(150, seed=1, experts=EXPERTS)
    hostile = [replace(case, group=case.group + '"><script>alert(3)</script>') for case in fair]
    stream = events(hostile, tenant=HOSTILE, late=(200, 5_000), step=4_000)
    stream += events(cases(260, seed=2, skew=0.5), tenant="court", late=(300, 90_000), step=2_000)
    stream.append(Event(START + 5_000, "requests", "court", b"\xff<script>"))
    return recorded(sorted(stream, key=lambda event: event.at), SETTINGS)


@pytest.fixture(scope="module")
def report(source: MemorySource) -> ReportData:
    return build_report(place(source), ReportRequest(sweeps=(Sweep.read("lambda=0.1,10"),), processes=1))


@pytest.fixture(scope="module")
def html(report: ReportData) -> str:
    return render_page(report)


class Reading(HTMLParser):
    """What a browser would see: elements, attributes, and the cells of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id" and value]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._in_cell:
            self.rows[-1][-1] += data


def read(html: str) -> Reading:
    reading = Reading()
    reading.feed(html)
    return reading


def test_the_first_page_says_whether_it_is_verified_and_whether_it_is_fair(report: ReportData) -> None:
    assert report.statements[0].title == "The record is verified"
    assert "All 410 decisions" in report.statements[0].text
    assert "tenants" in report.statements[1].text
    assert report.reproduced == "the recorded setting reproduces 410 of 410 decisions"


def test_hostile_names_are_text_and_nothing_else(html: str) -> None:
    reading = read(html)
    tags = {tag for tag, _ in reading.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "form", "input", "video", "audio"}
    assert not [tag for tag, attributes in reading.elements if tag == "b" and "style" not in attributes]
    assert not [name for _, attributes in reading.elements for name in attributes if name.startswith("on")]
    whole = "".join(reading.text)
    assert HOSTILE in whole
    assert EXPERTS[0] in whole


def test_nothing_is_loaded_from_elsewhere(html: str) -> None:
    reading = read(html)
    links = [
        value or ""
        for _, attributes in reading.elements
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset", "background")
    ]
    assert links
    assert all(link.startswith("#") for link in links)
    style = "".join(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    assert "@import" not in style
    assert not re.findall(r"url\((?!#)", html.replace("url(#", ""))
    policy = next(at["content"] for tag, at in reading.elements if at.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_every_link_leads_somewhere_and_every_id_is_there_once(html: str) -> None:
    reading = read(html)
    assert len(reading.ids) == len(set(reading.ids))
    for _, attributes in reading.elements:
        target = attributes.get("href")
        if target:
            assert target[1:] in reading.ids


def test_charts_have_a_title_and_a_description_and_text_that_is_text(html: str) -> None:
    reading = read(html)
    charts = [attributes for tag, attributes in reading.elements if tag == "svg"]
    assert len(charts) == 2 * 4 * 2  # gap, rates, delays and front of two tenants, each for a page and for a phone
    for chart in charts:
        title, description = (chart["aria-labelledby"] or "").split()
        assert title in reading.ids
        assert description in reading.ids
    assert "text" in {tag for tag, _ in reading.elements}


def test_the_same_report_gives_the_same_bytes(report: ReportData, html: str) -> None:
    assert render_page(report) == html


def test_page_json_and_csv_say_the_same(report: ReportData, tmp_path: Path) -> None:
    paths = write_report(report, tmp_path / "report.html", as_json=True, as_csv=True)
    assert [path.name for path in paths] == ["report.html", "report.json", "report.csv"]
    cells = [cell for row in read(paths[0].read_text()).rows for cell in row]
    document = json.loads(paths[1].read_text())
    with paths[2].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {tenant["figures"]["name"] for tenant in document["tenants"]} == {HOSTILE, "court"}
    for tenant in document["tenants"]:
        name = tenant["figures"]["name"]
        mine = [row for row in rows if row["tenant"].removeprefix("'") == name]
        whole = tenant["figures"]["windows"][0]
        for metric, gap in whole["gaps"].items():
            (row,) = [row for row in mine if (row["section"], row["figure"]) == ("all labels", f"gap_{metric}")]
            assert float(row["value"]) == gap["value"]
            assert float(row["upper"]) == gap["upper"]
            assert short(gap["value"]) in cells
        for cell in whole["rates"]:
            found = [
                row
                for row in mine
                if (row["section"], row["figure"]) == ("all labels", "error_rate")
                and row["group"].removeprefix("'") == cell["group"]
                and row["label"] == cell["label"]
            ]
            assert [(float(row["value"]), int(row["n"])) for row in found] == [(cell["rate"]["value"], cell["n"])]
            assert f"{100 * cell['rate']['value']:.1f} %" in cells
        for setting in tenant["whatif"]["settings"]:
            (row,) = [
                row
                for row in mine
                if (row["section"], row["setting"], row["figure"]) == ("what-if", setting["setting"], "expected_loss")
            ]
            assert float(row["value"]) == setting["expected_loss"]
            assert short(setting["expected_loss"]) in cells
        assert len([row for row in mine if row["section"] == "stretch"]) > 0


def test_the_figures_are_those_of_the_state(report: ReportData, source: MemorySource) -> None:
    court = next(tenant for tenant in report.tenants if tenant.figures.name == "court")
    gap = court.figures.windows[0].gaps[EQUALIZED_ODDS]
    assert court.so_far[-1].gaps[EQUALIZED_ODDS] == gap
    assert court.so_far[-1].labels == court.figures.tally["labels_joined"] == 260
    assert sum(moment.labels for moment in court.stretches) == 260
    assert sum(count for row in court.experts for count in row.decisions.values()) == 260
    assert sum(row.labelled for row in court.experts) == 260
    wrong = sum(row.wrong for row in court.experts)
    rates = court.figures.windows[0].rates
    assert wrong == round(sum(cell.rate.value * cell.n for cell in rates if cell.n))
    assert court.whatif is not None
    assert court.whatif.recorded.gaps[EQUALIZED_ODDS].value == pytest.approx(gap.value, abs=1e-12)
    assert {letter.reason: letter.count for letter in report.dead_letters} == {"not-utf8": 1}


def test_table_programs_do_not_take_names_for_formulas(report: ReportData, tmp_path: Path) -> None:
    _, table = write_report(report, tmp_path / "report.html", as_csv=True)
    with table.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert "'=HYPERLINK()" in cells
    assert not [cell for cell in cells if cell[:1] in "=@\t" and cell]


# Redaction


def ids_in(text: str) -> list[str]:
    return re.findall(r"case-\d{5}", text)


def test_a_report_shows_ids_only_if_it_is_not_redacted(
    report: ReportData, source: MemorySource, tmp_path: Path
) -> None:
    assert ids_in(render_page(report))
    hidden = build_report(place(source), ReportRequest(redaction=Redaction(), processes=1))
    for path in write_report(hidden, tmp_path / "report.html", as_json=True, as_csv=True):
        assert ids_in(path.read_text()) == []
        assert "id:" in path.read_text()


def test_ids_in_findings_are_redacted_too(source: MemorySource, tmp_path: Path) -> None:
    """Each of these differences quotes an id in its own way."""
    records = {place: list(found) for place, found in source.records.items()}
    decisions = records["decisions", 0]
    altered = (decisions[3].value or b"").replace(b'"expert":', b'"expert":"forged","was":')
    decisions[3] = msgspec.structs.replace(decisions[3], value=altered)
    del decisions[40]
    decisions.append(msgspec.structs.replace(decisions[60], offset=decisions[-1].offset + 1))
    changed = records["requests", 0][200]
    records["requests", 0][200] = msgspec.structs.replace(
        changed, value=(changed.value or b"").replace(b'"yes"', b'"maybe"')
    )
    tampered = replace(source, records=records)
    plain = build_report(place(tampered), ReportRequest(processes=1))
    assert plain.verification.verdict == "differences"
    assert any(ids_in(f.text + f.recorded + f.follows) for f in plain.verification.findings)
    hidden = build_report(place(tampered), ReportRequest(redaction=Redaction("key"), processes=1))
    assert [f.kind for f in hidden.verification.findings] == [f.kind for f in plain.verification.findings]
    for path in write_report(hidden, tmp_path / "report.html", as_json=True, as_csv=True):
        assert ids_in(path.read_text()) == []


@pytest.mark.parametrize("decision_id", ['a"b', "a\\b", "decision", "\u202eevil", "x" * 200, 'he said "decision_id"'])
def test_no_spelling_of_an_id_gets_through(decision_id: str) -> None:
    quoted = json.dumps({"tenant": "t", "decision_id": decision_id}, ensure_ascii=False)
    finding = Finding(
        kind="decision-missing",
        topic="decisions",
        partition=0,
        text=f'the decision "{decision_id}" of tenant "t" is missing',
        recorded=f"{quoted[:40]} …",
        follows=quoted,
        cause="",
    )
    hidden = Redaction("key").finding(finding)
    whole = " ".join((hidden.text, hidden.recorded, hidden.follows, hidden.cause))
    if decision_id != "decision":
        assert decision_id not in whole
        assert json.dumps(decision_id, ensure_ascii=False)[1:-1] not in whole
    assert "tenant" not in hidden.follows


@pytest.mark.parametrize(
    ("kind", "text", "cause"),
    [
        (
            "input-changed",
            "the record is not the one that was processed",
            '"decision_id" was changed from case-00001 to',
        ),
        ("input-changed", "the record is not the one that was processed", '"name" was changed from case-00001 to'),
        ("recomputation", 'batch 3 cannot be recomputed: request "case-00001" has no predictions', ""),
    ],
)
def test_causes_and_messages_do_not_give_ids_away(kind: str, text: str, cause: str) -> None:
    cause = (
        cause and f"{cause} case-00002: with that, its hash is the one in the journal, and the audit goes on with it"
    )
    finding = Finding(kind=kind, topic="requests", partition=0, text=text, cause=cause)  # type: ignore[arg-type]
    hidden = Redaction("key").finding(finding)
    assert ids_in(hidden.text + hidden.cause) == []
    assert bool(hidden.cause) == bool(cause)


def test_the_same_key_gives_the_same_hashes_and_no_key_others_each_time() -> None:
    assert Redaction("a").id("x") == Redaction("a").id("x") != Redaction("b").id("x")
    assert Redaction().id("x") != Redaction().id("x")


# Records that are not as they should be


def test_without_seeds_the_report_says_that_draws_were_taken_from_the_record(source: MemorySource) -> None:
    found = build_report(place(source, Secrets()), ReportRequest(processes=1))
    assert found.verification.verdict == "verified"
    assert found.verification.draws == "not verified"
    assert "taken from the record" in found.statements[0].text
    court = next(tenant for tenant in found.tenants if tenant.figures.name == "court")
    assert court.figures.tally["labels_joined"] == 260


def test_a_what_if_that_cannot_be_answered_does_not_stop_the_report(source: MemorySource) -> None:
    found = build_report(place(source, Secrets()), ReportRequest(sweeps=(Sweep.read("lambda=1,2"),), processes=1))
    assert found.verification.verdict == "verified"
    assert any("could not be answered" in note and "--seed-file" in note for note in found.notes)
    assert "could not be answered" in render_page(found)


def test_three_labels_three_groups_and_no_labels_at_all_make_a_page() -> None:
    settings = config(LABELS='["a", "b", "c"]', POSITIVE='"a"', WATCH="false")
    from tests.recordings.stream import Shape
    from tests.recordings.stream import events as troubled

    shapes = {
        "three": Shape(("a", "b", "c"), ("x", "y", "z"), late=(500,)),
        "silent": Shape(("a", "b"), ("x",), labelled=0),
    }
    source = recorded(troubled(shapes, 160, seed=3), settings)
    found = build_report(OpenedSource(source, Secrets.of_config(settings), None, "here"), ReportRequest(processes=1))
    three, silent = sorted(found.tenants, key=lambda tenant: -len(tenant.figures.groups))
    assert set(three.figures.windows[0].gaps) == {"error_rate", "equalized_odds"}
    assert silent.statement.text == "No labels have come, so nothing can be said about fairness."
    html = render_page(found)
    assert "This tenant was not watched." in html
    assert "cases that were “c”" in html


def test_a_record_that_was_tampered_with_says_so_on_its_first_page(source: MemorySource) -> None:
    records = dict(source.records)
    changed, *rest = records["decisions", 0]
    records["decisions", 0] = [msgspec.structs.replace(changed, value=b"{}"), *rest]
    html = render_page(build_report(place(replace(source, records=records)), ReportRequest(processes=1)))
    assert "The record is not as it was made" in html
    assert "decisions [0] at" in html


def test_the_command_writes_the_files_and_exits_as_the_audit_does(source: MemorySource, tmp_path: Path) -> None:
    folder = recording(source, tmp_path / "recording")
    (tmp_path / "seed").write_text(SEED)
    arguments = ["report", str(folder), "--seed-file", str(tmp_path / "seed"), "--processes", "1", "--tenant", "court"]
    run = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "r.html"), "--json", "--csv", "--redact"])
    assert run.exit_code == 0, run.output
    assert "The record is verified" in run.output
    document = json.loads((tmp_path / "r.json").read_text())
    assert [tenant["figures"]["name"] for tenant in document["tenants"]] == ["court"]
    assert document["manifest_sha256"]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "r.csv").is_file()
