"""A batch before it is stepped: raw records, and what can be made of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

import msgspec

from processor.core import native
from processor.core.events import (
    FeedbackEvent,
    Limits,
    Reason,
    RejectedEventError,
    RequestEvent,
    decode_feedback,
    decode_request,
    is_garbage,
)

from .entries import entry_id, head_of_ids
from .partition import SettingsFor
from .partitioner import partition_of
from .remembering import memory_of

REQUESTS, FEEDBACK = "requests", "feedback"

Headers = tuple[tuple[str, bytes | None], ...]


class InputRecord(msgspec.Struct, frozen=True, gc=False):
    """An input record; ``source`` is ``requests`` or ``feedback``."""

    source: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    original: bytes | None = None
    """the value as it came, where ``value`` is only what it was turned into"""
    refused: RejectedEventError | None = None
    """why it could not be turned into JSON"""

    @property
    def received(self) -> bytes | None:
        return self.value if self.original is None else self.original


Event = TypeVar("Event", RequestEvent, FeedbackEvent)
Decoded = tuple[InputRecord, Event, bytes]
"""A record, the event in it, and the id of its entry."""


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A record that could not be used, and why."""

    raw: InputRecord
    reason: Reason
    detail: str


class EncodedDecision(msgspec.Struct, frozen=True, gc=False):
    """A decision to be published."""

    tenant: str
    value: bytes
    headers: Headers


@dataclass(frozen=True)
class StreamSettings:
    """What holds for every batch of a partition."""

    limits: Limits
    settings_for: SettingsFor
    max_future: int
    slot: int
    """width of an expiry slot in milliseconds"""
    sweep: int | None = None
    """entries of due slots that a batch looks at, see ``expiry``; None in journals of form 1: all of them"""

    @cached_property
    def text(self) -> str:
        """All that matters to a replay, as the journal keeps it."""
        terms = {"limits": msgspec.structs.asdict(self.limits), "max_future": self.max_future, "slot": self.slot}
        if self.sweep is not None:
            terms["sweep"] = self.sweep
        return msgspec.json.encode(terms).decode()


@dataclass(frozen=True)
class DecodedBatch:
    """A batch, decoded: what can be used, what cannot, and which entries it needs."""

    requests: list[Decoded[RequestEvent]]
    feedback: list[Decoded[FeedbackEvent]]
    refused: list[DeadLetter]
    garbage: int
    """records that did not decode or match the schema"""
    latest: int
    """no record of this batch or of one before it is of a later time"""

    @property
    def ids(self) -> list[bytes]:
        return native.ids(self.requests, self.feedback)


def split_by_source(raws: Iterable[InputRecord]) -> tuple[list[InputRecord], list[InputRecord]]:
    """Requests, and labels."""
    found: dict[str, list[InputRecord]] = {REQUESTS: [], FEEDBACK: []}
    for raw in raws:
        found[raw.source].append(raw)
    return found[REQUESTS], found[FEEDBACK]


def decode(
    requests: list[InputRecord],
    feedback: list[InputRecord],
    partition: int,
    partitions: int,
    now: int,
    terms: StreamSettings,
    poison: set[tuple[str, int]],
) -> DecodedBatch:
    """Decode and check every record by itself."""
    one_by_one = _OneByOne(partition, partitions, now + terms.max_future, terms.limits, poison)
    # The native decoder knows of no poison.
    decode_plain = native.reference.decode_plain if poison else native.decode_plain
    plain_requests, plain_feedback = decode_plain(
        requests,
        feedback,
        terms.limits,
        one_by_one.latest,
        one_by_one.head_of,
        memory_of(terms.limits),
        (RequestEvent, FeedbackEvent),
    )
    return DecodedBatch(
        one_by_one.rest(*plain_requests, decode_request),
        one_by_one.rest(*plain_feedback, decode_feedback),
        one_by_one.refused,
        sum(is_garbage(letter.reason) for letter in one_by_one.refused),
        one_by_one.latest,
    )


@dataclass
class _OneByOne:
    """The reference decoder, record by record: it alone refuses records."""

    partition: int
    partitions: int
    latest: int
    limits: Limits
    poison: set[tuple[str, int]]
    refused: list[DeadLetter] = field(default_factory=list)

    def rest(
        self,
        decoded: list[Decoded[Event] | None],
        left: list[InputRecord],
        decode_event: Callable[[bytes | None, Limits], Event],
    ) -> list[Decoded[Event]]:
        """What was decoded, with those that were left, in place of each None, decoded here."""
        if not left:
            return cast(list[Decoded[Event]], decoded)
        rest = iter([self._decoded(raw, decode_event) for raw in left])
        return [one for one in [one or next(rest) for one in decoded] if one is not None]

    def _decoded(
        self, raw: InputRecord, decode_event: Callable[[bytes | None, Limits], Event]
    ) -> Decoded[Event] | None:
        try:
            self._check_usable(raw)
            event = decode_event(raw.value, self.limits)
            self._check_home(raw.key, event.tenant)
            if raw.timestamp > self.latest:
                raise RejectedEventError(Reason.FUTURE_TIMESTAMP, "the record's timestamp lies too far in the future")
        except RejectedEventError as rejected:
            self.refused.append(DeadLetter(raw, rejected.reason, rejected.detail))
            return None
        return raw, event, entry_id(event.tenant, event.decision_id)

    def head_of(self, key: bytes, tenant: str) -> bytes | None:
        """What the ids of a tenant's entries begin with; None if its records do not belong here."""
        try:
            self._check_home(key, tenant)
        except RejectedEventError:
            return None
        return head_of_ids(tenant)

    def _check_usable(self, raw: InputRecord) -> None:
        if (raw.source, raw.offset) in self.poison:
            raise RejectedEventError(Reason.INTERNAL, "processing this record failed; see the processor's log")
        if raw.refused is not None:
            raise RejectedEventError(raw.refused.reason, raw.refused.detail)

    def _check_home(self, key: bytes | None, tenant: str) -> None:
        if key != tenant.encode():
            raise RejectedEventError(Reason.KEY_MISMATCH, "the record's key is not its tenant")
        if partition_of(key, self.partitions) != self.partition:
            raise RejectedEventError(
                Reason.WRONG_PARTITION, "the tenant belongs to another partition: produce with the murmur2 partitioner"
            )


def due_slot(clock: int, slot: int) -> int:
    """The last slot that is over at this clock."""
    return clock // slot - 1
