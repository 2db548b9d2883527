"""What is said about one case: its group, and every expert's advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec


class Panel(msgspec.Struct, eq=False, frozen=True, gc=False):
    """Who is asked about a case of which group. The same are asked again and again, so they share this.

    Two that are equal need not be the same object; work that is done once per object is only saved, never wrong.
    """

    group: str
    experts: tuple[str, ...]
    """sorted"""
    head: bytes
    """how what is said begins, as MessagePack"""
    arrange: Callable[[Sequence[Any]], tuple[Any, ...]]
    """from the order in which the experts came to this one"""


class Piece(NamedTuple):
    """What some of the experts said."""

    experts: tuple[str, ...]
    labels: tuple[str, ...]
    said: tuple[bytes, ...]
    """MessagePack of [expert, label] of each"""
    kinds: frozenset[str]
    """all labels among these"""

    @classmethod
    def of(cls, predictions: Mapping[str, str]) -> Piece:
        labels = tuple(predictions.values())
        return cls(tuple(predictions), labels, tuple(map(_encode, predictions.items())), frozenset(labels))


class Advice(msgspec.Struct, eq=False, gc=False):
    """Few different things are said, many times: requests that say the same, in the same bytes, may share this."""

    panel: Panel
    by_expert: tuple[str, ...]
    """what each of the panel's experts said"""
    labels: frozenset[str]
    """all that were predicted"""
    said: bytes
    """all of it, in one spelling: independent of the order of the experts"""
    _alone: bytes = b""
    """the ``content`` of a request without a context, once asked for"""

    @classmethod
    def of(cls, group: str, predictions: Mapping[str, str]) -> Advice:
        return cls.of_pieces(group, [Piece.of(predictions)])

    @classmethod
    def of_pieces(cls, group: str, pieces: Sequence[Piece]) -> Advice:
        """What they say together; where they name an expert twice, the last counts."""
        experts, labels, said, kinds = pieces[0]
        for piece in pieces[1:]:
            experts += piece.experts
            labels += piece.labels
            said += piece.said
            kinds = kinds if kinds >= piece.kinds else kinds | piece.kinds
        panel = _panel(group, experts)
        by_expert = panel.arrange(labels)
        if len(by_expert) < len(labels):
            kinds = frozenset(by_expert)
        return cls(panel, by_expert, kinds, panel.head + b"".join(panel.arrange(said)))

    @property
    def group(self) -> str:
        return self.panel.group

    @property
    def predictions(self) -> Mapping[str, str]:
        return dict(zip(self.panel.experts, self.by_expert, strict=True))

    def content(self, context: bytes) -> bytes:
        """Four bytes of what a request says: they tell a repetition from another request under the same id."""
        if not context and self._alone:
            return self._alone
        # The hash of the MessagePack of [group, [[expert, label], …], context].
        content = blake2b(self.said + _encode(context), digest_size=4).digest()
        if not context:
            self._alone = content
        return content


_encode = msgspec.msgpack.encode


@lru_cache(maxsize=1_024)
def _panel(group: str, experts: tuple[str, ...]) -> Panel:
    last = {expert: at for at, expert in enumerate(experts)}
    each = sorted(last)
    head = _encode([group, [None] * len(each), None])[: -1 - len(each)]
    return Panel(group, tuple(each), head, _picker([last[expert] for expert in each]))


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """
    >>> _picker([2, 0])("abc"), _picker([1])("abc")
    (('c', 'a'), ('b',))
    """
    if len(places) < 2:
        return lambda found: tuple(found[place] for place in places)
    return itemgetter(*places)
