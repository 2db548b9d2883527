"""Stops a partition that somebody has pointed the wrong stream at, until a person says go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Breaker:
    """Counts records, and those among them that cannot be read at all.

    >>> breaker = Breaker()
    >>> breaker.trips(60, 10, every=100, share=0.5), breaker.trips(60, 60, every=100, share=0.5)
    (False, True)
    >>> breaker.resume()
    >>> breaker.open, breaker.trips(100, 100, every=100, share=0.5)
    (False, False)
    """

    open: bool = False
    seen: int = 0
    garbage: int = 0
    _resumed: bool = False
    """a person said go on, and no stretch of mostly good records has come since"""

    def trips(self, records: int, garbage: int, every: int, share: float) -> bool:
        """Whether it opens, now that so many more have come. It judges stretches of at least ``every`` records."""
        self.seen += records
        self.garbage += garbage
        if self.seen < every:
            return False
        mostly_good = self.garbage <= self.seen * share
        if mostly_good or self._resumed:
            # After a resume the backlog that tripped it is still to be read; good records arm it again.
            self._resumed = self._resumed and not mostly_good
            self.seen = self.garbage = 0
            return False
        self.open = True
        return True

    def resume(self) -> None:
        """A person says the stream is right."""
        self.open, self._resumed, self.seen, self.garbage = False, True, 0, 0
