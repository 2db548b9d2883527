"""The page itself: one file, nothing from elsewhere, every name escaped."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

from processor.audit.whatif.tables import short, shown
from processor.core.errors import GForceError
from processor.telemetry.figures import EQUALIZED_ODDS, METRICS

from . import charts, words
from .configuration import flattened
from .data import ReportData, TenantReport

FOLDER = Path(__file__).parent
MOST_DETAILED = 25
"""Tenants with a chapter of their own; the others are in the table."""


def page(report: ReportData) -> str:
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
    detailed = _detailed(report)
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
        flattened=flattened,
        group_keys=charts.group_keys,
        dead_reasons=words.DEAD_REASONS,
    )


def _detailed(report: ReportData) -> list[TenantReport]:
    """Those to worry about first, if there are too many; in the order of their names."""
    if len(report.tenants) <= MOST_DETAILED:
        return report.tenants
    rank = {"bad": 0, "open": 1, "note": 1, "good": 2}
    chosen = sorted(report.tenants, key=lambda one: (rank[one.statement.tone], -sum(one.figures.delays)))
    return sorted(chosen[:MOST_DETAILED], key=lambda one: one.figures.name)


def _charts(tenant: TenantReport, number: int) -> dict[str, Any]:
    """By name: the chart for a page and the one for a phone; None where there is nothing to show."""
    found: dict[str, Any] = dict.fromkeys(("gap", "rates", "delays", "front"))
    name, left_out = tenant.figures.name, charts.panels(tenant)[1]
    found["left_out"] = f" Not drawn, but in the table: {', '.join(left_out)}." if left_out else ""
    gap = next((one.gaps[EQUALIZED_ODDS] for one in reversed(tenant.so_far)), None)
    if gap is not None and not isnan(gap.value):
        said = f"The gap of tenant {name} over time; at the end it is {words.band(gap)}."
        found["gap"] = _both(charts.gap_over_time, tenant, f"t{number}-gap", "Gap over time", said)
    if tenant.stretches:
        said = f"Error rates of the groups {', '.join(tenant.figures.groups)} of tenant {name}, stretch by stretch."
        found["rates"] = _both(charts.rates_over_time, tenant, f"t{number}-rates", "Error rates over time", said)
    if sum(tenant.figures.delays):
        said = f"How long labels of tenant {name} took; {words.duration(tenant.mean_delay)} on average."
        found["delays"] = _both(charts.delays, tenant, f"t{number}-delays", "Label delays", said)
    if tenant.whatif and len(tenant.whatif.settings) > 1 and not isnan(tenant.whatif.recorded.gap):
        said = f"Expected gap against expected loss of the settings tried. {tenant.whatif_text}"
        found["front"] = _both(charts.front, tenant, f"t{number}-front", "What fairness costs", said)
    return found


def _both(draw: Any, tenant: TenantReport, name: str, title: str, description: str) -> tuple[Any, Any]:
    from markupsafe import Markup

    return (
        Markup(charts.inline(draw(tenant, charts.WIDE), name, title, description)),
        Markup(charts.inline(draw(tenant, charts.NARROW), f"{name}-n", title, description)),
    )
