"""A batch before it is stepped: raw records, and what can be made of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from .entry import entry_ids
from .events import (
    FeedbackEvent,
    Limits,
    Reason,
    Rejected,
    RequestEvent,
    is_garbage,
)
from .partition import RulesFor
from .partitioning import partition_of
from .reading import Event, Reader, feedback_reader, request_reader

REQUESTS, FEEDBACK = "requests", "feedback"

Headers = tuple[tuple[str, bytes | None], ...]


class Raw(msgspec.Struct, frozen=True, gc=False):
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


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A record that could not be used, and why."""

    raw: Raw
    reason: Reason
    detail: str


class Made(msgspec.Struct, frozen=True, gc=False):
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
        keys = [key for _, _, key in self.requests]
        keys += [key for _, _, key in self.feedback]
        return list(dict.fromkeys(keys))


def decode(
    raws: Sequence[Raw], partition: int, partitions: int, now: int, terms: Terms, poison: set[tuple[str, int]]
) -> Asked:
    """Decode and check every record by itself."""
    refused: list[DeadLetter] = []
    reading = _Reading(partition, partitions, now + terms.max_future, poison, refused)
    return Asked(
        reading.readable([raw for raw in raws if raw.source == REQUESTS], request_reader(terms.limits)),
        reading.readable([raw for raw in raws if raw.source == FEEDBACK], feedback_reader(terms.limits)),
        refused,
        sum(is_garbage(letter.reason) for letter in refused),
    )


@dataclass
class _Reading:
    partition: int
    partitions: int
    latest: int
    poison: set[tuple[str, int]]
    refused: list[DeadLetter]

    def readable(self, raws: Sequence[Raw], read: Reader[Event]) -> list[tuple[Raw, Event, bytes]]:
        """The events among these records, each with the id of its entry; the others are refused."""
        found: list[tuple[Raw, Event, bytes]] = []
        homes: dict[bytes | None, Home] = {}
        poison, latest = self.poison, self.latest
        for raw, event in zip(raws, read([raw.value for raw in raws]), strict=True):
            try:
                if raw.refused is not None or poison:
                    self._usable(raw)
                if isinstance(event, Rejected):
                    self.refused.append(DeadLetter(raw, event.reason, event.detail))
                    continue
                home = homes.get(raw.key)
                if home is None or home.tenant != event.tenant:
                    home = homes[raw.key] = self._home(raw.key, event.tenant)
                if raw.timestamp > latest:
                    raise Rejected(Reason.FUTURE_TIMESTAMP, "the record's timestamp lies too far in the future")
                entry = home.entry()
                entry.update(event.decision_id.encode())
                found.append((raw, event, entry.digest()))
            except Rejected as rejected:
                self.refused.append(DeadLetter(raw, rejected.reason, rejected.detail))
        return found

    def _usable(self, raw: Raw) -> None:
        if (raw.source, raw.offset) in self.poison:
            raise Rejected(Reason.INTERNAL, "processing this record failed; see the processor's log")
        if raw.refused is not None:
            raise Rejected(raw.refused.reason, raw.refused.detail)

    def _home(self, key: bytes | None, tenant: str) -> Home:
        if key != tenant.encode():
            raise Rejected(Reason.KEY_MISMATCH, "the record's key is not its tenant")
        if partition_of(key, self.partitions) != self.partition:
            raise Rejected(
                Reason.WRONG_PARTITION, "the tenant belongs to another partition: produce with the murmur2 partitioner"
            )
        return Home(tenant, entry_ids(tenant).copy)


class Home(NamedTuple):
    """A tenant whose records have the right key and are on the right partition."""

    tenant: str
    entry: Callable[[], blake2b]
    """begins the id of an entry; see ``entry_ids``"""


def due_slot(clock: int, slot: int) -> int:
    """The last slot that is over at this clock."""
    return clock // slot - 1
