"""The same case under two settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .ledger import LabelledDecision, Ledger
from .outcomes import PairedCases
from .variation import Variation


@dataclass
class Pairing:
    """Brings the two labels of a case together, at whatever times they come."""

    ledger: Ledger
    other: Variation
    by_tenant: dict[str, PairedCases] = field(default_factory=dict)
    _mine: dict[bytes, LabelledDecision] = field(default_factory=dict)
    _theirs: dict[bytes, LabelledDecision] = field(default_factory=dict)

    def take(
        self,
        mine: Sequence[LabelledDecision],
        theirs: Sequence[LabelledDecision],
        gone: Iterable[bytes],
        gone_there: Iterable[bytes],
    ) -> None:
        for label in theirs:
            self._theirs[label.key] = label
        for label in mine:
            partner = self._theirs.pop(label.key, None)
            if partner is not None:
                self._pair(label, partner)
            elif label.key in self.other.ledger.waiting:
                self._mine[label.key] = label
        for label in theirs:
            if label.key not in self._theirs:
                continue
            partner = self._mine.pop(label.key, None)
            if partner is not None:
                self._pair(partner, self._theirs.pop(label.key))
            elif label.key not in self.ledger.waiting:
                del self._theirs[label.key]  # the record never has a label for it
        for key in gone:
            self._theirs.pop(key, None)
        for key in gone_there:
            self._mine.pop(key, None)

    def _pair(self, mine: LabelledDecision, theirs: LabelledDecision) -> None:
        if mine.truth == theirs.truth:  # one may have expired into another label
            self.by_tenant.setdefault(mine.made.tenant, PairedCases()).add(mine, theirs)
