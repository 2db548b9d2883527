"""The answer of a what-if as a document, as rows for a table program, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan

import msgspec

from processor import __version__
from processor.telemetry.figures import EQUALIZED_ODDS, Estimate

from .figures import SettingFigures, TenantAnswer
from .pareto import on_the_front
from .whatif import Answered

COLUMNS = ("tenant", "setting", "figure", "group", "label", "n", "value", "lower", "upper")
NOT_VALID = "not_valid_no_labels_for_decision"


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

    @classmethod
    def of(cls, done: Sequence[Answered], answers: list[TenantAnswer], some_tenants: bool = False) -> WhatIf:
        by_partition: dict[int, Answered] = {}
        outstanding: dict[str, int] = {}
        for one in done:
            for run in one.runs[:1]:
                by_partition.setdefault(run.partition, one)
            for setting, count in one.outstanding.items():
                outstanding[setting] = outstanding.get(setting, 0) + count
        return cls(
            decisions=sum(one.decisions for one in by_partition.values()),
            reproduced=sum(one.reproduced for one in by_partition.values()),
            findings=sum(one.findings for one in by_partition.values()),
            tenants=answers,
            front={answer.tenant: on_the_front(answer) for answer in answers},
            dominating={answer.tenant: [one.setting for one in answer.dominating] for answer in answers},
            outstanding=outstanding,
            beyond_asked=sorted(by_partition) if some_tenants else [],
        )


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
        said.append(f"{_listed(surely)} would have been at least as fair and as accurate, beyond the noise")
    if perhaps:
        said.append(f"{_listed(perhaps)} would have been at least as fair and as accurate, but within the noise")
    return "; ".join(said) + "."


def _listed(names: Sequence[str]) -> str:
    quoted = [f"“{name}”" for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def rows(answer: WhatIf) -> Iterator[tuple[str, ...]]:
    """Every figure as a row of ``COLUMNS``. A row ``NOT_VALID`` before them names a decision that never got a label."""
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
