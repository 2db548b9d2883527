"""Which decision got which label while a stream is replayed, and the counts behind every figure of a what-if.

The counters of the learner hold how often; differences between two settings, and who was decided by whom, need to know
which. Held in memory is what waits for its label, as in the state itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from processor.core import IN_FORCE
from processor.core.exact import ONE, Floats, Ints
from processor.core.metrics.diagnosis import unlabelled_decisions
from processor.core.stream.entries import EXPIRED, LABELLED, entry_id
from processor.core.stream.partition import Partition
from processor.core.stream.step import DecodedBatch, StepResult
from processor.core.stream.tenant import Tenant
from processor.core.stream.writes import ID_BYTES

from .settings import SettingsChange

_SET, _DELETE = b"Ee"
_NUMBER, _LABEL = slice(1, 3), 11
"""where a settled entry has its tenant and its label; see ``core.stream.entries``"""
Cell = tuple[str, str]
"""group, true label"""


class RecordedDecision(msgspec.Struct, frozen=True, gc=False):
    """A decision, as much of it as is needed; read from its JSON."""

    tenant: str
    decision_id: str
    group: str
    decision: str
    expert: str | None
    parts: dict[str, int]


class LabelledDecision(NamedTuple):
    """A decision whose label has come."""

    key: bytes
    made: RecordedDecision
    truth: str


_DECODER = msgspec.json.Decoder(RecordedDecision)


class PendingLabels:
    """Decisions that wait for their labels."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, RecordedDecision] = {}

    def take(
        self, outcome: StepResult, decoded: DecodedBatch
    ) -> tuple[list[RecordedDecision], list[LabelledDecision], list[bytes]]:
        """What a batch decided, which labels it joined, and whose labels will never come now."""
        made: list[RecordedDecision] = []
        for one in outcome.decisions:
            decision = _DECODER.decode(one.value)
            self.waiting[entry_id(decision.tenant, decision.decision_id)] = decision
            made.append(decision)
        labelled: list[LabelledDecision] = []
        expired: list[bytes] = []
        names = list(outcome.partition.tenants)
        for key, value in settled_entries(outcome.writes):
            found = self.waiting.pop(key, None)
            if found is None:
                continue
            truth = (
                _label_of_entry(outcome.partition, names, found, value)
                if value
                else _label_of_removed(outcome, decoded, key, found)
            )
            if truth is None:
                expired.append(key)
            else:
                labelled.append(LabelledDecision(key, found, truth))
        return made, labelled, expired


