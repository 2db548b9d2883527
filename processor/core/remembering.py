"""What was said before, remembered: requests differ, the advice in them rarely does."""

from __future__ import annotations

import re

import msgspec

from .advice import Advice, Piece
from .events import Limits, Longest, canonical_labels, predictions_type

MOST, LONGEST = 4_096, 2_048
"""How many different pieces of advice are remembered, and of how many bytes at most."""
PIECE = re.compile(rb"(?:^|,)([^,]*(?:,[^,]*){0,7})")
"""Advice of more than eight experts hardly ever repeats; it is put together of pieces of eight, which do."""


class Memory:
    """Advice by the very bytes it was given in. Only JSON without escapes comes here, which was skimmed already."""

    def __init__(self, limits: Limits) -> None:
        self.known: dict[tuple[str, bytes], Advice] = {}
        self._pieces: dict[bytes, Piece] = {}
        self._most_experts = limits.max_experts
        self._decode_predictions = msgspec.json.Decoder(predictions_type(Longest.of(limits))).decode

    def advice(self, group: str, predictions: bytes) -> Advice | None:
        """What was said; None, or a ``DecodeError``, if only the plain version can tell what is wrong with it."""
        if not predictions.startswith(b"{") or predictions.count(b",") >= self._most_experts:
            return None
        known = self._pieces
        pieces = [known.get(text) or self._piece(text) for text in PIECE.findall(predictions[1:-1])]
        if not all(piece.experts for piece in pieces):
            return None
        advice = Advice.of_pieces(group, pieces)
        if len(pieces) == 1 and len(group) + len(predictions) <= LONGEST:
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[group, predictions] = advice
        return advice

    def _piece(self, text: bytes) -> Piece:
        """Cut at commas. A comma inside a name makes this no JSON, so each piece is one by itself or none."""
        piece = Piece.of(canonical_labels(self._decode_predictions(b"{%b}" % text)))
        if len(text) <= LONGEST:
            if len(self._pieces) >= MOST:
                self._pieces.clear()
            self._pieces[text] = piece
        return piece
