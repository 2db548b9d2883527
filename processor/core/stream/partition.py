"""The state of one partition in memory: its tenants and its place in time. Entries stay in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from .identity import Identity
from .tenant import HEAD as HEAD
from .tenant import Tenant, TenantRules, fields_by_tenant
from .writes import SetField

RulesFor = Callable[[str], TenantRules | None]


@dataclass
class Partition:
    """Everything a step needs besides its batch and the entries it touches. Never changed in place."""

    number: int
    partitions: int
    identity: Identity
    clock: int = 0
    pending: int = 0
    parked: int = 0
    tenants: dict[str, Tenant] = field(default_factory=dict)
    terms: str = ""
    """the terms of the last batch, as the journal has them"""
    configs: frozenset[str] = frozenset()
    """digests of the configurations the journal of this lineage already holds"""

    def head(self) -> SetField:
        """The partition's own field."""
        head = [1, self.partitions, self.clock, self.pending, self.parked, self.terms, sorted(self.configs)]
        return SetField(HEAD, msgspec.msgpack.encode(head))


def partition_from_fields(
    number: int, partitions: int, identity: Identity, fields: Mapping[bytes, bytes], rules_for: RulesFor
) -> Partition:
    """Rebuild a partition from its stored fields."""
    _, _, clock, pending, parked, terms, configs = msgspec.msgpack.decode(fields[HEAD])
    tenants = {}
    for one, own in sorted(fields_by_tenant(fields).items()):
        tenant = Tenant.from_fields(one, own, rules_for)
        tenants[tenant.name] = tenant
    return Partition(
        number=number,
        partitions=partitions,
        identity=identity,
        clock=clock,
        pending=pending,
        parked=parked,
        tenants=tenants,
        terms=terms,
        configs=frozenset(configs),
    )


def stored_partitions(fields: Mapping[bytes, bytes]) -> int:
    """The partition count the state was made with."""
    count: int = msgspec.msgpack.decode(fields[HEAD])[1]
    return count
