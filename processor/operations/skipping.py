"""Go on after a batch that nobody can read: both ends of the wire.

The processor that owns the partition accepts it for the offset that it reads next and cannot read, up to the end of
that batch, so nothing readable is thrown away. The journal says what was skipped, and the audit reports it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from processor.config.values import Secret
from processor.core.errors import GForceError
from processor.telemetry.status import PartitionStatus

from .asking import ask, said

TIMEOUT_SECONDS = 60.0
"""Seconds: the end of the batch is searched for by reading, each time with all that it takes to decompress it."""

_Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Skipping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is sent."""

    topic: Literal["requests", "feedback"]
    offset: _Offset
    to: _Offset | None = None
    """where to go on; the end of the batch if it is not given"""
    dry_run: bool = False


class SkipAnswer(msgspec.Struct, frozen=True):
    """What comes back."""

    partition: int
    topic: str
    offset: int
    to: int
    """the offset to go on at; 0 if nothing is to be skipped"""
    done: bool
    """whether it will be skipped, with the next batch of the partition"""
    text: str


def refused(number: int, wanted: Skipping, partition: PartitionStatus | None) -> tuple[SkipAnswer, int] | None:
    """Why the offset cannot be skipped, and the status of the answer; None if it is the one that cannot be read."""
    if partition is None:
        return _no(number, wanted, f"this processor does not own partition {number}: ask the one that does"), 404
    unreadable = partition.unreadable.get(wanted.topic)
    if unreadable == wanted.offset:
        return None
    if unreadable is not None:
        text = f"the next offset of {wanted.topic} [{number}] is {unreadable}, and that one cannot be read"
        return _no(number, wanted, f"{text}: skip it instead of {wanted.offset}"), 409
    if wanted.topic not in partition.next:
        return _no(
            number, wanted, f"partition {number} is {partition.state}: {partition.trouble or 'wait for it'}"
        ), 409
    text = f"the next offset of {wanted.topic} [{number}] is {partition.next[wanted.topic]}, and reading goes on there"
    return _no(number, wanted, f"{text}: there is nothing to skip"), 409


def judged(number: int, wanted: Skipping, batch: tuple[int, int] | None) -> tuple[SkipAnswer, int]:
    """What is to be skipped, where ``batch`` cannot be read: its first offset, and the next after it."""
    if batch is None:
        text = f"offset {wanted.offset} of {wanted.topic} [{number}] can be read now"
        return _no(number, wanted, f"{text}: within half a minute reading goes on there"), 409
    to = batch[1] if wanted.to is None else wanted.to
    if not wanted.offset < to <= batch[1]:
        text = f"the batch that cannot be read reaches from offset {batch[0]} to {batch[1] - 1}"
        return _no(number, wanted, f"{text}: --to can be {wanted.offset + 1} to {batch[1]}"), 409
    offsets = f"offset {wanted.offset}" if to == wanted.offset + 1 else f"offsets {wanted.offset} to {to - 1}"
    what = f"{offsets} of {wanted.topic} [{number}]"
    if wanted.dry_run:
        text = f"{what} would be skipped: nobody will ever decide or count what is there"
        return SkipAnswer(number, wanted.topic, wanted.offset, to, False, text), 200
    text = f"{what} are skipped with the next batch, and reading goes on at offset {to}"
    return SkipAnswer(number, wanted.topic, wanted.offset, to, True, text), 202


def _no(number: int, wanted: Skipping, text: str) -> SkipAnswer:
    return SkipAnswer(number, wanted.topic, wanted.offset, 0, False, text)


def skipped(url: str, partition: int, wanted: Skipping, token: Secret | None = None) -> SkipAnswer:
    """Ask a running processor."""
    base = url.rstrip("/")
    url = f"{base}/partitions/{partition}/skip"
    status, content = ask(url, "POST", token, msgspec.json.encode(wanted), TIMEOUT_SECONDS)
    if status in (401, 403):
        raise GForceError(f"{base} refuses: {status} {said(content)}. Set http.token")
    try:
        return msgspec.json.decode(content, type=SkipAnswer)
    except msgspec.MsgspecError:
        raise GForceError(
            f"{base} is no processor of this version: it answered {status}. Give its address with --url"
        ) from None
