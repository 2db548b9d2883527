"""Decision ids replaced by keyed hashes: the same id has the same hash in one report, and nobody can go back.

Ids are what a tenant's own systems know people by. Findings may quote events, with ids and whatever else producers put
into them; in a redacted report events are not quoted.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from processor.audit.replay.findings import MEANING, Finding

WITHHELD = "(an event, withheld in a redacted report)"
_QUOTED_ID = re.compile(r'"decision_id"\s*:\s*("(?:[^"\\]|\\.)*")')
_NAMED = re.compile(r'decision "')
_WORDS = re.compile(r"was changed from .*(?=: with that, its hash)", re.DOTALL)
"""A cause may name the words of a record that were changed, and those may be anything."""
_SAFE = re.compile(r"(?:hash|digest)?\s?[0-9a-f]{8,64}(?: [a-z ]+)?|1:[0-9a-f]+:\d+:[0-9a-f]+|[a-z-]{1,40}|")


class Redaction:
    """``key`` makes the hashes of several reports comparable; by default it is random and forgotten."""

    def __init__(self, key: str | None = None) -> None:
        given = key.encode() if key else secrets.token_bytes(32)
        self._key = blake2b(given, digest_size=32, person=b"gforce-report").digest()

    def id(self, decision_id: str) -> str:
        """
        >>> Redaction("k").id("loan-17") == Redaction("k").id("loan-17") != Redaction("other").id("loan-17")
        True
        """
        return "id:" + blake2b(decision_id.encode(), key=self._key, digest_size=8).hexdigest()

    def finding(self, finding: Finding, known: Iterable[str] = ()) -> Finding:
        """Without ids and events. ``known`` are ids that may be in it, beside those it quotes."""
        fields = (finding.text, finding.recorded, finding.follows, finding.cause)
        ids = {*known} | {found for text in fields for found in _ids(text)}
        text, recorded, follows, cause = (self._replaced(one, ids) for one in fields)
        named = _NAMED.search(re.sub(r'decision "id:[0-9a-f]{16}"', "", text))
        if named or finding.kind == "recomputation":  # an error's message may name anything
            text = MEANING[finding.kind]
        return msgspec.structs.replace(
            finding,
            text=text,
            recorded=recorded if _SAFE.fullmatch(recorded) else WITHHELD,
            follows=follows if _SAFE.fullmatch(follows) else WITHHELD,
            cause=_WORDS.sub("was changed", cause) if not _ids(cause) else "",
        )

    def _replaced(self, text: str, ids: Iterable[str]) -> str:
        for one in sorted(ids, key=len, reverse=True):
            for spelling in (msgspec.json.encode(one).decode()[1:-1], one):
                text = text.replace(f'"{spelling}"', f'"{self.id(one)}"')
        return text


def _ids(text: str) -> set[str]:
    found = set()
    for quoted in _QUOTED_ID.findall(text):
        try:
            found.add(msgspec.json.decode(quoted, type=str))
        except msgspec.MsgspecError:
            continue
    return found
