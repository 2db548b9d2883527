"""What fairness costs on a recorded stream: the front of settings, and which of them beat today's."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

from .figures import SettingFigures, TenantAnswer

FRONT, OTHER, TODAY, BETTER = "#1f4e79", "#9aa5b1", "#a23b2a", "#2f7d5b"


def plottable(answer: TenantAnswer) -> list[SettingFigures]:
    return [one for one in (answer.recorded, *answer.settings) if not isnan(one.gap) and not isnan(one.expected_loss)]


def placed(answer: TenantAnswer) -> list[tuple[float, float]]:
    """Expected loss and gap of each, on the same cases: the recorded figures, and how far the others are from them."""
    base = answer.recorded
    return [
        (base.expected_loss + one.difference.expected_loss, base.gap + one.difference.expected_gap)
        if one.difference
        else (one.expected_loss, one.gap)
        for one in plottable(answer)
    ]


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which points nobody beats in both (smaller is better), by the first figure.

    >>> front([(0.2, 0.3), (0.1, 0.4), (0.3, 0.3), (0.2, 0.3)])
    [1, 0]
    """
    found: list[int] = []
    least = float("inf")
    for i in sorted(range(len(points)), key=lambda i: (points[i], i)):
        if points[i][1] < least:
            found.append(i)
            least = points[i][1]
    return found


def on_the_front(answer: TenantAnswer) -> list[str]:
    """Names of the settings that none of the others beats."""
    shown = plottable(answer)
    return [shown[i].setting for i in front(placed(answer))]


def draw(answer: TenantAnswer, axis: Any, small: bool = False) -> None:
    """Expected gap against expected loss: the front as a line, today's setting marked, what it could be better at."""
    shown = plottable(answer)
    points = placed(answer)
    line = [points[i] for i in front(points)]
    for one, (loss, gap) in zip(shown[1:], points[1:], strict=True):
        colour = BETTER if one.standing == "dominates" else FRONT if (loss, gap) in line else OTHER
        axis.plot(loss, gap, "o", color=colour, markersize=5, zorder=3)
    axis.plot([x for x, _ in line], [y for _, y in line], "-", color=FRONT, linewidth=1.2, zorder=2)
    if points:
        loss, gap = points[0]
        axis.plot(loss, gap, "D", color=TODAY, markersize=8, zorder=4)
        _label(axis, "as recorded", loss, gap, TODAY, (8, 6))
    for i in _spread(points, 5 if small else 9):
        _label(axis, shown[i].setting, *points[i], "#333333", (6, -11))
    axis.set_xlabel("wrong decisions per label (expected)")
    axis.set_ylabel("gap (expected)")
    axis.margins(0.12)
    axis.set_ylim(bottom=0)


def _label(axis: Any, text: str, x: float, y: float, colour: str, offset: tuple[int, int]) -> None:
    axis.annotate(
        text, (x, y), textcoords="offset points", xytext=offset, fontsize=8, color=colour, annotation_clip=False
    )


def _spread(points: Sequence[tuple[float, float]], most: int) -> list[int]:
    """Points far enough from each other, and from the first, to be labelled: the extreme ones before the others."""
    if len(points) < 2:
        return []
    xs, ys = [x for x, _ in points], [y for _, y in points]
    width, height = (max(xs) - min(xs)) or 1.0, (max(ys) or 1.0)
    first = (xs.index(min(xs)), ys.index(min(ys)), xs.index(max(xs)), ys.index(max(ys)))
    chosen = [0]
    for i in sorted(range(1, len(points)), key=lambda i: (i not in first, i)):
        clear = all(abs(xs[i] - xs[j]) > 0.2 * width or abs(ys[i] - ys[j]) > 0.08 * height for j in chosen)
        if clear and len(chosen) <= most:
            chosen.append(i)
    return chosen[1:]


def save(answer: TenantAnswer, folder: Path, stem: str) -> list[Path]:
    """The picture of one tenant as PNG and SVG."""
    from processor.audit.report.charts import canvas

    folder.mkdir(parents=True, exist_ok=True)
    with canvas((7.2, 4.6)) as (figure, axis):
        draw(answer, axis)
        axis.set_title(f"What fairness costs: {answer.tenant}")
        paths = [folder / f"{stem}.{ending}" for ending in ("png", "svg")]
        for path in paths:
            figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
