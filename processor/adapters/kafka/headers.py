"""Headers of what is read: those that can go along with what the record leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message

from processor.ports.log import Headers

MAX_HEADER_BYTES = 65_536
"""Bytes of names and values together: what a record leads to must fit into a message too."""


def headers_of(message: Message) -> Headers:
    """Those of a message; none if a name is no text, for then the client cannot give any."""
    try:
        headers: Any = message.headers()
    except (SystemError, UnicodeDecodeError):
        return ()
    return carried(headers) if headers else ()


def carried(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    """All of them, or none if they are too large.

    >>> carried([("trace", b"17")]), carried([("x" * 70_000, None)])
    ((('trace', b'17'),), ())
    """
    size = sum(len(name) + len(value or b"") for name, value in headers)
    return tuple(headers) if size <= MAX_HEADER_BYTES else ()
