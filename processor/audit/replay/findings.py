"""What an audit finds: differences between what was recorded and what follows from the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from processor.core.errors import GForceError
from processor.core.stream.journal import JournalRecord

Kind = Literal[
    "input-changed",
    "input-missing",
    "input-added",
    "input-order",
    "journal-altered",
    "journal-gap",
    "journal-unreadable",
    "foreign-record",
    "configuration",
    "decision",
    "probability",
    "decision-added",
    "decision-missing",
    "decisions-digest",
    "state",
    "dead-letter",
    "alert",
    "end-missing",
    "anchor",
    "changelog",
    "recording",
    "recomputation",
]

MEANING: dict[Kind, str] = {
    "input-changed": "an input record is not the one that was processed",
    "input-missing": "an input record that was processed is missing",
    "input-added": "an input record was added to a stretch that was processed without it",
    "input-order": "input records are in another order than they were processed in",
    "journal-altered": "a journal record is not the one the chain was made with",
    "journal-gap": "a journal record is missing, repeated, or skips input",
    "journal-unreadable": "a journal record cannot be read",
    "foreign-record": "a record that is none of ours is in the changelog",
    "configuration": "a recorded configuration does not match its digest",
    "decision": "a decision is not the one that follows from the record",
    "probability": "a probability is not the one that follows from the record",
    "decision-added": "a decision was added",
    "decision-missing": "a decision is missing",
    "decisions-digest": "the journal's digest of a batch's decisions does not match",
    "state": "the state digest does not follow from the record",
    "dead-letter": "dead letters are not those that follow from the record",
    "alert": "alerts are not those that follow from the record",
    "end-missing": "the end of the journal has been cut off",
    "anchor": "the journal is not the one the anchor was taken from",
    "changelog": "a changelog record does not match the journal",
    "recording": "the recording itself is damaged",
    "recomputation": "a batch cannot be recomputed at all",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference, with all that is needed to look for its cause."""

    kind: Kind
    topic: str
    partition: int
    offset: int | None = None
    lineage: str = ""
    batch: int | None = None
    """sequence of the batch in its lineage"""
    text: str
    """what is wrong, in one sentence"""
    recorded: str = ""
    follows: str = ""
    """what follows from the record instead"""
    cause: str = ""
    """which input is missing or changed, or what else led to it, as far as that is known"""


def batch_finding(
    kind: Kind,
    topic: str,
    partition: int,
    journal: JournalRecord,
    offset: int | None,
    text: str,
    recorded: str = "",
    follows: str = "",
    cause: str = "",
) -> Finding:
    """A finding in one batch of the journal."""
    return Finding(
        kind=kind,
        topic=topic,
        partition=partition,
        offset=offset,
        lineage=journal.lineage,
        batch=journal.sequence,
        text=text,
        recorded=recorded,
        follows=follows,
        cause=cause,
    )


class NotAuditableError(GForceError):
    """The record does not hold what an audit needs; the message says what, and what to do about it."""

    def __init__(self, text: str, *, partition: int = -1) -> None:
        super().__init__(text)
        self.partition = partition


MAX_CODE_POINTS = 5
"""letters of a text whose code points are named"""
MAX_LISTED_FINDINGS = 1_000
"""findings of a partition that are kept; the others are counted"""


def with_code_points(text: str, other: str = "") -> str:
    """The text, with the code points of letters beyond ASCII that the other lacks: some look like others.

    >>> with_code_points("group А", "group A"), with_code_points("group B", "group A")
    ('group А (А is U+0410)', 'group B')
    """
    odd = dict.fromkeys(letter for letter in text if not letter.isascii() and letter not in other)
    names = ", ".join(f"{letter} is U+{ord(letter):04X}" for letter in [*odd][:MAX_CODE_POINTS])
    return f"{text} ({names})" if names else text


@dataclass
class Findings:
    """The first finding of each kind, the counts, and all findings up to ``MAX_LISTED_FINDINGS``."""

    first: dict[Kind, Finding] = field(default_factory=dict)
    every: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, found: Iterable[Finding]) -> None:
        for finding in found:
            self.counts[finding.kind] += 1
            self.first.setdefault(finding.kind, finding)
            if len(self.every) < MAX_LISTED_FINDINGS:
                self.every.append(finding)

    def __bool__(self) -> bool:
        return bool(self.counts)
