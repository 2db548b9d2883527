"""An expert that is often absent is told of, in words that fit any screen."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .conftest import Visitor
from .site import EXPERTS, site
from .test_views import scrolls_sideways

GONE = "bureau"
HOSTILE = "<b>gone</b>-" * 10


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", [GONE, HOSTILE])
def test_an_expert_that_is_often_absent_is_named(visit: Visitor, width: int, name: str) -> None:
    there = [name if one == GONE else one for one in EXPERTS]
    with site() as made:
        made.feed("bank", 300, experts=tuple(there))
        made.feed("bank", 300, experts=tuple(one for one in there if one != name), seed=2)
        page = visit(made.address + "#/tenant/bank", width=width).page
        notice = page.locator("article.warning", has_text="An expert is often absent")
        expect(notice).to_have_count(1)
        expect(notice.locator("bdi")).to_have_text(name)
        expect(notice).to_contain_text("advises on fewer than four fifths of some group's cases.")
        assert not scrolls_sideways(page)
