"""What a person sees: all tenants, one tenant, now and a second later, on any screen."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from playwright.sync_api import Page, expect

from .conftest import HOSTILE, Visitor
from .site import Site, site, unfair_site

DARK = re.compile(r"rgb\((\d\d?|1[01]\d|12[0-7]),")
"""Less than half of the red that there could be."""


def row(page: Page, tenant: str) -> str:
    return page.locator("tbody tr", has=page.get_by_text(tenant, exact=True)).inner_text()


def scrolls_sideways(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def becomes(page: Page, dark: bool) -> None:
    """Wait until the page is dark, or light.

    Not with ``wait_for_function``: from its second look on it evaluates text in the page, which our content security
    policy forbids.
    """
    assertion = expect(page.locator("body"))
    (assertion.to_have_css if dark else assertion.not_to_have_css)("background-color", DARK)


def test_the_overview_shows_every_tenant_with_alerts_first(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address).page
    expect(page.get_by_role("heading", level=1)).to_have_text("2 tenants have an alert")
    expect(page.locator("tbody tr")).to_have_count(7)
    levels = [int(level) for level in page.locator("tbody tr").evaluate_all("rows => rows.map(r => r.dataset.level)")]
    assert levels == sorted(levels, reverse=True)
    assert "Gap alert" in row(page, "rival")
    assert "Labels one-sided" in row(page, "hospital")
    assert "not valid" in row(page, "hospital")
    assert page.locator("tbody tr", has_text="hospital").locator(".gap .figure").inner_text() == "–"
    assert "No alert" in row(page, "bank")
    assert "Learning" in row(page, "court")
    expect(page.locator(".strip")).to_contain_text("4 of 4 ready")


def test_the_overview_shows_what_the_processor_knows(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address).page
    expect(page.locator("tbody tr")).to_have_count(7)
    with urllib.request.urlopen(busy.address + "status") as answer:
        known = {tenant["name"]: tenant for tenant in json.load(answer)["tenants"]}
    for name in ("bank", "rival"):
        shown = row(page, name).split()
        gap = known[name]["windows"][0]["gaps"]["equalized_odds"]
        assert f"{gap['value']:.3f}" in shown
        assert [f"{gap['lower']:.3f}", "to", f"{gap['upper']:.3f}"] == shown[
            shown.index("to") - 1 : shown.index("to") + 2
        ]
        assert f"{known[name]['windows'][0]['labels']:,}" in shown


def test_figures_change_while_they_are_looked_at_without_a_reload(visit: Visitor) -> None:
    with site() as quiet:
        page = visit(quiet.address).page
        expect(page.get_by_role("heading", level=1)).to_have_text("No tenants yet")
        page.evaluate("window.untouched = true")
        quiet.feed("bank", 40, labelled=1.0)
        expect(page.locator("tbody tr td[data-label=Labels]")).to_have_text("40")
        quiet.feed("bank", 30, labelled=1.0, seed=2)
        expect(page.locator("tbody tr td[data-label=Labels]")).to_have_text("70")
        expect(page.locator(".strip")).to_contain_text("70")
        assert page.evaluate("window.untouched")


def test_a_tenant_can_be_found_among_many(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address).page
    page.get_by_role("searchbox").fill("BAN")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_text("1 of 7 tenants")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    page.get_by_label("Which tenants").select_option("Needs attention")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="rival").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("rival")
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(7)


def test_five_hundred_tenants_are_listed_and_the_rest_is_told(visit: Visitor) -> None:
    with site() as crowded:
        crowded.crowd(510)
        page = visit(crowded.address).page
        expect(page.locator("tbody tr")).to_have_count(500)
        expect(page.get_by_text("500 tenants · 10 more not listed")).to_be_visible()
        page.evaluate("document.querySelector('tbody tr a').kept = true")
        name = page.locator("tbody tr a").first.inner_text()
        row = page.locator("tbody tr", has_text=name)
        expect(row).to_contain_text("No labels yet")
        crowded.feed(name, 30)
        expect(row).not_to_contain_text("No labels yet")
        assert page.evaluate("[...document.querySelectorAll('tbody tr a')].find((one) => one.kept).textContent") == name
        assert not scrolls_sideways(page)


def test_a_tenant_is_shown_with_charts_rates_weights_and_labels(visit: Visitor, busy: Site) -> None:
    seen = visit(busy.address + "#/tenant/bank")
    page = seen.page
    expect(page.get_by_role("heading", level=1)).to_have_text("bank")
    expect(page.locator("canvas")).to_have_count(3)
    gap = page.get_by_role("region", name="Gap over time")
    expect(gap.locator(".legend")).to_contain_text("GroupAware, in shadow")
    expect(gap.locator(".legend")).to_contain_text("MW, in shadow")
    expect(gap.locator(".legend")).to_contain_text("Tolerance0.050")
    assert drawn(page) > 1_000, "the chart is empty"
    rates = page.get_by_role("region", name="Error rates of each group").first
    expect(rates).to_contain_text("false positives")
    expect(rates.locator("tbody tr:not(.group-head)")).to_have_count(4)
    advice = page.get_by_role("region", name="Whose advice is taken")
    expect(advice.locator("table")).to_have_count(2)
    weights = [float(text) for text in advice.locator("table").first.locator("tr.total td.heat").all_inner_texts()]
    assert len(weights) == 4
    assert sum(weights) == pytest.approx(1, abs=0.03)
    expect(page.get_by_role("region", name="Labels")).to_contain_text("joined their decision")
    assert not seen.said


def drawn(page: Page) -> int:
    """Pixels of the first chart that are not empty."""
    return int(
        page.evaluate(
            """() => {
                const canvas = document.querySelector("canvas");
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                return data.filter((value, index) => index % 4 === 3 && value > 0).length;
            }"""
        )
    )


def test_metric_and_window_are_chosen_and_kept_in_the_address(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address + "#/tenant/bank").page
    page.get_by_label("False negatives", exact=True).check()
    expect(page.get_by_text("The difference of false negative rates")).to_be_visible()
    page.get_by_label("Last 7d").check()
    assert page.url.endswith("#/tenant/bank?metric=fnr&window=7d")
    page.reload()
    expect(page.get_by_label("False negatives", exact=True)).to_be_checked()
    expect(page.get_by_label("Last 7d")).to_be_checked()
    expect(page.get_by_text("The difference of false negative rates")).to_be_visible()


def test_the_chart_goes_on_while_it_is_looked_at(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address + "#/tenant/court").page
    region = page.get_by_role("region", name="Gap over time")
    region.get_by_text("As a table").click()
    rows = region.locator("details tbody tr")
    expect(rows.first).to_be_visible()
    before = rows.count()
    busy.feed("court", 10, seed=5)
    expect(rows).not_to_have_count(before)


def test_an_alert_says_why_and_how_to_acknowledge_it_and_goes_when_it_is(visit: Visitor) -> None:
    with unfair_site() as unfair:
        page = visit(unfair.address + "#/tenant/rival").page
        alert = page.locator("article.alert", has_text="The gap has exceeded the tolerance").first
        expect(alert).to_contain_text("of cases that were")
        expect(alert.locator("table tbody tr")).to_have_count(2)
        expect(alert).to_contain_text("raises the alert")
        command = alert.locator("code").inner_text()
        number = int(command.removeprefix("gforce acknowledge rival "))
        alerts = page.locator("article.alert").count()
        body = json.dumps({"tenant": "rival", "number": number}).encode()
        asked = urllib.request.Request(
            unfair.address + "tenants/acknowledge",
            body,
            {"Content-Type": "application/json", "X-Gforce": "1"},
            method="POST",
        )
        with urllib.request.urlopen(asked) as answer:
            assert answer.status in (200, 202)
        unfair.process()
        expect(page.locator("article.alert")).to_have_count(alerts - 1)
        expect(page.get_by_text(command)).to_have_count(0)


def test_labels_for_some_decisions_only_and_a_constant_expert_are_told_in_plain_words(
    visit: Visitor, busy: Site
) -> None:
    page = visit(busy.address + "#/tenant/hospital").page
    expect(page.get_by_role("heading", name="Some decisions never get a label")).to_be_visible()
    expect(page.locator(".facts")).to_contain_text("Gap now–not valid: labels one-sided")
    page.goto(busy.address + "#/tenant/clinic")
    expect(page.get_by_role("heading", name="An expert says the same nearly always")).to_be_visible()
    expect(page.locator("article.warning")).to_contain_text("rules")


def test_a_tenant_of_another_processor_is_said_to_be_elsewhere_until_it_comes(visit: Visitor) -> None:
    with site() as quiet:
        page = visit(quiet.address + "#/tenant/nobody%20here").page
        expect(page.get_by_role("heading", level=1)).to_have_text("Not on this processor")
        expect(page.get_by_text("nobody here")).to_be_visible()
        quiet.feed("nobody here", 5)
        expect(page.get_by_role("heading", level=1)).to_have_text("nobody here")


@pytest.mark.parametrize("path", ["", "#/tenant/rival", "#/tenant/%3Cscript%3Ealert(1)%3C%2Fscript%3E"])
@pytest.mark.parametrize("width", [360, 900, 2560])
def test_nothing_is_wider_than_the_screen(visit: Visitor, busy: Site, width: int, path: str) -> None:
    page = visit(busy.address + path, width=width).page
    expect(page.get_by_text(HOSTILE if "script" in path else "rival").first).to_be_visible()
    if path:
        expect(page.locator("canvas")).to_have_count(3)
    assert not scrolls_sideways(page)


def test_dark_as_the_system_has_it_or_as_chosen(visit: Visitor, busy: Site) -> None:
    page = visit(busy.address + "#/tenant/bank", color_scheme="dark").page
    becomes(page, dark=True)
    expect(page.locator("canvas")).to_have_count(3)
    page.emulate_media(color_scheme="light")
    becomes(page, dark=False)
    expect(page.locator("canvas")).to_have_count(3)
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    becomes(page, dark=True)
    page.reload()
    becomes(page, dark=True)


def test_nobody_looking_nothing_asked(visit: Visitor, busy: Site) -> None:
    seen = visit(busy.address)
    expect(seen.page.locator("tbody tr").first).to_be_visible()
    hide(seen.page, True)
    seen.page.wait_for_timeout(1_500)
    before = len(seen.requests)
    seen.page.wait_for_timeout(3_000)
    assert len(seen.requests) == before
    with seen.page.expect_request("**/api/overview"):
        hide(seen.page, False)


def hide(page: Page, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )
