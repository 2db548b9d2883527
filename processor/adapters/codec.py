"""Other formats than JSON, at the edge only: the core reads and writes JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from processor.core.events import Rejected
from processor.core.step import Raw

from .log import Record


class Codec(Protocol):
    """Turns the records of a topic into JSON events and back."""

    def to_json(self, topic: str, value: bytes) -> bytes:
        """Raises ``Rejected`` where the record is at fault, and ``Retry`` where it is not."""

    def from_json(self, topic: str, value: bytes) -> bytes:
        """Raises ``Retry`` if that cannot be done now."""


def raw_of(source: str, record: Record, codec: Codec | None) -> Raw:
    """The record as the core reads it. What came is kept beside it, for the journal and for dead letters."""
    value, refused = record.value, None
    if codec is not None and value:
        try:
            value = codec.to_json(record.topic, value)
        except Rejected as rejected:
            refused = rejected
    original = None if value is record.value else record.value
    return Raw(source, record.offset, record.timestamp, record.key, value, record.headers, original, refused)


def raws_of(source: str, records: Sequence[Record], codec: Codec | None) -> list[Raw]:
    """``raw_of`` of many."""
    if codec is None:
        return [Raw(source, one.offset, one.timestamp, one.key, one.value, one.headers) for one in records]
    return [raw_of(source, one, codec) for one in records]
