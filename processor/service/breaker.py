"""Stops a partition that somebody has pointed the wrong stream at, until a person says go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Breaker:
    """Counts records, and those among them that cannot be read at all.

    >>> breaker = Breaker()
    >>> breaker.trips(60, 60, every=100, share=0.5), breaker.trips(60, 60, every=100, share=0.5)  # the same ones again
    (False, False)
    >>> breaker.passed(60, 60, every=100, share=0.5)
    >>> breaker.trips(60, 60, every=100, share=0.5)
    True
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
        """Whether it opens, were so many more to pass. It judges stretches of at least ``every`` records.

        After a resume the backlog that tripped it is still to be read; good records arm it again.
        """
        seen, unreadable = self.seen + records, self.garbage + garbage
        if seen < every or unreadable <= seen * share or self._resumed:
            return False
        self.open, self.seen, self.garbage = True, seen, unreadable
        return True

    def passed(self, records: int, garbage: int, every: int, share: float) -> None:
        """So many more are committed: those of a batch that is tried again count once."""
        self.seen += records
        self.garbage += garbage
        if self.seen >= every:
            self._resumed = self._resumed and self.garbage > self.seen * share
            self.seen = self.garbage = 0

    def resume(self) -> None:
        """A person says the stream is right."""
        self.open, self._resumed, self.seen, self.garbage = False, True, 0, 0
