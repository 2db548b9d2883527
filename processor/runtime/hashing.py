"""The hash of every input record, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from processor.core.journal import hashes_text, record_hash
from processor.core.step import Raw

LEAST, MOST = 1 << 32, 1 << 63
"""Times between these are nine bytes in MessagePack: a marker and the time itself. They begin in February 1970."""


def hashes_of(raws: Sequence[Raw]) -> str:
    """``record_hash`` of many, as text: what the records of one key have in common is hashed once.

    >>> raws = [Raw("requests", 0, 1_700_000_000_000, b"acme", b"{}"), Raw("requests", 1, -1, None, None)]
    >>> hashes_of(raws) == hashes_text(record_hash(raw.key, raw.received, raw.timestamp) for raw in raws)
    True
    """
    begun: dict[bytes | None, Callable[[], blake2b]] = {}
    found = []
    for raw in raws:
        key, at, value = raw.key, raw.timestamp, raw.value if raw.original is None else raw.original
        if value is None or not LEAST <= at < MOST:
            found.append(record_hash(key, value, at))
            continue
        copied = begun.get(key) or begun.setdefault(key, _begun(key))
        one = copied()
        one.update(b"%b\x01%b" % (at.to_bytes(8, "big"), value))
        found.append(one.digest())
    return hashes_text(found)


def _begun(key: bytes | None) -> Callable[[], blake2b]:
    """A hash that has seen everything before the time."""
    return blake2b(msgspec.msgpack.encode([key, LEAST])[:-8], digest_size=8).copy
