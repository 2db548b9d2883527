"""Charts of the report: SVG inside the page, with text as text and no external files.

Drawn by matplotlib without pyplot, so that nothing global is left behind, and the same figures give the same bytes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from html import escape
from io import StringIO
from math import isnan
from textwrap import wrap
from typing import Any

from processor.core.errors import GForceError
from processor.telemetry.figures import EQUALIZED_ODDS

from .data import TenantReport
from .words import delay_names, name_unseen

INK, FAINT, BLUE, RED, GREEN = "#26303a", "#8a94a0", "#1f4e79", "#a23b2a", "#2f7d5b"
GROUP_COLOURS = ("#1f4e79", "#c9772b", "#2f7d5b", "#7a4b8c", "#8a6d1d", "#4b8fa8", "#a23b2a", "#5b6670")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDE_INCHES, NARROW_INCHES = 7.2, 3.75
"""inches: for a page or a screen, and for a phone"""

MAX_PANELS = 12
PANELS_PER_ROW = 3
MIN_TIME_SPAN_MS = 60_000
"""milliseconds: a shorter time is shown within one this long"""
HEADROOM = 1.08
TITLE_CHARS = {1: 60, 2: 32, 3: 20}
"""of a panel's title, by the number of panels in a row"""

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "gforce",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@contextmanager
def canvas(size: tuple[float, float], columns: int = 1, rows: int = 1, **more: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, in our style."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise GForceError("charts need matplotlib: pip install matplotlib") from None
    with warnings.catch_warnings(), rc_context(STYLE):
        warnings.simplefilter("ignore")  # names may hold signs that the measuring font lacks; the reader's has them
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, **more)


def inline_svg(figure: Any, name: str, title: str, description: str) -> str:
    """The figure as an SVG element with a title and a description for those who cannot see it."""
    from matplotlib import rc_context

    file = StringIO()
    with warnings.catch_warnings(), rc_context(STYLE):
        warnings.simplefilter("ignore")
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 :]
    box = re.search(r'viewBox="[^"]*"', text)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'xlink:href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    body = body.replace("'DejaVu Sans', 'Bitstream Vera Sans', 'Computer Modern Sans Serif'", "var(--sans)")
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--sans)", body)
    body = re.sub(r"font: bold ([\d.]+)px [^;\"]*", r"font: bold \1px var(--sans)", body)
    head = (
        f'<svg {box[0] if box else ""} role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
    )
    return name_unseen(head + body[: body.rindex("</svg>") + 6])


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)


