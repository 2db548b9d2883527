"""What a report says, before it is a page: the same for HTML, JSON and CSV. Decision ids may be redacted."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

import msgspec

from processor import __version__
from processor.audit.replay.findings import MEANING, Finding
from processor.audit.whatif.figures import TenantAnswer
from processor.telemetry.figures import CellRate, Estimate, TenantFigures

REPORT_FORM = 1
Tone = Literal["good", "open", "bad", "note"]
WITHHELD = "(an event, withheld in a redacted report)"
_QUOTED_ID = re.compile(r'"decision_id"\s*:\s*("(?:[^"\\]|\\.)*")')
_NAMED_ID = re.compile(r'decision "')
_CHANGED_WORDS = re.compile(r"was changed from .*(?=: with that, its hash)", re.DOTALL)
"""A cause may name the words of a record that were changed, and those may be anything."""
_SAFE_TEXT = re.compile(r"(?:hash|digest)?\s?[0-9a-f]{8,64}(?: [a-z ]+)?|1:[0-9a-f]+:\d+:[0-9a-f]+|[a-z-]{1,40}|")


class Statement(msgspec.Struct, frozen=True):
    """One of the answers of the first page."""

    tone: Tone
    title: str
    text: str


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a topic was there to read."""

    role: str
    topic: str
    partitions: int
    offsets: int | None
    """None where that is not known (plain files)"""


class ReportFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A difference, in plain words."""

    kind: str
    meaning: str
    place: str
    text: str
    recorded: str = ""
    follows: str = ""
    cause: str = ""
    count: int = 1


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the audit."""

    verdict: str
    draws: str
    end: str
    batches: int
    recomputed: int
    requests: int
    feedback: int
    decisions: int
    dead_letters: int
    alerts: int
    compared: list[str]
    findings: list[ReportFinding]
    reasons: list[str]
    notes: list[str]
    heads: dict[str, str]
    """by partition: to be kept elsewhere"""


class IntervalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of an interval of time, or of all the time until then."""

    since: int
    until: int
    labels: int
    gaps: dict[str, Estimate]
    rates: list[CellRate]
    group_error: dict[str, Estimate]


class AlertLine(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    number: int
    kind: str
    state: str
    label: str | None = None
    """the true label it is about"""
    text: str
    evidence: str


class ExpertRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many cases one expert's advice decided."""

    expert: str
    decisions: dict[str, int]
    """by group"""
    shares: dict[str, float]
    """of the group's decisions"""
    labelled: int
    wrong: int
    error: Estimate


class ConfigLine(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that came into force."""

    at: int
    batch: int
    digest: str
    changes: list[str]
    canonical: str


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One decision as an example; picked by a hash of its id, not by what came of it."""

    id: str
    at: int
    group: str
    said: dict[str, str]
    chances: dict[str, float]
    expert: str | None
    decision: str
    label: str | None


class DeadReason(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    meaning: str
    count: int
    example: str
    """where the first one is"""


class LaterAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of the topic, from a time that could not be recomputed."""

    tenant: str
    at: int
    kind: str
    state: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a partition the figures are made of."""

    partition: int
    batches: int
    of: int
    """as many as there were, as far as that is known"""
    until: int
    """the time of the last of them; 0 if there is none"""
    why: str = ""
    """it is not all of them; empty where it is"""
    tenants: list[str] = []
    """whose figures end early"""
    missing: list[str] = []
    """who are in the record, and in no figure"""
    later_alerts: list[LaterAlert] = []


class LabelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the decisions' labels."""

    decisions: int
    joined: int
    assumed: int = 0
    """decisions that expired and count as if a label had come"""
    expired: int = 0
    """without one, of those that could have had one"""
    waiting: int = 0
    without: int = 0
    """decisions that get none by design"""


class TenantReport(msgspec.Struct, frozen=True, kw_only=True):
    figures: TenantFigures
    statement: Statement
    partial: str = ""
    """up to where the figures go, if they do not go to the end"""
    first: int
    last: int
    so_far: list[IntervalFigures]
    stretches: list[IntervalFigures]
    alerts: list[AlertLine]
    alerts_left_out: int = 0
    experts: list[ExpertRow]
    label_counts: LabelCounts
    labels_text: str
    mean_delay: float
    dead_letters: dict[str, int]
    attainable_text: str
    configs: list[ConfigLine]
    samples: list[Sample]
    whatif: TenantAnswer | None = None
    whatif_text: str = ""


class ReportData(msgspec.Struct, frozen=True, kw_only=True):
    form: int = REPORT_FORM
    version: str = __version__
    created: str
    source: str
    redacted: bool
    first: int
    last: int
    processor_versions: list[str]
    manifest_sha256: str
    extents: list[Extent]
    statements: list[Statement]
    """what must be known first, whether it is verified, whether it is fair; then what to look at"""
    answers: int = 2
    """of the statements, those before what to look at"""
    coverage: list[Coverage] = []
    verification: Verification
    tenants: list[TenantReport]
    dead_letters: list[DeadReason]
    reproduced: str = ""
    """what the what-if says about the recorded setting"""
    notes: list[str] = []


class Redaction:
    """``key`` makes the hashes of several reports comparable; by default it is random and forgotten."""

    def __init__(self, key: str | None = None) -> None:
        given = key.encode() if key else secrets.token_bytes(32)
        self._key = blake2b(given, digest_size=32, person=b"gforce-report").digest()

    def id(self, decision_id: str) -> str:
        """
        >>> Redaction("k").id("loan-17") == Redaction("k").id("loan-17") != Redaction("other").id("loan-17")
        True
        """
        return "id:" + blake2b(decision_id.encode(), key=self._key, digest_size=8).hexdigest()

    def finding(self, finding: Finding, known: Iterable[str] = ()) -> Finding:
        """Without ids and events. ``known`` are ids that may be in it, beside those it quotes."""
        fields = (finding.text, finding.recorded, finding.follows, finding.cause)
        ids = {*known} | {found for text in fields for found in _quoted_ids(text)}
        text, recorded, follows, cause = (self._replaced(one, ids) for one in fields)
        named = _NAMED_ID.search(re.sub(r'decision "id:[0-9a-f]{16}"', "", text))
        if named or finding.kind == "recomputation":  # an error's message may name anything
            text = MEANING[finding.kind]
        return msgspec.structs.replace(
            finding,
            text=text,
            recorded=recorded if _SAFE_TEXT.fullmatch(recorded) else WITHHELD,
            follows=follows if _SAFE_TEXT.fullmatch(follows) else WITHHELD,
            cause=_CHANGED_WORDS.sub("was changed", cause) if not _quoted_ids(cause) else "",
        )

    def _replaced(self, text: str, ids: Iterable[str]) -> str:
        for one in sorted(ids, key=len, reverse=True):
            for spelling in (msgspec.json.encode(one).decode()[1:-1], one):
                text = text.replace(f'"{spelling}"', f'"{self.id(one)}"')
        return text


def _quoted_ids(text: str) -> set[str]:
    found = set()
    for quoted in _QUOTED_ID.findall(text):
        try:
            found.add(msgspec.json.decode(quoted, type=str))
        except msgspec.MsgspecError:
            continue
    return found
