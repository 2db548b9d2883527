"""Every series a processor should show of the tenants in the books, worked out in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import lgamma, log, log1p, nan

import numpy as np
from scipy.optimize import linprog

from processor.core.exact import ONE
from processor.core.learner.policies import rule_of
from processor.core.metrics.bounds import delayed_regret, paper_bounds

from .books import IN_FORCE, Book, Books, Case

Name = tuple[str, frozenset[tuple[str, str]]]
Series = dict[Name, float]

ALPHA = 0.05
"""The age of pending decisions is known to this fraction of the expiry."""
OUTCOMES = {
    "joined": "labels_joined",
    "early": "labels_parked",
    "duplicate": "labels_duplicate",
    "contradicting": "dead_contradicting-label",
    "expired": "decisions_expired",
    "late": "dead_expired-decision",
    "unknown": "dead_unknown-decision",
    "unexpected": "dead_label-not-expected",
}


class Sheet:
    """Collects what is known; NaN is unknown and has no series."""

    def __init__(self) -> None:
        self.series: Series = {}

    def put(self, name: str, value: float, **labels: str) -> None:
        if value == value:  # not NaN
            self.series[f"gforce_{name}", frozenset(labels.items())] = float(value)


def tenant_series(books: Books, book: Book, bounds: Sequence[str]) -> Series:
    """``bounds`` are the upper ends of the buckets of delays, as the processor spells them."""
    sheet, name = Sheet(), book.name
    clock = books.clock[book.partition]
    for window, cases in _windows(book, clock).items():
        _window_series(sheet, book, window, cases)
    _rule_series(sheet, book)
    _wait_series(sheet, book, clock, bounds)
    _alert_series(sheet, book)
    sheet.put("tenant_decisions_total", book.tally["decisions"], tenant=name)
    sheet.put("tenant_requests_duplicate_total", book.tally["requests_duplicate"], tenant=name)
    for outcome, counted in OUTCOMES.items():
        sheet.put("tenant_labels_total", book.tally[counted], tenant=name, outcome=outcome)
    sheet.put("series_dropped", 0, tenant=name)
    return sheet.series


def partition_series(books: Books, number: int, topics: Sequence[str]) -> Series:
    sheet, label = Sheet(), str(number)
    sheet.put("partition_state", 1, partition=label, state="ready")
    sheet.put("partition_pending_decisions", books.pending[number], partition=label)
    sheet.put("parked_labels", books.parked[number], partition=label)
    sheet.put("batch_sequence", books.sequence.get(number, 0), partition=label)
    for topic in topics:
        sheet.put("partition_lag", 0, topic=topic, partition=label)
    return sheet.series


def _windows(book: Book, clock: int) -> dict[str, list[Case]]:
    bucket = book.rules.settings.bucket
    found = {"lifetime": list(book.joined)}
    for width in book.rules.windows:
        length = width * bucket
        start = clock // length * length
        unit, size = next(
            (u, s) for u, s in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)) if length % s == 0
        )
        found[f"{length // size}{unit}"] = [case for case in book.joined if case.label_at >= start]
    return found


# Rates and gaps


def _window_series(sheet: Sheet, book: Book, window: str, cases: list[Case]) -> None:
    groups, labels, positive = sorted(book.groups), book.labels, book.rules.settings.positive
    at = {"tenant": book.name, "window": window}
    counts = _counts(cases, groups, labels, IN_FORCE)
    for (group, label), (errors, trials) in counts.items():
        cell = {**at, "group": group, "label": label}
        sheet.put("cell_labels", trials, **cell)
        if trials:
            lower, upper = band(errors, trials, ALPHA)
            sheet.put("error_rate", errors / trials, **cell)
            sheet.put("error_rate_lower", lower, **cell)
            sheet.put("error_rate_upper", upper, **cell)
    for metric, rows in _metrics(counts, groups, labels, positive).items():
        value, lower, upper = _worst(rows)
        sheet.put("fairness_gap", value, **at, metric=metric)
        sheet.put("fairness_gap_lower", lower, **at, metric=metric)
        sheet.put("fairness_gap_upper", upper, **at, metric=metric)
    for shadow in book.rules.settings.shadows:
        of_shadow = _counts(cases, groups, labels, shadow.name)
        for metric, rows in _metrics(of_shadow, groups, labels, positive).items():
            sheet.put("shadow_fairness_gap", _worst(rows)[0], **at, metric=metric, policy=shadow.name)


Cells = dict[tuple[str, str], tuple[int, int]]


def _counts(cases: list[Case], groups: list[str], labels: list[str], policy: str) -> Cells:
    """Errors and trials by group and true label."""
    found = {(group, label): [0, 0] for group in groups for label in labels}
    for case in cases:
        cell = found[case.group, str(case.label)]
        cell[0] += case.decided[policy] != case.label
        cell[1] += 1
    return {key: (errors, trials) for key, (errors, trials) in found.items()}


def _metrics(
    counts: Cells, groups: list[str], labels: list[str], positive: str | None
) -> dict[str, list[list[tuple[int, int]]]]:
    """By metric, for each true label it looks at, the errors and trials of every group."""
    by_label = {label: [counts[group, label] for group in groups] for label in labels}
    whole = [tuple(map(sum, zip(*(counts[group, label] for label in labels), strict=True))) for group in groups]
    found: dict[str, list[list[tuple[int, int]]]] = {
        "error_rate": [whole],  # type: ignore[list-item]
        "equalized_odds": list(by_label.values()),
    }
    if positive is not None and len(labels) == 2:
        found["fnr"] = [by_label[positive]]
        found["fpr"] = [by_label[next(label for label in labels if label != positive)]]
    return found


def _worst(rows: list[list[tuple[int, int]]]) -> tuple[float, float, float]:
    """The largest difference between two groups on any row, and both ends of its band."""
    alpha = ALPHA / sum(map(len, rows))
    values, lowers, uppers = [], [], []
    for row in rows:
        known = [(errors / trials, *band(errors, trials, alpha)) for errors, trials in row if trials]
        for a, b in combinations(known, 2):
            values.append(abs(a[0] - b[0]))
            lowers.append(max(a[1] - b[2], b[1] - a[2], 0.0))
            uppers.append(max(a[2] - b[1], b[2] - a[1]))
    return max(values, default=nan), max(lowers, default=nan), max(uppers, default=nan)


def band(errors: int, trials: int, alpha: float) -> tuple[float, float]:
    """The beta-binomial confidence sequence, by bisection."""

    def believed(p: float) -> bool:
        beta = lgamma(0.5 + errors) + lgamma(0.5 + trials - errors) - lgamma(1.0 + trials)
        beta -= 2 * lgamma(0.5)
        likelihood = (errors * log(p) if errors else 0.0) + ((trials - errors) * log1p(-p) if trials > errors else 0.0)
        return beta - likelihood < log(1 / alpha)

    def end(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            if middle in (inside, outside):
                break
            inside, outside = (middle, outside) if believed(middle) else (inside, middle)
        return inside

    rate = errors / trials
    return end(rate, 0.0) if errors else 0.0, end(rate, 1.0) if errors < trials else 1.0


# The learner


def _rule_series(sheet: Sheet, book: Book) -> None:
    settings, axes, counters = book.rules.settings, book.axes(), book.counters()
    if not axes.groups or not axes.experts:
        return
    assert settings.window is None, "a learner's own window is not counted here"
    rule = rule_of(settings.policy, counters, axes.labels, settings.prior)
    only = "mixture" if rule.shares is not None else "all"
    instances = axes.labels if settings.policy.has_instances else (only,)
    for g, group in enumerate(axes.groups):
        for i, instance in enumerate(instances):
            at = {"tenant": book.name, "group": group, "instance": instance}
            sheet.put("selection_probability", rule.selection[0, g, i], **at)
            for f, expert in enumerate(axes.experts):
                sheet.put("expert_weight", int(rule.expert_parts[0, g, i, f]) / ONE, **at, expert=expert)
    if settings.policy.has_instances:
        bounds = paper_bounds(rule, counters, settings.prior)
        sheet.put("regret_bound", bounds.regret, tenant=book.name)
        waiting = sum(case.label is None for case in book.cases.values())
        late = [
            delayed_regret(len(axes.experts), -log(keep), int(n), int(n) * waiting)
            for keep, n in zip(rule.keep[0].flat, counters.labels[0].flat, strict=True)
        ]
        sheet.put("delayed_regret_bound", sum(late), tenant=book.name)
        sheet.put("gap_bound", max(bounds.gap), tenant=book.name, gamma="one")
        sheet.put("gap_bound", max(bounds.gap_printed), tenant=book.name, gamma="printed")
    sheet.put("regret_per_round", _regret(book), tenant=book.name)
    if book.rules.watch is not None:
        sheet.put("tolerance", book.rules.watch.tolerance, tenant=book.name)
    sheet.put("attainable_gap", _attainable(book), tenant=book.name)
    sheet.put("constant_experts", _constant(book), tenant=book.name)
    sheet.put("absent_experts", _absent(book), tenant=book.name)


def _regret(book: Book) -> float:
    if not book.joined:
        return nan
    lost = sum(case.decided[IN_FORCE] != case.label for case in book.joined)
    tried = {expert: [case for case in book.joined if expert in case.said] for expert in book.experts}
    wrong = {expert: sum(case.said[expert] != case.label for case in cases) for expert, cases in tried.items()}
    mean = sum(wrong.values()) / sum(map(len, tried.values()))
    drawn = {expert: 0 if len(cases) == len(book.joined) else 10 for expert, cases in tried.items()}
    rates = [(wrong[e] + drawn[e] * mean) / (len(cases) + drawn[e]) for e, cases in tried.items() if cases]
    return lost / len(book.joined) - min(rates)


def _attainable(book: Book) -> float:
    """min s with |E[A, y] − E[B, y]| ≤ s for every pair of groups and label, E a mixture of the experts per group."""
    counts, labels, experts = book.counts, book.labels, sorted(book.experts)
    groups = [g for g in sorted(book.groups) if all(counts["seen", g, y] for y in labels)]
    if len(groups) < 2:
        return nan
    strength = book.rules.settings.prior.error

    def error(expert: str, group: str, label: str) -> float:
        tried = {e: counts["trials", e, group, label] for e in experts}
        known = [(counts["losses", e, group, label] + strength / 2) / (n + strength) for e, n in tried.items() if n]
        if not tried[expert]:
            return sum(known) / len(known)
        return (counts["losses", expert, group, label] + strength / 2) / (tried[expert] + strength)

    size = len(groups) * len(experts) + 1
    rows = []
    for a, b in combinations(range(len(groups)), 2):
        for label in labels:
            row = np.zeros(size)
            for f, expert in enumerate(experts):
                row[a * len(experts) + f] = error(expert, groups[a], label)
                row[b * len(experts) + f] = -error(expert, groups[b], label)
            rows += [row, -row]
    limits = np.array(rows)
    limits[:, -1] = -1.0
    simplex = np.zeros((len(groups), size))
    for g in range(len(groups)):
        simplex[g, g * len(experts) : (g + 1) * len(experts)] = 1.0
    cost = np.zeros(size)
    cost[-1] = 1.0
    answer = linprog(cost, A_ub=limits, b_ub=np.zeros(len(rows)), A_eq=simplex, b_eq=np.ones(len(groups)))
    return max(0.0, float(answer.fun))


def _constant(book: Book) -> int:
    """Experts right on 98 % of one label and wrong on 98 % of the others, seen with 30 labels of every kind."""
    found = 0
    for expert in book.experts:
        asked = [case for case in book.joined if expert in case.said]
        tried = [[case for case in asked if case.label == label] for label in book.labels]
        if min(map(len, tried)) < 30:
            continue
        errors = [sum(case.said[expert] != case.label for case in cases) / len(cases) for cases in tried]
        found += sum(e <= 0.02 for e in errors) == 1 and sum(e >= 0.98 for e in errors) == len(errors) - 1
    return found


def _absent(book: Book) -> int:
    """Experts that advised on fewer than four fifths of the cases of a group with 30 labels."""
    cases = {group: [case for case in book.joined if case.group == group] for group in book.groups}
    full = [of_group for of_group in cases.values() if len(of_group) >= 30]
    return sum(any(sum(e in case.said for case in some) < 0.8 * len(some) for some in full) for e in book.experts)


# Waiting and watching


def _wait_series(sheet: Sheet, book: Book, clock: int, bounds: Sequence[str]) -> None:
    pending = [case for case in book.cases.values() if case.label is None]
    sheet.put("pending_decisions", len(pending), tenant=book.name)
    if pending:
        oldest = book.earliest[min(number for number, count in book.pending.items() if count)]
        sheet.put("oldest_pending_seconds", max(clock / 1_000 - oldest, 0.0), tenant=book.name)
    delays = [max(case.label_at // 1_000 - case.at // 1_000, 0) for case in book.joined]
    for bound in bounds:
        reached = sum(delay <= float(bound) for delay in delays)
        sheet.put("label_delay_seconds_bucket", reached, tenant=book.name, le=bound)
    sheet.put("label_delay_seconds_count", len(delays), tenant=book.name)
    sheet.put("label_delay_seconds_sum", sum(delays), tenant=book.name)


def _alert_series(sheet: Sheet, book: Book) -> None:
    sheet.put("one_sided_labels", 0, tenant=book.name)
    streams = book.watch.streams if book.watch else []
    sheet.put("watch_learning", sum(not stream.testing for stream in streams), tenant=book.name)
    for stream in streams:
        at = {"tenant": book.name, "label": stream.label, "groups": " / ".join(stream.groups)}
        level = book.watch.terms.false_alarm_pairs if book.watch else 1
        sheet.put("alert_wealth", stream.wealth / stream.threshold, **at, kind="tolerance")
        sheet.put("alert_wealth", 1.0 if stream.drift_raised else stream.drift_wealth / level, **at, kind="drift")
        for kind, raised in (("tolerance", stream.tolerance_raised), ("drift", stream.drift_raised)):
            if raised:
                sheet.put("alert", 1, **at, kind=kind)
