"""Records that are read and not yet committed, and how many of them the next batch may take.

A backlog is read in large pieces, now of one input, now of the other. If a batch took whatever is there, labels would
overtake their requests and have to be parked, and requests would run ahead of the labels that were there to learn from.
So a batch takes of each input only what is not later than the time that both have reached; the rest is held until the
other input has come to the same time, or to its end.

That is for backlogs only, and it can end in no deadlock. Whichever input is behind may be taken up to where it is
behind; if it holds nothing at all, it is being read, since only inputs that hold plenty are paused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from processor.core.stream.decode import InputRecord

NO_TIME_LIMIT_MS = 1 << 63
MAX_BATCH_BYTES = 16 << 20
"""of one input in a batch: a transaction must end before its time is over"""


@dataclass
class InputBuffer:
    """One input of a partition: what is read of it and not committed."""

    next: int
    """the offset to read on from"""
    records: list[InputRecord] = field(default_factory=list)
    latest: list[int] = field(default_factory=list)
    """the latest timestamp up to and including each record: it never falls, so it can be searched"""
    let_go_at: int = 0
    """the same of the last record that was let go"""
    size: int = 0
    """of the records, in bytes"""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def reached(self) -> int:
        """The time this input has been read to."""
        return self.latest[-1] if self.latest else self.let_go_at

    def add(self, records: Sequence[InputRecord], now: int) -> None:
        """Keep records for the next batches; what was read before, or twice, is passed over.

        A timestamp later than the wall clock is wrong and says nothing of when the record came, so it does not count:
        such a record goes along with the one before it, and neither waits nor makes others wait.
        """
        if records[0].offset < self.next:
            records = [record for record in records if record.offset >= self.next]
        if records:
            times = [record.timestamp for record in records]
            if max(times) > now:
                times = [time if time <= now else 0 for time in times]
            times[0] = max(times[0], self.reached)
            self.latest += times if times == sorted(times) else accumulate(times, max)
            self.records += records
            self.size += size_of(records)
            self.next = records[-1].offset + 1

    def drop_committed(self, count: int) -> None:
        """So many, the first, are committed."""
        if count:
            self.let_go_at = self.latest[count - 1]
            self.size -= size_of(self.records[:count])
            del self.records[:count], self.latest[:count]

    def fitting(self, most: int) -> int:
        """How many records, at most so many, make a batch of a size: by what those that are held weigh."""
        if self.size <= MAX_BATCH_BYTES:
            return most
        return max(1, min(most, MAX_BATCH_BYTES * len(self) // self.size))

    def limit(self, most: int, caught_up: bool) -> int | None:
        """Up to which time the other input may be taken along with at most so many of this one. None: it has no say."""
        if len(self) > most:
            return self.latest[most - 1]
        return None if caught_up else self.reached

    def until(self, time: int, most: int) -> int:
        """How many of the first ``most`` are not later than that."""
        return bisect_right(self.latest, time, 0, min(most, len(self)))


def size_of(records: Sequence[InputRecord]) -> int:
    """In bytes, but for what each costs whatever is in it."""
    return sum([len(record.value) for record in records if record.value is not None])


def batch_limit(
    requests: InputBuffer, feedback: InputBuffer, most: int, caught_up: tuple[bool, bool], present: int
) -> tuple[int, int]:
    """How many requests and labels the next batch may take, at most so many of each.

    ``caught_up`` says of which input hardly anything is left that is not held. Requests that have caught up are taken
    whatever the labels are at: somebody waits for these decisions now, and labels that are sent years late must not
    stop them. Nothing at all is held of a partition that has come to the present.
    """
    limits = requests.limit(most, caught_up[0]), feedback.limit(most, caught_up[1])
    time = min((limit for limit in limits if limit is not None), default=NO_TIME_LIMIT_MS)
    if time >= present:
        time = NO_TIME_LIMIT_MS
    return requests.until(NO_TIME_LIMIT_MS if limits[0] is None else time, most), feedback.until(time, most)
