"""What crosses the boundary of the stream: requests, feedback and decisions, and why an event is refused.

A refusal is deterministic: it depends on the bytes and the limits only, never on the parser's stack or the
Unicode tables of a Python version, because an audit must refuse the same events years later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, NoReturn, cast

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from processor.core.advice import Advice
from processor.core.errors import GForceError

Label = str | int | bool
"""How a label or a group may be written in an event; inside it is always a string."""

_Count = Annotated[int, Meta(ge=1)]
_INT64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Unicode promises that this set never grows, so every Python version refuses the same names.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# Possessive, and the end of the input closes a string: linear whatever the input. Starting again at every quote
# of an unclosed string would be quadratic.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
MAX_DETAIL = 199


class Reason(StrEnum):
    """Why an event is a dead letter; the value of the ``reason`` header."""

    EMPTY = "empty"
    """There is no value, or none of any bytes."""
    TOO_LARGE = "too-large"
    """More bytes than ``max_event_bytes``."""
    NOT_UTF8 = "not-utf8"
    """The bytes, anywhere in the event, are not UTF-8."""
    BAD_JSON = "bad-json"
    """Not JSON (RFC 8259): NaN, a trailing comma, a byte order mark and a lone surrogate are not."""
    SCHEMA = "schema"
    """A field is missing, of a wrong type, an empty name, or a name with control characters."""
    NO_PREDICTIONS = "no-predictions"
    """No expert said anything, so there is no advice to follow."""
    LIMIT = "limit"
    """An id, a name, the number of experts or the nesting is over its limit."""
    KEY_MISMATCH = "key-mismatch"
    """The record's key is not the tenant of the event."""
    WRONG_PARTITION = "wrong-partition"
    """The key does not hash (murmur2) to the partition the record is on."""
    UNKNOWN_TENANT = "unknown-tenant"
    """The configuration neither names the tenant nor accepts unknown ones, or there are too many."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """The record's timestamp is too far ahead of the clock."""
    UNKNOWN_LABEL = "unknown-label"
    """A prediction or a label that the tenant's configuration does not name."""
    GROUP_REFUSED = "group-refused"
    """A group beyond the two of a binary objective, or one too many."""
    CONFLICTING_REQUEST = "conflicting-request"
    """The id was used before, with different content."""
    CONTRADICTING_LABEL = "contradicting-label"
    """The decision already has another label."""
    UNKNOWN_DECISION = "unknown-decision"
    """A label waited for its request until the end of parking, and none came."""
    EXPIRED_DECISION = "expired-decision"
    """The label came after its decision expired."""
    LABEL_NOT_EXPECTED = "label-not-expected"
    """With ``feedback = "positive-only"``, a label for a decision that was not positive."""
    INTERNAL = "internal"
    """Our mistake: this record makes the processor fail."""


_GARBAGE = frozenset({Reason.EMPTY, Reason.TOO_LARGE, Reason.NOT_UTF8, Reason.BAD_JSON, Reason.SCHEMA})


def is_garbage(reason: Reason) -> bool:
    """Whether the event does not decode or match the schema at all; the breaker counts these.

    >>> is_garbage(Reason.BAD_JSON), is_garbage(Reason.UNKNOWN_LABEL)
    (True, False)
    """
    return reason in _GARBAGE


class RejectedEventError(GForceError):
    """An event that goes to the dead letters. ``detail`` never quotes the event: it may hold personal data."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail[:MAX_DETAIL]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large anything a producer sends may be. Lengths are in characters (Unicode code points)."""

    max_event_bytes: _Count = 900_000
    """Below Kafka's default of 1 MiB for a record, so that every event also fits as a dead letter."""
    max_id_chars: _Count = 256
    """Of a decision id."""
    max_name_chars: _Count = 128
    """Of a tenant, group, expert or label."""
    max_experts: _Count = 64
    """In one request."""
    max_groups: _Count = 32
    """Of one tenant."""
    max_choices: Annotated[int, Meta(ge=0)] = 512
    """Groups × experts of a tenant with objective ``mixture``, whose rule is solved in one piece. 0: no limit."""
    max_tenants: _Count = 10_000
    """On one partition."""
    max_depth: Annotated[int, Meta(ge=2, le=200)] = 64
    """Levels of nesting. At most 200, so that the parser's own stack limit is never the one that acts."""


