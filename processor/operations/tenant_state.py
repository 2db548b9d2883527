"""One tenant's state, read from the store without claiming anything."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from processor.core.errors import GForceError
from processor.core.metrics.rates import Fairness, fairness
from processor.core.stream.identity import Identity
from processor.core.stream.partition import HEAD, SettingsFor
from processor.core.stream.partitioner import partition_of
from processor.core.stream.tenant import Tenant
from processor.run.assembly import tenant_settings_of

from .group import Place


class NoSuchTenantError(GForceError, LookupError):
    """The store has nothing of this tenant."""


@dataclass(frozen=True)
class TenantState:
    name: str
    partition: int
    partitions: int
    identity: Identity | None
    clock: int
    pending: int
    """of the whole partition, as is ``parked``"""
    parked: int
    groups: tuple[str, ...]
    labels: tuple[str, ...]
    experts: tuple[str, ...]
    seen: list[list[int]]
    """joined labels by group and label"""
    by_policy: dict[str, Fairness]
    tally: dict[str, int]


def tenant_state(place: Place, name: str) -> TenantState:
    """What the store has of a tenant, at one moment."""
    partitions = place.partitions()
    number = partition_of(name.encode(), partitions)
    tenant = _number_of(place, number, name)
    if tenant is None:
        raise NoSuchTenantError(
            f'the store has nothing of tenant "{name}", which would be on partition {number} of {partitions}: '
            "it has had no request yet, or the store is behind (see `gforce doctor`)"
        )
    head = tenant.to_bytes(2, "big")
    identity, fields = place.store.peek(number, [HEAD, b"t" + head, b"c" + head])
    return read(name, number, identity, tenant, fields, tenant_settings_of(place.config))


def _number_of(place: Place, partition: int, name: str) -> int | None:
    """A tenant's number never changes, so this needs not be at the same moment."""
    for field, value in place.store.peek_all(partition, "t??"):
        if msgspec.msgpack.decode(value)[1] == name:
            return int.from_bytes(field[1:], "big")
    return None


def read(
    name: str,
    number: int,
    identity: Identity | None,
    tenant: int,
    fields: dict[bytes, bytes],
    settings_for: SettingsFor,
) -> TenantState:
    """From the stored fields to figures over the lifetime."""
    _, partitions, clock, pending, parked, *_ = msgspec.msgpack.decode(fields[HEAD])
    found = Tenant.from_fields(tenant, fields, settings_for)
    axes, counters, hidden = found.learner.state.axes, found.learner.state.lifetime, found.learner.hidden
    return TenantState(
        name=name,
        partition=number,
        partitions=partitions,
        identity=identity,
        clock=clock,
        pending=pending,
        parked=parked,
        groups=axes.groups,
        labels=axes.labels,
        experts=axes.experts,
        seen=counters.seen[0].tolist(),
        by_policy={policy: fairness(counters, index, hidden=hidden) for policy, index in axes.policy_index.items()},
        tally=dict(sorted(found.tally.items())),
    )
