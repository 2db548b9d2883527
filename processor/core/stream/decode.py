"""A batch before it is stepped: raw records, and what can be made of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from typing import NamedTuple, cast

import msgspec

from processor.core import native
from processor.core.events import FeedbackEvent, Limits, Reason, RejectedEventError, RequestEvent, is_garbage

from .entries import entry_ids, head_of_ids
from .journal import record_hashes
from .partition import SettingsFor
from .partitioner import partition_of
from .reading import Event, Reader, feedback_reader, memory_of, request_reader

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
        if native.BUILT:
            return native.ids(self.requests, self.feedback)
        keys = [key for _, _, key in self.requests]
        keys += [key for _, _, key in self.feedback]
        return list(dict.fromkeys(keys))


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
    reading = _Reading(partition, partitions, now + terms.max_future, terms.limits, poison)
    reader = None if poison or not native.BUILT else reading.reader()
    return DecodedBatch(
        reading.requests(requests, reader),
        reading.feedback(feedback, reader),
        reading.refused,
        sum(is_garbage(letter.reason) for letter in reading.refused),
        reading.latest,
    )


@dataclass
class _Reading:
    partition: int
    partitions: int
    latest: int
    limits: Limits
    poison: set[tuple[str, int]]
    refused: list[DeadLetter] = field(default_factory=list)

    def requests(self, raws: list[InputRecord], reader: native.Reader | None) -> list[Decoded[RequestEvent]]:
        plainly = partial(self._plainly, read=request_reader(self.limits))
        if reader is None:
            return _only_read(plainly(raws))
        return _filled(*reader.requests(raws, RequestEvent, memory_of(self.limits)), plainly)

    def feedback(self, raws: list[InputRecord], reader: native.Reader | None) -> list[Decoded[FeedbackEvent]]:
        plainly = partial(self._plainly, read=feedback_reader(self.limits))
        if reader is None:
            return _only_read(plainly(raws))
        return _filled(*reader.feedback(raws, FeedbackEvent), plainly)

    def reader(self) -> native.Reader:
        """To be let go by whoever asks: it refers to this, and a cycle would keep what is refused for long."""
        return native.Reader(self.limits, self.latest, self._head_of)

    def _head_of(self, key: bytes, tenant: str) -> bytes | None:
        """What the ids of a tenant's entries begin with; None if its records do not belong here."""
        try:
            self._check_home(key, tenant)
        except RejectedEventError:
            return None
        return head_of_ids(tenant)

    def _plainly(self, raws: Sequence[InputRecord], read: Reader[Event]) -> list[Decoded[Event] | None]:
        """The event in each of these records, with the id of its entry; None for those that are refused."""
        found: list[Decoded[Event] | None] = []
        homes: dict[bytes | None, Home] = {}
        poison, latest = self.poison, self.latest
        for raw, event in zip(raws, read([raw.value for raw in raws]), strict=True):
            try:
                if raw.refused is not None or poison:
                    self._usable(raw)
                if isinstance(event, RejectedEventError):
                    self.refused.append(DeadLetter(raw, event.reason, event.detail))
                    found.append(None)
                    continue
                home = homes.get(raw.key)
                if home is None or home.tenant != event.tenant:
                    self._check_home(raw.key, event.tenant)
                    home = homes[raw.key] = Home(event.tenant, entry_ids(event.tenant).copy)
                if raw.timestamp > latest:
                    raise RejectedEventError(
                        Reason.FUTURE_TIMESTAMP, "the record's timestamp lies too far in the future"
                    )
                entry = home.entry()
                entry.update(event.decision_id.encode())
                found.append((raw, event, entry.digest()))
            except RejectedEventError as rejected:
                self.refused.append(DeadLetter(raw, rejected.reason, rejected.detail))
                found.append(None)
        return found

    def _usable(self, raw: InputRecord) -> None:
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


def _only_read(found: Sequence[Decoded[Event] | None]) -> list[Decoded[Event]]:
    return [one for one in found if one is not None]


def _filled(
    found: list[Decoded[Event] | None],
    left: list[InputRecord],
    plainly: Callable[[list[InputRecord]], list[Decoded[Event] | None]],
) -> list[Decoded[Event]]:
    """What was read, with what the plain version makes of those that were left."""
    if not left:
        return cast(list[Decoded[Event]], found)
    rest = iter(plainly(left))
    return _only_read([one if one is not None else next(rest) for one in found])


class Home(NamedTuple):
    """A tenant whose records have the right key and are on the right partition."""

    tenant: str
    entry: Callable[[], blake2b]
    """begins the id of an entry; see ``entry_ids``"""


def hashes_of(raws: list[InputRecord]) -> bytes:
    """``record_hash`` of records as they were received, one after the other."""
    if native.BUILT:
        return native.hashes_as_received(raws)
    return record_hashes([raw.key for raw in raws], [raw.received for raw in raws], [raw.timestamp for raw in raws])


def due_slot(clock: int, slot: int) -> int:
    """The last slot that is over at this clock."""
    return clock // slot - 1
