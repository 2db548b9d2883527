"""What a batch sends into its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from processor.core.stream.step import REQUESTS, DeadLetter, EncodedDecision
from processor.ports.codec import Codec
from processor.ports.log import Headers, Output, TopicPartition

from .batches import PreparedBatch
from .topics import TopicNames

MAX_DEAD_LETTER = 900_000
"""A larger record could be consumed but not produced: only its beginning is kept, with length and SHA-256."""
MAX_KEY = 10_000


def publish(output: Output, topics: TopicNames, batch: PreparedBatch, codec: Codec | None) -> None:
    """What one partition has to say: decisions, alerts and dead letters."""
    number = batch.owned.number
    output.send_all(topics.decisions, _decisions(topics, batch.outcome.decisions, codec))
    for alert in batch.outcome.alerts:
        output.send(TopicPartition(topics.alerts, -1), alert.tenant.encode(), alert.encode())
    for letter in batch.outcome.dead_letters:
        _publish_dead_letter(output, topics, number, letter)


def record(output: Output, topics: TopicNames, batch: PreparedBatch) -> None:
    """What one partition needs to remember and to prove: changelog and journal. Waits for the batch's hashes."""
    number = batch.owned.number
    key = str(number).encode()
    for part in batch.changelog:
        output.send(TopicPartition(topics.changelog, number), key, part.encode())
    output.send(TopicPartition(topics.journal, number), key, batch.encoded)


def _decisions(
    topics: TopicNames, decisions: Sequence[EncodedDecision], codec: Codec | None
) -> list[tuple[bytes, bytes, Headers]]:
    keys = {tenant: tenant.encode() for tenant in {made.tenant for made in decisions}}
    if codec is None:
        return [(keys[made.tenant], made.value, made.headers) for made in decisions]
    return [(keys[made.tenant], codec.from_json(topics.decisions, made.value), made.headers) for made in decisions]


def _publish_dead_letter(output: Output, topics: TopicNames, number: int, letter: DeadLetter) -> None:
    raw = letter.raw
    value = raw.received
    facts = {
        "reason": str(letter.reason),
        "detail": letter.detail,
        "topic": topics.requests if raw.source == REQUESTS else topics.feedback,
        "partition": str(number),
        "offset": str(raw.offset),
        "timestamp": str(raw.timestamp),
    }
    if value is not None and len(value) > MAX_DEAD_LETTER:
        facts |= {"length": str(len(value)), "sha256": sha256(value).hexdigest()}
        value = value[:1_000]
    ours = tuple((f"gforce.{name}", text.encode()) for name, text in facts.items())
    theirs = tuple((name, content) for name, content in raw.headers if not name.startswith("gforce."))
    if sum(len(name) + len(content or b"") for name, content in theirs) > MAX_KEY:
        theirs = ()
    key = raw.key if raw.key is not None and len(raw.key) <= MAX_KEY else None
    output.send(TopicPartition(topics.dead_letters, -1), key, value, theirs + ours)
