"""Sentences and explanations of the report, in plain words; configurations too."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from math import isnan
from typing import Any

from processor.audit.whatif.answer import short
from processor.config.values import Duration
from processor.core.alerts.alert_events import AlertEvent
from processor.core.events import Reason
from processor.telemetry.figures import EQUALIZED_ODDS, ERROR_RATE, FNR, FPR, Estimate, TenantFigures

from .data import Coverage, LabelCounts, Statement

METRIC_NAMES = {
    FPR: "false positive rate",
    FNR: "false negative rate",
    ERROR_RATE: "error rate",
    EQUALIZED_ODDS: "worst on any true label (equalized odds)",
}

CONFIDENCE_TEXT = "with 95 % confidence"
"""Of the bands, see ``window_figures.ALPHA``."""

MIN_LABELS_PER_CELL = 100
"""Of each group and true label, for a word on whose the gap is."""

DEAD_REASONS: dict[str, str] = {
    Reason.EMPTY: "the record was empty",
    Reason.TOO_LARGE: "the record was larger than allowed",
    Reason.NOT_UTF8: "the record was no text (UTF-8)",
    Reason.BAD_JSON: "the record was no JSON",
    Reason.SCHEMA: "a field was missing or of a wrong type",
    Reason.NO_PREDICTIONS: "no expert had given advice",
    Reason.LIMIT: "a name, an id or a count was over its limit",
    Reason.KEY_MISMATCH: "the record's key was not its tenant",
    Reason.WRONG_PARTITION: "the record was on a partition where its tenant does not belong",
    Reason.UNKNOWN_TENANT: "the tenant is not known",
    Reason.FUTURE_TIMESTAMP: "the record's time lay too far in the future",
    Reason.UNKNOWN_LABEL: "a label or a prediction that the configuration does not name",
    Reason.GROUP_REFUSED: "the group is none of those the objective is for",
    Reason.CONFLICTING_REQUEST: "the id had been used before, with other content",
    Reason.CONTRADICTING_LABEL: "the decision already had another label",
    Reason.UNKNOWN_DECISION: "a label waited for its request, and none came",
    Reason.EXPIRED_DECISION: "the label came after its decision had expired",
    Reason.LABEL_NOT_EXPECTED: "a label came for a decision that gets none",
    Reason.INTERNAL: "a fault of the processor itself",
}


_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Marks of direction and signs without a shape."""
_MILLISECONDS = ("expiry", "parking", "duplicate_horizon", "bucket")
_SETTING_NAMES = {"seed_commitment": "seed (commitment)"}


def visible(text: str) -> str:
    """Control characters and marks of direction are shown, not obeyed, as the status page does.

    >>> visible("a\\u202eb\\u200b"), visible("a\\tb")
    ('a⟨U+202E⟩b⟨U+200B⟩', 'a␉b')
    """
    shown = "".join(chr(0x2400 + ord(sign)) if sign < " " else sign for sign in text)
    return name_unseen(shown)


