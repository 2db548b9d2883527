"""With a keyboard, with a screen reader, and with axe."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from .conftest import Visitor
from .site import Site


@pytest.mark.parametrize("path", ["", "#/tenant/rival", "#/tenant/hospital", "#/tenant/nobody"])
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1440)])
def test_axe_finds_no_serious_problem(visit: Visitor, busy: Site, path: str, scheme: str, width: int) -> None:
    # axe is put into the page, which its policy forbids; the policy itself is tested elsewhere.
    page = visit(busy.address + path, width=width, color_scheme=scheme, bypass_csp=True).page
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Reading the figures…")
    if path.endswith(("rival", "hospital")):
        expect(page.locator("canvas")).to_have_count(3)
        page.get_by_text("As a table").first.click()
    found = Axe().run(page).response["violations"]
    grave = [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found if v["impact"] in ("serious", "critical")]
    assert grave == []


def test_everything_can_be_done_with_the_keyboard(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address).page
    expect(page.locator("tbody tr").first).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the figures"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for wanted in ("search", "filter"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == wanted
    page.keyboard.press("Tab")
    name = page.evaluate("document.activeElement.textContent")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.wait_for_timeout(2_500)
    assert page.evaluate("document.activeElement.textContent") == name, "an update has moved the focus"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_label("Equalized odds").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("False positives", exact=True)).to_be_checked()
    page.wait_for_timeout(1_500)
    assert page.evaluate("document.activeElement.value") == "fpr"


def test_charts_can_be_read_without_seeing_them(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address + "#/tenant/bank").page
    expect(page.locator("canvas")).to_have_count(3)
    words = page.locator(".chart[role=img]").evaluate_all("charts => charts.map(c => c.getAttribute('aria-label'))")
    assert words[0].startswith("Gap over time: from 0.")
    assert "tolerance 0.050" in words[0]
    assert words[1].startswith("Error rate of each group over time: A from 0.")
    assert words[2].startswith("Label delays: up to 1 s: ")
    region = page.get_by_role("region", name="Gap over time")
    region.get_by_text("As a table").click()
    expect(region.locator("details thead th").first).to_have_text("Time")
    expect(region.locator("details tbody tr").first).to_contain_text("0.050")


def test_landmarks_and_tables_are_what_they_look_like(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address, width=360).page
    expect(page.get_by_role("table", name="Tenants, those with alerts first")).to_be_visible()
    expect(page.get_by_role("row", name="rival").get_by_role("rowheader")).to_contain_text("rival")
    for landmark in ("banner", "main", "contentinfo", "search"):
        expect(page.get_by_role(landmark)).to_have_count(1)
