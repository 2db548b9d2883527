"""The native decoder's memory of advice: requests differ, the advice in them rarely does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from processor.core import native
from processor.core.advice import Advice, AdvicePiece, ExpertOrder, Panel, order_of, panel_of
from processor.core.events import Limits, Longest, canonical_labels, predictions_type

MOST, LONGEST = 4_096, 2_048
"""How many different pieces of advice are remembered, and of how many bytes at most."""
MOST_CUT = 4 * MOST
"""The same pieces come from the same experts in different orders."""
PIECE = re.compile(rb"(?:^|,)([^,]*(?:,[^,]*){0,7})")
"""Advice of more than eight experts hardly ever repeats; it is put together of pieces of eight, which do."""
TRIED = 4
"""A tenant mostly asks the same experts in the same order, or in others, of which so many are tried."""
NOTHING: frozenset[str] = frozenset()
Came = tuple[tuple[str, ...], ...]
"""Experts, piece by piece."""


@lru_cache(maxsize=16)
def memory_of(limits: Limits) -> Memory:
    """What was said before in requests under these limits."""
    return Memory(limits)


class Memory:
    """Advice by the very bytes it was given in. Only JSON without escapes comes here, which was parsed already."""

    def __init__(self, limits: Limits) -> None:
        self.known: dict[tuple[str, bytes], Advice] = {}
        self.longest = 0
        """Nothing known has more bytes: what has is not worth looking for."""
        self._said: dict[bytes, dict[str, str]] = {}
        self._cuts: dict[Came, _Cut | None] = {}
        """None for experts who came in this order once"""
        self._by_tenant: dict[str, list[_Cut]] = {}
        self._learnt = 0
        self._most_experts = limits.max_experts
        self._decode = msgspec.json.Decoder(predictions_type(Longest.of(limits))).decode

    def advice(self, tenant: str, group: str, predictions: bytes) -> Advice | None:
        """What was said; None, or a ``DecodeError``, if only the plain version can tell what is wrong with it."""
        cuts = self._by_tenant.get(tenant, [])
        for cut in cuts:
            if (advice := cut.advice(group, predictions)) is not None:
                if cut is not cuts[0]:  # the more often, the earlier it is tried
                    place = cuts.index(cut)
                    cuts[place - 1], cuts[place] = cut, cuts[place - 1]
                return advice
        return self._new(tenant, group, predictions)

    def _new(self, tenant: str, group: str, predictions: bytes) -> Advice | None:
        if not predictions.startswith(b"{") or predictions.count(b",") >= self._most_experts:
            return None
        texts = PIECE.findall(predictions[1:-1])
        said = [self._said.get(text) or self._piece(text) for text in texts]
        if not all(said):
            return None
        if len(predictions) > LONGEST:
            return Advice.of(group, _together(said))
        self._make_room()
        if len(said) == 1:
            advice = self.known[group, predictions] = Advice.of(group, said[0])
            self.longest = max(self.longest, len(predictions))
            return advice
        came = tuple([tuple(piece) for piece in said])
        if came not in self._cuts:
            self._cuts[came] = None
            return Advice.of(group, _together(said))
        cut = self._cuts[came] = self._cuts[came] or _Cut(order_of(came), texts)
        self._try_early(cut, tenant)
        advice, new = cut.learn(group, texts, said)
        self._learnt += new
        return advice

    def _piece(self, text: bytes) -> dict[str, str]:
        """Cut at commas. A comma inside a name makes this no JSON, so each piece is one by itself or none."""
        said = canonical_labels(self._decode(b"{%b}" % text))
        if len(text) <= LONGEST:
            if len(self._said) >= MOST:
                self._said.clear()
            self._said[text] = said
        return said

    def _try_early(self, cut: _Cut, tenant: str) -> None:
        cuts = self._by_tenant.setdefault(tenant, [])
        if cut not in cuts:
            cuts[1:] = [cut, *cuts[1 : TRIED - 1]]

    def _make_room(self) -> None:
        if len(self.known) >= MOST:
            self.known.clear()
        if len(self._cuts) >= MOST or self._learnt >= MOST_CUT or len(self._by_tenant) >= MOST_CUT:
            self._learnt = 0
            self._cuts.clear()
            self._by_tenant.clear()


def _together(said: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Where an expert comes twice, the last counts."""
    return {expert: label for piece in said for expert, label in piece.items()}


class _Cut:
    """How advice of experts who come in a certain order is cut into pieces, and the pieces that are known."""

    def __init__(self, order: ExpertOrder, texts: Sequence[bytes]) -> None:
        self._order = order
        self._panels: dict[str, Panel] = {}
        self._places: list[tuple[bytes, dict[bytes, AdvicePiece]]] = [
            (_beginning(text), {}) for text in _with_marks(texts)
        ]
        """how each piece begins, and those that are known, by what follows"""
        (_, self._first), *others = self._places
        self._others = others[::-1]

    def learn(self, group: str, texts: Sequence[bytes], said: Sequence[Mapping[str, str]]) -> tuple[Advice, int]:
        """What was said, and how much of it is new."""
        new = 0
        if group not in self._panels:
            self._panels[group] = panel_of(group, self._order)
            new += 1
        pieces = []
        for place, (text, (beginning, known)) in enumerate(zip(_with_marks(texts), self._places, strict=True)):
            piece = known.get(text[len(beginning) :]) if text.startswith(beginning) else None
            if piece is None:
                piece = AdvicePiece.of(said[place], self._order, place)
                if text.startswith(beginning):  # else it is written with other spaces
                    known[text[len(beginning) :]] = piece
                    new += 1
            pieces.append(piece)
        return Advice(self._panels[group], pieces, NOTHING.union(*[piece.kinds for piece in pieces])), new

    def advice(self, group: str, predictions: bytes) -> Advice | None:
        """What was said, if every piece of it is known.

        Each of these is JSON by itself, so it does not matter how the places to cut at are guessed. Together they
        are from the experts of the order, who were not too many before.
        """
        panel = self._panels.get(group)
        if panel is None:
            return None
        found: Advice | None = native.put_together(predictions, panel, self._others, self._first, Advice)
        return found


def _with_marks(texts: Sequence[bytes]) -> list[bytes]:
    """The pieces with the comma or bracket before them, and the bracket after all."""
    first, *others, last = texts
    return [b"{" + first, *[b"," + text for text in others], b"," + last + b"}"]


def _beginning(text: bytes) -> bytes:
    """What every piece in its place begins with; the first is known as a whole."""
    return text[: text.find(b":") + 1] if text.startswith(b",") else b""
