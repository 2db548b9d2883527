"""Labels that have found their decisions become lessons: for many tenants at once, as columns.

The plain version, one label at a time, is ``entry.Pending`` and ``Counters.add_labels``; the counts are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from .alerts import Change
from .counters import ABSENT, label_weight
from .delays import DELAY_BOUNDS
from .exact import Ints
from .pending_rows import Labelled, decode_pending
from .tenant import Tenant
from .together import IN_FORCE, Labels, learn_alike, slices

_BOUNDS = np.array(DELAY_BOUNDS)


@dataclass(slots=True)
class Joined:
    """Labels of one tenant that have found their decisions, or what its expired decisions count as."""

    tenant: Tenant
    expired: bool = False
    rows: list[tuple[bytes, int, int]] = field(default_factory=list)
    """the decision's entry, the number of the label, its time"""
    numbers: Mapping[str, int] = field(init=False)
    """of the labels that may come"""

    def __post_init__(self) -> None:
        known, labels = self.tenant.names.labels.known, self.tenant.rules.settings.labels
        self.numbers = known if len(known) == len(labels) else {label: known[label] for label in labels}


def join(joined: Sequence[Joined]) -> list[list[Change]]:
    """Learn from labels, in any order, and watch them, in this one. What was raised or cleared, tenant by tenant."""
    kinds: dict[Hashable, list[int]] = {}
    for i, one in enumerate(joined):
        kinds.setdefault(one.tenant.kind, []).append(i)
    changes: list[list[Change]] = [[] for _ in joined]
    for alike in kinds.values():
        for i, found in zip(alike, _join_alike([joined[i] for i in alike]), strict=True):
            changes[i] = found
    return changes


def _join_alike(joined: Sequence[Joined]) -> list[list[Change]]:
    together = [row for one in joined for row in one.rows]
    entries, labels, times = (list(map(itemgetter(place), together)) for place in range(3))
    sizes = [len(one.rows) for one in joined]
    row = np.repeat(np.arange(len(joined)), sizes)
    rows, number, at = decode_pending(entries), np.array(labels, dtype=np.int64), np.array(times, dtype=np.int64)
    learn_alike([one.tenant.learner for one in joined], _lessons(joined, row, rows, number, at))
    _end_waits(joined, sizes, row, rows.at, at // 1_000)
    in_force = rows.decided[:, joined[0].tenant.names.policies.known[IN_FORCE]]
    cells = list(zip(labels, rows.group.tolist(), (in_force != number + 1).tolist(), times, strict=True))
    return [one.tenant.observe(cells[part]) for one, part in zip(joined, slices(sizes), strict=True)]


def _end_waits(joined: Sequence[Joined], sizes: Sequence[int], row: Ints, asked: Ints, labelled: Ints) -> None:
    """Decisions asked for at these times (in seconds) wait no longer: their labels have come, or they have expired."""
    waits = [one.tenant.waits for one in joined]
    for i, number, count in _counted(row, asked // np.array([each.width for each in waits])[row]):
        waits[i].settled_in(number, count)
    delay = np.maximum(labelled - asked, 0)
    totals = np.add.reduceat(delay, np.cumsum([0, *sizes[:-1]])).tolist()
    for one, each, total in zip(joined, waits, totals, strict=True):
        if not one.expired:
            each.delay_sum += total
    for i, bucket, count in _counted(row, np.searchsorted(_BOUNDS, delay)):
        if not joined[i].expired:
            waits[i].delays[bucket] += count


def _counted(row: Ints, value: Ints) -> Iterator[tuple[int, int, int]]:
    """How often each row has each value; the rows are in order.

    >>> list(_counted(np.array([0, 0, 0, 1]), np.array([7, 9, 7, 7])))
    [(0, 7, 2), (0, 9, 1), (1, 7, 1)]
    >>> list(_counted(np.array([0, 1]), np.array([7, 1_000])))
    [(0, 7, 1), (1, 1000, 1)]
    """
    lowest = int(value.min())
    width = int(value.max()) - lowest + 1
    places = row * width + (value - lowest)
    if (int(row[-1]) + 1) * width < 10 * len(row):
        every = np.bincount(places)
        places = np.nonzero(every)[0]
        counts = every[places]
    else:  # few of the places are taken
        places, counts = np.unique(places, return_counts=True)
    return zip((places // width).tolist(), (places % width + lowest).tolist(), counts.tolist(), strict=True)


def _lessons(joined: Sequence[Joined], row: Ints, rows: Labelled, number: Ints, at: Ints) -> Labels:
    first = joined[0].tenant
    axes = first.learner.state.axes
    count = len(number)
    tables = [one.tenant.tables for one in joined]
    label_index = np.stack([table.label_index for table in tables])
    expert_index = np.stack([table.expert_index for table in tables])
    group = np.stack([table.group_index for table in tables])[row, rows.group]
    starts, first_label = np.arange(count) * len(axes.experts), row * label_index.shape[1]
    predictions = np.full(count * len(axes.experts), ABSENT, dtype=np.int16)
    # With a single index NumPy is much faster than with several.
    known = expert_index.T[: rows.predictions.shape[1]].take(row, axis=1)
    predictions[starts + known] = label_index.ravel().take(first_label + rows.predictions.T)
    by_policy = {
        policy: rows.decided[:, known]
        for policy, known in first.names.policies.known.items()
        if known < rows.decided.shape[1]
    }
    decided = np.repeat(label_index[row, by_policy[IN_FORCE]][:, None], len(axes.policies), axis=1)
    for policy, index in axes.policy_index.items():
        if policy in by_policy:  # else it came later, and counts as the policy in force
            digit = by_policy[policy]
            decided[:, index] = np.where(digit > 0, label_index[row, digit], decided[:, index])
    weight = None
    if rows.propensity is not None and first.rules.settings.feedback == "positive-only":
        weight = np.array([label_weight(parts + 1) for parts in rows.propensity.tolist()], dtype=np.int64)
    return Labels(row, at, group, label_index[row, number + 1], predictions.reshape(count, -1), decided, weight)
