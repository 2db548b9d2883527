"""Other formats than JSON, at the edge only: the core reads and writes JSON."""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from processor.core.events import RejectedEventError
from processor.core.stream.step import InputRecord

from .log import Record


class Codec(Protocol):
    """Turns the records of a topic into JSON events and back."""

    def to_json(self, topic: str, value: bytes) -> bytes:
        """Raises ``RejectedEventError`` where the record is at fault, and ``RetryableError`` where it is not."""

    def from_json(self, topic: str, value: bytes) -> bytes:
        """Raises ``RetryableError`` if that cannot be done now."""


def raw_of(source: str, record: Record, codec: Codec | None) -> InputRecord:
    """The record as the core reads it. What came is kept beside it, for the journal and for dead letters."""
    raw = InputRecord(source, record.offset, record.timestamp, record.key, record.value, record.headers)
    return raw if codec is None else in_json(raw, record.topic, codec)


def in_json(raw: InputRecord, topic: str, codec: Codec) -> InputRecord:
    """A record of a topic, with its value in JSON."""
    if not raw.value:
        return raw
    try:
        return replace(raw, value=codec.to_json(topic, raw.value), original=raw.value)
    except RejectedEventError as rejected:
        return replace(raw, refused=rejected)
