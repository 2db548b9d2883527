"""The answer of a what-if as a document, as rows for a table program, as text, and as a Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import msgspec

from processor import __version__
from processor.telemetry.figures import EQUALIZED_ODDS, Estimate

from .figures import SettingFigures, TenantAnswer

ROW_COLUMNS = ("tenant", "setting", "figure", "group", "label", "n", "value", "lower", "upper")
NOT_VALID = "not_valid_no_labels_for_decision"
FRONT_COLOUR, OTHER_COLOUR, RECORDED_COLOUR, BETTER_COLOUR = "#1f4e79", "#9aa5b1", "#a23b2a", "#2f7d5b"


class WhatIf(msgspec.Struct, kw_only=True):
    """Everything that was asked."""

    version: str = __version__
    decisions: int
    reproduced: int
    """of the recorded decisions, those the recorded setting led to again"""
    findings: int
    tenants: list[TenantAnswer]
    front: dict[str, list[str]]
    """by tenant: settings that none of the others beats in both gap and loss"""
    dominating: dict[str, list[str]]
    outstanding: dict[str, int]
    """labels that would not have come by the end of the record, by setting"""
    beyond_asked: list[int] = []
    """partitions whose decisions were reproduced of every tenant, where only some tenants were asked for"""


def reproduction(answer: WhatIf) -> str:
    """
    >>> reproduction(WhatIf(decisions=3, reproduced=3, findings=0, tenants=[], front={}, dominating={}, outstanding={}))
    'the recorded setting reproduces 3 of 3 decisions'
    """
    numbers = ", ".join(map(str, answer.beyond_asked))
    partitions = f"partition{'s' if len(answer.beyond_asked) > 1 else ''} {numbers}"
    whose = f" of all tenants in {partitions}" if numbers else ""
    return f"the recorded setting reproduces {answer.reproduced} of {answer.decisions} decisions{whose}"


def conclusion(answer: TenantAnswer) -> str:
    """Which settings beat the recorded one, in a sentence."""
    surely = [one.setting for one in answer.dominating if one.beyond_noise]
    perhaps = [one.setting for one in answer.dominating if not one.beyond_noise]
    if not answer.settings or all(one.refused for one in answer.settings):
        return "No other setting could be tried."
    if answer.not_valid:
        return "Nothing follows from these figures: labels came for some decisions only."
    if not answer.recorded.labels:
        return "There are no labels in the record to judge the settings by."
    judged = [one for one in answer.settings if not one.refused and one.difference and one.difference.cases]
    if not judged:
        return "There are no labels to judge by: no case has one both as recorded and under a setting that was tried."
    if not surely and not perhaps:
        return "None of the settings tried is at least as fair and as accurate as the recorded one, and better in one."
    said = []
    if surely:
        said.append(f"{_quoted_list(surely)} would have been at least as fair and as accurate, beyond the noise")
    if perhaps:
        said.append(f"{_quoted_list(perhaps)} would have been at least as fair and as accurate, but within the noise")
    return "; ".join(said) + "."


def _quoted_list(names: Sequence[str]) -> str:
    quoted = [f"“{name}”" for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def figure_rows(answer: WhatIf) -> Iterator[tuple[str, ...]]:
    """Every figure as a row of ``ROW_COLUMNS``. A row ``NOT_VALID`` names a decision that never got a label."""
    for tenant in answer.tenants:
        for one in (tenant.recorded, *tenant.settings):
            for decision in tenant.unlabelled:
                yield (plain(tenant.tenant), plain(one.setting), NOT_VALID, "", plain(decision), "0", "", "", "")
            for figure, group, label, n, estimate in _figures(one):
                ends = (number(estimate.value), number(estimate.lower), number(estimate.upper))
                yield (plain(tenant.tenant), plain(one.setting), figure, plain(group), plain(label), str(n), *ends)


def _figures(one: SettingFigures) -> Iterator[tuple[str, str, str, int, Estimate]]:
    def only(value: float) -> Estimate:
        return Estimate(value, float("nan"), float("nan"))

    yield "loss", "", "", one.labels, one.loss
    yield "expected_loss", "", "", one.labels, only(one.expected_loss)
    yield "regret", "", "", one.labels, only(one.regret)
    yield "expected_regret", "", "", one.labels, only(one.expected_regret)
    for metric, gap in one.gaps.items():
        yield f"gap_{metric}", "", "", one.labels, gap
        yield f"expected_gap_{metric}", "", "", one.labels, only(one.expected_gaps[metric])
    for cell in one.rates:
        yield "error_rate", cell.group, cell.label, cell.n, cell.rate
        yield "expected_error_rate", cell.group, cell.label, cell.n, only(cell.expected)
    if one.difference:
        yield "loss_difference", "", "", one.difference.cases, one.difference.loss
        yield f"gap_{EQUALIZED_ODDS}_difference", "", "", one.difference.cases, one.difference.gap


def number(value: float) -> str:
    return "" if isnan(value) else repr(value)


def plain(text: str) -> str:
    """A name in a table: programs for tables take some first characters for a formula.

    >>> plain("=1+2"), plain("model")
    ("'=1+2", 'model')
    """
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def shown(estimate: Estimate) -> str:
    """
    >>> shown(Estimate(0.1234, 0.05, 0.2)), shown(Estimate(float("nan"), 0.0, 1.0))
    ('.123 (.050 to .200)', '–')
    """
    if isnan(estimate.value):
        return "–"
    band = "" if isnan(estimate.lower) else f" ({short(estimate.lower)} to {short(estimate.upper)})"
    return short(estimate.value) + band


def short(value: float, signed: bool = False) -> str:
    """Three decimals without the zero before the point.

    >>> short(0.25), short(-0.0301), short(1.0), short(0.25, signed=True)
    ('.250', '−.030', '1.000', '+.250')
    """
    if isnan(value):
        return "–"
    text = f"{abs(value):.3f}"
    sign = "−" if value < 0 and float(text) else "+" if signed and float(text) else ""
    return sign + (text[1:] if text.startswith("0.") else text)


def plottable(answer: TenantAnswer) -> list[SettingFigures]:
    return [one for one in (answer.recorded, *answer.settings) if not isnan(one.gap) and not isnan(one.expected_loss)]


def plot_points(answer: TenantAnswer) -> list[tuple[float, float]]:
    """Expected loss and gap of each, on the same cases: the recorded figures, and how far the others are from them."""
    base = answer.recorded
    return [
        (base.expected_loss + one.difference.expected_loss, base.gap + one.difference.expected_gap)
        if one.difference
        else (one.expected_loss, one.gap)
        for one in plottable(answer)
    ]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The points that no other point beats in both figures (smaller is better), by the first figure.

    >>> pareto_front([(0.2, 0.3), (0.1, 0.4), (0.3, 0.3), (0.2, 0.3)])
    [1, 0]
    """
    found: list[int] = []
    least = float("inf")
    for i in sorted(range(len(points)), key=lambda i: (points[i], i)):
        if points[i][1] < least:
            found.append(i)
            least = points[i][1]
    return found