def _time_axis(axis: Any, tenant: TenantReport, narrow: bool) -> None:
    """From the first case to the last label or alert, with some room; at least a minute."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    points = (*tenant.so_far, *tenant.stretches)
    start = min(one.since for one in points)
    end = max(*(one.until for one in points), *(alert.at for alert in tenant.alerts if alert.state == "raised"), start)
    room = max((end - start) // 40, 0 if end - start >= MIN_TIME_SPAN_MS else MIN_TIME_SPAN_MS // 2)
    axis.set_xlim(_time(start - room), _time(end + room))
    locator = AutoDateLocator(maxticks=4 if narrow else 8, tz=UTC)  # type: ignore[no-untyped-call]
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def gap_over_time(tenant: TenantReport, width: float) -> Any:
    """The gap of all labels so far with its band; the gap of each interval; tolerance, attainable gap, alerts."""
    narrow = width == NARROW_INCHES
    with canvas((width, 3.0 if narrow else 2.9)) as (figure, axis):
        points = [one for one in tenant.so_far if not isnan(one.gaps[EQUALIZED_ODDS].value)]
        times = [_time(one.until) for one in points]
        gaps = [one.gaps[EQUALIZED_ODDS] for one in points]
        low = [gap.value if isnan(gap.lower) else gap.lower for gap in gaps]
        high = [gap.value if isnan(gap.upper) else gap.upper for gap in gaps]
        _line(axis, times, [gap.value for gap in gaps], low, high, BLUE, linewidth=1.8)
        intervals = [one for one in tenant.stretches if not isnan(one.gaps[EQUALIZED_ODDS].value)]
        if len(intervals) > 1:
            middle = [_time((one.since + one.until) // 2) for one in intervals]
            axis.plot(middle, [one.gaps[EQUALIZED_ODDS].value for one in intervals], "o", color=FAINT, markersize=3.5)
        values = [one.gaps[EQUALIZED_ODDS].value for one in intervals]
        axis.set_ylim(0, HEADROOM * max(0.1, *high, *values))
        _level(axis, tenant.figures.tolerance, "tolerance", RED, "--")
        _level(axis, tenant.figures.attainable, "attainable", GREEN, ":")
        raised = [alert for alert in tenant.alerts if alert.state == "raised"]
        if raised:
            axis.plot(
                [_time(alert.at) for alert in raised],
                [0.985] * len(raised),
                "v",
                color=RED,
                markersize=7,
                transform=axis.get_xaxis_transform(),
                clip_on=False,
            )
        axis.set_ylabel("gap")
        _time_axis(axis, tenant, narrow)
        return figure


def _line(
    axis: Any,
    times: Sequence[datetime],
    values: list[float],
    low: list[float],
    high: list[float],
    colour: str,
    **more: Any,
) -> None:
    """A line in its band; a single value is a point with a bar."""
    axis.plot(
        times,
        values,
        color=colour,
        clip_on=False,
        **({"marker": "o", "markersize": 4.5} | more if len(times) == 1 else more),
    )
    if len(times) == 1:
        axis.vlines(times, low, high, color=colour, alpha=0.45, linewidth=1.6)
    else:
        axis.fill_between(times, low, high, color=colour, alpha=0.14, linewidth=0)


def panels(tenant: TenantReport) -> tuple[list[str], list[str]]:
    """The true labels that have a panel, and those that have not: too many, or nothing to draw. Alerts go first."""
    labels = list(tenant.figures.labels)
    alerted = {alert.label for alert in tenant.alerts}
    seen = {cell.label for interval in tenant.stretches for cell in interval.rates if cell.n}
    order = sorted((label for label in labels if label in seen), key=lambda label: label not in alerted)
    chosen = set(order[:MAX_PANELS] or labels[:1])
    return [label for label in labels if label in chosen], [label for label in labels if label not in chosen]


def _title(label: str, characters: int) -> str:
    """In two lines at most.

    >>> _title("c", 20)
    'cases that were “c”'
    >>> _title("a rather long name for a label", 20)
    'cases that were “a\\nrather long name fo…'
    """
    lines = wrap(f"cases that were “{label}”", characters)
    return "\n".join(lines) if len(lines) <= 2 else f"{lines[0]}\n{lines[1][: characters - 1]}…"


def _level(axis: Any, height: float, name: str, colour: str, style: str) -> None:
    if isnan(height) or height > axis.get_ylim()[1]:
        return
    axis.axhline(height, color=colour, linestyle=style, linewidth=1.1)
    axis.annotate(
        name,
        (1.0, height),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(0, 3),
        ha="right",
        color=colour,
        fontsize=8,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
    )


def rates_over_time(tenant: TenantReport, width: float) -> Any:
    """Error rates of each group, one panel for each true label, interval by interval."""
    narrow = width == NARROW_INCHES
    labels, _ = panels(tenant)
    columns = 1 if narrow else min(len(labels), PANELS_PER_ROW)
    rows = -(-len(labels) // columns)
    height = 2.2 * rows if narrow else 2.6 * rows
    with canvas((width, height), columns, rows, squeeze=False, sharey=True) as (figure, grid):
        axes = [axis for line in grid for axis in line]
        for axis, label in zip(axes, labels, strict=False):
            for i, group in enumerate(tenant.figures.groups):
                _rate_line(axis, tenant, group, label, i)
            axis.set_title(_title(label, TITLE_CHARS[columns] if not narrow else TITLE_CHARS[2]))
            _time_axis(axis, tenant, True)
        for axis in axes[len(labels) :]:
            axis.set_visible(False)
        axes[0].set_ylim(0, HEADROOM * max(0.05, *_drawn_values(tenant, labels)))
        for line in grid:
            line[0].set_ylabel("decided wrongly")
        return figure


def _drawn_values(tenant: TenantReport, labels: Sequence[str]) -> list[float]:
    """Of all that is drawn: rates, and the upper ends of their bands."""
    cells = [cell for interval in tenant.stretches for cell in interval.rates if cell.n and cell.label in labels]
    ends = [cell.rate.upper if _has_bands(tenant) else cell.rate.value for cell in cells]
    return [0.0, *(end for end in (*ends, *(cell.rate.value for cell in cells)) if not isnan(end))]


def _has_bands(tenant: TenantReport) -> bool:
    """Bands of more groups than three would hide each other."""
    return len(tenant.figures.groups) <= 3


def _rate_line(axis: Any, tenant: TenantReport, group: str, label: str, number: int) -> None:
    colour, marker = GROUP_COLOURS[number % len(GROUP_COLOURS)], MARKERS[number % len(MARKERS)]
    points = []
    for interval in tenant.stretches:
        cell = next((one for one in interval.rates if one.group == group and one.label == label), None)
        if cell is not None and cell.n and not isnan(cell.rate.value):
            points.append((_time((interval.since + interval.until) // 2), cell.rate))
    if not points:
        return
    times = [at for at, _ in points]
    if len(times) == 1:  # side by side, so that one group does not hide the other
        times = [times[0] + _shift_of_group(tenant, number)]
    values = [rate.value for _, rate in points]
    banded = _has_bands(tenant) and not isnan(points[0][1].lower)
    low = [rate.lower for _, rate in points] if banded else values
    high = [rate.upper for _, rate in points] if banded else values
    _line(axis, times, values, low, high, colour, marker=marker, markersize=3.5, linewidth=1.4)


def _shift_of_group(tenant: TenantReport, number: int) -> timedelta:
    """How far the point of a group is from the middle of a single interval."""
    interval, groups = tenant.stretches[0], len(tenant.figures.groups)
    span = max(interval.until - interval.since, MIN_TIME_SPAN_MS)
    return timedelta(milliseconds=0.5 * span * ((number + 0.5) / groups - 0.5))


def label_delays(tenant: TenantReport, width: float) -> Any:
    """How long labels took."""
    counts, names = tenant.figures.delays, delay_names()
    used = [i for i, count in enumerate(counts) if count]
    first, last = max(min(used) - 1, 0), min(max(used) + 1, len(counts) - 1)
    total = sum(counts)
    with canvas((width, 1.9)) as (figure, axis):
        shares = [100 * count / total for count in counts[first : last + 1]]
        bars = axis.bar(range(len(shares)), shares, color=BLUE, width=0.72)
        axis.bar_label(bars, [f"{share:.0f} %" if share >= 0.5 else "" for share in shares], fontsize=8, padding=2)
        small = len(shares) > (6 if width == NARROW_INCHES else 12)
        axis.set_xticks(range(len(shares)), names[first : last + 1], rotation=45 if small else 0, fontsize=8)
        axis.set_ylabel("% of labels")
        axis.margins(y=0.18)
        axis.spines["bottom"].set_visible(True)
        return figure


def front_of_settings(tenant: TenantReport, width: float) -> Any:
    """The Pareto front of the settings that were tried."""
    from processor.audit.whatif.answer import draw_front

    assert tenant.whatif is not None
    with canvas((width, 3.4 if width == NARROW_INCHES else 3.6)) as (figure, axis):
        draw_front(tenant.whatif, axis, small=width == NARROW_INCHES)
        axis.set_ylim(0, max(axis.get_ylim()[1], HEADROOM * axis.dataLim.y1, 0.01))
        axis.grid(True, axis="both")
        return figure


def group_keys(groups: Sequence[str]) -> list[tuple[str, str, str]]:
    """Group, colour and a sign for the legend under a chart."""
    signs = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")
    return [(group, GROUP_COLOURS[i % 8], signs[i % 8]) for i, group in enumerate(groups)]
