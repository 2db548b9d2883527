"""Requests become decisions: for many tenants at once, as columns.

The plain version, one request at a time, is ``Learner.decide``, ``entries.Pending`` and ``encode_decision``; the bytes
are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from processor.core import native
from processor.core.advice import Panel, contents_of
from processor.core.events import RequestEvent
from processor.core.exact import Ints
from processor.core.learner.batch import BatchRequests, PolicyDecisions, decide_batch, slices
from processor.core.learner.cases import Drawn
from processor.core.learner.counters import ABSENT

from .decode import InputRecord
from .entries import LAST_SECOND
from .entry_columns import PendingRows, encode_pending
from .stacking import stacked
from .tenant import Tenant

DecodedRequest = tuple[InputRecord, RequestEvent, bytes]
"""A request with the id of its entry."""


@dataclass(slots=True)
class TenantRequests:
    """Requests of one tenant that are to be decided together."""

    tenant: Tenant
    drawn: Mapping[str, Drawn] | None = None
    """what was drawn by id, where a record is followed instead of the seed"""
    cases: Sequence[DecodedRequest] = ()
    parked: dict[bytes, bytes] = field(default_factory=dict)
    """labels that came before their request, as stored, by the id of the entry"""
    panels: set[Panel] = field(default_factory=set)
    """who was accepted once needs no second look"""


@dataclass(frozen=True, slots=True)
class PartitionRequests:
    """Dockets of one partition that are decided in one batch."""

    dockets: Sequence[TenantRequests]
    clock: int
    slot: int
    """width of an expiry slot in milliseconds"""
    batch: int


@dataclass(slots=True)
class DecidedRequests:
    """What became of dockets; every list but the first two has one element for each of their cases, in turn."""

    dockets: Sequence[TenantRequests]
    parts: Sequence[slice]
    """where the cases of each docket are"""
    raws: Sequence[InputRecord]
    keys: Sequence[bytes]
    entries: list[bytes]
    values: list[bytes]
    """the decisions as published"""
    slots: list[int]
    """when to look at the entry again"""
    at: list[int]
    """times of the requests, in seconds"""

    def of(self, hearing: PartitionRequests, where: slice) -> DecidedRequests:
        """What became of one hearing; its cases are here."""
        return DecidedRequests(
            hearing.dockets,
            slices([len(docket.cases) for docket in hearing.dockets]),
            self.raws[where],
            self.keys[where],
            self.entries[where],
            self.values[where],
            self.slots[where],
            self.at[where],
        )


def decide(hearings: Sequence[PartitionRequests]) -> list[list[DecidedRequests]]:
    """Decide by the rules of this moment, and count the decisions: for tenants of one kind together.

    What becomes of a hearing does not depend on the others, nor does its order, which is that of its own kinds.
    """
    by_kind = [_by_kind(hearing) for hearing in hearings]
    found: list[dict[Hashable, DecidedRequests]] = [{} for _ in hearings]
    for kind in dict.fromkeys(kind for parts in by_kind for kind in parts):
        alike = [i for i, parts in enumerate(by_kind) if kind in parts]
        for i, decided in zip(alike, _decide_batch([by_kind[i][kind] for i in alike]), strict=True):
            found[i][kind] = decided
    return [[decided[kind] for kind in parts] for decided, parts in zip(found, by_kind, strict=True)]


def _by_kind(hearing: PartitionRequests) -> dict[Hashable, PartitionRequests]:
    """The dockets of tenants that can be worked on together, once these have room for whom they have met."""
    kinds: dict[Hashable, list[TenantRequests]] = {}
    for docket in hearing.dockets:
        tenant = docket.tenant
        tenant.learner.ensure_axes(
            {panel.group for panel in docket.panels}, {expert for panel in docket.panels for expert in panel.experts}
        )
        tenant.register_policies()
        kinds.setdefault(tenant.kind, []).append(docket)
    return {kind: replace(hearing, dockets=alike) for kind, alike in kinds.items()}


def _decide_batch(hearings: Sequence[PartitionRequests]) -> list[DecidedRequests]:
    dockets = [docket for hearing in hearings for docket in hearing.dockets]
    cases = [case for docket in dockets for case in docket.cases]
    counts = [sum(len(docket.cases) for docket in hearing.dockets) for hearing in hearings]
    raws, keys, ids, advice, contexts = native.columns(cases)
    clock = np.repeat([hearing.clock for hearing in hearings], counts)
    slot = np.repeat([hearing.slot for hearing in hearings], counts)
    times = np.array([raw.timestamp for raw in raws], dtype=np.int64)
    at = np.where(times >= 0, times, clock)  # a record without a timestamp happened when its batch did
    alike = BatchRequests(
        [docket.tenant.learner for docket in dockets],
        [len(docket.cases) for docket in dockets],
        ids,
        advice,
        at,
        {number: docket.drawn for number, docket in enumerate(dockets) if docket.drawn is not None},
    )
    verdicts, row = decide_batch(alike), alike.row
    # A decision waits from its own time on, should the clock (that of the slower input) be behind it.
    start = np.maximum(at, clock)
    due = (start + np.array([docket.tenant.rules.expiry for docket in dockets])[row]) // slot
    remove = (start + np.array([docket.tenant.rules.horizon for docket in dockets])[row]) // slot
    seconds = np.clip(at // 1_000, 0, LAST_SECOND)
    content = np.frombuffer(contents_of(advice, contexts), dtype=">u4")
    batches = [hearing.batch for hearing, count in zip(hearings, counts, strict=True) for _ in range(count)]
    together = DecidedRequests(
        dockets,
        alike.parts,
        raws,
        keys,
        _entries(dockets, verdicts, row, content, seconds, due, remove),
        _values(dockets, alike.parts, verdicts, ids, contexts, batches),
        np.minimum(due, remove).tolist(),
        seconds.tolist(),
    )
    return [together.of(hearing, where) for hearing, where in zip(hearings, slices(counts), strict=True)]


def _entries(
    dockets: Sequence[TenantRequests],
    verdicts: PolicyDecisions,
    row: Ints,
    content: Ints,
    seconds: Ints,
    due: Ints,
    remove: Ints,
) -> list[bytes]:
    first = dockets[0].tenant
    tables, which = stacked([docket.tenant.tables for docket in dockets], row)
    count, experts = verdicts.predictions.shape
    # With a single index NumPy is much faster than with several.
    said = verdicts.predictions.ravel().take(tables.expert_index(which) + np.arange(count) * experts)
    made = [
        verdicts.by_policy[policy].label if policy in verdicts.by_policy else np.full(count, ABSENT)
        for policy in first.names.policies
    ]
    return encode_pending(
        PendingRows(
            tenant=np.array([docket.tenant.number for docket in dockets])[row],
            content=content,
            at=seconds,
            due=due,
            remove=remove,
            propensity=_propensity(first, verdicts),
            group=tables.group_number(which, verdicts.group),
            decided=tables.label_number(which, np.concatenate(made).reshape(-1, count)).T,
            predictions=tables.label_number(which, said).T,
        ),
        kinds=len(first.names.labels),
    )


def _propensity(tenant: Tenant, verdicts: PolicyDecisions) -> Ints | None:
    """How likely a positive decision was, less one part; None where labels come for every decision."""
    settings = tenant.rules.settings
    if settings.feedback == "all":
        return None
    assert settings.positive is not None
    parts = verdicts.in_force.probabilities[:, tenant.learner.state.axes.label(settings.positive)]
    propensity: Ints = np.maximum(parts, 1).astype(np.int64) - 1
    return propensity


def _values(
    dockets: Sequence[TenantRequests],
    parts: Sequence[slice],
    verdicts: PolicyDecisions,
    ids: list[str],
    contexts: list[bytes],
    batches: list[int],
) -> list[bytes]:
    """The decisions as published."""
    made = verdicts.in_force
    writers = [(docket.tenant.writer, part.start, part.stop) for docket, part in zip(dockets, parts, strict=True)]
    choices = (verdicts.group, made.label, made.expert, made.instance)
    return native.written_decisions(writers, ids, choices, made.probabilities, contexts, batches)
