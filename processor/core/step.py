"""One batch: from records to decisions and writes. Pure: the same arguments always give the same bytes.

Inside a batch the order is fixed: labels of decisions made in earlier batches are joined; requests are decided in
order of offset; labels that waited for one of these requests are joined; what is due at the batch's clock expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter

from .alert_events import AlertEvent
from .alerts import Change
from .batch import FEEDBACK, REQUESTS, Asked, DeadLetter, Headers, Made, Raw, Terms, decode, due_slot
from .entry import Entry, Parked, Pending, Settled, decode_entry
from .errors import InvalidInput
from .events import DecisionEvent, FeedbackEvent, Reason, RequestEvent, encode_decision
from .exact import ONE
from .identity import Identity
from .learner import Decision, Request
from .partition import Partition
from .tenant import Joined, Tenant, TenantRules, content_hash, number_of
from .writes import DeleteEntry, DropSlab, SetEntry, SetSlab, Writes

__all__ = [
    "FEEDBACK",
    "REQUESTS",
    "Asked",
    "DeadLetter",
    "Headers",
    "Made",
    "Outcome",
    "Raw",
    "Terms",
    "advanced",
    "decode",
    "due_slot",
    "step",
]

YOUNG = 1_000
"""A tenant with fewer labels than this …"""
YOUNG_CHUNK = 50
"""… has its rule solved anew at least every so many requests."""


@dataclass
class Outcome:
    """What a batch leads to. Nothing of it has happened yet."""

    partition: Partition
    """as it will be; its identity is still that of the batch before"""
    decisions: list[Made] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    alerts: list[AlertEvent] = field(default_factory=list)
    writes: bytes = b""
    rules: dict[str, str] = field(default_factory=dict)
    """tenants whose rules have changed, with the digest of the new ones"""
    configs: dict[str, str] = field(default_factory=dict)
    """rules the journal has not seen yet, by digest"""
    tally: dict[str, int] = field(default_factory=dict)
    """what happened in this batch, over all tenants"""


def step(
    partition: Partition,
    asked: Asked,
    entries: Mapping[bytes, bytes | None],
    slabs: Mapping[int, Sequence[tuple[bytes, bytes | None]]],
    clock: int,
    terms: Terms,
    acknowledged: Sequence[tuple[str, int]] = (),
) -> Outcome:
    """Decide and learn. ``entries`` holds the stored entry of every id asked for, ``slabs`` every due slot.

    ``acknowledged`` names alerts, by tenant and number, that a person has acknowledged since the batch before.
    """
    return _Step(partition, asked, entries, slabs, clock, terms).run(acknowledged)


class _Step:
    def __init__(
        self,
        partition: Partition,
        asked: Asked,
        entries: Mapping[bytes, bytes | None],
        slabs: Mapping[int, Sequence[tuple[bytes, bytes | None]]],
        clock: int,
        terms: Terms,
    ) -> None:
        self.before, self.asked, self.slabs, self.clock, self.terms = partition, asked, slabs, clock, terms
        self.sequence = partition.identity.sequence + 1
        self.partition = replace(partition, tenants=dict(partition.tenants), clock=clock, terms=terms.text)
        self.entries: dict[bytes, Entry | None] = {k: decode_entry(v) if v else None for k, v in entries.items()}
        self.changed: dict[bytes, Entry | None] = {}
        self.waiting_in: dict[int, list[bytes]] = {}
        self.touched: dict[str, Tenant] = {}
        self.numbers = list(partition.tenants)
        self.outcome = Outcome(self.partition)
        self.tally = self.outcome.tally

    def run(self, acknowledged: Sequence[tuple[str, int]]) -> Outcome:
        for name, alert in acknowledged:
            if name in self.partition.tenants:
                self._alert(self._change(name), self._change(name).acknowledge(alert, self.clock))
        for letter in self.asked.refused:
            self._dead(letter.raw, letter.reason, letter.detail)
        early = self._join_labels(self.asked.feedback)
        self._decide_requests(early)
        self._park(early)
        self._sweep()
        self._write()
        return self.outcome

    # Labels

    def _join_labels(
        self, feedback: Sequence[tuple[Raw, FeedbackEvent, bytes]]
    ) -> dict[bytes, list[tuple[Raw, FeedbackEvent]]]:
        """Join what can be joined; what is left waits for a request of this batch, in order of offset."""
        early: dict[bytes, list[tuple[Raw, FeedbackEvent]]] = {}
        joined: dict[str, list[Joined]] = {}
        for raw, event, key in feedback:
            if self.entries.get(key) is None:
                early.setdefault(key, []).append((raw, event))
                continue
            self._label(raw, event, key, joined)
        self._learn(joined)
        return early

    def _label(self, raw: Raw, event: FeedbackEvent, key: bytes, joined: dict[str, list[Joined]]) -> None:
        """One label whose decision (or earlier label) is known."""
        tenant = self._labelling_tenant(raw, event)
        if tenant is None:
            return
        label = number_of(tenant.names.labels, event.label)
        match entry := self.entries[key]:
            case Pending():
                if tenant.expects_label(entry):
                    joined.setdefault(tenant.name, []).append(Joined(entry, label, self._time(raw)))
                    self._settle(key, entry, label)
                    self._count("labels_joined", tenant)
                else:
                    self._dead(raw, Reason.LABEL_NOT_EXPECTED, "only positive decisions get labels here", tenant)
            case Settled(label=None):
                self._dead(raw, Reason.EXPIRED_DECISION, "the decision expired before its label came", tenant)
            case Settled(label=known) | Parked(label=known):
                if known == label:
                    self._count("labels_duplicate", tenant)
                else:
                    self._dead(raw, Reason.CONTRADICTING_LABEL, "another label came first", tenant)

    def _labelling_tenant(self, raw: Raw, event: FeedbackEvent) -> Tenant | None:
        """The tenant of a label, to be changed; None, and a dead letter, if it can have no such label."""
        tenant = self._tenant(event.tenant)
        if tenant is None:
            self._dead(raw, Reason.UNKNOWN_TENANT, "no such tenant, and unknown ones are not accepted")
        elif event.label not in tenant.rules.settings.labels:
            self._dead(raw, Reason.UNKNOWN_LABEL, "the label is not one of the tenant's", tenant)
        else:
            return self._change(tenant.name)
        return None

    def _learn(self, joined: Mapping[str, list[Joined]]) -> None:
        for name, labels in joined.items():
            tenant = self._change(name)
            self._alert(tenant, tenant.join(labels))

    def _alert(self, tenant: Tenant, changes: Sequence[Change]) -> None:
        for change in changes:
            self.outcome.alerts.append(tenant.published(change, self.sequence))
            self._count(f"alerts_{change.state}", tenant)

    def _settle(self, key: bytes, entry: Pending, label: int | None) -> None:
        self._set(key, Settled(entry.tenant, entry.content, entry.remove, label))
        self._change(self._numbered(entry.tenant).name).waits.settled(entry.at)
        self.partition.pending -= 1

    def _park(self, early: Mapping[bytes, list[tuple[Raw, FeedbackEvent]]]) -> None:
        """Keep labels whose request has not come; a second label for the same request is judged by the first."""
        for key, labels in early.items():
            for raw, event in labels:
                if self.entries.get(key) is not None:
                    self._label(raw, event, key, {})
                    continue
                tenant = self._labelling_tenant(raw, event)
                if tenant is None:
                    continue
                until = self._slot(max(self.clock, self._time(raw)) + tenant.rules.parking)
                label = number_of(tenant.names.labels, event.label)
                self._set(key, Parked(tenant.number, until, self._time(raw), raw.offset, label, raw.received or b""))
                self._wait(key, until)
                self.partition.parked += 1
                self._count("labels_parked", tenant)

    # Requests

    def _decide_requests(self, early: dict[bytes, list[tuple[Raw, FeedbackEvent]]]) -> None:
        made: dict[int, Made] = {}
        by_tenant: dict[str, list[tuple[Raw, RequestEvent, bytes]]] = {}
        for raw, event, key in self.asked.requests:
            by_tenant.setdefault(event.tenant, []).append((raw, event, key))
        for name, requests in by_tenant.items():
            if self._tenant(name) is None:
                for raw, _, _ in requests:
                    self._dead(raw, Reason.UNKNOWN_TENANT, "no such tenant, and unknown ones are not accepted")
                continue
            for chunk in self._chunks(name, requests):
                self._decide_chunk(name, chunk, early, made)
        self.outcome.decisions.extend(made[offset] for offset in sorted(made))

    def _chunks(
        self, name: str, requests: list[tuple[Raw, RequestEvent, bytes]]
    ) -> Iterator[list[tuple[Raw, RequestEvent, bytes]]]:
        start = 0
        while start < len(requests):
            tenant = self.partition.tenants[name]
            young = int(tenant.learner.counters().joined[0]) < YOUNG
            size = YOUNG_CHUNK if young else len(requests)
            yield requests[start : start + size]
            start += size

    def _decide_chunk(
        self,
        name: str,
        chunk: Sequence[tuple[Raw, RequestEvent, bytes]],
        early: dict[bytes, list[tuple[Raw, FeedbackEvent]]],
        made: dict[int, Made],
    ) -> None:
        tenant = self._change(name)
        fresh: dict[bytes, tuple[Raw, RequestEvent, Request, int]] = {}
        for raw, event, key in chunk:
            content = content_hash(event.group, event.predictions, bytes(event.context or b""))
            known = self.entries.get(key)
            if known is not None and not isinstance(known, Parked):
                self._repeated(raw, tenant, known.content == content)
            elif key in fresh:
                self._repeated(raw, tenant, fresh[key][3] == content)
            else:
                request = Request(event.decision_id, event.group, event.predictions)
                if self._acceptable(raw, request, tenant):
                    fresh[key] = (raw, event, request, content)
        decisions = tenant.decide([f[2] for f in fresh.values()], [self._time(f[0]) for f in fresh.values()])
        joined: dict[str, list[Joined]] = {}
        for (key, (raw, event, _, content)), decision in zip(fresh.items(), decisions, strict=True):
            made[raw.offset] = self._made(tenant, event, decision, raw.headers)
            self._remember(key, tenant, decision, content, self._time(raw), joined)
            self._count("decisions", tenant)
            for late_raw, late_event in early.pop(key, []):
                self._label(late_raw, late_event, key, joined)
        self._learn(joined)

    def _repeated(self, raw: Raw, tenant: Tenant, same: bool) -> None:
        if same:
            self._count("requests_duplicate", tenant)
        else:
            self._dead(raw, Reason.CONFLICTING_REQUEST, "another request came first under the same decision_id", tenant)

    def _acceptable(self, raw: Raw, request: Request, tenant: Tenant) -> bool:
        names, rules = tenant.names, tenant.rules
        if request.group not in names.groups and len(names.groups) >= rules.max_groups:
            self._dead(raw, Reason.LIMIT, f"the tenant has {rules.max_groups} groups already", tenant)
            return False
        if len({*names.experts, *request.predictions}) > rules.max_experts:
            self._dead(raw, Reason.LIMIT, f"the tenant would have more than {rules.max_experts} experts", tenant)
            return False
        if not set(request.predictions.values()) <= set(rules.settings.labels):
            self._dead(raw, Reason.UNKNOWN_LABEL, "a prediction is not one of the tenant's labels", tenant)
            return False
        try:
            tenant.learner.check(request)
        except InvalidInput:
            self._dead(raw, Reason.GROUP_REFUSED, "the tenant's objective is for two groups only", tenant)
            return False
        number_of(names.groups, request.group)
        for expert in sorted(request.predictions):
            number_of(names.experts, expert)
        return True

    def _remember(
        self, key: bytes, tenant: Tenant, decision: Decision, content: int, at: int, joined: dict[str, list[Joined]]
    ) -> None:
        """Keep a decision pending; a label that was parked for it counts now.

        It waits from its own time on, should the clock (that of the slower input) be behind it.
        """
        rules, start = tenant.rules, max(self.clock, at)
        due, remove = self._slot(start + rules.expiry), self._slot(start + rules.horizon)
        entry = tenant.pending(decision, content, at, due, remove)
        parked = self.entries.get(key)
        self._set(key, entry)
        tenant.waits.asked(entry.at)
        self.partition.pending += 1
        if isinstance(parked, Parked):
            self.partition.parked -= 1
            if tenant.expects_label(entry):
                joined.setdefault(tenant.name, []).append(Joined(entry, parked.label, parked.timestamp))
                self._settle(key, entry, parked.label)
                self._count("labels_joined", tenant)
            else:
                self._dead(
                    self._parked_raw(tenant, parked),
                    Reason.LABEL_NOT_EXPECTED,
                    "only positive decisions get labels",
                    tenant,
                )
            return  # it already waits in the slot of the parked label, and moves on from there
        self._wait(key, min(due, remove))

    def _made(self, tenant: Tenant, event: RequestEvent, decision: Decision, headers: Headers) -> Made:
        policy = tenant.rules.settings.policy
        value = encode_decision(
            DecisionEvent(
                tenant=tenant.name,
                decision_id=decision.decision_id,
                group=decision.group,
                decision=decision.label,
                expert=decision.expert,
                instance=decision.instance,
                probabilities={label: part / ONE for label, part in decision.parts.items()},
                parts=dict(decision.parts),
                policy=policy.policy,
                objective=policy.objective if policy.policy == "gforce" else None,
                config=tenant.rules.digest,
                batch=self.sequence,
                context=event.context,
            )
        )
        return Made(tenant.name, value, headers)

    # Time

    def _sweep(self) -> None:
        """Empty the slots that are due: expire what still waits, delete what nobody needs, move the rest on."""
        joined: dict[str, list[Joined]] = {}
        for slot, waiting in sorted(self.slabs.items()):
            for key, stored in waiting:
                entry = self.changed[key] if key in self.changed else decode_entry(stored) if stored else None
                if entry is not None:
                    self.entries[key] = entry
                    self._sweep_entry(slot, key, entry, joined)
        self._learn(joined)

    def _sweep_entry(self, slot: int, key: bytes, entry: Entry, joined: dict[str, list[Joined]]) -> None:
        match entry:
            case Parked():
                tenant = self._numbered(entry.tenant)
                self._dead(
                    self._parked_raw(tenant, entry), Reason.UNKNOWN_DECISION, "no request came for this label", tenant
                )
                self.partition.parked -= 1
                self._set(key, None)
            case Pending(due=due) if due <= slot:
                self._expire(key, entry, joined)
                self._wait_or_forget(slot, key, entry.remove)
            case Pending(due=due):
                self._wait(key, due)
            case Settled(remove=remove):
                self._wait_or_forget(slot, key, remove)

    def _expire(self, key: bytes, entry: Pending, joined: dict[str, list[Joined]]) -> None:
        tenant = self._numbered(entry.tenant)
        label = None
        if tenant.rules.on_expiry is not None and tenant.expects_label(entry):
            label = number_of(tenant.names.labels, tenant.rules.on_expiry)
            joined.setdefault(tenant.name, []).append(Joined(entry, label, entry.due * self.terms.slot, expired=True))
        self._settle(key, entry, label)
        self._count("decisions_expired", tenant)

    def _wait_or_forget(self, slot: int, key: bytes, remove: int) -> None:
        if remove <= slot:
            self._set(key, None)
        else:
            self._wait(key, remove)

    def _slot(self, time: int) -> int:
        return time // self.terms.slot

    def _time(self, raw: Raw) -> int:
        """A record without a timestamp happened when its batch did."""
        return raw.timestamp if raw.timestamp >= 0 else self.clock

    # Bookkeeping

    def _tenant(self, name: str) -> Tenant | None:
        """The tenant; a name met for the first time is taken on if the configuration allows it."""
        known = self.partition.tenants.get(name)
        if known is not None:
            return known
        rules = self.terms.rules_for(name)
        if rules is None or len(self.numbers) >= self.terms.limits.max_tenants:
            return None
        return self._take_on(name, rules)

    def _take_on(self, name: str, rules: TenantRules) -> Tenant:
        tenant = Tenant.new(len(self.numbers), name, rules)
        self.numbers.append(name)
        self.partition.tenants[name] = tenant
        self.touched[name] = tenant
        return tenant

    def _numbered(self, number: int) -> Tenant:
        return self.partition.tenants[self.numbers[number]]

    def _change(self, name: str) -> Tenant:
        """The tenant, to be changed."""
        if name not in self.touched:
            self.touched[name] = self.partition.tenants[name] = self.partition.tenants[name].clone()
        return self.touched[name]

    def _set(self, key: bytes, entry: Entry | None) -> None:
        self.entries[key] = self.changed[key] = entry

    def _wait(self, key: bytes, slot: int) -> None:
        """Have this entry looked at once the slot is over."""
        self.waiting_in.setdefault(slot, []).append(key)

    def _count(self, what: str, tenant: Tenant) -> None:
        self._change(tenant.name).tally[what] += 1
        self.tally[what] = self.tally.get(what, 0) + 1

    def _dead(self, raw: Raw, reason: Reason, detail: str, tenant: Tenant | None = None) -> None:
        self.outcome.dead_letters.append(DeadLetter(raw, reason, detail))
        if tenant is not None:
            self._count(f"dead_{reason}", tenant)
        else:
            self.tally[f"dead_{reason}"] = self.tally.get(f"dead_{reason}", 0) + 1

    @staticmethod
    def _parked_raw(tenant: Tenant, parked: Parked) -> Raw:
        return Raw(FEEDBACK, parked.offset, parked.timestamp, tenant.name.encode(), parked.payload)

    def _record_configurations(self) -> None:
        """Note which tenants are under other rules than the journal says, and rules it has not seen yet."""
        for name, rules in _changed_rules(self.touched).items():
            self.outcome.rules[name] = rules.digest
            self.touched[name].recorded = rules.digest
            if rules.digest not in self.partition.configs:
                self.outcome.configs[rules.digest] = rules.canonical
                self.partition.configs |= {rules.digest}

    def _write(self) -> None:
        """In an order of its own, so that the bytes do not depend on the order in which the work was done."""
        self._record_configurations()
        writes = Writes()
        for key, entry in sorted(self.changed.items(), key=itemgetter(0)):
            writes.add(DeleteEntry(key) if entry is None else SetEntry(key, entry.encode()))
        for slot in sorted(self.slabs):
            writes.add(DropSlab(slot))
        for slot, keys in sorted(self.waiting_in.items()):
            writes.add(SetSlab(slot, self.sequence, b"".join(sorted(keys))))
        for tenant in sorted(self.touched.values(), key=attrgetter("number")):
            for write in tenant.fields(self.before.tenants.get(tenant.name)):
                writes.add(write)
        writes.add(self.partition.head())
        self.outcome.writes = writes.packed()


def _changed_rules(tenants: Mapping[str, Tenant]) -> dict[str, TenantRules]:
    return {name: tenant.rules for name, tenant in tenants.items() if tenant.rules.digest != tenant.recorded}


def advanced(partition: Partition, identity: Identity) -> Partition:
    """The partition once its batch is committed."""
    return replace(partition, identity=identity)
