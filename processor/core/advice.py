"""What is said about one case: its group, and every expert's advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from . import native

CONTENT_BYTES = 4


class ExpertOrder(msgspec.Struct, eq=False, frozen=True, gc=False):
    """In which order experts came, in one piece or several. They mostly come in the same one, and share this."""

    experts: tuple[str, ...]
    """all of them, sorted: the order in which what they say is written down"""
    pieces: tuple[tuple[str, ...], ...]
    """those of each piece, sorted; who is in two counts in the last"""
    runs: tuple[tuple[slice, ...], ...]
    """of each piece: those between whom nobody comes of another"""
    weave: Callable[[Sequence[Any]], tuple[Any, ...]]
    """brings the runs of all pieces, one piece after the other, into the order of the experts"""


class Panel(msgspec.Struct, eq=False, frozen=True, gc=False):
    """Who is asked about a case of which group. The same are asked again and again, so they share this.

    Two that are equal need not be the same object; work that is done once per object is only saved, never wrong.
    """

    group: str
    experts: tuple[str, ...]
    """sorted"""
    order: ExpertOrder
    """in which they came"""
    head: bytes
    """how what is said begins, with the group and how many experts there are; see ``Advice.text``"""


class AdvicePiece(msgspec.Struct, eq=False, frozen=True, gc=False):
    """What some of the experts said."""

    experts: tuple[str, ...]
    """sorted"""
    labels: tuple[str, ...]
    """what each said"""
    said: tuple[bytes, ...]
    """MessagePack of [expert, label] of each, run by run"""
    kinds: frozenset[str]
    """all labels among these"""

    @classmethod
    def of(cls, predictions: Mapping[str, str], order: ExpertOrder, place: int = 0) -> AdvicePiece:
        experts = order.pieces[place]
        labels = tuple([predictions[expert] for expert in experts])
        each = list(zip(experts, labels, strict=True))
        said = tuple([_encode(each[run])[len(_head(run.stop - run.start)) :] for run in order.runs[place]])
        return cls(experts, labels, said, _shared(frozenset(labels)))


class Advice(msgspec.Struct, eq=False, gc=False):
    """Few different things are said, many times: requests that say the same, in the same bytes, may share this.

    It is kept in the pieces in which it came, and put together only where it must be.
    """

    panel: Panel
    pieces: Sequence[AdvicePiece]
    labels: frozenset[str]
    """all that were predicted"""
    _text: bytes = b""
    """see ``text``; known where it came in one piece"""

    @classmethod
    def of(cls, group: str, predictions: Mapping[str, str]) -> Advice:
        order = order_of((tuple(predictions),))
        piece = AdvicePiece.of(predictions, order)
        panel = panel_of(group, order)
        return cls(panel, [piece], piece.kinds, b"".join((panel.head, *piece.said)))

    @property
    def group(self) -> str:
        return self.panel.group

    @property
    def predictions(self) -> Mapping[str, str]:
        said: dict[str, str] = {}
        for piece in self.pieces:
            said.update(zip(piece.experts, piece.labels, strict=True))
        return {expert: said[expert] for expert in self.panel.experts}

    @property
    def text(self) -> bytes:
        """The beginning of the MessagePack of [group, [[expert, label], …], context], all but the context.

        It does not depend on the order in which the experts came.
        """
        if self._text:
            return self._text
        runs = self.pieces[0].said
        for piece in self.pieces[1:]:
            runs += piece.said
        return self.panel.head + b"".join(self.panel.order.weave(runs))

    def content(self, context: bytes) -> bytes:
        """Four bytes of what a request says: they tell a repetition from another request under the same id."""
        return contents_of([self], [context])


def contents_of(advice: list[Advice], contexts: list[bytes]) -> bytes:
    """The ``content`` of many requests, one after the other."""
    return native.contents([each._text or each.text for each in advice], contexts, CONTENT_BYTES)


_encode = msgspec.msgpack.encode


@lru_cache(maxsize=1_024)
def _shared(labels: frozenset[str]) -> frozenset[str]:
    """These labels, as the same object: it is compared quickly with itself."""
    return labels


@lru_cache(maxsize=1_024)
def _head(length: int) -> bytes:
    """How a list of this length begins, as MessagePack."""
    return _encode([None] * length)[: -length or None]


@lru_cache(maxsize=1_024)
def panel_of(group: str, order: ExpertOrder) -> Panel:
    return Panel(group, order.experts, order, _head(3) + _encode(group) + _head(len(order.experts)))


@lru_cache(maxsize=1_024)
def order_of(came: tuple[tuple[str, ...], ...]) -> ExpertOrder:
    """That of experts who came like this, piece by piece.

    >>> order = order_of((("c", "a"), ("d", "b", "e")))
    >>> order.pieces, order.weave(["a", "c", "b", "de"])
    ((('a', 'c'), ('b', 'd', 'e')), ('a', 'b', 'c', 'de'))
    """
    last = {expert: piece for piece, names in enumerate(came) for expert in names}
    experts = sorted(last)
    pieces: list[list[str]] = [[] for _ in came]
    runs: list[list[slice]] = [[] for _ in came]
    woven = []
    for piece, side_by_side in groupby(experts, last.__getitem__):
        woven.append((piece, len(runs[piece])))
        start = len(pieces[piece])
        pieces[piece] += side_by_side
        runs[piece].append(slice(start, len(pieces[piece])))
    numbers = {run: number for number, run in enumerate(sorted(woven))}
    weave = _picker([numbers[run] for run in woven])
    return ExpertOrder(tuple(experts), tuple(map(tuple, pieces)), tuple(map(tuple, runs)), weave)


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """
    >>> _picker([2, 0])("abc"), _picker([1])("abc")
    (('c', 'a'), ('b',))
    """
    if len(places) < 2:
        return lambda found: tuple(found[place] for place in places)
    return itemgetter(*places)
