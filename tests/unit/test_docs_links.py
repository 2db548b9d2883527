"""Every relative link in the README, the changelog and the manual leads somewhere, and every page is in the index."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from .test_monitoring import anchors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)|<img src=\"([^\"]+)\"")


def prose(page: Path) -> str:
    """The text of a page without its code: a comment in a shell script is no heading."""
    return FENCED.sub("", page.read_text("utf-8"))


@cache
def anchors_of(page: Path) -> set[str]:
    return anchors(prose(page))


def links(page: Path) -> list[str]:
    return [target or image for target, image in LINK.findall(prose(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_the_index_has_every_page() -> None:
    index = ROOT / "docs/README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    decisions = ROOT / "docs/decisions/README.md"
    listed |= {(decisions.parent / link).resolve() for link in links(decisions)}
    assert [str(page) for page in PAGES[2:] if page not in listed and page != index] == []
