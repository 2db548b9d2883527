"""How old things are, by the clock on the wall."""

from __future__ import annotations

from importlib import import_module

import pytest
from playwright.sync_api import expect

from .conftest import Visitor
from .site import site

routes = import_module("processor.web.routes")  # the package has a function of that name


def test_a_decision_grows_older_although_nothing_comes_in(visit: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as quiet:
        quiet.feed("bank", 20, labelled=0)
        page = visit(quiet.address).page
        pending = page.locator("tbody td[data-label=Pending]")
        expect(pending).to_contain_text("oldest ≤")
        began = routes.now()
        monkeypatch.setattr(routes, "now", lambda: began + 200_000)
        expect(pending).to_contain_text("oldest ≤ 4 min")
        expect(page.locator(".strip")).to_contain_text("20 · oldest ≤ 4 min")
        page.goto(quiet.address + "#/tenant/bank")
        expect(page.locator(".facts")).to_contain_text("oldest ≤ 4 min")
