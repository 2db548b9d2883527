"""The state of one partition in memory: its tenants and its place in time. Entries stay in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from processor.core.errors import IncompatibleStateError

from .identity import Identity
from .tenant import HEAD as HEAD
from .tenant import Tenant, TenantSettings, check_form, fields_by_tenant
from .writes import SetField

FORM = 1
"""of the partition's own field"""

SettingsFor = Callable[[str], TenantSettings | None]


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
        head = [FORM, self.partitions, self.clock, self.pending, self.parked, self.terms, sorted(self.configs)]
        return SetField(HEAD, msgspec.msgpack.encode(head))


def partition_from_fields(
    number: int, partitions: int, identity: Identity, fields: Mapping[bytes, bytes], settings_for: SettingsFor
) -> Partition:
    """Rebuild a partition from its stored fields. Raises IncompatibleStateError if this version cannot."""
    _, clock, pending, parked, terms, configs = _head(fields)
    tenants = {}
    for one, own in sorted(fields_by_tenant(fields).items()):
        tenant = Tenant.from_fields(one, own, settings_for)
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
    return _head(fields)[0]


def _head(fields: Mapping[bytes, bytes]) -> _Head:
    """The partition's own field without its form, which is checked."""
    try:
        form, *rest = msgspec.msgpack.decode(fields[HEAD], type=list[Any])
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise IncompatibleStateError(f"the stored state has no head that can be read ({error!r}): rebuild it") from None
    check_form("partition", form, FORM)
    try:
        head: _Head = msgspec.convert(rest, type=_Head)
    except msgspec.MsgspecError as error:
        raise IncompatibleStateError(f"the head of the stored state is damaged: {error}. Rebuild it") from None
    return head


_Head = tuple[int, int, int, int, str, list[str]]
"""partitions, clock, pending, parked, terms, configs"""