def settled_entries(writes: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of packed writes that no longer wait, with their bytes; those deleted have none.

    Entries come first in the writes of a batch, so the rest need not be looked at.
    """
    at, end = 0, len(writes)
    while at < end:
        kind = writes[at]
        if kind == _SET:
            start = at + 3 + ID_BYTES
            size = (writes[start - 2] << 8) | writes[start - 1]
            if writes[start] in (LABELLED, EXPIRED):
                yield writes[at + 1 : start - 2], writes[start : start + size]
            at = start + size
        elif kind == _DELETE:
            yield writes[at + 1 : at + 1 + ID_BYTES], b""
            at += 1 + ID_BYTES
        else:
            return


def _label_of_entry(partition: Partition, names: list[str], found: RecordedDecision, value: bytes) -> str | None:
    if value[0] == EXPIRED:
        return None
    assert names[int.from_bytes(value[_NUMBER], "big")] == found.tenant
    return partition.tenants[found.tenant].names.labels[value[_LABEL]]


def _label_of_removed(outcome: StepResult, decoded: DecodedBatch, key: bytes, found: RecordedDecision) -> str | None:
    """The label of a decision that was settled and forgotten in one batch, so that the writes do not say how.

    A label of this batch was first; else it has expired, and counts as the rules say.
    """
    rules = outcome.partition.tenants[found.tenant].rules
    settings = rules.settings
    if settings.feedback != "all" and found.decision != settings.positive:
        return None
    came = (event.label for _, event, of in decoded.feedback if of == key and event.label in settings.labels)
    return next(came, rules.on_expiry)


@dataclass
class PairedCases:
    """Labels of cases that both settings have decided: how many, and how often only one of them was wrong."""

    cases: Counter[Cell] = field(default_factory=Counter)
    wrong: Counter[Cell] = field(default_factory=Counter)
    """as recorded"""
    only_other: Counter[Cell] = field(default_factory=Counter)
    only_recorded: Counter[Cell] = field(default_factory=Counter)
    chance: Counter[Cell] = field(default_factory=Counter)
    """of a wrong decision as recorded, in parts of 2³², added up"""
    chance_there: Counter[Cell] = field(default_factory=Counter)
    """of a wrong decision under the other setting"""

    def add(self, recorded: LabelledDecision, other: LabelledDecision) -> None:
        cell = (recorded.made.group, recorded.truth)
        self.cases[cell] += 1
        self.chance[cell] += ONE - recorded.made.parts[recorded.truth]
        self.chance_there[cell] += ONE - other.made.parts[other.truth]
        wrong, wrong_there = recorded.made.decision != recorded.truth, other.made.decision != other.truth
        self.wrong[cell] += wrong
        if wrong_there and not wrong:
            self.only_other[cell] += 1
        elif wrong and not wrong_there:
            self.only_recorded[cell] += 1


@dataclass
class TenantRun:
    """One tenant under one setting, in whole numbers."""

    tenant: str
    change: SettingsChange | None = None
    """None as recorded"""
    partition: int = 0
    refused: str = ""
    """why this setting cannot be tried on this tenant"""
    decided: int = 0
    undecided: int = 0
    """requests without any expert left"""
    alerts: int = 0
    """raised"""
    drawn: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """labels by group, truth and decision"""
    chances: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """the same cases by what might have been decided: the recorded parts of 2³², added up"""
    pairs: PairedCases = field(default_factory=PairedCases)
    # What the tenant's state says at the end
    labels: tuple[str, ...] = ()
    positive: str | None = None
    experts: tuple[str, ...] = ()
    policy: str = ""
    fairness: float | None = None
    """λ, where it is one number"""
    weighted: bool = False
    """labels count by how likely they were to be seen; then plain counts say nothing"""
    expert_losses: dict[str, tuple[int, int]] = field(default_factory=dict)
    """labels each expert had predicted, and how many of them wrongly"""
    unlabelled: tuple[str, ...] = ()
    """decisions that never got a label although the others did"""

    def add(self, label: LabelledDecision) -> None:
        made, truth = label.made, label.truth
        self.drawn[made.group, truth, made.decision] += 1
        for decision, parts in made.parts.items():
            self.chances[made.group, truth, decision] += parts

    def describe(self, tenant: Tenant) -> None:
        settings, axes, counters = tenant.rules.settings, tenant.learner.state.axes, tenant.learner.counters()
        self.labels, self.positive, self.experts = axes.labels, settings.positive, axes.experts
        self.policy, self.weighted = settings.policy.name, counters.unit != 1
        last = max(settings.policy.balance, key=lambda one: one.from_labels)
        self.fairness = last.fairness if isinstance(last.fairness, float | int) else None
        tried, lost = (counts[0].sum(axis=(1, 2)).tolist() for counts in (counters.trials, counters.losses))
        self.expert_losses = {name: (tried[f], lost[f]) for f, name in enumerate(axes.experts)}
        self.unlabelled = tuple(unlabelled_decisions(counters, axes, axes.policy_index[IN_FORCE]))

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({group for group, _, _ in self.drawn}))

    def confusion(self) -> Ints:
        """[g, y, ŷ]"""
        return self._array(self.drawn).astype(np.int64)

    def expected(self) -> Floats:
        """[g, y, ŷ]: the mean over all draws there might have been."""
        return self._array(self.chances) / ONE

    def _array(self, counts: Counter[tuple[str, str, str]]) -> Floats:
        groups, labels = self.groups, self.labels
        return np.array(
            [[[float(counts[g, y, d]) for d in labels] for y in labels] for g in groups], dtype=np.float64
        ).reshape(len(groups), len(labels), len(labels))

    def best_expert(self) -> tuple[str, float]:
        """Who would have been wrong least often, in hindsight, and how often."""
        rates = {name: lost / tried for name, (tried, lost) in self.expert_losses.items() if tried}
        if not rates:
            return "", float("nan")
        name = min(rates, key=lambda expert: (rates[expert], expert))
        return name, rates[name]


def count_batch(
    runs: dict[str, TenantRun],
    made: Sequence[RecordedDecision],
    labelled: Sequence[LabelledDecision],
    tenants: frozenset[str] = frozenset(),
) -> None:
    """Add what a batch decided and learnt; of these tenants, or of all."""
    for one in made:
        if not tenants or one.tenant in tenants:
            if one.tenant not in runs:
                runs[one.tenant] = TenantRun(one.tenant)
            runs[one.tenant].decided += 1
    for label in labelled:
        run = runs.get(label.made.tenant)
        if run is not None:
            run.add(label)
