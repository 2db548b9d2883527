"""A batch before it is stepped: raw records, and what can be made of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import msgspec

from .entry import entry_ids
from .events import (
    FeedbackEvent,
    Limits,
    Reason,
    Rejected,
    RequestEvent,
    decode_feedback,
    decode_request,
    is_garbage,
)
from .partition import RulesFor
from .partitioning import partition_of

REQUESTS, FEEDBACK = "requests", "feedback"

Headers = tuple[tuple[str, bytes | None], ...]


class Raw(msgspec.Struct, frozen=True):
    """An input record; ``source`` is ``requests`` or ``feedback``."""

    source: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    original: bytes | None = None
    """the value as it came, where ``value`` is only what it was turned into"""
    refused: Rejected | None = None
    """why it could not be turned into JSON"""

    @property
    def received(self) -> bytes | None:
        return self.value if self.original is None else self.original


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that could not be used, and why."""

    raw: Raw
    reason: Reason
    detail: str


class Made(msgspec.Struct, frozen=True):
    """A decision to be published."""

    tenant: str
    value: bytes
    headers: Headers


@dataclass(frozen=True)
class Terms:
    """What holds for every batch of a partition."""

    limits: Limits
    rules_for: RulesFor
    max_future: int
    slot: int
    """width of an expiry slot in milliseconds"""

    @cached_property
    def text(self) -> str:
        """All that matters to a replay, as the journal keeps it."""
        terms = {"limits": msgspec.structs.asdict(self.limits), "max_future": self.max_future, "slot": self.slot}
        return msgspec.json.encode(terms).decode()


@dataclass(frozen=True)
class Asked:
    """A batch, decoded: what can be used, what cannot, and which entries it needs."""

    requests: list[tuple[Raw, RequestEvent, bytes]]
    feedback: list[tuple[Raw, FeedbackEvent, bytes]]
    refused: list[DeadLetter]
    garbage: int
    """records that did not decode or match the schema"""

    @property
    def ids(self) -> list[bytes]:
        return list(dict.fromkeys([key for *_, key in (*self.requests, *self.feedback)]))


def decode(
    raws: Sequence[Raw], partition: int, partitions: int, now: int, terms: Terms, poison: set[tuple[str, int]]
) -> Asked:
    """Decode and check every record by itself."""
    asked = Asked([], [], [], 0)
    garbage = 0
    latest = now + terms.max_future
    homes: dict[bytes | None, Home] = {}
    for raw in raws:
        try:
            if poison and (raw.source, raw.offset) in poison:
                raise Rejected(Reason.INTERNAL, "processing this record failed; see the processor's log")
            if raw.refused is not None:
                raise Rejected(raw.refused.reason, raw.refused.detail)
            event: RequestEvent | FeedbackEvent
            if raw.source == REQUESTS:
                event = decode_request(raw.value, terms.limits)
            else:
                event = decode_feedback(raw.value, terms.limits)
            home = homes.get(raw.key)
            if home is None or home.tenant != event.tenant:
                home = homes[raw.key] = _home(raw.key, event.tenant, partition, partitions)
            if raw.timestamp > latest:
                raise Rejected(Reason.FUTURE_TIMESTAMP, "the record's timestamp lies too far in the future")
            key = home.entry_id(event.decision_id)
            if isinstance(event, RequestEvent):
                asked.requests.append((raw, event, key))
            else:
                asked.feedback.append((raw, event, key))
        except Rejected as rejected:
            garbage += is_garbage(rejected.reason)
            asked.refused.append(DeadLetter(raw, rejected.reason, rejected.detail))
    return replace(asked, garbage=garbage)


class Home(NamedTuple):
    """A tenant whose records have the right key and are on the right partition."""

    tenant: str
    entry_id: Callable[[str], bytes]


def _home(key: bytes | None, tenant: str, partition: int, partitions: int) -> Home:
    if key != tenant.encode():
        raise Rejected(Reason.KEY_MISMATCH, "the record's key is not its tenant")
    if partition_of(key, partitions) != partition:
        raise Rejected(
            Reason.WRONG_PARTITION, "the tenant belongs to another partition: produce with the murmur2 partitioner"
        )
    return Home(tenant, entry_ids(tenant))


def due_slot(clock: int, slot: int) -> int:
    """The last slot that is over at this clock."""
    return clock // slot - 1
