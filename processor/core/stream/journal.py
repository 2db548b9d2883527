"""What is written down about every batch: enough to recompute it years later, and to notice a changed word.

The journal is a hash chain of JSON records, one per committed batch, kept for ever. The changelog carries the packed
writes of the same batch, so that a lost store can be filled again without recomputing anything.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import Any

import msgspec

from processor.core.errors import ForeignRecordError, IncompatibleStateError
from processor.core.native import record_hash as record_hash

JOURNAL_FORM = 2
"""Form 2 has the ids of the input topics, the last whole snapshot, and batches that empty due slots in bounded pieces
(``StreamSettings.sweep``)."""
CHANGELOG_FORM = 1
MAX_CHANGELOG_PART = 800_000
SNAPSHOT_UNKNOWN = -1
"""A record of form 1 does not say which snapshot was whole."""

_LENGTH = Struct(">I")


class Range(msgspec.Struct, frozen=True):
    """Which records of an input a batch holds: from ``start`` up to ``next``, ``count`` of them, with their hashes."""

    start: int
    next: int
    count: int
    hashes: str
    """8 bytes for each record, in order of offset, base64"""


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One committed batch of one partition."""

    form: int = 1
    """absent in records of form 1"""
    lineage: str
    partition: int
    partitions: int
    sequence: int
    clock: int
    """the batch's time: expiry, parking and the duplicate horizon know no other"""
    now: int
    """when the batch was made; timestamps far beyond it are refused"""
    requests: Range
    feedback: Range
    decisions: int
    decisions_digest: str
    state_digest: str
    """a chain too, see ``state_digest``"""
    previous: str
    """digest of the journal record before; ``GENESIS`` for the first of a lineage"""
    terms: str = ""
    """limits and widths, in the first record and whenever they change"""
    rules: dict[str, str] = {}
    """tenants that are under other rules from this batch on, with the digest of those"""
    configs: dict[str, str] = {}
    """rules that appear here for the first time in this lineage, by digest"""
    acknowledged: list[tuple[str, int]] = []
    """alerts a person has acknowledged, by tenant and number; they take effect before the batch's labels"""
    poison: list[tuple[str, int]] = []
    """records that could not be processed for an internal reason: (input, offset)"""
    topics: dict[str, str] = {}
    """Kafka's id of each input's topic: a topic that was deleted and created again has another one"""
    skipped: list[tuple[str, int, int]] = []
    """offsets that nobody could read and an operator had skipped: (input, first, next); such a batch holds no input"""
    snapshot: int = SNAPSHOT_UNKNOWN
    """the batch with which the last whole snapshot in the changelog began; 0 if none is whole yet"""
    version: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> JournalRecord:
        try:
            record = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _check_form(_json_form(data), JOURNAL_FORM, "journal")
            raise ForeignRecordError(f"this is not a journal record: {error}") from None
        _check_form(record.form, JOURNAL_FORM, "journal")
        return record


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """The writes of one batch, or a part of them."""

    lineage: str
    sequence: int
    part: int
    parts: int
    digest: str
    """of the journal record of the same batch"""
    previous: str
    """of the journal record of the batch before"""
    snapshot: bool
    """a snapshot starts with this batch; the journal says which one is whole"""
    writes: bytes

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(
            [
                CHANGELOG_FORM,
                self.lineage,
                self.sequence,
                self.part,
                self.parts,
                self.digest,
                self.previous,
                self.snapshot,
                self.writes,
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> ChangelogRecord:
        try:
            fields = msgspec.msgpack.decode(data, type=list[Any])
            form, *_ = msgspec.convert(fields[:3], type=tuple[int, str, int])
            _check_form(form, CHANGELOG_FORM, "changelog")
            return cls(*msgspec.convert(fields[1:], type=_ChangelogFields))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # random bytes may hold text that is none
            raise ForeignRecordError(f"this is not a changelog record: {error}") from None


_ChangelogFields = tuple[str, int, int, int, str, str, bool, bytes]


class _Form(msgspec.Struct):
    """What records of every form of the journal have."""

    lineage: str
    sequence: int
    form: int = 1


def _json_form(data: bytes) -> int:
    """The form that a journal record says it is of; 1 where it says nothing that can be read."""
    try:
        return msgspec.json.decode(data, type=_Form).form
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 1


def _check_form(form: int, read: int, topic: str) -> None:
    """Refuse a record of a later form: what it means is not known here."""
    if not 1 <= form <= read:
        raise IncompatibleStateError(
            f"the {topic} is of form {form} and this version reads {read}: use a later version"
        )


def changelog_parts(
    lineage: str, sequence: int, digest: str, previous: str, snapshot: bool, writes: bytes
) -> list[ChangelogRecord]:
    """The writes of a batch, cut so that each record fits into one message."""
    pieces = [writes[i : i + MAX_CHANGELOG_PART] for i in range(0, len(writes), MAX_CHANGELOG_PART)] or [b""]
    return [
        ChangelogRecord(lineage, sequence, i, len(pieces), digest, previous, snapshot, piece)
        for i, piece in enumerate(pieces)
    ]


def digest(data: bytes) -> str:
    """The digest of a journal record: 128 bits, in hexadecimal."""
    return blake2b(data, digest_size=16).hexdigest()


def state_digest(previous: str, writes: bytes) -> str:
    """The state digest after these writes.

    Keyed by the digest of the journal record before, which holds the state digest before: a chain that costs the
    batch and not the state.
    """
    return blake2b(writes, key=bytes.fromhex(previous), digest_size=16).hexdigest()


def hashes_text(hashes: bytes) -> str:
    return b64encode(hashes).decode()


def decisions_digest(values: Iterable[bytes]) -> str:
    """The digest of a batch's decisions, each with its length."""
    found = list(values)
    parts = chain.from_iterable(zip(map(_LENGTH.pack, map(len, found)), found, strict=True))
    return blake2b(b"".join(parts), digest_size=16).hexdigest()
