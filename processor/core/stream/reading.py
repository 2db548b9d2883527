"""Many events read together: what ``decode_request`` and ``decode_feedback`` give, one by one, with less work.

What is refused, and why, is the same, whatever was read before or beside it: an audit must come to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from processor.core.events import (
    FeedbackEvent,
    Limits,
    Longest,
    RejectedEventError,
    RequestEvent,
    brackets,
    canonical_label,
    context_of,
    decode_feedback,
    decode_request,
    feedback_decoders,
    has_plain_text,
    label_type,
    text_type,
)

from .remembering import Memory

TOGETHER = 64
"""So many events are checked as one: should one of them need a closer look, all of these get it."""
Event = TypeVar("Event", RequestEvent, FeedbackEvent)
Values = Sequence[bytes | None]
Reader = Callable[[Values], list[Event | RejectedEventError]]


@lru_cache(maxsize=16)
def memory_of(limits: Limits) -> Memory:
    """What was said before in requests under these limits."""
    return Memory(limits)


@lru_cache(maxsize=16)
def request_reader(limits: Limits) -> Reader[RequestEvent]:
    """Reads requests, and remembers what was said before: requests differ, the advice in them rarely does."""
    skim = _skimming(Longest.of(limits)).decode
    memory = memory_of(limits)
    known, remember = memory.known, memory.advice

    def together(values: Sequence[bytes]) -> list[RequestEvent] | None:
        whole = b"".join(values)
        if not _is_plain(values, whole, 2, limits) or _says_twice(whole, len(values)):
            return None
        found = []
        for value in values:
            wire = skim(value)
            group = wire.group
            if group.__class__ is not str:
                group = canonical_label(group)
            said = b"".join((wire.predictions,))
            advice = known.get((group, said)) if len(said) <= memory.longest else None
            advice = advice or remember(wire.tenant, group, said)
            if advice is None:
                return None
            found.append(RequestEvent(wire.tenant, wire.decision_id, advice, context_of(wire.context)))
        return found

    return _reader(together, lambda value: decode_request(value, limits), limits)


@lru_cache(maxsize=16)
def feedback_reader(limits: Limits) -> Reader[FeedbackEvent]:
    """Reads labels."""
    strict = feedback_decoders(limits).strict.decode

    def together(values: Sequence[bytes]) -> list[FeedbackEvent] | None:
        if not _is_plain(values, b"".join(values), 1, limits):
            return None
        found = []
        for value in values:
            wire = strict(value)
            label = wire.label
            named = label if label.__class__ is str else canonical_label(label)
            found.append(FeedbackEvent(wire.tenant, wire.decision_id, named))
        return found

    return _reader(together, lambda value: decode_feedback(value, limits), limits)


def _reader(
    together: Callable[[Sequence[bytes]], list[Event] | None],
    plainly: Callable[[bytes | None], Event],
    limits: Limits,
) -> Reader[Event]:
    """Reads together what can be, the rest one by one. ``together`` gives up on anything it must not judge."""

    def attempt(values: Values) -> list[Event] | None:
        if not all(values) or max(map(len, values)) > limits.max_event_bytes:  # type: ignore[arg-type]
            return None  # before a copy is made of it
        try:
            return together(values)  # type: ignore[arg-type]
        except msgspec.DecodeError:
            return None

    def alone(value: bytes | None) -> Event | RejectedEventError:
        if (read := attempt([value])) is not None:
            return read[0]
        try:
            return plainly(value)
        except RejectedEventError as rejected:
            return RejectedEventError(
                rejected.reason, rejected.detail
            )  # without the traceback, which would hold all of this

    def read(values: Values) -> list[Event | RejectedEventError]:
        found: list[Event | RejectedEventError] = []
        for at in range(0, len(values), TOGETHER):
            some = values[at : at + TOGETHER]
            events = attempt(some)
            found += events if events is not None else map(alone, some)
        return found

    return read


def _is_plain(values: Sequence[bytes], whole: bytes, least: int, limits: Limits) -> bool:
    """Nothing in these events needs a look beyond what msgspec checks, if they can be read at all.

    ``least`` is the number of brackets that every event has: if there are no more, none is nested too deeply.
    """
    return has_plain_text(whole) and (
        brackets(whole) <= least * len(values) or all(brackets(value) <= limits.max_depth for value in values)
    )


def _skimming(longest: Longest) -> msgspec.json.Decoder[Any]:
    """Reads a request; what the experts say stays bytes."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("tenant", text_type(longest.name)),
        ("decision_id", text_type(longest.identity)),
        ("group", label_type(longest)),
        ("predictions", Raw),
        ("context", Raw | UnsetType, UNSET),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Skimmed", fields, frozen=True, gc=False))


def _says_twice(whole: bytes, events: int) -> bool:
    """A field that comes twice is checked both times by the plain version; here the last would hide the first.

    Every event that can be read has it once at least.
    """
    return whole.count(b'"predictions"') != events
