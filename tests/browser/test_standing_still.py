"""A processor that decides nothing says so before anything else."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from playwright.sync_api import expect

from processor.ports.store import StoreError
from processor.run.assembly import monotonic_ms
from processor.telemetry.status import Status, status_of

from .conftest import Visitor
from .site import STALL_SECONDS, Site, site, unfair_site

LONG_AGO = 60_000
"""Milliseconds without anything to do."""


def stalled(status: Status, *numbers: int, state: str = "stalled") -> Status:
    """As it is, but these partitions stand still."""
    how: dict[str, Any] = {
        "state": state,
        "trouble": "the store does not answer",
        "waiting": 63.0,
        "lag": {"requests": 12},
    }
    return replace(status, partitions=tuple(replace(p, **how) if p.number in numbers else p for p in status.partitions))


def overview(made: Site) -> Any:
    with urllib.request.urlopen(made.address + "api/overview") as answer:
        return json.load(answer)


def test_a_stall_is_the_first_thing_that_is_said(visit: Visitor) -> None:
    with site() as made:
        made.feed("bank", 40)
        page = visit(made.address).page
        expect(page.locator("#connection")).to_have_text("Live")
        well = made.show(stalled(made.shown, 0, 1, 2, 3))
        expect(page.get_by_role("heading", level=1)).to_have_text("Decisions stand still on all 4 partitions")
        expect(page.locator("#connection")).to_have_text("Standing still")
        expect(page).to_have_title("▲ Decisions stand still on all 4 partitions · G-FORCE")
        expect(page.locator(".trouble li").first).to_contain_text("Partition 0 is stalled: the store does not answer.")
        expect(page.locator(".trouble li").first).to_contain_text("not moved for 1 min 3 s")
        assert overview(made)["ready"] is False
        made.show(well)
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page).to_have_title("G-FORCE")
        assert overview(made)["ready"] is True


def test_alerts_come_after_a_stall_and_a_tenant_of_a_stalled_partition_says_so(visit: Visitor) -> None:
    with unfair_site() as made:
        number = overview(made)["tenants"][0]["partition"]
        made.show(stalled(made.shown, number))
        page = visit(made.address).page
        words = "Decisions stand still on 1 of 4 partitions; 1 tenant has an alert"
        expect(page.get_by_role("heading", level=1)).to_have_text(words)
        expect(page).to_have_title(f"▲ {words} · G-FORCE")
        page.goto(made.address + "#/tenant/rival")
        first = page.locator(".alerts article").first
        expect(first).to_contain_text("Decisions stand still")
        expect(first).to_contain_text(f"Partition {number} is stalled: the store does not answer.")
        expect(page).to_have_title("▲ Standing still · rival · G-FORCE")
        expect(page.locator("#connection")).to_have_text("Standing still")


@pytest.mark.parametrize(
    ("owned", "heading", "word"),
    [
        (0, "No partition is owned", "No partition"),
        (4, "No decisions yet on all 4 partitions", "Recovering"),
    ],
)
def test_nothing_owned_or_recovered_is_not_live(visit: Visitor, owned: int, heading: str, word: str) -> None:
    with site() as made:
        coming = stalled(made.shown, *range(owned), state="recovering")
        made.show(replace(coming, ready=False, partitions=coming.partitions[:owned]))
        page = visit(made.address).page
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        expect(page.locator("#connection")).to_have_text(word)


def test_a_stall_is_counted_from_when_something_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as made:
        made.feed("bank", 4)
        worker = made.running.worker

        def paused(*_: object) -> NoReturn:
            raise StoreError("paused")

        for owned in worker.owned.values():
            owned.progress_at -= LONG_AGO
        assert {p.waiting for p in status_of(worker, monotonic_ms(), STALL_SECONDS).partitions} == {0}
        monkeypatch.setattr(worker.store, "look_up", paused)
        made.ask("bank")
        for _ in range(5):
            worker.run_once()
        now = [p for p in status_of(worker, monotonic_ms() + 1, STALL_SECONDS).partitions if p.waiting]
        assert [(p.state, p.trouble, p.lag["requests"]) for p in now] == [("unavailable", "paused", 1)]
        assert 0 < now[0].waiting < LONG_AGO / 2_000
        later = status_of(worker, monotonic_ms() + int(STALL_SECONDS * 1_000) + 1, STALL_SECONDS)
        assert [p.state for p in later.partitions if p.waiting] == ["stalled"]
        assert now[0].still > LONG_AGO / 1_000