def settings_on_front(answer: TenantAnswer) -> list[str]:
    """Names of the settings that none of the others beats."""
    shown = plottable(answer)
    return [shown[i].setting for i in pareto_front(plot_points(answer))]


def draw_front(answer: TenantAnswer, axis: Any, small: bool = False) -> None:
    """Expected gap against expected loss: the front as a line, today's setting marked, what it could be better at."""
    shown = plottable(answer)
    points = plot_points(answer)
    line = [points[i] for i in pareto_front(points)]
    for one, (loss, gap) in zip(shown[1:], points[1:], strict=True):
        colour = BETTER_COLOUR if one.standing == "dominates" else FRONT_COLOUR if (loss, gap) in line else OTHER_COLOUR
        axis.plot(loss, gap, "o", color=colour, markersize=5, zorder=3)
    axis.plot([x for x, _ in line], [y for _, y in line], "-", color=FRONT_COLOUR, linewidth=1.2, zorder=2)
    if points:
        loss, gap = points[0]
        axis.plot(loss, gap, "D", color=RECORDED_COLOUR, markersize=8, zorder=4)
        _annotate(axis, "as recorded", loss, gap, RECORDED_COLOUR, (8, 6))
    for i in _points_to_label(points, 5 if small else 9):
        _annotate(axis, shown[i].setting, *points[i], "#333333", (6, -11))
    axis.set_xlabel("wrong decisions per label (expected)")
    axis.set_ylabel("gap (expected)")
    axis.margins(0.12)
    axis.set_ylim(bottom=0)


def _annotate(axis: Any, text: str, x: float, y: float, colour: str, offset: tuple[int, int]) -> None:
    axis.annotate(
        text, (x, y), textcoords="offset points", xytext=offset, fontsize=8, color=colour, annotation_clip=False
    )


def _points_to_label(points: Sequence[tuple[float, float]], most: int) -> list[int]:
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


def save_front(answer: TenantAnswer, folder: Path, stem: str) -> list[Path]:
    """The picture of one tenant as PNG and SVG."""
    from processor.audit.report.charts import canvas

    folder.mkdir(parents=True, exist_ok=True)
    with canvas((7.2, 4.6)) as (figure, axis):
        draw_front(answer, axis)
        axis.set_title(f"What fairness costs: {answer.tenant}")
        paths = [folder / f"{stem}.{ending}" for ending in ("png", "svg")]
        for path in paths:
            figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
