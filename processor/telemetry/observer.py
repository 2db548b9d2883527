"""Looks at the partitions a process owns, whenever somebody asks, and remembers what has not changed since."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from threading import Lock

import msgspec
import numpy as np

from processor.core.learner.estimates import estimate
from processor.core.metrics.attainable import least_gap
from processor.core.stream.delays import DELAY_BOUNDS
from processor.core.stream.partition import Partition
from processor.core.stream.tenant import Tenant

from .catalogue import OTHER
from .figures import TenantFigures
from .measuring import TenantSnapshot, measured, rule_counters
from .status import Status

ATTAINABLE_EVERY = 10.0
"""Seconds before the attainable gap of a tenant is worked out again."""
UNKNOWN = float("nan")

Key = tuple[int, str]
"""Partition and name of a tenant."""


@dataclass
class Overflow:
    """What is added up of the tenants beyond the cap."""

    tally: Counter[str] = field(default_factory=Counter)
    pending: int = 0
    delays: list[int] = field(default_factory=lambda: [0] * (len(DELAY_BOUNDS) + 1))
    delay_sum: int = 0

    def add(self, tenant: Tenant) -> None:
        self.tally.update(tenant.tally)
        waits = tenant.waits
        self.pending += waits.pending
        self.delays = [mine + theirs for mine, theirs in zip(self.delays, waits.delays, strict=True)]
        self.delay_sum += waits.delay_sum


@dataclass(frozen=True)
class Sight:
    """Everything about tenants that one scrape shows."""

    listed: list[TenantFigures]
    owned: int
    """tenants in all"""
    overflow: Overflow | None
    """None if no tenant is beyond the cap"""


@dataclass(frozen=True)
class _Attainable:
    tenant: Tenant
    gap: float
    at: float


class Observer:
    """The figures of the tenants of ``status().held``. Its methods may be called from any thread."""

    def __init__(
        self,
        status: Callable[[], Status],
        max_tenants: int = 500,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status, self._max, self._monotonic_s = status, max_tenants, monotonic_s
        self._lock = Lock()
        self._measured: dict[Key, tuple[TenantSnapshot, TenantFigures]] = {}
        self._attainable: dict[Key, _Attainable] = {}

    def figures(self) -> list[TenantFigures]:
        """Of the listed tenants."""
        return self.sight().listed

    def sight(self) -> Sight:
        held = self.status().held
        tenants = in_order(held)
        # A tenant of the overflow's own name is never listed: its series would look like that of all the others.
        named = [pair for pair in tenants if pair[1].name != OTHER]
        first, beyond = named[: self._max], named[self._max :]
        alerted = [pair for pair in beyond if _has_alert(pair[1])][: self._max]
        rest = beyond + [pair for pair in tenants if pair[1].name == OTHER]
        overflow = None
        if rest:
            overflow = Overflow()
            for _, tenant in rest:
                overflow.add(tenant)
        return Sight(self._look([*first, *alerted]), len(tenants), overflow)

    def first(self, count: int, also: Collection[str]) -> list[TenantFigures]:
        """Of the first tenants only, and of those named."""
        tenants = [pair for pair in in_order(self.status().held) if pair[1].name != OTHER][: self._max]
        wanted = [pair for i, pair in enumerate(tenants) if i < count or pair[1].name in also]
        return self._look(wanted, forget=False)

    def tenant(self, name: str) -> TenantFigures | None:
        """Listed or not; None if this process does not have it."""
        found = self._find(name)
        return self._look([found], forget=False)[0] if found else None

    def state_of(self, name: str) -> Tenant | None:
        found = self._find(name)
        return found[1] if found else None

    def _find(self, name: str) -> tuple[Partition, Tenant] | None:
        held = [partition for partition in self.status().held if name in partition.tenants]
        return (held[0], held[0].tenants[name]) if held else None

    def refresh_attainable(self, seconds: float) -> bool:
        """Work out attainable gaps that are out of date, oldest first, for at most about so long.

        True if none is left. A linear programme takes milliseconds, so a scrape never waits for one.
        """
        held = self.status().held
        tenants = {_key(*pair): pair[1] for pair in in_order(held) if pair[1].name != OTHER}
        listed = [(key, tenant) for key, tenant in tenants.items() if key in self._measured]
        with self._lock:
            known = dict(self._attainable)
        begun = self._monotonic_s()
        due = [
            (known[key].at if key in known else -1.0, key, tenant)
            for key, tenant in listed
            if key not in known or (known[key].tenant is not tenant and begun - known[key].at >= ATTAINABLE_EVERY)
        ]
        for _, key, tenant in sorted(due, key=lambda one: one[0]):
            if self._monotonic_s() - begun >= seconds:
                return False
            gap = attainable_gap(tenant)
            with self._lock:
                self._attainable[key] = _Attainable(tenant, gap, self._monotonic_s())
        return True

    def _look(self, pairs: list[tuple[Partition, Tenant]], forget: bool = True) -> list[TenantFigures]:
        cases = {
            _key(partition, tenant): TenantSnapshot.of(partition.number, tenant, partition.clock)
            for partition, tenant in pairs
        }
        with self._lock:
            stale = [key for key, case in cases.items() if not self._is_current(key, case)]
            for key, figures in zip(stale, measured([cases[key] for key in stale]), strict=True):
                self._measured[key] = cases[key], figures
            found = [self._completed(key, partition) for key, (partition, _) in zip(cases, pairs, strict=True)]
            if forget:
                self._measured = {key: self._measured[key] for key in cases}
                self._attainable = {key: one for key, one in self._attainable.items() if key in cases}
        return found

    def _is_current(self, key: Key, case: TenantSnapshot) -> bool:
        known = self._measured.get(key)
        return known is not None and known[0].tenant is case.tenant and known[0].starts == case.starts

    def _completed(self, key: Key, partition: Partition) -> TenantFigures:
        """With what goes on while a tenant stays as it is."""
        case, figures = self._measured[key]
        oldest = case.tenant.waits.oldest
        attainable = self._attainable.get(key)
        return msgspec.structs.replace(
            figures,
            oldest_pending=UNKNOWN if oldest is None else max(partition.clock / 1_000 - oldest, 0.0),
            attainable=attainable.gap if attainable else UNKNOWN,
        )


def in_order(held: Iterable[Partition]) -> list[tuple[Partition, Tenant]]:
    """All tenants in the order their partitions met them, which never changes: the first are the first to be listed."""
    pairs = [(partition, tenant) for partition in held for tenant in partition.tenants.values()]
    return sorted(pairs, key=lambda pair: (pair[1].number, pair[0].number))


def attainable_gap(tenant: Tenant) -> float:
    """Over the groups with labels in every cell; unknown with fewer than two of them."""
    axes = tenant.learner.state.axes
    if not axes.experts:
        return UNKNOWN
    counters = rule_counters([tenant])
    known = (counters.seen[0] > 0).all(axis=1)
    if np.count_nonzero(known) < 2:
        return UNKNOWN
    return least_gap(estimate(counters, tenant.rules.settings.prior).error[0][:, known]).figure


def _has_alert(tenant: Tenant) -> bool:
    return tenant.watch is not None and bool(tenant.watch.alerts)


def _key(partition: Partition, tenant: Tenant) -> Key:
    return partition.number, tenant.name
