"""Batches of an input that Kafka's client cannot read: where reading goes on after one, by what the journal says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from confluent_kafka import Message

from processor.core.stream.journal import Range
from processor.ports.log import UnreadableBatchError

from .source import Role


class _BatchRanges(msgspec.Struct):
    """What of a journal record matters here."""

    requests: Range
    feedback: Range
    skipped: list[tuple[str, int, int]] = []


def after_unreadable(
    journal: Iterable[list[Message]], role: Role, offset: int, problem: UnreadableBatchError
) -> int | None:
    """Where an input is read on after an offset that cannot be read; None if the processor has not got past it either.

    Raises the problem again if the processor has processed what is there: then whoever reads now cannot do without it.
    """
    reached = 0
    for messages in journal:
        for batch in filter(None, (_decoded(message.value()) for message in messages)):
            for source, first, after in batch.skipped:
                if source == role and first <= offset < after:
                    return after
            reached = max(reached, (batch.requests if role == "requests" else batch.feedback).next)
    if reached > offset:
        raise problem
    return None


def _decoded(value: bytes | None) -> _BatchRanges | None:
    try:
        return msgspec.json.decode(value or b"", type=_BatchRanges)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # the audit says so
