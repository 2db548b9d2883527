"""Finding out what was changed in an input record: try what it may have been until the hash is the recorded one.

The journal holds a hash of every input record. A record that was changed in one place can often be had back: another
label, another prediction, another time. What is found is proven by the hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from processor.audit.sources.source import Role
from processor.core.stream.journal import record_hash
from processor.ports.log import Record

from .findings import with_code_points

REACH = 300_000
"""Milliseconds to each side in which another timestamp is looked for."""
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*("(?:[^"\\]|\\.)*"|true|false|-?\d+)')


@dataclass(frozen=True)
class Restored:
    record: Record
    what: str
    """what was changed, in words"""


def restored(role: Role, record: Record, wanted: bytes, known: Iterable[str], reach: int = REACH) -> Restored | None:
    """The record as it was processed, if one changed word or time explains the difference.

    ``known`` are words that may have been replaced: labels, for example.
    """
    for value, what in _other_words(role, record.value or b"", known):
        if record_hash(record.key, value, record.timestamp) == wanted:
            return Restored(msgspec.structs.replace(record, value=value), what)
    timestamp = _other_time(record, wanted, reach)
    if timestamp is None:
        return None
    what = f"its timestamp was changed from {timestamp} to {record.timestamp}"
    return Restored(msgspec.structs.replace(record, timestamp=timestamp), what)


def _other_words(role: Role, value: bytes, known: Iterable[str]) -> Iterator[tuple[bytes, str]]:
    """The payload with one of its words replaced by another."""
    pairs = list(_WORD.finditer(value))
    words = {pair[2] for pair in pairs} | {b"true", b"false", b"0", b"1"}
    words |= {msgspec.json.encode(word) for word in known}
    for pair in pairs:
        name = _shown(b'"' + pair[1] + b'"')
        part = "its label" if role == "feedback" and name == "label" else f'"{name}"'
        for word in sorted(words - {pair[2]}):
            start, end = pair.span(2)
            before, after = _shown(word), _shown(pair[2])
            what = f"{part} was changed from {with_code_points(before, after)} to {with_code_points(after, before)}"
            yield value[:start] + word + value[end:], what


def _shown(word: bytes) -> str:
    try:
        return str(msgspec.json.decode(word))
    except msgspec.DecodeError:
        return word.decode(errors="replace")


def _other_time(record: Record, wanted: bytes, reach: int) -> int | None:
    body = b"\x00" if record.value is None else b"\x01" + record.value
    encode = msgspec.msgpack.Encoder().encode
    for distance in range(1, reach):
        for timestamp in (record.timestamp - distance, record.timestamp + distance):
            if blake2b(encode([record.key, timestamp]) + body, digest_size=8).digest() == wanted:
                return timestamp
    return None
