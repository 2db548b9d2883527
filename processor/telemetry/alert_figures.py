"""A tenant's open alerts and watched streams, in names and words."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from processor.core.alerts.alert_events import AlertEvent
from processor.core.alerts.alerts import AlertChange
from processor.core.stream.tenant import Tenant

from .figures import AlertFigures, StreamFigures


def pair_name(groups: tuple[str, ...]) -> str:
    """Two groups as one label of a metric; whatever the names are, two pairs never look the same.

    >>> pair_name(("A", "B")), pair_name(("A/B", "C")), pair_name(("A", "B/C"))
    ('A / B', 'A\\\\/B / C', 'A / B\\\\/C')
    """
    return " / ".join(group.replace("\\", "\\\\").replace("/", "\\/") for group in groups)


def open_alerts(tenant: Tenant) -> list[AlertFigures]:
    watch = tenant.watch
    if watch is None:
        return []
    found = []
    for alert in watch.alerts:
        event = tenant.published(AlertChange.of(alert, "raised", alert.since), batch=0)
        found.append(
            AlertFigures(
                number=event.number,
                kind=event.kind,
                state=event.state,
                label=event.label if event.label is not None else ", ".join(event.decisions),
                groups=event.groups or (),
                since=event.since,
                evidence=msgspec.to_builtins(event.evidence) or {},
                text=_sentence(event),
            )
        )
    return found


def watched(tenant: Tenant) -> list[StreamFigures]:
    """Two for each pair of groups and true label: the tolerance test and the drift detector."""
    if tenant.watch is None:
        return []
    groups, labels = tenant.names.groups, tenant.names.labels
    found = []
    for stream in tenant.watch.streams:
        pair = (groups[stream.groups[0]], groups[stream.groups[1]])
        for kind, wealth, raised in (
            ("tolerance", stream.tolerance, stream.tolerance_raised),
            ("drift", stream.drift, stream.drift_raised),
        ):
            learning = stream.state == "learning"
            state = "raised" if raised else "learning" if learning else "watching"
            found.append(StreamFigures(kind, labels[stream.label], pair, state, wealth, stream.pairs))
    return found


def _sentence(event: AlertEvent) -> str:
    since = datetime.fromtimestamp(event.since / 1_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if event.groups is None or event.evidence is None:
        never = " and ".join(f"“{decision}”" for decision in event.decisions)
        return f"Decisions {never} never get a label although others do (since {since}): all figures are wrong then."
    a, b = event.groups
    rates = event.evidence.recent
    first, second = rates.rates
    seen = f"of {a} {first:.1%} were decided wrongly, of {b} {second:.1%}".replace("%", " %")
    what = (
        f"The gap has been above the tolerance of {event.tolerance:g}"
        if event.kind == "tolerance"
        else f"The error rates have drifted apart by more than {event.tolerance:g}"
    )
    return f"{what} (raised {since}): of cases that were “{event.label}”, {seen}."
