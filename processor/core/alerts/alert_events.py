"""An alert as it is published: names instead of numbers, and evidence a person can check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from processor.core.metrics.confidence import interval

from .alerts import AlertChange, Counts, Evidence, Kind, MonitorSettings

BAND_DIGITS = 4
"""The ends of the band come from library logarithms, which may differ in the last bit between machines: rounded, and
compared by an audit as such. All else in an alert is exact."""


class PairRates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The two groups side by side, in the order of ``AlertEvent.groups``."""

    labels: tuple[int, int]
    errors: tuple[int, int]
    rates: tuple[float, float]
    gap: float
    """first minus second"""
    lower: float | None = None
    upper: float | None = None


class PublishedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    pairs: int
    """pairs of labels since the test began"""
    wealth: float
    threshold: float
    """raised when the wealth reaches this"""
    whole: PairRates
    """since the test began, with a confidence sequence for the gap"""
    onset: int
    """when the difference most likely began (ms): an estimate, without a guarantee"""
    recent: PairRates
    """since then"""


class AlertEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the topic ``alerts``; see ``schemas/alert.v1.json``."""

    tenant: str
    number: int
    kind: Kind
    state: Literal["raised", "cleared"]
    at: int
    since: int
    label: str | None = None
    groups: tuple[str, str] | None = None
    decisions: tuple[str, ...] = ()
    tolerance: float
    evidence: PublishedEvidence | None = None
    config: str
    batch: int

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def alert_event(
    change: AlertChange,
    settings: MonitorSettings,
    *,
    tenant: str,
    groups: Sequence[str],
    labels: Sequence[str],
    config: str,
    batch: int,
) -> AlertEvent:
    """``groups`` and ``labels`` are the tenant's names in the order of their numbers."""
    return AlertEvent(
        tenant=tenant,
        number=change.number,
        kind=change.kind,
        state=change.state,
        at=change.at,
        since=change.since,
        label=None if change.label is None else labels[change.label],
        groups=None if change.groups is None else (groups[change.groups[0]], groups[change.groups[1]]),
        decisions=tuple(labels[number] for number in change.decisions),
        tolerance=settings.tolerance,
        evidence=None if change.evidence is None else published(change.evidence, settings.alpha),
        config=config,
        batch=batch,
    )


def published(evidence: Evidence, alpha: float) -> PublishedEvidence:
    return PublishedEvidence(
        pairs=evidence.pairs,
        wealth=evidence.wealth,
        threshold=evidence.threshold,
        whole=_rates(evidence.counts, alpha),
        onset=evidence.onset,
        recent=_rates(evidence.recent, None),
    )


def _rates(counts: Counts, alpha: float | None) -> PairRates:
    """No band where ``alpha`` is None: the moment the recent counts begin with was chosen by looking at them."""
    n_a, n_b = max(counts.n_a, 1), max(counts.n_b, 1)
    rates = (counts.err_a / n_a, counts.err_b / n_b)
    lower = upper = None
    if alpha is not None:
        low, high = interval([counts.err_a, counts.err_b], [counts.n_a, counts.n_b], alpha / 2)
        lower = round(float(low[0] - high[1]), BAND_DIGITS)
        upper = round(float(high[0] - low[1]), BAND_DIGITS)
    return PairRates(
        labels=(counts.n_a, counts.n_b),
        errors=(counts.err_a, counts.err_b),
        rates=rates,
        gap=rates[0] - rates[1],
        lower=lower,
        upper=upper,
    )