def name_unseen(text: str) -> str:
    """The same, but lines stay lines."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def when(milliseconds: int) -> str:
    """
    >>> when(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    if milliseconds <= 0:
        return "–"
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def duration(seconds: float) -> str:
    """About how long.

    >>> duration(5_400), duration(86_400 * 2.5), duration(0.0), duration(float("nan"))
    ('1.5 hours', '2.5 days', 'no time at all', '–')
    """
    if isnan(seconds):
        return "–"
    if seconds < 1.0:
        return "no time at all" if seconds == 0.0 else "less than a second"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def percent(rate: float) -> str:
    """
    >>> percent(0.1234), percent(float("nan"))
    ('12.3 %', '–')
    """
    return "–" if isnan(rate) else f"{100 * rate:.1f} %"


def band(estimate: Estimate) -> str:
    if isnan(estimate.value):
        return "–"
    if isnan(estimate.lower):
        return short(estimate.value)
    return f"{short(estimate.value)} (between {short(estimate.lower)} and {short(estimate.upper)})"


def partial_text(coverage: Coverage) -> str:
    """Up to where the figures of a partition go."""
    return f"up to {when(coverage.until)} only, {coverage.batches:,} of {coverage.of:,} batches"


def fairness_statement(figures: TenantFigures, partial: str = "", assumed: int = 0) -> Statement:
    """Is this tenant's stream fair, as far as the labels tell? ``partial`` says up to where they do."""
    found = _fairness_of_labels(figures)
    if assumed:
        text = f"{found.text} {assumed:,} of the {figures.windows[0].labels:,} labels were assumed at expiry."
        found = Statement(found.tone, found.title, text)
    if not partial:
        return found
    text = f"This is {partial}: {found.text[0].lower()}{found.text[1:]}"
    if found.tone == "good":
        return Statement("open", found.title, f"{text} What came later is not known.")
    return Statement(found.tone, found.title, text)


def _fairness_of_labels(figures: TenantFigures) -> Statement:
    name = figures.name
    if not figures.windows or not figures.windows[0].labels:
        return Statement("open", name, "No labels have come, so nothing can be said about fairness.")
    if figures.one_sided:
        return Statement("open", name, one_sided_text(figures))
    gap = figures.windows[0].gaps[EQUALIZED_ODDS]
    if isnan(gap.value):
        return Statement("open", name, "Only one group has labels, so there is nothing to compare.")
    said = f"The largest difference between two groups’ error rates is {band(gap)}."
    tolerance = figures.tolerance
    if isnan(gap.lower):
        hidden = "Labels come for positive decisions only: this is an estimate, and there is no band for it."
        return Statement("open", name, f"{said} {hidden}")
    if isnan(tolerance):
        return Statement("open", name, f"{said} No tolerance was set.")
    if any(alert.kind == "tolerance" for alert in figures.alerts):
        return Statement(
            "bad", name, f"{said} An alert says that at some time it was above the tolerance of {tolerance:g}."
        )
    if gap.lower > tolerance:
        return Statement("bad", name, f"{said} That is above the tolerance of {tolerance:g}, {CONFIDENCE_TEXT}.")
    if gap.upper <= tolerance:
        return Statement("good", name, f"{said} That is within the tolerance of {tolerance:g}, {CONFIDENCE_TEXT}.")
    side = "above" if gap.value > tolerance else "within"
    return Statement(
        "open", name, f"{said} The value is {side} the tolerance of {tolerance:g}; the labels do not settle it."
    )


def labels_text(counts: LabelCounts, figures: TenantFigures) -> str:
    """How many labels came, were assumed, are waited for, and will never come."""
    could = counts.decisions - counts.without
    which = f"the {could:,} decisions “{figures.positive}”" if counts.without else f"{could:,} decisions"
    waits = "waits" if counts.waiting == 1 else "wait"
    said = f"Labels have come for {counts.joined:,} of {which}; {counts.waiting:,} still {waits}"
    if counts.waiting and not counts.without and not isnan(figures.oldest_pending):
        said += f", the oldest for {duration(figures.oldest_pending)}"
    if counts.assumed:
        said += f"; {counts.expired:,} expired without one, and {counts.assumed:,} of these count as labels, assumed"
    elif counts.expired:
        said += f"; {counts.expired:,} expired without one"
    if counts.without:
        said += f". The {counts.without:,} other decisions get no label by design"
    return f"{said}."


def one_sided_text(figures: TenantFigures) -> str:
    """Why nothing can be judged where some decisions never get a label."""
    never = " or ".join(f"“{label}”" for label in figures.one_sided)
    only = " or ".join(f"“{label}”" for label in figures.labels if label not in figures.one_sided)
    return (
        f"It cannot be judged: labels come only for cases that were decided {only}, never for {never}. None of the "
        "error rates and gaps is valid."
    )


def attainable_text(figures: TenantFigures) -> str:
    """How much of the gap is the experts' own; nothing where there is no valid gap."""
    if figures.one_sided:
        return ""
    if isnan(figures.attainable) or not figures.windows:
        return "How small the gap could be with these experts is not known."
    gap, least = figures.windows[0].gaps[EQUALIZED_ODDS], figures.attainable
    said = f"The least gap that any mixture of these experts could have is estimated at {short(least)}"
    if isnan(gap.value):
        return f"{said}."
    fewest = min((cell.n for cell in figures.windows[0].rates), default=0)
    if fewest < MIN_LABELS_PER_CELL:
        few = f"an estimate from few labels ({fewest:,} of one group and true label)"
        return f"{said}: {few}, which does not tell how much of the gap is the experts’ own."
    if isnan(gap.lower) or gap.lower <= least:
        return f"{said}. The gap may be no larger than that, as far as the labels tell."
    if least >= 0.8 * gap.value:
        return f"{said}: most of the gap seems to be the experts’ own, and other experts would help more than settings."
    return f"{said}. The whole 95 % band of the gap is above that: the policy may have room to improve."


def alert_text(alert: AlertEvent) -> str:
    """What an alert says, in one sentence."""
    if alert.groups is None:
        never = " and ".join(f"“{decision}”" for decision in alert.decisions)
        return f"Decisions {never} never get a label although others do: all figures are wrong while this holds."
    pair = f"{alert.groups[0]} and {alert.groups[1]}, cases that were “{alert.label}”"
    if alert.state == "cleared":
        return f"Cleared, after having been raised at {when(alert.since)}: {pair}."
    if alert.kind == "tolerance":
        return f"The error rates differed by more than the tolerance of {alert.tolerance:g}: {pair}."
    return f"The error rates have drifted apart by more than {alert.tolerance:g}: {pair}."


def alert_evidence(alert: AlertEvent) -> str:
    evidence = alert.evidence
    if evidence is None or alert.groups is None:
        return ""
    rates = evidence.whole
    said = ", ".join(
        f"{group}: {wrong} of {n} wrong ({percent(rate)})"
        for group, n, wrong, rate in zip(alert.groups, rates.labels, rates.errors, rates.rates, strict=True)
    )
    interval = (
        ""
        if rates.lower is None or rates.upper is None
        else (
            f"; difference {short(rates.gap, signed=True)}, between {short(rates.lower, signed=True)} and "
            f"{short(rates.upper, signed=True)}"
        )
    )
    return (
        f"{said}{interval}; evidence {evidence.wealth:,.0f} where {evidence.threshold:,.0f} raises, "
        f"{evidence.pairs} pairs of labels"
    )


def delay_names() -> list[str]:
    from processor.core.stream.delays import DELAY_BOUNDS

    return [f"≤ {Duration(bound * 1_000)}" for bound in DELAY_BOUNDS] + [f"> {Duration(DELAY_BOUNDS[-1] * 1_000)}"]


METHOD: tuple[tuple[str, str], ...] = (
    (
        "How a case is decided",
        "Several experts (models, rules, people) say what they would decide. The processor chooses whose advice to "
        "follow, by chance, with chances that it works out from how often each expert was wrong so far, for each "
        "group and each true label. It chooses them so that the groups’ error rates become equal with little loss "
        "of accuracy. The chance comes from a secret seed and the decision’s id, so that every draw can be "
        "repeated. Who does not know the seed cannot foresee or steer a draw; who knows it, as the operator does, can "
        "foresee draws, and could choose ids by them.",
    ),
    (
        "What is learnt",
        "True labels arrive later, or never. All that is remembered is how often: requests decided, labels joined, "
        "and how often each expert was wrong, per group and label. Nothing else about a person is kept or used.",
    ),
    (
        "What “verified” means",
        "The record holds every request, every label and a journal of how they were processed. From these "
        "everything else was computed again from the beginning and compared byte by byte: each decision, its "
        "probabilities, the state after each batch. The journal is a chain of hashes, so a change "
        "of a request, a label, a decision, an order or a configuration is found. Not covered are headers and "
        "timestamps of decisions and other outputs, and the wording of the details in dead letters. Without the "
        "seeds the draws are not covered either: they are taken from the record. It does not prove that the record as "
        "a whole was not replaced by another one: for that, a head of the chain must have been kept by somebody else. "
        "Nor does it prove that the groups, labels and advice sent in were true.",
    ),
    (
        "Error rates and gaps",
        "An error rate is the share of cases of a group, with a certain true label, that were decided otherwise. A "
        "gap is the largest difference between two groups. Rates are shown beside gaps, because a gap can also be "
        "closed by treating one group worse. Only cases whose label has come can count; for a tenant that gets labels "
        "for positive decisions only, the others are estimated, by how likely it was that a label would come.",
    ),
    (
        "The bands",
        "Every rate has a 95 % confidence sequence: unlike an ordinary confidence interval it stays valid however "
        "often one looks. It asks that the chance of an error in a cell is the same for all its cases; while the "
        "learner still changes its mind the band is that of the average case. It also asks that whether and when a "
        "label comes does not depend on the decision, given group and true label. The band of a stretch of time "
        "holds for that stretch, not for all of them at once.",
    ),
    (
        "Alerts",
        "A tolerance alert means: at some time since its test began, the gap was above the tolerance; the chance "
        "that a tenant ever gets a false one is at most the configured α. A drift alert means that the error rates "
        "have moved apart lately; false ones come no oftener than once in the configured number of pairs of labels, "
        "on average. An alert does not say that the average gap is above the tolerance, nor why.",
    ),
    (
        "What-if",
        "The same requests, labels, times and draws under another setting. This is exact, because what every expert "
        "said was recorded, and because labels come whatever was decided; a tenant that gets labels for positive "
        "decisions only cannot be asked. Drawn figures are what would have happened; expected ones are the mean over "
        "all draws, and have less noise. Differences are taken on the same cases: the share that only one of the two "
        "settings decided wrongly.",
    ),
)

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("attainable gap", "the least gap that any mixture of the present experts can have"),
    ("batch", "requests and labels that were processed together; the journal has one record for each"),
    ("confidence sequence", "a band for a rate that is valid at every moment at once"),
    ("dead letter", "a record that could not be used, kept with the reason"),
    ("equalized odds", "equal error rates of all groups, on every true label"),
    ("expert", "whoever gives advice on a case: a model, a rule, a person"),
    ("false negative rate", "the share of positive cases that were decided negative"),
    ("false positive rate", "the share of negative cases that were decided positive"),
    ("gap", "the largest difference between two groups’ error rates"),
    ("head of the chain", "the digest of the last journal record; kept elsewhere, it vouches for all before it"),
    ("λ (lambda)", "how much equal error rates count against accuracy"),
    ("lineage", "an unbroken history of a partition’s state"),
    ("loss", "wrong decisions per label"),
    ("regret", "loss beyond that of the best single expert in hindsight"),
    ("tenant", "one stream of cases with its own configuration and its own learner"),
    ("tolerance", "the gap up to which no alert is raised"),
)


