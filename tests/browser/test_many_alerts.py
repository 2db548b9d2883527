"""Many alerts do not push the figures out of sight."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from playwright.sync_api import Page, expect

from .conftest import Visitor
from .site import Site, unfair_site


def with_alerts(page: Page, made: Site, number: int) -> None:
    """The tenant's answer, with its first alert so many times."""
    with urllib.request.urlopen(made.address + "api/tenant?name=rival") as answer:
        data: Any = json.load(answer)
    first = data["figures"]["alerts"][0]
    data["figures"]["alerts"] = [{**first, "number": n} for n in range(1, number + 1)]
    page.route("**/api/tenant?*", lambda route: route.fulfill(json=data))


def test_the_first_three_are_shown_and_the_others_folded_and_counted(visit: Visitor) -> None:
    with unfair_site() as made:
        page = visit(made.address).page
        with_alerts(page, made, 8)
        page.goto(made.address + "#/tenant/rival")
        expect(page.locator("article.alert")).to_have_count(8)
        expect(page.locator("article.alert:visible")).to_have_count(3)
        more = page.get_by_text("5 more alerts")
        more.focus()
        page.keyboard.press("Enter")
        expect(page.locator("article.alert:visible")).to_have_count(8)
        page.wait_for_timeout(2_500)
        expect(page.locator("article.alert:visible")).to_have_count(8)  # figures came, and it stays unfolded
        with_alerts(page, made, 3)
        expect(more).to_be_hidden()
        expect(page.locator("article.alert:visible")).to_have_count(3)
