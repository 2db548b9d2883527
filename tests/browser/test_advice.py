"""Whose advice is taken can be read, whatever the experts are called and however many there are."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .conftest import Visitor
from .site import EXPERTS, site
from .test_views import scrolls_sideways

SIX = (*EXPERTS, "credit history", "second opinion")
LONG = ("a-model-with-a-name-that-nobody-will-ever-shorten-" * 2, *EXPERTS[1:])
LETTER = 16
"""Pixels: about one letter."""


@pytest.mark.parametrize(("experts", "width"), [(SIX, 390), (LONG, 1280), (LONG, 390)])
def test_no_column_of_names_is_one_letter_wide(visit: Visitor, experts: tuple[str, ...], width: int) -> None:
    with site() as made:
        made.feed("bank", 60, experts=experts)
        page = visit(made.address + "#/tenant/bank", width=width).page
        advice = page.locator(".advice table").first
        expect(advice.locator("tbody th").first).to_be_visible()
        widths = advice.locator("th").evaluate_all("names => names.map(name => name.clientWidth)")
        assert min(widths) > 4 * LETTER
        heights = advice.locator("tbody th").evaluate_all("names => names.map(name => name.clientHeight)")
        assert max(heights) < 4 * LETTER
        assert advice.locator("thead").evaluate("head => head.clientHeight") < 10 * LETTER
        assert not scrolls_sideways(page)


def test_labels_stand_in_the_order_configured(visit: Visitor) -> None:
    with site(
        GFORCE_TENANTS__DEFAULT__LABELS='["grant", "deny", "10"]', GFORCE_TENANTS__DEFAULT__POSITIVE='"grant"'
    ) as made:
        made.feed("bank", 60)
        page = visit(made.address + "#/tenant/bank").page
        rows = page.locator(".advice table").first.locator("tbody th")
        expect(rows).to_have_text(["grant", "deny", "10", "In all"])
        heads = page.locator(".rates .group-head th")
        expect(heads).to_have_text(["Truly grant", "Truly deny", "Truly 10"])