def flatten_settings(canonical: str) -> dict[str, str]:
    """Every setting by its name.

    >>> flatten_settings('{"expiry": 86400000, "settings": {"labels": ["no", "yes"], "window": null}}')
    {'expiry': '1d', 'labels': 'no, yes', 'window': '–'}
    >>> flatten_settings('{"shadows": [{"policy": "mw", "balance": {"regret": 1.0}}]}')
    {'shadows 1.balance.regret': '1.0', 'shadows 1.policy': 'mw'}
    """
    try:
        document = json.loads(canonical)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    _flatten(document, "", found)
    return found


def _flatten(value: Any, name: str, found: dict[str, str]) -> None:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            _flatten(value[key], f"{name}.{key}" if name not in ("", "settings") else str(key), found)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value, start=1):
            _flatten(one, f"{name} {number}", found)
    elif name != "version":
        found[_SETTING_NAMES.get(name, name)] = _value_text(name, value)


def _value_text(name: str, value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "–"
    if name in _MILLISECONDS and isinstance(value, int) and value > 0:
        return str(Duration(value))
    if isinstance(value, list):
        return ", ".join(_value_text("", one) for one in value)
    if isinstance(value, dict):
        return " ".join(f"{key} {_value_text('', one)}" for key, one in sorted(value.items()))
    return str(value)


def settings_changes(before: str, after: str) -> list[str]:
    """What is different, one line for each setting.

    >>> settings_changes('{"expiry": 1000, "parking": 5}', '{"expiry": 2000, "parking": 5}')
    ['expiry: 1s → 2s']
    """
    one, other = flatten_settings(before), flatten_settings(after)
    return [
        f"{name}: {one.get(name, '–')} → {other.get(name, '–')}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]
