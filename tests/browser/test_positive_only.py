"""Where labels come for positive decisions only, nobody waits for the others'."""

from __future__ import annotations

import json
import urllib.request

from playwright.sync_api import expect

from .conftest import Visitor
from .site import site


def test_negative_decisions_do_not_wait_and_refused_labels_are_counted(visit: Visitor) -> None:
    with site(
        GFORCE_TENANTS__LENDER__FEEDBACK='"positive-only"',
        GFORCE_TENANTS__LENDER__EXPLORE="0.1",
    ) as made:
        made.feed("lender", 200, only_label="grant", labelled=1)
        made.feed("lender", 40, labelled=0, seed=2)
        made.feed("bank", 30, labelled=0)
        with urllib.request.urlopen(made.address + "status") as answer:
            lender = next(one for one in json.load(answer)["tenants"] if one["name"] == "lender")
        assert 0 < lender["awaited"] <= 40
        assert lender["pending"] > lender["awaited"] + 20
        page = visit(made.address).page
        row = page.locator("tbody tr", has=page.get_by_text("lender", exact=True))
        expect(row).to_contain_text(f"≤ {lender['awaited']} can get a label")
        expect(page.locator(".strip")).to_contain_text(f"Waiting for labels{lender['awaited'] + 30} · oldest")
        made.feed("lender", 40, labelled=1, seed=3)
        page.goto(made.address + "#/tenant/lender")
        refused = page.locator(".tally div", has_text="refused: the decision was not positive")
        expect(refused.locator("dd")).not_to_have_text("0")
        expect(page.locator(".facts")).to_contain_text("can get a label")


def test_negative_decisions_that_expired_are_not_labels_that_failed_to_come(visit: Visitor) -> None:
    with site(
        GFORCE_TENANTS__LENDER__FEEDBACK='"positive-only"',
        GFORCE_TENANTS__LENDER__EXPLORE="0.1",
    ) as made:
        made.feed("lender", 40, only_label="grant", labelled=1)
        page = visit(made.address).page
        with urllib.request.urlopen(made.address + "api/tenant?name=lender") as answer:
            data = json.load(answer)
        assert data["figures"]["awaited"] == 0
        data["figures"]["tally"]["decisions_expired"] = 12_345
        page.route("**/api/tenant?*", lambda route: route.fulfill(json=data))
        page.goto(made.address + "#/tenant/lender")
        expired = page.locator(".tally div", has_text="never came: the decision expired (negative ones get none)")
        expect(expired.locator("dd")).to_have_text("12,345")
        assert expired.locator("dd").evaluate("number => number.clientWidth") > 40, "its digits are below each other"
        expect(page.locator(".facts")).to_contain_text("none can get a label")
