"""A real browser on the page of a real processor. In CI a missing browser is a failure, not a skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from .site import Site, unfair_site

ELSEWHERE = "elsewhere.test"
"""A name that is not ours and leads to the same machine."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "<script>alert(1)</script>"
TRICKY = "a\"b'c&amp;\u202egnp.\u200fexe"
PATIENCE = 20_000
"""Milliseconds: the machine may be busy."""

expect.set_options(timeout=PATIENCE)


@dataclass
class Visit:
    """A page that is open, and what it did."""

    page: Page
    requests: list[Request] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """what it wrote to the console, and errors nobody caught"""
    dialogs: list[str] = field(default_factory=list)


Visitor = Callable[..., Visit]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None and os.environ.get("CI"):
        pytest.fail("no Chromium on the path")
    if program is None:
        pytest.skip("no Chromium on the path")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"]
        )
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    """Opens an address as a new visitor: width, height, color_scheme and other options of a browser context."""
    contexts = []

    def opened(address: str, *, width: int = 1440, height: int = 900, **options: Any) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        made = Visit(context.new_page())

        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                made.said.append(message.text)

        made.page.on("console", hear)
        made.page.on("pageerror", lambda error: made.said.append(str(error)))
        made.page.on("request", lambda request: made.requests.append(request))
        made.page.on("dialog", lambda dialog: (made.dialogs.append(dialog.message), dialog.dismiss()))
        made.page.goto(address)
        return made

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def busy() -> Iterator[Site]:
    """Tenants in every state: fair, unfair, learning, with labels for some decisions only, and with hostile names."""
    with unfair_site() as made:
        made.feed_often("bank", late=10_000)
        made.feed("court", 60)
        made.feed("hospital", 600, only_label="grant")
        made.feed("clinic", 100, constant="rules")
        made.feed(HOSTILE, 60, groups=("<img src=x onerror=alert(2)>", "B'\""), experts=("<b>", "</table>", "a&b", "'"))
        made.feed(TRICKY, 60)
        yield made
