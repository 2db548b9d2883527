"""Sequential tests over a tenant's joined labels: alerts that may be looked at all the time.

What an alert says, and what it does not, is in ``docs/alerts.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from processor.core import native
from processor.core.errors import IncompatibleStateError

from .alerts import KINDS, Alert, AlertChange, Counts, Evidence, Kind, MonitorSettings, SequentialTestState
from .sequential_tests import SequentialTest

__all__ = [
    "KINDS",
    "MAX_STREAMS",
    "Alert",
    "AlertChange",
    "Counts",
    "Evidence",
    "Kind",
    "Monitor",
    "MonitorSettings",
    "SequentialTest",
    "SequentialTestState",
]

MAX_STREAMS = 1_000
"""Streams of a tenant; pairs of groups met later are not watched, so that no producer can blow up the state."""

VERSION = 1

_encode = msgspec.msgpack.Encoder().encode

Cell = tuple[int, int]
"""Numbers of a label and of a group."""


class Monitor:
    """All streams of a tenant, one for each label and pair of groups, and the alerts that are open.

    >>> watch = Monitor.new(MonitorSettings(learning=0), labels=2, declared_groups=2)
    >>> unfair = [(1, i % 2, i % 2 == 0, 1_000 * i) for i in range(60)]
    >>> [(change.kind, change.state, change.number, change.at) for change in watch.observe(unfair)]
    [('tolerance', 'raised', 1, 29000), ('drift', 'raised', 2, 43000)]
    """

    __slots__ = (
        "_declared",
        "_labels",
        "_numbers",
        "_one_sided",
        "_owned",
        "_streams",
        "_touched",
        "settings",
        "unwatched",
    )

    def __init__(self, settings: MonitorSettings, declared: int) -> None:
        self.settings = settings
        self.unwatched = 0
        """streams that were met after the first ``MAX_STREAMS``"""
        self._declared = declared
        self._streams: list[SequentialTest] = []
        self._owned: set[int] = set()
        """streams that may be changed: no other copy of this watch holds them, and they are not remembered as bytes"""
        self._labels: dict[Cell, int] = {}
        """labels by cell, in the order the cells were met"""
        self._touched: dict[Cell, list[tuple[int, bool]]] = {}
        """for each cell its streams, and whether its group is the second one there"""
        self._numbers = 0
        self._one_sided: Alert | None = None

    @classmethod
    def new(cls, settings: MonitorSettings, labels: int, declared_groups: int) -> Monitor:
        return cls(settings, labels * (declared_groups * (declared_groups - 1) // 2))

    def share(self, number: int) -> float:
        """1/α_j of the stream met as the j-th (from 1).

        The m declared streams get α/(m+1) each and the j-th α/(j(j+1)) if more come: those beyond m add up to
        α/(m+1), so that all together, however many come, spend exactly α.
        """
        equal = self._declared + 1
        return (equal if number < equal else number * (number + 1)) / self.settings.alpha

    def clone(self) -> Monitor:
        """A copy to change; the streams are shared until one side changes them."""
        other = Monitor(self.settings, self._declared)
        other.unwatched = self.unwatched
        other._streams = self._streams.copy()
        other._labels = self._labels.copy()
        other._touched = self._touched
        other._numbers, other._one_sided = self._numbers, self._one_sided
        self._owned = set()
        return other

    def under(self, settings: MonitorSettings) -> Monitor:
        """The same streams under other settings: tests begin anew, what is raised stays raised."""
        other = self.clone()
        if settings != self.settings:
            other.settings = settings
            for index in range(len(other._streams)):
                other._own(index).restart(settings, other.share(index + 1))
        return other

    def observe(self, labels: Sequence[tuple[int, int, bool, int]]) -> list[AlertChange]:
        """Take labels in their order: number of the true label, of the group, decided wrongly, time (ms)."""
        changes: list[AlertChange] = []
        count = partial(self._count, more=len(labels))
        native.observe(labels, self._labels, count, partial(self._judge, changes=changes))
        return changes

    def _count(
        self, cell: Cell, at: int, tested: dict[Cell, list[tuple[SequentialTest, bool]]], more: int
    ) -> list[tuple[SequentialTest, bool]]:
        """Count a label and give the streams of its cell that take it, and whether its group is the second one there.

        Once these are all that the cell has, they are noted as ``tested``: the next label finds them there. So are
        none, if the cell will not have learnt enough when ``more`` labels have come.
        """
        count = self._labels[cell] = self._labels.get(cell, 0) + 1
        if count == 1:
            self._meet(*cell)
            tested.clear()  # cells met before may have a stream more now
        places, learning = self._touched.get(cell, ()), self.settings.learning
        found = []
        for index, of_b in places:
            if self._streams[index].testing:
                found.append((self._own(index), of_b))
            elif count >= learning and self._has_learnt(self._streams[index]):
                self._own(index).begin(at)
        if len(found) == len(places) or (not found and count + more < learning):
            tested[cell] = found
        return found

    def _meet(self, label: int, group: int) -> None:
        """The first label of a cell: begin a stream with every group met before."""
        others = [g for y, g in self._labels if y == label and g != group]
        if not others:
            return
        room = MAX_STREAMS - len(self._streams)
        self.unwatched += max(len(others) - room, 0)
        pairs = [(min(group, other), max(group, other)) for other in others[:room]]
        shares = [self.share(j) for j in range(len(self._streams) + 1, len(self._streams) + len(pairs) + 1)]
        self._hold(
            [SequentialTest(label, pair, self.settings, share) for pair, share in zip(pairs, shares, strict=True)]
        )

    def _hold(self, streams: Sequence[SequentialTest]) -> None:
        """Take new streams in; what other copies share is replaced, not changed."""
        touched = {cell: list(found) for cell, found in self._touched.items()}
        for index, stream in enumerate(streams, start=len(self._streams)):
            for group, of_b in zip(stream.groups, (False, True), strict=True):
                touched.setdefault((stream.label, group), []).append((index, of_b))
            self._owned.add(index)
        self._streams += streams
        self._touched = touched

    def _own(self, index: int) -> SequentialTest:
        if index not in self._owned:
            self._streams[index] = self._streams[index].copy()
            self._owned.add(index)
        return self._streams[index]

    def _has_learnt(self, stream: SequentialTest) -> bool:
        return all(self._labels.get((stream.label, group), 0) >= self.settings.learning for group in stream.groups)

    def _judge(self, stream: SequentialTest, at: int, changes: list[AlertChange]) -> None:
        if stream.exceeds_tolerance:
            changes.append(AlertChange.of(stream.raise_tolerance(self._next_number(), at), "raised", at))
        if stream.has_drifted:
            changes.append(AlertChange.of(stream.raise_drift(self._next_number(), at), "raised", at))
        elif stream.drift_raised and stream.has_recovered:
            alert = stream.drift_raised
            evidence = stream.end_drift()
            changes.append(AlertChange.of(msgspec.structs.replace(alert, evidence=evidence), "cleared", at))

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def acknowledge(self, number: int, at: int) -> list[AlertChange]:
        """A person has seen a tolerance alert: clear it and begin its test anew. Nothing if it is not open."""
        for index, stream in enumerate(self._streams):
            alert = stream.tolerance_raised
            if alert and alert.number == number:
                self._own(index).end_tolerance()
                return [AlertChange.of(alert, "cleared", at)]
        return []

    def one_sided(self, decisions: tuple[int, ...], at: int) -> list[AlertChange]:
        """Say which decisions never get labels; raised while there are some."""
        before = self._one_sided
        if before and not decisions:
            self._one_sided = None
            return [AlertChange.of(before, "cleared", at)]
        if before:
            self._one_sided = msgspec.structs.replace(before, decisions=decisions)
        elif decisions:
            self._one_sided = Alert(kind="one-sided", number=self._next_number(), since=at, decisions=decisions)
            return [AlertChange.of(self._one_sided, "raised", at)]
        return []

    @property
    def alerts(self) -> list[Alert]:
        """What is raised, in the order it was."""
        raised = [self._one_sided]
        for stream in self._streams:
            raised += (stream.tolerance_raised, stream.drift_raised)
        return sorted((alert for alert in raised if alert), key=lambda alert: alert.number)

    @property
    def streams(self) -> list[SequentialTestState]:
        """In the order they were met."""
        return [_figures(stream) for stream in self._streams]

    def encode(self) -> bytes:
        """Equal watches give equal bytes; the settings are not among them."""
        self._owned = set()
        return _encode(
            (
                VERSION,
                self._declared,
                self._numbers,
                self.unwatched,
                self._one_sided,
                [(label, group, count) for (label, group), count in self._labels.items()],
                [stream.stored() for stream in self._streams],
            )
        )

    @classmethod
    def decode(cls, settings: MonitorSettings, data: bytes) -> Monitor:
        """What ``encode`` wrote, under the settings it was written under (for others see ``under``)."""
        try:
            version, *fields = msgspec.msgpack.decode(data, type=list[Any])
            if version != VERSION:
                raise IncompatibleStateError(
                    f"this watch is of format {version} and this version reads {VERSION}: use the version that wrote "
                    "it, or rebuild the state by replay"
                )
            declared, numbers, unwatched, one_sided, labels, streams = fields
            watch = cls(settings, declared)
            watch._numbers, watch.unwatched = numbers, unwatched
            watch._labels = {(label, group): count for label, group, count in labels}
            watch._hold(
                [SequentialTest.of_fields(each, settings, watch.share(j + 1)) for j, each in enumerate(streams)]
            )
            watch._one_sided = msgspec.convert(one_sided, Alert) if one_sided else None
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            if isinstance(error, IncompatibleStateError):
                raise
            raise IncompatibleStateError(f"this watch is damaged: {error}. Rebuild it by replay.") from None
        return watch


def _figures(stream: SequentialTest) -> SequentialTestState:
    tolerance_raised, drift_raised = stream.tolerance_raised is not None, stream.drift_raised is not None
    raised = tolerance_raised or drift_raised
    return SequentialTestState(
        label=stream.label,
        groups=stream.groups,
        state="raised" if raised else "watching" if stream.testing else "learning",
        pairs=stream.seen[0],
        tolerance=stream.tolerance_wealth / stream.limit,
        drift=1.0 if drift_raised else stream.drift_wealth / stream.level,
        recovery=stream.recovery_wealth / stream.clear if drift_raised else 0.0,
        tolerance_raised=tolerance_raised,
        drift_raised=drift_raised,
    )
