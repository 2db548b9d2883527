"""The log on Apache Kafka: what the rest of the processor imports."""

from __future__ import annotations

from processor.adapters.kafka_input import KafkaInput
from processor.adapters.kafka_output import KafkaOutput
from processor.adapters.kafka_reader import KafkaReader

__all__ = ["KafkaInput", "KafkaOutput", "KafkaReader", "murmur2_partition"]

_WORD = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner and librdkafka's ``murmur2`` give the key.

    Written out because confluent-kafka offers its own only in its newest versions.

    >>> murmur2_partition(b"tenant-1", 12)
    7
    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with Kafka's seed."""
    whole = len(data) & ~3
    mixed = 0x9747B28C ^ len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        mixed = mixed * _MULTIPLIER & _WORD ^ word
    if len(data) > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _WORD
    return mixed ^ mixed >> 15
