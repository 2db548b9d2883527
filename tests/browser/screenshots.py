"""The pictures of docs/status-page.md: python -m tests.browser.screenshots (about two minutes)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from .conftest import PROGRAMS
from .site import Site, site

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
# name, address, width, height, colours, whole page
PICTURES = [
    ("overview-light", "", 1440, 780, "light", False),
    ("overview-wall", "", 2560, 1440, "dark", False),
    ("tenant-light", "#/tenant/northbank", 1440, 900, "light", True),
    ("tenant-dark", "#/tenant/eastbank", 1440, 900, "dark", True),
    ("overview-phone", "", 390, 844, "light", False),
    ("tenant-phone", "#/tenant/northbank", 390, 844, "dark", False),
]
LATE = (0, 5_000, 20_000, 45_000, 90_000, 280_000)


def fed() -> None:
    program = next(found for name in PROGRAMS if (found := shutil.which(name)))
    with site(GFORCE_TENANTS__EASTBANK__POLICY='"mw"') as made, sync_playwright() as playwright:
        for tenant in ("clinic-admissions", "court-bail", "insurer-motor", "insurer-home", "shop-fraud"):
            for seed in range(4):
                made.feed(tenant, 300, seed=len(tenant) + seed, mu_b=0.6)
        made.feed("parole-board", 60)
        made.feed("tenancy-checks", 500, only_label="grant")
        for seed in range(40):  # a point of the charts each second
            began = time.monotonic()
            made.feed("northbank", 140, seed=seed, mu_b=0.6, late=LATE[seed % len(LATE)])
            made.feed("eastbank", 140, seed=seed, mu_b=0.6)
            time.sleep(max(0.0, began + 1 - time.monotonic()))
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for number, picture in enumerate(PICTURES):
            taken(made, browser, 100 + number, *picture)
        browser.close()


def taken(
    made: Site, browser: Browser, seed: int, name: str, path: str, width: int, height: int, scheme: str, whole: bool
) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(made.address + path)
    for second in range(4):
        made.feed("northbank", 60, seed=seed + second, mu_b=0.6)
        page.wait_for_timeout(1_000)
    file = FOLDER / f"status-{name}.png"
    page.screenshot(path=file, full_page=whole)
    context.close()
    Image.open(file).convert("RGB").quantize(200).save(file, optimize=True)


if __name__ == "__main__":
    fed()
