"""A processor that does not answer for a while, and answers again."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from importlib import import_module

import pytest
from playwright.sync_api import expect

from .conftest import Visitor
from .site import site
from .test_views import hide

routes = import_module("processor.web.routes")  # the package has a function of that name


def test_after_a_hang_the_page_is_back(visit: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    going, real = threading.Event(), routes.now

    def hanging() -> int:
        going.wait(60)
        return real()

    with site() as made:
        made.feed("bank", 20)
        going.set()
        monkeypatch.setattr(routes, "now", hanging)
        page = visit(made.address).page
        expect(page.locator("#connection")).to_have_text("Live")
        going.clear()
        expect(page.locator("#connection")).to_have_text("Not connected")
        expect(page).to_have_title("✕ Not connected · G-FORCE")
        going.set()
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page).to_have_title("G-FORCE")


def test_a_tab_that_is_looked_at_again_asks_at_once(visit: Visitor) -> None:
    with site() as made:
        made.feed("bank", 20)
        page = visit(made.address).page
        expect(page.locator("#connection")).to_have_text("Live")
        page.clock.install()
        page.clock.pause_at(datetime.now() + timedelta(minutes=1))
        page.wait_for_event("response")  # from now on no pause of the page ends by itself
        hide(page, True)
        with page.expect_request("**/api/overview"):
            hide(page, False)


def test_another_tenant_without_a_connection_has_no_figures_from_before(visit: Visitor) -> None:
    with site() as shaky:
        shaky.feed("bank", 20)
        page = visit(shaky.address).page
        expect(page.locator("#connection")).to_have_text("Live")
        shaky.hang_up()
        expect(page.get_by_role("alert")).to_contain_text("These figures are from")
        page.get_by_role("link", name="bank").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("bank")
        expect(page.get_by_role("alert")).to_have_text("Connection lost. There are no figures yet. Trying again…")
        expect(page).to_have_title("✕ Not connected · G-FORCE")
