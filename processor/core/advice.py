"""What is said about one case: its group, and every expert's advice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec


class Advice(msgspec.Struct, eq=False, gc=False):
    """Few different things are said, many times: requests that say the same, in the same bytes, may share this.

    Two that are equal need not be the same object; work that is done once per object is only saved, never wrong.
    """

    group: str
    predictions: Mapping[str, str]
    met: tuple[str, ...]
    """group and experts"""
    labels: frozenset[str]
    """all that were predicted"""
    said: bytes
    """all of it, in one spelling: independent of the order of the experts"""
    _alone: int | None = None

    @classmethod
    def of(cls, group: str, predictions: Mapping[str, str]) -> Advice:
        sorted_said = [(expert, predictions[expert]) for expert in _sorted(tuple(predictions))]
        said = _ARRAY_OF_THREE + _encode(group) + _encode(sorted_said)
        return cls(group, predictions, (group, *predictions), frozenset(predictions.values()), said)

    def content(self, context: bytes) -> int:
        """32 bits of what a request says: tells a repetition from another request under the same id."""
        if not context:
            if self._alone is None:
                self._alone = self._hash(context)
            return self._alone
        return self._hash(context)

    def _hash(self, context: bytes) -> int:
        return int.from_bytes(blake2b(self.said + _encode(context), digest_size=4).digest(), "big")


_encode = msgspec.msgpack.encode
_ARRAY_OF_THREE = b"\x93"
"""What is hashed is the MessagePack of [group, [[expert, label], …], context]."""


@lru_cache(maxsize=256)
def _sorted(experts: tuple[str, ...]) -> list[str]:
    """The same experts are asked again and again."""
    return sorted(experts)
