"""On which partition a key belongs: Java's default, murmur2.

librdkafka's own default is CRC32. Everything that writes to or checks our topics must agree, so it is written once.
"""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
_LONGEST_CACHED = 256  # a producer chooses the keys: 65 536 cached ones must not hold gigabytes


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2, signed as in Java.

    >>> murmur2(b"foobar")
    -790332482
    """
    return _cached(key) if len(key) <= _LONGEST_CACHED else _murmur2(key)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key on a topic with this many.

    >>> partition_of(b"foobar", 4)
    2
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(key: bytes) -> int:
    whole = len(key) & ~3
    mixed = _SEED ^ len(key)
    for (word,) in iter_unpack("<I", key[:whole]):
        word = word * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        mixed = (mixed * _FACTOR & _MASK) ^ word
    if len(key) > whole:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    mixed = (mixed ^ mixed >> 13) * _FACTOR & _MASK
    mixed ^= mixed >> 15
    return mixed - (mixed >> 31 << 32)


_cached = lru_cache(65536)(_murmur2)
