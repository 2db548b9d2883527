"""Decisions become entries and entries become lessons: for many tenants at once, as columns.

The plain version, one decision at a time, is ``entry.Pending`` and ``Counters.add_labels``; the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from .alerts import Change
from .counters import ABSENT, label_weight
from .delays import DELAY_BOUNDS
from .entry import LAST_SECOND
from .exact import Ints
from .pending_rows import PendingRows, decode_pending, encode_pending
from .tenant import Tenant
from .together import IN_FORCE, Labels, Verdicts, learn_together

_BOUNDS = np.array(DELAY_BOUNDS)
One = TypeVar("One")


@dataclass(slots=True)
class Decided:
    """Decisions of one tenant, just made; every sequence has one element for each."""

    tenant: Tenant
    verdicts: Verdicts
    content: Sequence[int]
    at: Sequence[int]
    """milliseconds"""
    due: Sequence[int]
    remove: Sequence[int]


@dataclass(slots=True)
class Joined:
    """Labels of one tenant that have found their decisions, or what its expired decisions count as."""

    tenant: Tenant
    expired: bool = False
    entries: list[bytes] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    """numbers"""
    at: list[int] = field(default_factory=list)
    numbers: Mapping[str, int] = field(init=False)
    """of the labels that may come"""

    def __post_init__(self) -> None:
        known = self.tenant.names.labels.known
        self.numbers = {label: known[label] for label in self.tenant.rules.settings.labels}

    def add(self, entry: bytes, label: int, at: int) -> None:
        self.entries.append(entry)
        self.labels.append(label)
        self.at.append(at)


def pending_entries(decided: Sequence[Decided]) -> list[list[bytes]]:
    """The entries of decisions just made, tenant by tenant."""
    found: list[list[bytes]] = [[] for _ in decided]
    for alike in _alike(decided, lambda one: one.tenant):
        mine = [decided[i] for i in alike]
        entries = _encoded(mine)
        for i, part in zip(alike, _slices([len(one.at) for one in mine]), strict=True):
            found[i] = entries[part]
    return found


def _encoded(decided: Sequence[Decided]) -> list[bytes]:
    first = decided[0].tenant
    row = np.repeat(np.arange(len(decided)), [len(one.at) for one in decided])
    tables = [one.tenant.tables for one in decided]
    label_number = np.stack([table.label_number for table in tables])
    expert_index = np.stack([table.expert_index for table in tables])
    predictions = np.concatenate([one.verdicts.predictions for one in decided])
    said = np.take_along_axis(predictions, expert_index[row], axis=1)
    made = np.zeros((len(row), len(first.names.policies)), dtype=np.int64)
    for number, policy in enumerate(first.names.policies):
        if policy in decided[0].verdicts.by_policy:
            labels = np.concatenate([one.verdicts.by_policy[policy].label for one in decided])
            made[:, number] = label_number[row, labels]
    group_number = np.stack([table.group_number for table in tables])
    seconds = np.concatenate([one.at for one in decided]) // 1_000
    return encode_pending(
        PendingRows(
            tenant=np.array([one.tenant.number for one in decided])[row],
            content=np.concatenate([one.content for one in decided]),
            at=np.clip(seconds, 0, LAST_SECOND),
            due=np.concatenate([one.due for one in decided]),
            remove=np.concatenate([one.remove for one in decided]),
            propensity=_propensity(decided),
            group=group_number[row, np.concatenate([one.verdicts.group for one in decided])],
            decided=made,
            predictions=label_number[row[:, None], said],
        ),
        kinds=len(first.names.labels),
    )


def _propensity(decided: Sequence[Decided]) -> Ints | None:
    """How likely a positive decision was, less one part; None where labels come for every decision."""
    settings = decided[0].tenant.rules.settings
    if settings.feedback == "all":
        return None
    assert settings.positive is not None
    positive = decided[0].tenant.learner.state.axes.label(settings.positive)
    parts = np.concatenate([one.verdicts.in_force.probabilities[:, positive] for one in decided])
    propensity: Ints = np.maximum(parts, 1).astype(np.int64) - 1
    return propensity


def join(joined: Sequence[Joined]) -> list[list[Change]]:
    """Learn from labels, in any order, and watch them, in this one. What was raised or cleared, tenant by tenant."""
    lessons: list[Labels] = []
    cells: list[list[tuple[int, int, bool, int]]] = [[] for _ in joined]
    for alike in _alike(joined, lambda one: one.tenant):
        mine = [joined[i] for i in alike]
        rows = decode_pending([entry for one in mine for entry in one.entries])
        parts = _slices([len(one.entries) for one in mine])
        number = np.concatenate([one.labels for one in mine]).astype(np.int64)
        at = np.concatenate([one.at for one in mine]).astype(np.int64)
        lessons += _lessons(mine, rows, number, at, parts)
        in_force = rows.decided[:, mine[0].tenant.names.policies.known[IN_FORCE]]
        seen = list(
            zip(number.tolist(), rows.group.tolist(), (in_force != number + 1).tolist(), at.tolist(), strict=True)
        )
        delay = np.maximum(at // 1_000 - rows.at, 0)
        bucket = np.searchsorted(_BOUNDS, delay)
        for i, one, part in zip(alike, mine, parts, strict=True):
            cells[i] = seen[part]
            one.tenant.waits.settled(rows.at[part].tolist())
            if not one.expired:
                one.tenant.waits.joined(bucket[part].tolist(), int(delay[part].sum()))
    learn_together(lessons)
    return [one.tenant.observe(cell) for one, cell in zip(joined, cells, strict=True)]


def _lessons(
    joined: Sequence[Joined], rows: PendingRows, number: Ints, at: Ints, parts: Sequence[slice]
) -> list[Labels]:
    first = joined[0].tenant
    axes = first.learner.state.axes
    count = len(number)
    row = np.repeat(np.arange(len(joined)), [len(one.entries) for one in joined])
    tables = [one.tenant.tables for one in joined]
    label_index = np.stack([table.label_index for table in tables])
    expert_index = np.stack([table.expert_index for table in tables])
    group = np.stack([table.group_index for table in tables])[row, rows.group]
    predictions = np.full((count, len(axes.experts)), ABSENT, dtype=np.int64)
    for expert in range(rows.predictions.shape[1]):
        predictions[np.arange(count), expert_index[row, expert]] = label_index[row, rows.predictions[:, expert]]
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
    label = label_index[row, number + 1]
    return [
        Labels(
            one.tenant.learner,
            at[part],
            group[part],
            label[part],
            predictions[part],
            decided[part],
            None if weight is None else weight[part],
        )
        for one, part in zip(joined, parts, strict=True)
    ]


def _alike(ones: Sequence[One], tenant_of: Callable[[One], Tenant]) -> list[list[int]]:
    """Indices of those whose tenants have tables of the same sizes and the same policies, in order."""
    kinds: dict[Hashable, list[int]] = {}
    for i, one in enumerate(ones):
        tenant = tenant_of(one)
        tables = tenant.tables
        kind = (tables.shape, tuple(tenant.names.policies), tenant.rules.settings.feedback)
        kinds.setdefault(kind, []).append(i)
    return list(kinds.values())


def _slices(lengths: Sequence[int]) -> list[slice]:
    found, start = [], 0
    for length in lengths:
        found.append(slice(start, start + length))
        start += length
    return found
