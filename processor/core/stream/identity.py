"""Which state of a partition this is."""

from __future__ import annotations

from dataclasses import dataclass

GENESIS = "00" * 16
"""The digest before the first journal record of a lineage."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which state this is: the lineage, how many batches it holds, and the digest of the last one's journal record."""

    lineage: str
    sequence: int
    digest: str

    def text(self) -> str:
        """As kept in commit metadata and in the store."""
        return f"1:{self.lineage}:{self.sequence}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Identity | None:
        """None if the text is not an identity.

        >>> Identity.parse("1:ab12:7:ffee")
        Identity(lineage='ab12', sequence=7, digest='ffee')
        >>> Identity.parse("somebody else's metadata") is None
        True
        """
        match text.split(":"):
            case ["1", lineage, sequence, digest] if lineage and sequence.isdigit():
                return cls(lineage, int(sequence), digest)
        return None
