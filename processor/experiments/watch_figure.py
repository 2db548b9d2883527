"""A picture of the watching: a gap comes and goes, and what the two tests make of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from processor.core.alerts.monitor import AlertChange, Monitor, MonitorSettings, SequentialTestState
from processor.core.exact import Floats

from .figures import canvas

PHASES = ((6_000, 0.2, 0.2), (6_000, 0.275, 0.125), (4_000, 0.2, 0.2))
"""(labels, error rate of A, error rate of B)"""

SMOOTH = 400
"""Labels of a group over which the picture shows its rate."""

EVERY = 5
"""Labels from one point of a line to the next."""

LEAST, MOST = 1e-5, 300
A, B, TOLERANCE, DRIFT, RECOVERY = "#3a86c8", "#7a6f9b", "#c1440e", "#0b6e4f", "#7fb069"


def drift_and_recovery(seed: int) -> Any:
    """The rates of two groups, and the wealth of the tests as shares of their thresholds."""
    labels = _labels(np.random.default_rng([seed, 9]))
    watch = Monitor.new(MonitorSettings(), labels=1, declared_groups=2)
    states: list[SequentialTestState] = []
    changes: list[AlertChange] = []
    for start in range(0, len(labels), EVERY):
        changes += watch.observe(labels[start : start + EVERY])
        states += watch.streams or [SequentialTestState(**_NOTHING)]
    figure, axes = canvas(2, 1, size=(9, 6), sharex=True, height_ratios=(2, 3))
    _rates(axes[0], labels)
    _wealths(axes[1], states, changes)
    starts = np.cumsum([0, *(count for count, _, _ in PHASES)])
    for axis in axes:
        axis.axvspan(starts[1], starts[2], color="#f3ece6", zorder=0)
        axis.set_xlim(0, starts[-1])
    axes[0].annotate("gap of .15", (starts[1:3].mean(), 1.0), xycoords=("data", "axes fraction"), ha="center", va="top")
    return figure


_NOTHING: dict[str, Any] = {
    "label": 0,
    "groups": (0, 1),
    "state": "learning",
    "pairs": 0,
    "tolerance": 0.0,
    "drift": 0.0,
    "recovery": 0.0,
    "tolerance_raised": False,
    "drift_raised": False,
}


def _labels(rng: np.random.Generator) -> list[tuple[int, int, bool, int]]:
    found: list[tuple[int, int, bool, int]] = []
    for count, *rates in PHASES:
        for _ in range(count):
            group = int(rng.random() < 0.5)
            found.append((0, group, bool(rng.random() < rates[group]), len(found)))
    return found


def _rates(axis: Any, labels: list[tuple[int, int, bool, int]]) -> None:
    for group, name, colour in ((0, "group A", A), (1, "group B", B)):
        at = np.array([when for _, g, _, when in labels if g == group])
        wrong = np.array([w for _, g, w, _ in labels if g == group], dtype=np.float64)
        axis.plot(at[SMOOTH - 1 :], _moving(wrong), color=colour, label=name)
    axis.set(title="Error rate on one true label", ylabel=f"of the last {SMOOTH} labels", ylim=(0, 0.4))
    axis.legend(loc="upper left", ncols=2, fontsize=9)


def _moving(wrong: Floats) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(wrong)])
    mean: Floats = (total[SMOOTH:] - total[:-SMOOTH]) / SMOOTH
    return mean


def _wealths(axis: Any, states: list[SequentialTestState], changes: list[AlertChange]) -> None:
    for name, colour, values in (
        ("tolerance test", TOLERANCE, [state.tolerance for state in states]),
        ("drift detector", DRIFT, [state.drift for state in states]),
        ("evidence of recovery", RECOVERY, [state.recovery or np.nan for state in states]),
    ):
        axis.plot(np.arange(len(states)) * EVERY, np.maximum(values, LEAST), color=colour, label=name, linewidth=1.4)
    axis.axhline(1.0, color="black", linewidth=0.9, linestyle="--")
    height = {"tolerance": 3.0, "drift": 12.0}
    for change in changes:
        colour = {"tolerance": TOLERANCE, "drift": DRIFT}[change.kind]
        axis.plot(change.at, 1.0, "v" if change.state == "raised" else "^", color=colour, markersize=8, zorder=5)
        axis.annotate(
            f"{change.kind} {change.state}", (change.at, height[change.kind]), ha="center", fontsize=9, color=colour
        )
    axis.set(
        title="Wealth as a share of what raises (or clears) the alert",
        xlabel="labels",
        yscale="log",
        ylim=(LEAST, MOST),
    )
    axis.legend(loc="upper left", fontsize=9, ncols=3)
