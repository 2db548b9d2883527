"""The verdict of the live scenario: it says no where something is missing."""

from __future__ import annotations

from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console

from tests.watching.scenario import SHIFTING, STEADY, Plan, Scenario
from tests.watching.timeline import Timeline

# Seconds, source, what, tenant, kind, number.
STORY = [
    (40.0, "producer", "shifted", "", "", None),
    (42.0, "alerts", "raised", SHIFTING, "drift", 1),
    (43.0, "Prometheus", "firing", SHIFTING, "GforceDrift", None),
    (44.0, "alerts", "raised", SHIFTING, "tolerance", 2),
    (45.0, "Prometheus", "firing", SHIFTING, "GforceToleranceExceeded", None),
    (60.0, "producer", "after", "", "", None),
    (66.0, "alerts", "cleared", SHIFTING, "drift", 1),
    (67.0, "Prometheus", "resolved", SHIFTING, "GforceDrift", None),
    (75.0, "alerts", "cleared", SHIFTING, "tolerance", 2),
    (76.0, "Prometheus", "resolved", SHIFTING, "GforceToleranceExceeded", None),
]


def judged(story: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> tuple[Timeline, dict[str, float | None]]:
    timeline = Timeline(Console(file=StringIO()))
    for seconds, source, what, tenant, kind, number in story:
        monkeypatch.setattr(Timeline, "now", seconds)
        at = {"at": seconds} if source == "alerts" else {}
        timeline.add(source, what, tenant=tenant, kind=kind, number=number, **at)
    nobody = cast(Any, None)
    return timeline, Scenario(nobody, nobody, nobody, Plan(), timeline).judge()


def test_a_whole_story_passes_with_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, figures = judged(STORY, monkeypatch)
    assert timeline.passed, timeline.checks
    assert (figures["drift_raised_after"], figures["drift_firing_after"], figures["drift_cleared_after"]) == (2, 3, 6)


@pytest.mark.parametrize("missing", range(len(STORY)))
def test_a_story_without_one_of_its_events_does_not_pass(missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, _ = judged(STORY[:missing] + STORY[missing + 1 :], monkeypatch)
    assert not timeline.passed


def test_an_alert_before_the_shift_or_for_the_other_tenant_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    early = (20.0, "alerts", "raised", SHIFTING, "drift", 9)
    assert not judged([early, *STORY], monkeypatch)[0].passed
    other = (50.0, "alerts", "raised", STEADY, "drift", 9)
    assert not judged(sorted([*STORY, other], key=lambda entry: entry[0]), monkeypatch)[0].passed