class RequestEvent(msgspec.Struct, frozen=True, gc=False):
    """A case to decide."""

    tenant: str
    decision_id: str
    advice: Advice
    context: bytes = b""
    """the JSON as it came; empty if there is none"""

    @property
    def group(self) -> str:
        return self.advice.group

    @property
    def predictions(self) -> Mapping[str, str]:
        return self.advice.predictions

    @property
    def content(self) -> bytes:
        """See ``Advice.content``."""
        return self.advice.content(self.context)


class FeedbackEvent(msgspec.Struct, frozen=True, gc=False):
    """The true label of a case."""

    tenant: str
    decision_id: str
    label: str


class DecisionEvent(msgspec.Struct, frozen=True, gc=False):
    """What was decided. The order of the fields is their order in the JSON."""

    tenant: str
    decision_id: str
    group: str
    decision: str
    expert: str | None
    instance: str | None
    probabilities: dict[str, float]
    parts: dict[str, int]
    policy: str
    objective: str | None
    config: str
    batch: int
    context: Raw | UnsetType = UNSET


def canonical_label(label: Label) -> str:
    """The one spelling of a label or a group.

    >>> [canonical_label(label) for label in (True, 1, "1", "True")]
    ['true', '1', '1', 'True']
    """
    if label is True:
        return "true"
    if label is False:
        return "false"
    return label if isinstance(label, str) else str(label)


def key_of(tenant: str) -> bytes:
    """The key of every record of a tenant.

    >>> key_of("café")
    b'caf\\xc3\\xa9'
    """
    return tenant.encode()


def decode_request(value: bytes | None, limits: Limits) -> RequestEvent:
    """Read a request or raise ``RejectedEventError``.

    >>> event = decode_request(b'{"tenant":"t","decision_id":"1","group":7,"predictions":{"m":true}}', Limits())
    >>> event.group, event.predictions
    ('7', {'m': 'true'})
    """
    wire = _decode(value, limits, _request_decoders(limits))
    if not wire.predictions:
        raise RejectedEventError(Reason.NO_PREDICTIONS, "predictions is empty: send at least one expert's advice")
    advice = Advice.of(canonical_label(wire.group), canonical_labels(wire.predictions))
    return RequestEvent(wire.tenant, wire.decision_id, advice, b"" if wire.context is UNSET else bytes(wire.context))


def canonical_labels(predictions: Mapping[str, Label]) -> dict[str, str]:
    """The one spelling of what each expert said."""
    return {
        expert: label if isinstance(label, str) else canonical_label(label) for expert, label in predictions.items()
    }


def decode_feedback(value: bytes | None, limits: Limits) -> FeedbackEvent:
    """Read a true label or raise ``RejectedEventError``.

    >>> decode_feedback(b'{"tenant":"t","decision_id":"1","label":false}', Limits()).label
    'false'
    """
    wire = _decode(value, limits, _feedback_decoders(limits))
    return FeedbackEvent(wire.tenant, wire.decision_id, canonical_label(wire.label))


_ENCODER = msgspec.json.Encoder()
_DECISION_DECODER = msgspec.json.Decoder(DecisionEvent)


def encode_decision(event: DecisionEvent) -> bytes:
    """Compact JSON in the order of the fields, with the context's bytes as they came."""
    return _ENCODER.encode(event)


def decode_decision(value: bytes) -> DecisionEvent:
    """Read back what ``encode_decision`` wrote. These are our own bytes, so msgspec's errors pass through."""
    return _DECISION_DECODER.decode(value)


class _Decoders(msgspec.Struct, frozen=True):
    """``strict`` knows the limits and is the fast path; ``loose`` tells a limit from a wrong type afterwards."""

    strict: msgspec.json.Decoder[Any]
    loose: msgspec.json.Decoder[Any]


_SYNTAX = msgspec.json.Decoder(Raw)


class Longest(msgspec.Struct, frozen=True):
    """The limits that msgspec checks while it parses; None is no limit."""

    name: int | None = None
    identity: int | None = None
    experts: int | None = None

    @classmethod
    def of(cls, limits: Limits) -> Longest:
        return cls(limits.max_name_chars, limits.max_id_chars, limits.max_experts)


def _text_type(longest: int | None) -> Any:
    # An empty name is refused: to Prometheus an empty label value is the same as no label.
    return Annotated[str, Meta(min_length=1, max_length=longest)]


