"""What is said when a policy's error rates drift apart: settings of the watching, alerts, and their evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

from processor.core.errors import InvalidSettingsError

Kind = Literal["tolerance", "drift", "one-sided"]
KINDS: tuple[Kind, ...] = ("tolerance", "drift", "one-sided")

LARGEST = 1_000_000_000
"""Of every whole number in the settings: far more pairs than any stream will have."""


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How closely the error rates of a tenant's groups are watched."""

    tolerance: float = 0.05
    """ε: a difference of error rates up to this is not reported"""
    alpha: float = 0.05
    """the chance of any false tolerance alarm of the tenant, ever"""
    false_alarm_pairs: int = 5_000
    """N: mean pairs between false drift alarms"""
    clear: int = 5_000
    """C: how strong the evidence for recovery must be before a drift alert clears"""
    learning: int = 50
    """labels both cells of a stream need before it is tested"""

    def __post_init__(self) -> None:
        if not 0.0 <= self.tolerance < 1.0:
            raise InvalidSettingsError(
                f"tolerance is {self.tolerance}: it is a difference of error rates, from 0 to below 1. "
                "Use 0.05 (the default)."
            )
        if not 1e-6 <= self.alpha < 1.0:
            raise InvalidSettingsError(
                f"alpha is {self.alpha}: the chance of a false alarm lies from 0.000001 to below 1. "
                "Use 0.05 (the default)."
            )
        for name, least in (("false_alarm_pairs", 2), ("clear", 2), ("learning", 0)):
            value = getattr(self, name)
            if not least <= value <= LARGEST:
                raise InvalidSettingsError(f"{name} is {value}: use a whole number from {least} to {LARGEST}")


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """Labels of the two cells of a stream, and how many of them had been decided wrongly."""

    n_a: int
    err_a: int
    n_b: int
    err_b: int


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What an alert rests on; recomputable to the last bit."""

    pairs: int
    """pairs the test has seen since it started"""
    counts: Counts
    """labels in those pairs"""
    wealth: float
    threshold: float
    onset: int
    """when the difference most likely began (milliseconds): an estimate, without a guarantee"""
    recent: Counts
    """labels since then"""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is raised and has not been cleared.

    ``label`` and ``groups`` are the tenant's numbers; a one-sided alert has none and names ``decisions`` instead.
    """

    kind: Kind
    number: int
    since: int
    """when it was raised (milliseconds)"""
    label: int | None = None
    groups: tuple[int, int] | None = None
    evidence: Evidence | None = None
    decisions: tuple[int, ...] = ()


class AlertChange(msgspec.Struct, frozen=True, kw_only=True):
    """An alert was raised or cleared."""

    kind: Kind
    state: Literal["raised", "cleared"]
    number: int
    """of the alert: counts up per tenant, over all kinds"""
    at: int
    """time of the label that did it (milliseconds)"""
    since: int
    """when it was raised (milliseconds)"""
    label: int | None = None
    groups: tuple[int, int] | None = None
    evidence: Evidence | None = None
    decisions: tuple[int, ...] = ()

    @classmethod
    def of(cls, alert: Alert, state: Literal["raised", "cleared"], at: int) -> AlertChange:
        return cls(
            kind=alert.kind,
            state=state,
            number=alert.number,
            at=at,
            since=alert.since,
            label=alert.label,
            groups=alert.groups,
            evidence=alert.evidence,
            decisions=alert.decisions,
        )


class SequentialTestState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one stream, for gauges."""

    label: int
    groups: tuple[int, int]
    state: Literal["learning", "watching", "raised"]
    pairs: int
    tolerance: float
    """wealth of the tolerance test as a share of its threshold; stays where it was when it was raised"""
    drift: float
    """the same of the drift detector; 1 while it is raised"""
    recovery: float
    """while drift is raised: evidence of recovery as a share of what clears it; else 0"""
    tolerance_raised: bool
    drift_raised: bool
