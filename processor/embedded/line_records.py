"""What a line of JSON says: a record with its topic, or an event alone."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from processor.core.errors import one_of
from processor.core.events import Reason, RejectedEventError
from processor.core.stream.decode import FEEDBACK, REQUESTS
from processor.service.topics import TopicNames

T = TypeVar("T")

LAST_DAY = 253_402_300_799_999
"""Of the year 9999, in milliseconds: a later one is in another unit."""
SHAPES = (
    'write {"topic": "requests", "key": "acme", "payload": {…}} or an event alone, '
    '{"tenant": …, "decision_id": …, "group": …, "predictions": {…}} or {"tenant": …, "decision_id": …, "label": …}'
)


class LineRecord(NamedTuple):
    """A record for one of the inputs."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None


class _InputLine(msgspec.Struct, gc=False):
    """As much of either shape as tells them apart."""

    topic: Raw | UnsetType = UNSET
    tenant: Raw | UnsetType = UNSET
    predictions: Raw | UnsetType = UNSET
    label: Raw | UnsetType = UNSET


class _Wrapped(msgspec.Struct, gc=False):
    topic: str
    key: str | None = None
    payload: Raw | UnsetType = UNSET
    ts: Annotated[int, Meta(ge=0, le=LAST_DAY)] | None = None


_LINE = msgspec.json.Decoder(_InputLine)
_WRAPPED = msgspec.json.Decoder(_Wrapped)
_STRING = msgspec.json.Decoder(str)


def read_line(line: bytes, topics: TopicNames) -> LineRecord:
    """The record in a line. Raises ``RejectedEventError``, which does not quote it.

    An event goes on as the bytes it came in, so that it is read, or refused, as it would be from Kafka.
    """
    _check_utf8(line)
    found = _decoded(_LINE, line, SHAPES)
    if found.topic is not UNSET:
        return _unwrapped(_decoded(_WRAPPED, line, "topic and key are strings, ts is milliseconds since 1970"), topics)
    if found.predictions is not UNSET:
        return LineRecord(topics.requests, _key(found.tenant), line)
    if found.label is not UNSET:
        return LineRecord(topics.feedback, _key(found.tenant), line)
    raise RejectedEventError(Reason.SCHEMA, SHAPES)


def _check_utf8(line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise RejectedEventError(Reason.NOT_UTF8, f"not UTF-8 at byte {error.start}: save the input as UTF-8") from None


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes, remedy: str) -> T:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as wrong:
        raise RejectedEventError(Reason.SCHEMA, f"{wrong}: {remedy}") from None
    except msgspec.DecodeError as broken:
        raise RejectedEventError(Reason.BAD_JSON, f"{broken}: a line is one JSON object") from None
    except RecursionError:
        raise RejectedEventError(Reason.LIMIT, "nested too deeply") from None


def _unwrapped(record: _Wrapped, topics: TopicNames) -> LineRecord:
    """``requests`` and ``feedback`` are understood whatever the configuration calls these topics."""
    names = {REQUESTS: topics.requests, FEEDBACK: topics.feedback} | {name: name for name in topics.inputs}
    if record.topic not in names:
        raise RejectedEventError(Reason.SCHEMA, f"topic is not {one_of(names)}")
    key = None if record.key is None else record.key.encode()
    return LineRecord(names[record.topic], key, _value(record.payload), record.ts)


def _value(payload: Raw | UnsetType) -> bytes | None:
    """A payload that is a string is what is in the string, so that a line can hold anything a record can."""
    raw = b"null" if payload is UNSET else bytes(payload)
    if raw.startswith(b'"'):
        return _text(raw)
    return None if raw == b"null" else raw


def _key(tenant: Raw | UnsetType) -> bytes | None:
    """A tenant that is no string is left for the processor to refuse."""
    raw = b"" if tenant is UNSET else bytes(tenant)
    return _text(raw) if raw.startswith(b'"') else None


def _text(string: bytes) -> bytes:
    return _decoded(_STRING, string, "use a string").encode()
