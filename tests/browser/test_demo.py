"""``gforce demo`` shows the page and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .conftest import Visitor

SECONDS = 120
ADDRESS = re.compile(r"Status page: (http://127\.0\.0\.1:\d+/)")


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "processor.cli", "demo", "--rounds", "600", "--pace", "0", "--keep"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield running
    if running.poll() is None:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=SECONDS)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_demo_shows_its_page_until_it_is_stopped(visit: Visitor, demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    address = ""
    for line in demo.stdout:
        if found := ADDRESS.search(line):
            address = found[1]
        if "The page stays up" in line:
            break
    page = visit(address).page
    expect(page.get_by_role("link", name="bank")).to_be_visible()
    expect(page.get_by_role("link", name="rival")).to_be_visible()
    page.get_by_role("link", name="bank").click()
    expect(page.locator("canvas")).to_have_count(3)
    servers = children(demo.pid)
    assert servers, "it has a Valkey server"
    demo.send_signal(signal.SIGINT)
    shown, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0
    assert shown.strip().endswith("stopped.")
    assert "Traceback" not in shown
    assert not [pid for pid in servers if Path(f"/proc/{pid}").exists()]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)
