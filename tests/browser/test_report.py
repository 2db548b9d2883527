"""The report in a real browser: on a phone, on a desk, on paper, offline, and with hostile names in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from processor.audit.command_inputs import OpenedSource
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.report.build import ReportRequest, build_report, write_report
from processor.audit.whatif.settings import Sweep
from tests.unit.whatif_streams import cases, config, events, recorded

from .conftest import HOSTILE, Visitor

SETTINGS = config(WATCH="true", TOLERANCE="0.05", SHADOWS='["groupaware"]', FALSE_ALARM_PAIRS="20")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    hostile = [replace(case, group=f"{case.group} {HOSTILE}") for case in cases(120, seed=1, experts=("<b>", "$x$"))]
    stream = events(hostile, tenant=HOSTILE, late=(200, 5_000), step=4_000)
    stream += events(cases(240, seed=2, skew=0.5), tenant="a-court-with-a-rather-long-name-in-it", step=2_000)
    source = recorded(sorted(stream, key=lambda event: event.at), SETTINGS)
    place = OpenedSource(source, Secrets.of_config(SETTINGS), None, "a recording")
    found = build_report(place, ReportRequest(sweeps=(Sweep.read("lambda=0.1,10"),), processes=1))
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(found, path)
    return path.as_uri()


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_the_page_is_never_wider_than_the_screen(visit: Visitor, report: str, width: int) -> None:
    page = visit(report, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('figure svg text')].filter(t => t.getClientRects().length && "
        "t.textContent.trim()).map(t => t.getBoundingClientRect().height))"
    )
    assert smallest >= 7, "text in the charts is too small to read"


def test_each_screen_gets_the_chart_that_is_made_for_it(visit: Visitor, report: str) -> None:
    for width, shown in ((390, "narrow"), (1280, "wide")):
        page = visit(report, width=width).page
        visible = page.evaluate(
            "[...document.querySelectorAll('figure > div')].filter(d => d.getClientRects().length)"
            ".map(d => d.className)"
        )
        assert set(visible) == {shown}
        assert len(visible) == 8


def test_it_asks_for_nothing_and_says_nothing(visit: Visitor, report: str) -> None:
    opened = visit(report)
    opened.page.wait_for_timeout(300)
    assert [request.url for request in opened.requests] == [report]
    assert opened.said == []
    assert opened.dialogs == []
    assert opened.page.get_by_text(HOSTILE).first.is_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_serious_problem_in_the_report(visit: Visitor, report: str, width: int) -> None:
    page = visit(report, width=width, bypass_csp=True).page
    found = Axe().run(page).response["violations"]
    grave = [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found if v["impact"] in ("serious", "critical")]
    assert grave == []


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_it_prints_without_cutting_anything_off(visit: Visitor, report: str, paper: str) -> None:
    page = visit(report).page
    pdf = page.pdf(format=paper)
    assert pdf.startswith(b"%PDF")
    page.emulate_media(media="print")
    millimetres = {"A4": 210, "Letter": 216}[paper] - 2 * 17
    page.set_viewport_size({"width": int(millimetres * 96 / 25.4), "height": 1_000})
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
