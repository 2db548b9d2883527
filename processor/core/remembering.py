"""What was said before, remembered: requests differ, the advice in them rarely does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from .advice import Advice, Order, Panel, Piece, order_of, panel_of
from .events import Limits, Longest, canonical_labels, predictions_type

MOST, LONGEST = 4_096, 2_048
"""How many different pieces of advice are remembered, and of how many bytes at most."""
MOST_CUT = 4 * MOST
"""The same pieces come from the same experts in different orders."""
PIECE = re.compile(rb"(?:^|,)([^,]*(?:,[^,]*){0,7})")
"""Advice of more than eight experts hardly ever repeats; it is put together of pieces of eight, which do."""
BEGINNING = 16
"""Advice of which so many bytes are the same mostly comes from the same experts …"""
TRIED = 4
"""… or from others, of which so many are tried."""
NOTHING: frozenset[str] = frozenset()
Came = tuple[tuple[str, ...], ...]
"""Experts, piece by piece."""


class Memory:
    """Advice by the very bytes it was given in. Only JSON without escapes comes here, which was skimmed already."""

    def __init__(self, limits: Limits) -> None:
        self.known: dict[tuple[str, bytes], Advice] = {}
        self._said: dict[bytes, dict[str, str]] = {}
        self._cuts: dict[Came, _Cut | None] = {}
        """None for experts who came in this order once"""
        self._by_beginning: dict[bytes, list[_Cut]] = {}
        self._learnt = 0
        self._most_experts = limits.max_experts
        self._decode = msgspec.json.Decoder(predictions_type(Longest.of(limits))).decode

    def advice(self, group: str, predictions: bytes) -> Advice | None:
        """What was said; None, or a ``DecodeError``, if only the plain version can tell what is wrong with it."""
        cuts = self._by_beginning.get(predictions[:BEGINNING]) or []
        for place, cut in enumerate(cuts):
            if (advice := cut.advice(group, predictions)) is not None:
                if place:  # the more often, the earlier it is tried
                    cuts[place - 1], cuts[place] = cut, cuts[place - 1]
                return advice
        return self._new(group, predictions)

    def _new(self, group: str, predictions: bytes) -> Advice | None:
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
            return advice
        came = tuple([tuple(piece) for piece in said])
        if came not in self._cuts:
            self._cuts[came] = None
            return Advice.of(group, _together(said))
        cut = self._cuts[came] = self._cuts[came] or _Cut(order_of(came), texts)
        self._try_early(cut, predictions[:BEGINNING])
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

    def _try_early(self, cut: _Cut, beginning: bytes) -> None:
        cuts = self._by_beginning.setdefault(beginning, [])
        if cut not in cuts:
            cuts[1:] = [cut, *cuts[1 : TRIED - 1]]

    def _make_room(self) -> None:
        if len(self.known) >= MOST:
            self.known.clear()
        if len(self._cuts) >= MOST or self._learnt >= MOST_CUT:
            self._learnt = 0
            self._cuts.clear()
            self._by_beginning.clear()


def _together(said: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Where an expert comes twice, the last counts."""
    return {expert: label for piece in said for expert, label in piece.items()}


class _Cut:
    """How advice of experts who come in a certain order is cut into pieces, and the pieces that are known."""

    def __init__(self, order: Order, texts: Sequence[bytes]) -> None:
        self._order = order
        self._panels: dict[str, Panel] = {}
        self._known: list[dict[bytes, Piece]] = [{} for _ in texts]
        self._next = [*[b"," + text[: text.find(b":") + 1] for text in texts[1:]], b"}"]
        """what comes after each piece"""
        self._shortest = [len(text) for text in texts]
        self._places: list[tuple[bytes, int, dict[bytes, Piece]]] = []
        """of each piece: what comes after it, how many bytes away at least, and those that are known"""

    def learn(self, group: str, texts: Sequence[bytes], said: Sequence[Mapping[str, str]]) -> tuple[Advice, int]:
        """What was said, and how much of it is new."""
        new = 0
        if group not in self._panels:
            self._panels[group] = panel_of(group, self._order)
            new += 1
        for place, (known, text) in enumerate(zip(self._known, texts, strict=True)):
            if text not in known:
                known[text] = Piece.of(said[place], self._order, place)
                new += 1
        if new:
            self._shortest = list(map(min, self._shortest, map(len, texts)))
            self._places = list(zip(self._next, self._shortest, self._known, strict=True))
        pieces = [known[text] for known, text in zip(self._known, texts, strict=True)]
        return Advice(self._panels[group], pieces, NOTHING.union(*[piece.kinds for piece in pieces])), new

    def advice(self, group: str, predictions: bytes) -> Advice | None:
        """What was said, if every piece of it is known.

        Each of these is JSON by itself, so it does not matter how the places to cut at are guessed. Together they
        are from the experts of the order, who were not too many before.
        """
        pieces, labels, start = [], NOTHING, 1
        for following, shortest, known in self._places:
            end = predictions.find(following, start + shortest)
            piece = known.get(predictions[start:end])
            if piece is None or end < 0:
                return None
            pieces.append(piece)
            if not labels >= piece.kinds:
                labels = labels | piece.kinds if labels else piece.kinds
            start = end + 1
        panel = self._panels.get(group)
        return Advice(panel, pieces, labels) if panel is not None and start == len(predictions) else None
