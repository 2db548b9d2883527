"""Which decision got which label, batch by batch, while a stream is replayed.

The counters know how often; differences between two settings, and who was decided by whom, need to know which. What
is held is what waits for its label, as in the state itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from processor.core.stream.entries import EXPIRED, LABELLED, entry_id
from processor.core.stream.partition import Partition
from processor.core.stream.step import DecodedBatch, StepResult
from processor.core.stream.writes import ID_BYTES

_SET, _DELETE = b"Ee"
_NUMBER, _LABEL = slice(1, 3), 11
"""where a settled entry has its tenant and its label; see ``core.stream.entry``"""


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


class Ledger:
    """Decisions that wait for their labels."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, RecordedDecision] = {}

    def take(
        self, outcome: StepResult, asked: DecodedBatch
    ) -> tuple[list[RecordedDecision], list[LabelledDecision], list[bytes]]:
        """What a batch decided, which labels it joined, and whose labels will never come now."""
        made: list[RecordedDecision] = []
        for one in outcome.decisions:
            opened = _DECODER.decode(one.value)
            self.waiting[entry_id(opened.tenant, opened.decision_id)] = opened
            made.append(opened)
        labelled: list[LabelledDecision] = []
        expired: list[bytes] = []
        names = list(outcome.partition.tenants)
        for key, value in settled(outcome.writes):
            found = self.waiting.pop(key, None)
            if found is None:
                continue
            truth = _truth(outcome.partition, names, found, value) if value else _forgotten(outcome, asked, key, found)
            if truth is None:
                expired.append(key)
            else:
                labelled.append(LabelledDecision(key, found, truth))
        return made, labelled, expired


def settled(writes: bytes) -> Iterator[tuple[bytes, bytes]]:
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


def _truth(partition: Partition, names: list[str], found: RecordedDecision, value: bytes) -> str | None:
    if value[0] == EXPIRED:
        return None
    assert names[int.from_bytes(value[_NUMBER], "big")] == found.tenant
    return partition.tenants[found.tenant].names.labels[value[_LABEL]]


def _forgotten(outcome: StepResult, asked: DecodedBatch, key: bytes, found: RecordedDecision) -> str | None:
    """The label of a decision that was settled and forgotten in one batch, so that the writes do not say how.

    A label of this batch was first; else it has expired, and counts as the rules say.
    """
    rules = outcome.partition.tenants[found.tenant].rules
    settings = rules.settings
    if settings.feedback != "all" and found.decision != settings.positive:
        return None
    came = (event.label for _, event, of in asked.feedback if of == key and event.label in settings.labels)
    return next(came, rules.on_expiry)
