"""The state of a partition while a batch is worked out: what was, what has changed, and what there is to say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from processor.core import native
from processor.core.alerts.alert_events import AlertEvent
from processor.core.alerts.alerts import AlertChange
from processor.core.events import MAX_DETAIL, Reason

from .decode import DeadLetter, EncodedDecision, InputRecord, StreamSettings
from .expiry import DueSlot
from .partition import Partition
from .tenant import Tenant, TenantSettings, ToWrite
from .writes import DropSlot, SetSlot, Writes


@dataclass
class StepResult:
    """What a batch leads to. Nothing of it has happened yet."""

    partition: Partition
    """as it will be; its identity is still that of the batch before"""
    decisions: list[EncodedDecision] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    alerts: list[AlertEvent] = field(default_factory=list)
    writes: bytes = b""
    entries: Mapping[bytes, bytes | None] = field(default_factory=dict)
    """those among the writes, None where one is deleted"""
    after_entries: int = 0
    """where the writes go on after them"""
    rules: dict[str, str] = field(default_factory=dict)
    """tenants whose rules have changed, with the digest of the new ones"""
    configs: dict[str, str] = field(default_factory=dict)
    """rules the journal has not seen yet, by digest"""
    tally: dict[str, int] = field(default_factory=dict)
    """what happened in this batch, over all tenants"""


class Draft:
    """A partition to be changed; the one it was made of stays as it is."""

    def __init__(
        self, partition: Partition, stored: Mapping[bytes, bytes | None], clock: int, latest: int, terms: StreamSettings
    ) -> None:
        self.before, self.stored, self.clock, self.latest, self.terms = partition, stored, clock, latest, terms
        self.sequence = partition.identity.sequence + 1
        self.partition = replace(partition, tenants=dict(partition.tenants), clock=clock, terms=terms.text)
        self.changed: dict[bytes, bytes | None] = {}
        """entries as they are now; None is to be deleted"""
        self.expiry_index: defaultdict[int, list[bytes]] = defaultdict(list)
        """entries to look at once a slot is over"""
        self.touched: dict[str, Tenant] = {}
        """tenants that were changed, or may be"""
        self.tenant_names = list(partition.tenants)
        """the tenants in the order of their numbers"""
        self.outcome = StepResult(self.partition)
        self.tally = self.outcome.tally

    # What there is

    def entry(self, key: bytes) -> bytes | None:
        """As it is now. None is deleted before the end of the batch."""
        return self.changed.get(key) or self.stored.get(key)

    def slot_of(self, time: int) -> int:
        return time // self.terms.slot

    def time_of(self, raw: InputRecord) -> int:
        """A record without a timestamp happened when its batch did."""
        return raw.timestamp if raw.timestamp >= 0 else self.clock

    def tenant_of(self, name: str) -> Tenant | None:
        """The tenant; a name met for the first time is taken on if the configuration allows it."""
        known = self.partition.tenants.get(name)
        if known is not None:
            return known
        rules = self.terms.settings_for(name)
        if rules is None or len(self.tenant_names) >= self.terms.limits.max_tenants:
            return None
        return self._take_on(name, rules)

    def _take_on(self, name: str, rules: TenantSettings) -> Tenant:
        tenant = Tenant.new(len(self.tenant_names), name, rules)
        self.tenant_names.append(name)
        self.partition.tenants[name] = tenant
        self.touched[name] = tenant
        return tenant

    def numbered(self, number: int) -> Tenant:
        return self.partition.tenants[self.tenant_names[number]]

    def change(self, name: str) -> Tenant:
        """The tenant, to be changed."""
        if name not in self.touched:
            self.touched[name] = self.partition.tenants[name] = changed = self.partition.tenants[name].clone()
            if changed.recorded != changed.rules.digest:
                changed.begin_under_other_rules(self.latest)
        return self.touched[name]

    # What there is to say

    def count(self, what: str, tenant: Tenant, times: int = 1) -> None:
        name = tenant.name
        (self.touched.get(name) or self.change(name)).tally[what] += times
        self.tally[what] = self.tally.get(what, 0) + times

    def dead(self, raw: InputRecord, reason: Reason, detail: str, tenant: Tenant | None = None) -> None:
        self.outcome.dead_letters.append(DeadLetter(raw, reason, detail[:MAX_DETAIL]))
        if tenant is not None:
            self.count(f"dead_{reason}", tenant)
        else:
            self.tally[f"dead_{reason}"] = self.tally.get(f"dead_{reason}", 0) + 1

    def alert(self, tenant: Tenant, changes: Sequence[AlertChange]) -> None:
        for change in changes:
            self.outcome.alerts.append(tenant.published(change, self.sequence))
            self.count(f"alerts_{change.state}", tenant)

    # What is stored of it

    def write(self, emptied: Mapping[int, DueSlot]) -> ToWrite:
        """All of it but the tenants, which are to be written next, and that nothing waits in these parts any more.

        In an order of its own, so that the bytes do not depend on the order in which the work was done.
        """
        self._record_configurations()
        writes = Writes()
        self.outcome.entries, self.outcome.after_entries = self.changed, writes.add_entries(self.changed)
        for slot, due in sorted(emptied.items()):
            if due.whole:
                writes.add(DropSlot(slot))
            else:
                for sequence in due.sequences:
                    writes.add(SetSlot(slot, sequence, b""))
        for slot, keys in sorted(self.expiry_index.items()):
            writes.add(SetSlot(slot, self.sequence, native.joined_ids(keys)))
        touched = sorted(self.touched.values(), key=attrgetter("number"))
        return writes, [(tenant, self.before.tenants.get(tenant.name)) for tenant in touched]

    def end(self, writes: Writes) -> StepResult:
        writes.add(self.partition.head())
        self.outcome.writes = writes.packed()
        return self.outcome

    def _record_configurations(self) -> None:
        """Note which tenants are under other rules than the journal says, and rules it has not seen yet."""
        for name, rules in _changed_rules(self.touched).items():
            self.outcome.rules[name] = rules.digest
            self.touched[name].recorded = rules.digest
            if rules.digest not in self.partition.configs:
                self.outcome.configs[rules.digest] = rules.canonical
                self.partition.configs |= {rules.digest}


def _changed_rules(tenants: Mapping[str, Tenant]) -> dict[str, TenantSettings]:
    return {name: tenant.rules for name, tenant in tenants.items() if tenant.rules.digest != tenant.recorded}
