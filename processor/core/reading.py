"""Events read quickly: what ``decode_request`` and ``decode_feedback`` give, with less work where little is to check.

What is refused, and why, is the same, whatever was read before: an audit must come to the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .advice import Advice
from .events import (
    FeedbackEvent,
    Limits,
    Longest,
    RequestEvent,
    canonical_label,
    decode_feedback,
    decode_request,
    feedback_decoders,
    is_plain,
    text_type,
)

REMEMBERED, LONGEST = 4_096, 2_048
"""How many different pieces of advice are remembered, and of how many bytes at most."""


@lru_cache(maxsize=16)
def request_reader(limits: Limits) -> Callable[[bytes | None], RequestEvent]:
    """``decode_request`` that remembers what was said before: requests differ, the advice in them rarely does.

    Only what the plain version has accepted is remembered, so what is refused, and why, is the same.
    """
    skim = _skimming(Longest.of(limits)).decode
    known: dict[tuple[bytes, bytes], Advice] = {}

    def read(value: bytes | None) -> RequestEvent:
        if value is None or not is_plain(value, limits) or _says_twice(value):
            return decode_request(value, limits)
        try:
            wire = skim(value)
        except msgspec.DecodeError:
            return decode_request(value, limits)
        said = (bytes(wire.group), bytes(wire.predictions))
        advice = known.get(said)
        if advice is not None:
            return RequestEvent(wire.tenant, wire.decision_id, advice, wire.context)
        event = decode_request(value, limits)
        if len(said[0]) + len(said[1]) <= LONGEST:
            if len(known) >= REMEMBERED:
                known.clear()
            known[said] = event.advice
        return event

    return read


@lru_cache(maxsize=16)
def feedback_reader(limits: Limits) -> Callable[[bytes | None], FeedbackEvent]:
    """``decode_feedback``, with less ado where there is nothing to check but what msgspec checks."""
    strict = feedback_decoders(limits).strict.decode

    def read(value: bytes | None) -> FeedbackEvent:
        if value is None or not is_plain(value, limits):
            return decode_feedback(value, limits)
        try:
            wire = strict(value)
        except msgspec.DecodeError:
            return decode_feedback(value, limits)
        label = wire.label
        return FeedbackEvent(wire.tenant, wire.decision_id, label if label.__class__ is str else canonical_label(label))

    return read


def _skimming(longest: Longest) -> msgspec.json.Decoder[Any]:
    """Reads the ids of a request; what it says stays bytes."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("tenant", text_type(longest.name)),
        ("decision_id", text_type(longest.identity)),
        ("group", Raw),
        ("predictions", Raw),
        ("context", Raw | UnsetType, UNSET),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Skimmed", fields, frozen=True, gc=False))


def _says_twice(value: bytes) -> bool:
    """A field that comes twice is checked both times by the plain version; here the last would hide the first."""
    return value.count(b'"predictions"') != 1 or value.count(b'"group"') != 1
