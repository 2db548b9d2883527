"""The report as one HTML file, which needs nothing from elsewhere, and as CSV rows for table programs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from typing import IO, Any

import msgspec

from processor.audit.whatif.answer import figure_rows, number, plain, short, shown
from processor.core.errors import GForceError
from processor.telemetry.figures import EQUALIZED_ODDS, METRICS, Estimate

from . import charts, words
from .data import IntervalFigures, ReportData, TenantReport
from .words import delay_names, flatten_settings

FOLDER = Path(__file__).parent
MAX_DETAILED_TENANTS = 25
"""Tenants with a chapter of their own; the others are in the table."""
COLUMNS = (
    *("tenant", "section", "figure", "since", "until", "group", "label", "expert", "setting"),
    *("n", "value", "lower", "upper", "text"),
)


def render_page(report: ReportData) -> str:
    """The report as HTML."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise GForceError("a report needs jinja2: pip install jinja2") from None
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            words.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    environment.filters |= {
        "when": words.when,
        "percent": words.percent,
        "short": short,
        "shown": shown,
        "duration": words.duration,
        "thousands": lambda count: f"{count:,}",
        "known": lambda value: not isnan(value),
    }
    detailed = _choose_detailed(report)
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    template = environment.get_template("report.html")
    return template.render(
        report=report,
        css=Markup(css),
        detailed=[(i, one, _charts(one, i)) for i, one in enumerate(detailed, start=1)],
        method=words.METHOD,
        glossary=words.GLOSSARY,
        metrics=METRICS,
        metric_names=words.METRIC_NAMES,
        worst=EQUALIZED_ODDS,
        flattened=flatten_settings,
        group_keys=charts.group_keys,
        dead_reasons=words.DEAD_REASONS,
    )


def _choose_detailed(report: ReportData) -> list[TenantReport]:
    """Those to worry about first, if there are too many; in the order of their names."""
    if len(report.tenants) <= MAX_DETAILED_TENANTS:
        return report.tenants
    rank = {"bad": 0, "open": 1, "note": 1, "good": 2}
    chosen = sorted(report.tenants, key=lambda one: (rank[one.statement.tone], -sum(one.figures.delays)))
    return sorted(chosen[:MAX_DETAILED_TENANTS], key=lambda one: one.figures.name)


def _charts(tenant: TenantReport, number: int) -> dict[str, Any]:
    """By name: the chart for a page and the one for a phone; None where there is nothing to show."""
    found: dict[str, Any] = dict.fromkeys(("gap", "rates", "delays", "front"))
    name, left_out = tenant.figures.name, charts.panels(tenant)[1]
    found["left_out"] = f" Not drawn, but in the table: {', '.join(left_out)}." if left_out else ""
    gap = next((one.gaps[EQUALIZED_ODDS] for one in reversed(tenant.so_far)), None)
    if gap is not None and not isnan(gap.value):
        said = f"The gap of tenant {name} over time; at the end it is {words.band(gap)}."
        found["gap"] = _draw_both(charts.gap_over_time, tenant, f"t{number}-gap", "Gap over time", said)
    if tenant.stretches:
        said = f"Error rates of the groups {', '.join(tenant.figures.groups)} of tenant {name}, stretch by stretch."
        found["rates"] = _draw_both(charts.rates_over_time, tenant, f"t{number}-rates", "Error rates over time", said)
    if sum(tenant.figures.delays):
        said = f"How long labels of tenant {name} took; {words.duration(tenant.mean_delay)} on average."
        found["delays"] = _draw_both(charts.label_delays, tenant, f"t{number}-delays", "Label delays", said)
    if tenant.whatif and len(tenant.whatif.settings) > 1 and not isnan(tenant.whatif.recorded.gap):
        said = f"Expected gap against expected loss of the settings tried. {tenant.whatif_text}"
        found["front"] = _draw_both(charts.front_of_settings, tenant, f"t{number}-front", "What fairness costs", said)
    return found


def _draw_both(draw: Any, tenant: TenantReport, name: str, title: str, description: str) -> tuple[Any, Any]:
    from markupsafe import Markup

    return (
        Markup(charts.inline_svg(draw(tenant, charts.WIDE_INCHES), name, title, description)),
        Markup(charts.inline_svg(draw(tenant, charts.NARROW_INCHES), f"{name}-n", title, description)),
    )


class FigureRow(msgspec.Struct, kw_only=True):
    tenant: str = ""
    section: str
    figure: str
    since: str = ""
    until: str = ""
    group: str = ""
    label: str = ""
    expert: str = ""
    setting: str = ""
    n: int | str = ""
    value: float | int | str = ""
    lower: float | str = ""
    upper: float | str = ""
    text: str = ""

    def cells(self) -> list[str]:
        return [_cell(getattr(self, name)) for name in COLUMNS]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return plain(value) if isinstance(value, str) else str(value)


def write_csv(report: ReportData, file: IO[str]) -> None:
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for row in report_rows(report):
        writer.writerow(row.cells())


