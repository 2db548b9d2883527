"""One batch: from records to decisions and writes. Pure: the same arguments always give the same bytes.

Inside a batch the order is fixed: labels of decisions made in earlier batches are joined; requests are decided in
order of offset; labels that waited for one of these requests are joined; what is due at the batch's clock expires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from processor.core import native
from processor.core.errors import one_of
from processor.core.events import FeedbackEvent, Reason, RequestEvent
from processor.core.learner.cases import Drawn

from .decide import DecidedRequests, DecodedRequest, PartitionRequests, TenantRequests, decide
from .decode import (
    FEEDBACK,
    REQUESTS,
    DeadLetter,
    DecodedBatch,
    EncodedDecision,
    Headers,
    InputRecord,
    StreamSettings,
    decode,
    due_slot,
    split_by_source,
)
from .draft import StepResult
from .entries import (
    PARKED,
    SETTLED,
    Parked,
    Pending,
    Settled,
    content_of,
    decode_entry,
    decode_parked,
    pending_slots,
    settled_slot,
)
from .expiry import SLOTS_PER_BATCH, DueSlot
from .identity import Identity
from .join import Joined, join
from .labelling import Labelling
from .partition import Partition
from .tenant import Tenant, ToWrite, write_tenants

__all__ = [
    "FEEDBACK",
    "REQUESTS",
    "SLOTS_PER_BATCH",
    "DeadLetter",
    "DecodedBatch",
    "EncodedDecision",
    "Headers",
    "InputRecord",
    "StepInput",
    "StepResult",
    "StreamSettings",
    "advanced",
    "decode",
    "due_slot",
    "split_by_source",
    "step",
    "steps",
]

# What follows decides which bytes a batch leads to: to change one of them is to make a new form of the journal.
FEW_LABELS = 1_000
"""A tenant with fewer labels than this …"""
REQUESTS_PER_SOLVE_WHEN_FEW_LABELS = 50
"""… has its rule solved anew at least every so many requests."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """A batch of one partition, and all that decides what it leads to."""

    partition: Partition
    asked: DecodedBatch
    entries: Mapping[bytes, bytes | None]
    """the stored entry of every id asked for"""
    due: Mapping[int, DueSlot]
    """what the batch takes of the slots that are over"""
    clock: int
    terms: StreamSettings
    acknowledged: Sequence[tuple[str, int]] = ()
    """alerts, by tenant and number, that a person has acknowledged since the batch before"""
    drawn: Mapping[str, Mapping[str, Drawn]] = field(default_factory=dict)
    """what was drawn, by tenant and decision, for tenants whose seed a replay does not know"""


def step(
    partition: Partition,
    asked: DecodedBatch,
    entries: Mapping[bytes, bytes | None],
    due: Mapping[int, DueSlot],
    clock: int,
    terms: StreamSettings,
    acknowledged: Sequence[tuple[str, int]] = (),
    drawn: Mapping[str, Mapping[str, Drawn]] = MappingProxyType({}),
) -> StepResult:
    """Decide and learn: one batch, of which ``StepInput`` says what it is made of."""
    return steps([StepInput(partition, asked, entries, due, clock, terms, acknowledged, drawn)])[0]


def steps(given: Sequence[StepInput]) -> list[StepResult]:
    """Batches of different partitions, worked out together. Each leads to what it leads to by itself.

    Deciding and learning cost by the call and hardly by the record, so that is done for all of them at once.
    """
    under_way = [_Step(one) for one in given]
    for one in under_way:
        one.begin()
    _learn(under_way, [one.join_labels(one.given.asked.feedback) for one in under_way])
    for one in under_way:
        one.take_requests()
    while deciding := [one for one in under_way if one.left]:
        decided = decide([one.next_requests() for one in deciding])
        _learn(deciding, [one.keep(made) for one, made in zip(deciding, decided, strict=True)])
    for one in under_way:
        one.park()
    _learn(under_way, [one.sweep() for one in under_way])
    written = [one.publish() for one in under_way]
    write_tenants(written)
    return [one.end(writes) for one, (writes, _) in zip(under_way, written, strict=True)]


def _learn(under_way: Sequence[_Step], joined: Sequence[Mapping[str, Joined]]) -> None:
    """All of them learn what each has joined."""
    changes = iter(join([one for each in joined for one in each.values()]))
    for step_, each in zip(under_way, joined, strict=True):
        for one in each.values():
            step_.learnt(one, next(changes))


class _Step(Labelling):
    """Works on tenants many at once: a batch touches hundreds, with a few records each."""

    def __init__(self, given: StepInput) -> None:
        super().__init__(given.partition, given.entries, given.clock, given.asked.latest, given.terms)
        self.given = given
        self.left: dict[str, list[DecodedRequest]] = {}
        """requests still to be decided, by tenant"""
        self.made: dict[int, bytes] = {}
        """the decisions, by the offsets of their requests"""

    def begin(self) -> None:
        for name, alert in self.given.acknowledged:
            if name in self.partition.tenants:
                self.alert(self.change(name), self.change(name).acknowledge(alert, self.clock))
        for letter in self.given.asked.refused:
            self.dead(letter.raw, letter.reason, letter.detail)

    def publish(self) -> ToWrite:
        """Publish the decisions, and begin to write what has changed."""
        requests = self.given.asked.requests
        self.outcome.decisions = native.decisions_in_order(requests, self.made, EncodedDecision)
        return self.write(emptied=self.given.due)

    # Requests

    def take_requests(self) -> None:
        """Sort them by tenant; those of nobody are dead letters."""
        self.left = native.by_tenant(self.given.asked.requests)
        for name in [name for name in self.left if self.tenant_of(name) is None]:
            for raw, _, _ in self.left.pop(name):
                self.dead(raw, Reason.UNKNOWN_TENANT, "no such tenant, and unknown ones are not accepted")

    def next_requests(self) -> PartitionRequests:
        """What is to be decided next. A young tenant's rule is solved anew for every few of its requests."""
        dockets, left = [], {}
        for name, requests in self.left.items():
            tenant = self.change(name)
            if (
                len(requests) > REQUESTS_PER_SOLVE_WHEN_FEW_LABELS
                and int(tenant.learner.counters().joined[0]) < FEW_LABELS
            ):
                requests, left[name] = (
                    requests[:REQUESTS_PER_SOLVE_WHEN_FEW_LABELS],
                    requests[REQUESTS_PER_SOLVE_WHEN_FEW_LABELS:],
                )
            docket = self._tenant_requests(tenant, requests)
            if docket.cases:
                dockets.append(docket)
        self.left = left
        return PartitionRequests(dockets, self.clock, self.terms.slot, self.sequence)

    def keep(self, decided: Sequence[DecidedRequests]) -> dict[str, Joined]:
        """Keep decisions pending; labels that waited for one of them are joined."""
        joined: dict[str, Joined] = {}
        for some in decided:
            self.made.update(zip([raw.offset for raw in some.raws], some.values, strict=True))
            self._remember(some)
            if any(docket.parked for docket in some.dockets) or not self.unmatched.keys().isdisjoint(some.keys):
                for docket in some.dockets:
                    self.match(self._waiting(docket, joined), joined)
        return joined

    def _tenant_requests(self, tenant: Tenant, chunk: Sequence[DecodedRequest]) -> TenantRequests:
        """The requests that are to be decided: not repeated, not beyond a limit."""
        docket = TenantRequests(tenant, self.given.drawn.get(tenant.name))
        new, panels, predicted = native.first_look(chunk, self.changed, self.stored)
        docket.panels = {panel for panel in panels if tenant.knows(panel)}
        known = len(docket.panels) == len(panels) and all(each <= tenant.learner.labels for each in predicted)
        docket.cases = chunk if new and known else self._accepted(docket, chunk)
        return docket

    def _accepted(self, docket: TenantRequests, chunk: Sequence[DecodedRequest]) -> list[DecodedRequest]:
        """Those that are to be decided, looked at one by one."""
        fresh: dict[bytes, DecodedRequest] = {}
        changed, before, panels, labels = self.changed, self.stored, docket.panels, docket.tenant.learner.labels
        for asking in chunk:
            raw, event, key = asking
            advice, stored = event.advice, changed.get(key) or before.get(key)
            if stored is not None and stored[0] != PARKED:
                self._repeated(raw, docket.tenant, content_of(stored) == event.content)
                continue
            if key in fresh:
                self._repeated(raw, docket.tenant, fresh[key][1].content == event.content)
                continue
            known = advice.panel in panels and advice.labels <= labels
            if known or self._acceptable(raw, event, docket):
                fresh[key] = asking
                if stored is not None:
                    docket.parked[key] = stored
        return list(fresh.values())

    def _repeated(self, raw: InputRecord, tenant: Tenant, same: bool) -> None:
        if same:
            self.count("requests_duplicate", tenant)
        else:
            self.dead(raw, Reason.CONFLICTING_REQUEST, "another request came first under the same decision_id", tenant)

    def _acceptable(self, raw: InputRecord, event: RequestEvent, docket: TenantRequests) -> bool:
        tenant = docket.tenant
        names, rules = tenant.names, tenant.rules
        if event.group not in names.groups.known and len(names.groups) >= rules.max_groups:
            self.dead(raw, Reason.LIMIT, f"the tenant has {rules.max_groups} groups already", tenant)
            return False
        known, experts = names.experts.known.keys(), {*event.advice.panel.experts}
        if not experts <= known and len(known | experts) > rules.max_experts:
            self.dead(raw, Reason.LIMIT, f"the tenant would have more than {rules.max_experts} experts", tenant)
            return False
        groups = len({*names.groups.known, event.group})
        if rules.max_choices and rules.solves_mixtures and groups * len(known | experts) > rules.max_choices:
            detail = f"the tenant would have more than {rules.max_choices} groups × experts, too many for a mixture"
            self.dead(raw, Reason.LIMIT, detail, tenant)
            return False
        if not event.advice.labels <= tenant.learner.labels:
            self.dead(raw, Reason.UNKNOWN_LABEL, f"a prediction is not {one_of(rules.settings.labels)}", tenant)
            return False
        if not tenant.learner.accepts(event.group):
            self.dead(raw, Reason.GROUP_REFUSED, "the tenant's objective is for two groups only", tenant)
            return False
        tenant.meet(event.advice.panel)
        docket.panels.add(event.advice.panel)
        return True

    def _remember(self, decided: DecidedRequests) -> None:
        for docket, part in zip(decided.dockets, decided.parts, strict=True):
            self.count("decisions", docket.tenant, len(docket.cases))
            docket.tenant.waits.asked(decided.at[part])
        keys = decided.keys
        self.partition.pending += len(keys)
        self.changed.update(zip(keys, decided.entries, strict=True))
        parked = {key for docket in decided.dockets for key in docket.parked}
        if len(slots := set(decided.slots)) == 1 and not parked:
            self.expiry_index[slots.pop()] += keys
        else:
            for key, slot in zip(keys, decided.slots, strict=True):
                if key not in parked:  # else it already waits in the slot of the parked label, and moves on from there
                    self.expiry_index[slot].append(key)

    def _waiting(
        self, docket: TenantRequests, joined: dict[str, Joined]
    ) -> Iterator[tuple[InputRecord, FeedbackEvent, bytes]]:
        """Labels that came before their requests, in the order of these; those that were parked count at once."""
        for _, _, key in docket.cases:
            if key in docket.parked:
                self._take_parked(docket.tenant, key, docket.parked[key], joined)
            for raw, event in self.unmatched.pop(key, ()):
                yield raw, event, key

    def _decided(self, key: bytes) -> bytes:
        """The entry of a request that was decided in this batch."""
        entry = self.changed[key]
        assert entry is not None
        return entry

    def _take_parked(self, tenant: Tenant, key: bytes, stored: bytes, joined: dict[str, Joined]) -> None:
        parked, entry = decode_parked(stored), self._decided(key)
        self.partition.parked -= 1
        if self.expects(self._parked_raw(tenant, parked), tenant, entry):
            self.join(joined, tenant, key, entry, parked.label, parked.timestamp)

    # Time

    def sweep(self) -> dict[str, Joined]:
        """Empty what is taken of due slots: expire what still waits, delete what nobody needs, move the rest on."""
        joined: dict[str, Joined] = {}
        dropped: dict[str, list[int]] = {}
        changed = self.changed
        for slot, due in sorted(self.given.due.items()):
            for key, stored in due.entries:
                entry = changed.get(key, stored)
                if entry is None:
                    continue
                if entry[0] in SETTLED:
                    remove = settled_slot(entry)
                elif entry[0] == PARKED:
                    remove = self._give_up(key, entry, slot)
                else:
                    remove = self._sweep_pending(slot, key, entry, joined, dropped)
                if remove <= slot:
                    changed[key] = None
                else:
                    self.expiry_index[remove].append(key)
        for name, at in dropped.items():
            self.touched[name].waits.settled(at)
            self.partition.pending -= len(at)
            self.count("decisions_expired", self.touched[name], len(at))
        return joined

    def _sweep_pending(
        self, slot: int, key: bytes, entry: bytes, joined: dict[str, Joined], dropped: dict[str, list[int]]
    ) -> int:
        """When to look at the decision again; it expires if its label was due."""
        due, remove = pending_slots(entry)
        if due > slot:
            return due
        name = self.tenant_names[int.from_bytes(entry[1:3], "big")]
        tenant = self.touched.get(name) or self.change(name)
        if tenant.rules.on_expiry is None or not self._counts_as(key, entry, tenant, tenant.rules.on_expiry, joined):
            dropped.setdefault(name, []).append(int.from_bytes(entry[7:11], "big"))
            self.changed[key] = Settled.expired(entry)
        return remove

    def _counts_as(self, key: bytes, stored: bytes, tenant: Tenant, label: str, joined: dict[str, Joined]) -> bool:
        """A decision whose label never came counts as if this one had come; False if none could have."""
        entry = decode_entry(stored)
        assert isinstance(entry, Pending)
        if not tenant.expects_label(entry):
            return False
        number = tenant.names.labels.known[label]
        if tenant.name not in joined:
            joined[tenant.name] = Joined(tenant, expired=True)
        joined[tenant.name].add(stored, number, entry.due * self.terms.slot)
        self.changed[key] = Settled.labelled(stored, number)
        self.count("decisions_expired", tenant)
        return True

    def _give_up(self, key: bytes, stored: bytes, slot: int) -> int:
        """No request has come for this label, and it is no longer needed."""
        entry = decode_parked(stored)
        tenant = self.numbered(entry.tenant)
        raw = self._parked_raw(tenant, entry)
        self.dead(raw, Reason.UNKNOWN_DECISION, "no request came for this label", tenant)
        self.partition.parked -= 1
        return slot

    @staticmethod
    def _parked_raw(tenant: Tenant, parked: Parked) -> InputRecord:
        return InputRecord(FEEDBACK, parked.offset, parked.timestamp, tenant.name.encode(), parked.payload)


def advanced(partition: Partition, identity: Identity) -> Partition:
    """The partition once its batch is committed."""
    return replace(partition, identity=identity)
