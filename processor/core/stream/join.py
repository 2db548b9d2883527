"""Labels that have found their decisions become lessons: for many tenants at once, as columns.

The plain version, one label at a time, is ``entries.Pending`` and ``Counters.add_labels``; the counts are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from processor.core.alerts.alerts import AlertChange
from processor.core.exact import Ints
from processor.core.learner.batch import IN_FORCE, Labels, learn_batch, slices
from processor.core.learner.counters import ABSENT, label_weight

from .delays import DELAY_BOUNDS
from .entry_columns import LabelledRows, decode_pending
from .stacking import stacked
from .tenant import Tenant

_BOUNDS = np.array(DELAY_BOUNDS)
_BUCKETS = len(DELAY_BOUNDS) + 1


@dataclass(slots=True)
class Joined:
    """Labels of one tenant that have found their decisions, or what its expired decisions count as."""

    tenant: Tenant
    expired: bool = False
    entries: list[bytes] = field(default_factory=list)
    """of the decisions; the lists below have one element for each"""
    labels: list[int] = field(default_factory=list)
    """their numbers"""
    times: list[int] = field(default_factory=list)
    numbers: Mapping[str, int] = field(init=False)
    """of the labels that may come"""

    def __post_init__(self) -> None:
        known, labels = self.tenant.names.labels.known, self.tenant.rules.settings.labels
        self.numbers = known if len(known) == len(labels) else {label: known[label] for label in labels}

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: bytes, label: int, time: int) -> None:
        self.entries.append(entry)
        self.labels.append(label)
        self.times.append(time)


def join(joined: Sequence[Joined]) -> list[list[AlertChange]]:
    """Learn from labels, in any order, and watch them, in this one. What was raised or cleared, tenant by tenant."""
    kinds: dict[Hashable, list[int]] = {}
    for i, one in enumerate(joined):
        kinds.setdefault(one.tenant.kind, []).append(i)
    changes: list[list[AlertChange]] = [[] for _ in joined]
    for alike in kinds.values():
        for i, found in zip(alike, _join_batch([joined[i] for i in alike]), strict=True):
            changes[i] = found
    return changes


def _join_batch(joined: Sequence[Joined]) -> list[list[AlertChange]]:
    entries = [entry for one in joined for entry in one.entries]
    labels = [label for one in joined for label in one.labels]
    times = [time for one in joined for time in one.times]
    sizes = [len(one) for one in joined]
    row, parts = np.arange(len(joined)).repeat(sizes), slices(sizes)
    rows, number, at = decode_pending(entries), np.array(labels, dtype=np.int64), np.array(times, dtype=np.int64)
    learn_batch([one.tenant.learner for one in joined], _lessons(joined, row, rows, number, at))
    _end_waits(joined, parts, row, rows.at, at // 1_000)
    in_force = rows.decided[:, joined[0].tenant.names.policies.known[IN_FORCE]]
    cells = list(zip(labels, rows.group.tolist(), (in_force != number + 1).tolist(), times, strict=True))
    return [one.tenant.observe(cells[part]) for one, part in zip(joined, parts, strict=True)]


def _end_waits(joined: Sequence[Joined], parts: Sequence[slice], row: Ints, asked: Ints, labelled: Ints) -> None:
    """Decisions asked for at these times (in seconds) wait no longer: their labels have come, or they have expired."""
    waits = [one.tenant.waits for one in joined]
    delay = np.maximum(labelled - asked, 0)
    number = asked // np.array([each.width for each in waits])[row]
    places = (number * len(waits) + row) * _BUCKETS + _BOUNDS.searchsorted(delay)
    for place, count in Counter(places.tolist()).items():
        rest, bucket = divmod(place, _BUCKETS)
        bin_, i = divmod(rest, len(waits))
        waits[i].settled_in(bin_, count)
        if not joined[i].expired:
            waits[i].delays[bucket] += count
    totals = np.add.reduceat(delay, [part.start for part in parts]).tolist()
    for one, each, total in zip(joined, waits, totals, strict=True):
        if not one.expired:
            each.delay_sum += total


def _lessons(joined: Sequence[Joined], row: Ints, rows: LabelledRows, number: Ints, at: Ints) -> Labels:
    first = joined[0].tenant
    axes, known = first.learner.state.axes, first.names.policies.known
    tables, which = stacked([one.tenant.tables for one in joined], row)
    count, digits = len(number), rows.decided.T
    made, in_force = tables.label_index(which, digits), known[IN_FORCE]
    numbers = [known.get(policy, in_force) for policy in axes.policies]
    numbers = [each if each < len(digits) else in_force for each in numbers]
    # A policy that came later, or did not decide, counts as the one in force.
    decided = np.where(digits.take(numbers, axis=0) > 0, made.take(numbers, axis=0), made[in_force])
    predictions = np.empty((len(axes.experts), count), dtype=np.int16)
    predictions.fill(ABSENT)
    # With a single index NumPy is much faster than with several.
    places = tables.expert_index(which)[: rows.predictions.shape[1]] * count + np.arange(count)
    predictions.reshape(-1)[places] = tables.label_index(which, rows.predictions.T)
    weight = None
    if rows.propensity is not None and first.rules.settings.feedback == "positive-only":
        weight = np.array([label_weight(parts + 1) for parts in rows.propensity.tolist()], dtype=np.int64)
    group, label = tables.group_index(which, rows.group), tables.label_index(which, number + 1)
    return Labels(row, at, group, label, predictions.T, decided.T, weight)