def report_rows(report: ReportData) -> Iterator[FigureRow]:
    found = report.verification
    yield FigureRow(section="report", figure="source", text=report.source)
    yield FigureRow(section="report", figure="version", text=report.version)
    yield FigureRow(section="report", figure="created", text=report.created)
    yield FigureRow(section="verification", figure="verdict", text=found.verdict)
    for name in ("batches", "recomputed", "requests", "feedback", "decisions", "dead_letters", "alerts"):
        yield FigureRow(section="verification", figure=name, value=getattr(found, name))
    for one in report.coverage:
        yield FigureRow(
            section="coverage", figure=f"partition {one.partition}", n=one.of, value=one.batches, text=one.why
        )
    for finding in found.findings:
        yield FigureRow(
            section="finding", figure=finding.kind, n=finding.count, text=f"{finding.place}: {finding.text}"
        )
    for letter in report.dead_letters:
        yield FigureRow(section="dead letters", figure=letter.reason, value=letter.count, text=letter.example)
    for tenant in report.tenants:
        yield from _tenant_rows(tenant)


def _tenant_rows(tenant: TenantReport) -> Iterator[FigureRow]:
    figures = tenant.figures
    name = figures.name
    yield FigureRow(tenant=name, section="fairness", figure="statement", text=tenant.statement.text)
    yield FigureRow(tenant=name, section="fairness", figure="attainable_gap", value=figures.attainable)
    yield FigureRow(tenant=name, section="fairness", figure="regret", value=figures.regret)
    yield FigureRow(tenant=name, section="fairness", figure="tolerance", value=figures.tolerance)
    for window in figures.windows[:1]:
        whole = IntervalFigures(
            since=tenant.first,
            until=tenant.last,
            labels=window.labels,
            gaps=window.gaps,
            rates=window.rates,
            group_error=window.group_error,
        )
        yield from _interval_rows(name, "labels in part" if tenant.partial else "all labels", whole)
    for interval in tenant.so_far:
        yield from _interval_rows(name, "so far", interval, rates=False)
    for interval in tenant.stretches:
        yield from _interval_rows(name, "stretch", interval)
    for tally, count in sorted(figures.tally.items()):
        yield FigureRow(tenant=name, section="counts", figure=tally, value=count)
    for figure in ("assumed", "waiting", "without"):
        yield FigureRow(tenant=name, section="labels", figure=figure, value=getattr(tenant.label_counts, figure))
    for bucket, count in zip(delay_names(), figures.delays, strict=False):
        yield FigureRow(tenant=name, section="label delays", figure=bucket, value=count)
    for expert in tenant.experts:
        for group, count in expert.decisions.items():
            yield FigureRow(
                tenant=name, section="experts", figure="decisions", group=group, expert=expert.expert, value=count
            )
        yield _with_estimate(
            FigureRow(tenant=name, section="experts", figure="error_rate", expert=expert.expert, n=expert.labelled),
            expert.error,
        )
    for alert in tenant.alerts:
        text = f"{alert.text} {alert.evidence}".strip()
        yield FigureRow(
            tenant=name, section="alerts", figure=f"{alert.kind} {alert.state}", since=_iso_time(alert.at), text=text
        )
    for config in tenant.configs:
        yield FigureRow(
            tenant=name,
            section="configuration",
            figure=config.digest,
            since=_iso_time(config.at),
            text=config.canonical,
        )
    for sample in tenant.samples:
        yield FigureRow(
            tenant=name,
            section="samples",
            figure=sample.id,
            since=_iso_time(sample.at),
            group=sample.group,
            label=sample.label or "",
            expert=sample.expert or "",
            text=sample.decision,
        )
    if tenant.whatif:
        yield from _whatif_rows(tenant)


def _interval_rows(tenant: str, section: str, interval: IntervalFigures, rates: bool = True) -> Iterator[FigureRow]:
    place = {
        "tenant": tenant,
        "section": section,
        "since": _iso_time(interval.since),
        "until": _iso_time(interval.until),
    }
    for metric, gap in interval.gaps.items():
        yield _with_estimate(FigureRow(figure=f"gap_{metric}", n=interval.labels, **place), gap)
    if rates:
        for cell in interval.rates:
            row = FigureRow(figure="error_rate", group=cell.group, label=cell.label, n=cell.n, **place)
            yield _with_estimate(row, cell.rate)
        for group, error in interval.group_error.items():
            yield _with_estimate(FigureRow(figure="group_error_rate", group=group, n="", **place), error)


def _whatif_rows(tenant: TenantReport) -> Iterator[FigureRow]:
    from processor.audit.whatif.answer import WhatIf

    assert tenant.whatif is not None
    answer = WhatIf(
        decisions=0, reproduced=0, findings=0, tenants=[tenant.whatif], front={}, dominating={}, outstanding={}
    )
    for name, setting, figure, group, label, n, value, lower, upper in figure_rows(answer):
        yield FigureRow(
            tenant=_unquoted(name),
            section="what-if",
            figure=figure,
            group=_unquoted(group),
            label=_unquoted(label),
            setting=_unquoted(setting),
            n=int(n),
            value=float(value or "nan"),
            lower=float(lower or "nan"),
            upper=float(upper or "nan"),
        )


def _unquoted(text: str) -> str:
    """``figure_rows`` has made names safe already, and ``cells`` will do it again."""
    return text[1:] if plain(text[1:]) == text else text


def _with_estimate(row: FigureRow, estimate: Estimate) -> FigureRow:
    row.value = estimate.value
    row.lower, row.upper = ("", "") if isnan(estimate.lower) else (estimate.lower, estimate.upper)
    return row


def _iso_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds") if milliseconds else ""
