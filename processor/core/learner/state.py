"""A learner's state: lifetime counters, and the same counters in a ring of time buckets.

A window is a sum of buckets. Late labels go to the bucket of their own time; one whose bucket has left the ring
counts in the lifetime only. What is kept depends on *what* was added and never on the order, so any split,
permutation or merge of the same events ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from processor.core.errors import IncompatibleStateError, InvalidInputError
from processor.core.exact import Ints

from .axes import Axes
from .counters import Counters


@dataclass(slots=True)
class State:
    """The whole memory of one learner. Its counters are replaced and never changed, so copies may share them."""

    axes: Axes
    bucket: int
    keep: int
    unit: int = 1
    lifetime: Counters = field(init=False)
    buckets: dict[int, Counters] = field(init=False, default_factory=dict)
    touched: set[int] = field(init=False, default_factory=set)
    """buckets changed since this state was made or cloned"""
    unwritten: set[int] = field(init=False, default_factory=set)
    """buckets that are other than they are stored although no batch has changed them; a clone has them as changed"""

    def __post_init__(self) -> None:
        for what, value in (("bucket", self.bucket), ("keep", self.keep), ("unit", self.unit)):
            if type(value) is not int or not 1 <= value <= 1 << 53:
                raise InvalidInputError(f"{what} is {value!r}: use a whole number from 1 up")
        self.lifetime = Counters.zeros(self.axes, unit=self.unit)

    @property
    def newest(self) -> int | None:
        """The number of the newest bucket, or None before the first event."""
        return max(self.buckets, default=None)

    def clone(self) -> State:
        """A copy to change; what is not changed stays shared."""
        copy = State.__new__(State)  # the constructor would make counters only to throw them away
        copy.axes, copy.bucket, copy.keep, copy.unit = self.axes, self.bucket, self.keep, self.unit
        copy.lifetime, copy.buckets = self.lifetime, self.buckets.copy()
        copy.touched, copy.unwritten = set(self.unwritten), set()
        return copy

    def extend(self, axes: Axes) -> None:
        """Make room for more groups, experts, labels or policies."""
        grown = self.axes.union(axes)
        if grown == self.axes:
            return
        self.lifetime = self.lifetime.regrown(self.axes, grown)
        self.buckets = {n: counters.regrown(self.axes, grown) for n, counters in self.buckets.items()}
        self.touched.update(self.buckets)
        self.axes = grown

    def add_decisions(self, at: Ints, group: Ints, decided: Ints) -> None:
        """Count requests, each at its own time."""
        for number, rows in self._by_bucket(at):
            counted = self.lifetime.zeros_like(1)
            counted.add_decisions(np.zeros(len(rows), np.int64), group[rows], decided[rows])
            self.add(number, counted.flat[0])

    def add_labels(
        self, at: Ints, group: Ints, label: Ints, predictions: Ints, decided: Ints, weight: Ints | None = None
    ) -> None:
        """Count joined labels, each at its own time. See ``Counters.add_labels``."""
        for number, rows in self._by_bucket(at):
            part = (np.zeros(len(rows), np.int64), group[rows], label[rows], predictions[rows], decided[rows])
            counted = self.lifetime.zeros_like(1)
            counted.add_labels(*part, weight=None if weight is None else weight[rows])
            self.add(number, counted.flat[0])

    def add(self, number: int, counts: Ints) -> None:
        """Add counts of one time bucket, given flat."""
        newest = max(self.buckets, default=number)
        self.lifetime = self.lifetime.plus(counts)
        if number > newest - self.keep:
            before = self.buckets.get(number)
            self.buckets[number] = (before or self.lifetime.zeros_like(1)).plus(counts)
            self.touched.add(number)
            if number > newest:
                self._drop_old()

    def begin_anew(self) -> None:
        """All counts are zero. The buckets stay, to be written as such."""
        self.lifetime = self.lifetime.zeros_like(1)
        self.buckets = dict.fromkeys(self.buckets, self.lifetime)
        self.touched.update(self.buckets)

    def drop_after(self, number: int) -> None:
        """Drop the buckets after this one; the lifetime keeps what they counted."""
        if self.buckets and max(self.buckets) > number:
            self.buckets = {n: counters for n, counters in self.buckets.items() if n <= number}

    def merge(self, other: State) -> None:
        """Add another state to this one."""
        if not isinstance(other, State):
            raise InvalidInputError(
                f"a {type(other).__name__} is not a state: use the state of a learner, or what decode_state gives"
            )
        for what in ("bucket", "keep", "unit"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                raise IncompatibleStateError(
                    f"a state with {what} = {mine} cannot take one with {what} = {theirs}: rebuild one of them by "
                    "replay under the other's settings"
                )
        if self.axes.labels != other.axes.labels:
            raise IncompatibleStateError(
                f"a state of labels {list(self.axes.labels)} cannot take one of {list(other.axes.labels)}: labels are "
                "fixed by the settings. Rebuild one of them by replay under the other's settings."
            )
        self.extend(other.axes)
        self.lifetime = self.lifetime + other.lifetime.regrown(other.axes, self.axes)
        for number, counters in other.buckets.items():
            grown = counters.regrown(other.axes, self.axes)
            mine = self.buckets.get(number)
            self.buckets[number] = grown if mine is None else mine + grown
            self.touched.add(number)
        self._drop_old()

    def window(self, buckets: int | None = None, newest: int | None = None) -> Counters:
        """The counters of the newest ``buckets`` buckets; all of the lifetime if None.

        ``newest`` is the bucket the window ends with (default: the newest one with an event in it).
        """
        if buckets is None:
            return self.lifetime
        if type(buckets) is not int or not 1 <= buckets <= self.keep:
            raise InvalidInputError(
                f"a window of {buckets!r} buckets was asked for but {self.keep} are kept: use 1 to {self.keep}"
            )
        total = Counters.zeros(self.axes, unit=self.unit)
        last = self.newest if newest is None else newest
        for number, counters in self.buckets.items():
            if last is not None and last - buckets < number <= last:
                total += counters
        return total

    def _by_bucket(self, at: Ints) -> list[tuple[int, Ints]]:
        numbers = at // self.bucket
        return [(int(n), np.nonzero(numbers == n)[0]) for n in np.unique(numbers)]

    def _drop_old(self) -> None:
        newest = self.newest
        if newest is not None and min(self.buckets) <= newest - self.keep:
            self.buckets = {n: c for n, c in sorted(self.buckets.items()) if n > newest - self.keep}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._parts() == other._parts()

    def _parts(self) -> tuple[Axes, int, int, int, Counters, Mapping[int, Counters]]:
        return (self.axes, self.bucket, self.keep, self.unit, self.lifetime, self.buckets)
