"""What is said about one case: its group, and every expert's advice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec


class Advice(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Few different things are said, many times: requests that say the same, in the same bytes, may share this.

    Two that are equal need not be the same object; work that is done once per object is only saved, never wrong.
    """

    group: str
    predictions: Mapping[str, str]
    met: tuple[str, ...]
    """group and experts"""
    labels: frozenset[str]
    """all that were predicted"""
    content: int
    """``content_hash`` where there is no context"""

    @classmethod
    def of(cls, group: str, predictions: Mapping[str, str]) -> Advice:
        content = content_hash(group, predictions, b"")
        return cls(group, predictions, (group, *predictions), frozenset(predictions.values()), content)


def content_hash(group: str, predictions: Mapping[str, str], context: bytes) -> int:
    """32 bits of what a request says, independent of the order of its experts."""
    said = [(expert, predictions[expert]) for expert in _sorted(tuple(predictions))]
    canonical = msgspec.msgpack.encode([group, said, context])
    return int.from_bytes(blake2b(canonical, digest_size=4).digest(), "big")


@lru_cache(maxsize=256)
def _sorted(experts: tuple[str, ...]) -> list[str]:
    """The same experts are asked again and again."""
    return sorted(experts)
