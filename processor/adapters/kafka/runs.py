"""What a fetch brings, made what the core reads: hardly anything is done for each record."""

from __future__ import annotations

from confluent_kafka import Message

from processor.core import native
from processor.core.stream.decode import InputRecord
from processor.ports.log import PartitionRecords, Sources, TopicPartition

from .headers import headers_of

NEVER = 1 << 63


def reference_runs(
    messages: list[Message], positions: dict[TopicPartition, int], sources: Sources
) -> list[PartitionRecords | Message]:
    """Records that are wanted, in runs of one partition, as they come, and between them the messages that are errors.

    ``positions`` are the lowest offsets still wanted, and move on with what is taken. Below are records that were
    fetched before a seek; a partition that is not among them was fetched before its pause held. A run may be empty.
    """
    found: list[PartitionRecords | Message] = []
    topic: str | None = None
    partition: int | None = None
    at, records = TopicPartition("", -1), list[InputRecord]()
    for message in messages:
        if message.error() is not None:
            found.append(message)
            topic = None  # or the run would be taken for one after the end it may have come before
            continue
        if message.topic() != topic or message.partition() != partition:
            topic, partition = message.topic(), message.partition()
            at, records = TopicPartition(topic or "", partition or 0), []
            found.append(PartitionRecords(at, records))
        offset: int = message.offset()  # type: ignore[assignment]
        if offset >= positions.get(at, NEVER):
            positions[at] = offset + 1
            records.append(
                InputRecord(
                    sources[at.topic],
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    headers_of(message),
                )
            )
    return found


runs = native.native_or(reference_runs, "processor.adapters.kafka.native_runs", "runs")
