"""The labels of a batch: each joins its decision, waits for it, or goes to the dead letters with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from processor.core import native
from processor.core.alerts.alerts import AlertChange
from processor.core.errors import one_of
from processor.core.events import FeedbackEvent, Reason

from .decode import Decoded, InputRecord, StreamSettings
from .draft import Draft
from .entries import MOST_PARKED, PENDING, PENDING_WEIGHTED, Parked, Pending, Settled, decode_entry
from .join import Joined
from .partition import Partition
from .tenant import Tenant

Early = dict[bytes, list[tuple[InputRecord, FeedbackEvent]]]
"""Labels whose request has not come yet, by the id of the entry."""


class Labelling(Draft):
    """Entries are kept as bytes, as stored, and taken apart only where one must be looked into by itself."""

    def __init__(
        self, partition: Partition, stored: Mapping[bytes, bytes | None], clock: int, latest: int, terms: StreamSettings
    ) -> None:
        super().__init__(partition, stored, clock, latest, terms)
        self.unmatched: Early = {}

    def join_labels(self, labels: Iterable[Decoded[FeedbackEvent]]) -> dict[str, Joined]:
        """Join what can be joined; what is left waits for a request of this batch, in order of offset."""
        joined: dict[str, Joined] = {}
        self.unmatched = self.match(labels, joined)
        return joined

    def learnt(self, joined: Joined, changes: Sequence[AlertChange]) -> None:
        """A tenant has learnt from what was joined, and that has raised or cleared alerts."""
        self.partition.pending -= len(joined)
        if not joined.expired:
            self.count("labels_joined", joined.tenant, len(joined))
        self.alert(joined.tenant, changes)

    def match(self, labels: Iterable[Decoded[FeedbackEvent]], joined: dict[str, Joined]) -> Early:
        """Have labels join their decisions, in this order; those without one are left."""
        left: Early = {}
        for raw, event, key in native.match(labels, self.changed, self.stored, self.clock, joined, self._label):
            left.setdefault(key, []).append((raw, event))
        return left

    def _label(
        self, raw: InputRecord, event: FeedbackEvent, key: bytes, stored: bytes, joined: dict[str, Joined]
    ) -> None:
        """One label whose decision (or earlier label) is known."""
        tenant = self._labelling_tenant(raw, event)
        if tenant is None:
            return
        label = tenant.names.labels.known[event.label]
        if stored[0] == PENDING or (stored[0] == PENDING_WEIGHTED and self.expects(raw, tenant, stored)):
            self.join(joined, tenant, key, stored, label, self.time_of(raw))
        elif stored[0] != PENDING_WEIGHTED:
            self._judge(raw, tenant, label, stored)

    def join(self, joined: dict[str, Joined], tenant: Tenant, key: bytes, stored: bytes, label: int, at: int) -> None:
        """A label counts. Its decision is settled now; what it teaches is learnt with the others."""
        if tenant.name not in joined:
            joined[tenant.name] = Joined(tenant)
        joined[tenant.name].add(stored, label, at)
        self.changed[key] = Settled.labelled(stored, label)

    def expects(self, raw: InputRecord, tenant: Tenant, stored: bytes) -> bool:
        """Whether a label may come for this decision; if not, it is a dead letter."""
        entry = decode_entry(stored)
        assert isinstance(entry, Pending)
        if tenant.expects_label(entry):
            return True
        self.dead(raw, Reason.LABEL_NOT_EXPECTED, "only positive decisions get labels here", tenant)
        return False

    def _judge(self, raw: InputRecord, tenant: Tenant, label: int, stored: bytes) -> None:
        """A label for what has a label already, or has expired, or waits with another label for its request."""
        match decode_entry(stored):
            case Settled(label=None):
                self.dead(raw, Reason.EXPIRED_DECISION, "the decision expired before its label came", tenant)
            case Settled(label=known) | Parked(label=known):
                if known == label:
                    self.count("labels_duplicate", tenant)
                else:
                    self.dead(raw, Reason.CONTRADICTING_LABEL, "another label came first", tenant)

    def _labelling_tenant(self, raw: InputRecord, event: FeedbackEvent) -> Tenant | None:
        """The tenant of a label, to be changed; None, and a dead letter, if it can have no such label."""
        tenant = self.touched.get(event.tenant) or self.tenant_of(event.tenant)
        if tenant is None:
            self.dead(raw, Reason.UNKNOWN_TENANT, "no such tenant, and unknown ones are not accepted")
        elif event.label not in tenant.rules.settings.labels:
            self.dead(raw, Reason.UNKNOWN_LABEL, f"the label is not {one_of(tenant.rules.settings.labels)}", tenant)
        else:
            return self.change(event.tenant)
        return None

    def park(self) -> None:
        """Keep labels whose request has not come; a second label for the same request is judged by the first."""
        parked: Counter[str] = Counter()
        for key, labels in self.unmatched.items():
            for raw, event in labels:
                if (stored := self.entry(key)) is not None:
                    self._label(raw, event, key, stored, {})
                    continue
                tenant = self._labelling_tenant(raw, event)
                if tenant is None:
                    continue
                if len(raw.received or b"") > MOST_PARKED:
                    detail = f"a label that comes before its request may have at most {MOST_PARKED} bytes"
                    self.dead(raw, Reason.LIMIT, detail, tenant)
                    continue
                at, label = self.time_of(raw), tenant.names.labels.known[event.label]
                until = self.slot_of(max(self.clock, at) + tenant.rules.parking)
                entry = Parked(tenant.number, until, at, raw.offset, label, raw.received or b"")
                self.changed[key] = entry.encode()
                self.expiry_index[until].append(key)
                parked[tenant.name] += 1
        self.partition.parked += parked.total()
        for name, count in parked.items():
            self.count("labels_parked", self.touched[name], count)