def _label_type(longest: Longest) -> Any:
    return _text_type(longest.name) | _INT64 | bool


def predictions_type(longest: Longest) -> Any:
    labels = cast(Any, dict)[_text_type(longest.name), _label_type(longest)]
    return Annotated[labels, Meta(max_length=longest.experts)]


def _request_wire(longest: Longest) -> msgspec.json.Decoder[Any]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("tenant", _text_type(longest.name)),
        ("decision_id", _text_type(longest.identity)),
        ("group", _label_type(longest)),
        ("predictions", predictions_type(longest)),
        ("context", Raw | UnsetType, UNSET),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Request", fields, frozen=True, gc=False))


def _feedback_wire(longest: Longest) -> msgspec.json.Decoder[Any]:
    fields = [
        ("tenant", _text_type(longest.name)),
        ("decision_id", _text_type(longest.identity)),
        ("label", _label_type(longest)),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Feedback", fields, frozen=True, gc=False))


@lru_cache(maxsize=16)
def _request_decoders(limits: Limits) -> _Decoders:
    return _Decoders(_request_wire(Longest.of(limits)), _request_wire(Longest()))


@lru_cache(maxsize=16)
def _feedback_decoders(limits: Limits) -> _Decoders:
    return _Decoders(_feedback_wire(Longest.of(limits)), _feedback_wire(Longest()))


def _decode(value: bytes | None, limits: Limits, decoders: _Decoders) -> Any:
    if not value:
        raise RejectedEventError(Reason.EMPTY, "the record has no value")
    if len(value) > limits.max_event_bytes:
        raise RejectedEventError(Reason.TOO_LARGE, f"{len(value)} bytes: at most {limits.max_event_bytes} are accepted")
    # JSON has no raw control characters below 0x20 in strings: the others need an escape, DEL or two bytes.
    plain = value.isascii() and b"\\" not in value and b"\x7f" not in value
    if not plain:
        _check_utf8(value)
    if value.count(b"{") + value.count(b"[") > limits.max_depth:  # with fewer brackets no event is too deep
        _check_depth(value, limits.max_depth)
    try:
        wire = decoders.strict.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        _explain(value, decoders, error)
    if not plain:
        _check_names(wire)
    return wire


def _check_utf8(value: bytes) -> None:
    # msgspec checks only the strings that it builds, not those in the context or in unknown fields.
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise RejectedEventError(Reason.NOT_UTF8, f"not UTF-8 at byte {error.start}") from None


def _check_depth(value: bytes, deepest: int) -> None:
    outside = np.frombuffer(_STRING.sub(b"", value), dtype=np.uint8)
    opens = (outside == ord("[")) | (outside == ord("{"))
    closes = (outside == ord("]")) | (outside == ord("}"))
    depth = np.cumsum(opens.astype(np.int32) - closes.astype(np.int32))
    if depth.size and int(depth.max()) > deepest:
        raise RejectedEventError(Reason.LIMIT, f"nested deeper than {deepest} levels")


def _explain(value: bytes, decoders: _Decoders, error: Exception) -> NoReturn:
    """Say why an event was refused: broken JSON before a wrong type, a wrong type before a limit."""
    if isinstance(error, RecursionError):
        raise RejectedEventError(Reason.LIMIT, "nested too deeply") from None
    try:
        _SYNTAX.decode(value)
    except msgspec.DecodeError as broken:
        raise RejectedEventError(Reason.BAD_JSON, str(broken)) from None
    try:
        wire = decoders.loose.decode(value)
    except msgspec.ValidationError as wrong:
        raise RejectedEventError(Reason.SCHEMA, str(wrong)) from None
    _check_names(wire)
    raise RejectedEventError(Reason.LIMIT, str(error)) from None


def _check_names(wire: Any) -> None:
    # Control characters in a name forge log lines, break terminals and tables, and are never meant.
    texts = [_text_of(value) for value in msgspec.structs.astuple(wire)]
    if _CONTROL.search("".join(texts)):
        field = next(name for name, text in zip(wire.__struct_fields__, texts, strict=True) if _CONTROL.search(text))
        raise RejectedEventError(Reason.SCHEMA, f"a control character in {field}")


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join(value) + "".join([label for label in value.values() if label.__class__ is str])
    return ""
