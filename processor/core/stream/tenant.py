"""One tenant inside a partition: its learner, the order in which it met its names, and what has happened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from processor.core.advice import Panel
from processor.core.alerts.alert_events import AlertEvent, alert_event
from processor.core.alerts.alerts import AlertChange, MonitorSettings
from processor.core.alerts.monitor import Monitor
from processor.core.errors import IncompatibleStateError
from processor.core.learner.axes import Axes, shared_axes
from processor.core.learner.batch import IN_FORCE
from processor.core.learner.codec import decode_counters, encode_many
from processor.core.learner.counters import WEIGHT_UNIT, Counters
from processor.core.learner.learner import Learner
from processor.core.learner.state import State
from processor.core.metrics.diagnosis import ENOUGH, unlabelled_decisions
from processor.core.settings import Settings

from .encode import DecisionWriter
from .entries import Pending
from .names import Names, NameTable, Tables, shared_names, tables_of, with_panel
from .pending_ages import PendingAges
from .writes import Writes

BINARY_FORM = 2
HEAD = b"p"
"""The field of the partition itself; all others are of tenants."""

_encode = msgspec.msgpack.Encoder().encode


class TenantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a tenant is to be treated; ``digest`` stands for all of it in every decision."""

    settings: Settings
    seed: bytes
    digest: str
    canonical: str
    """the configuration as recorded in the journal, without secrets"""
    expiry: int
    """milliseconds a decision waits for its label"""
    on_expiry: str | None
    """count as this label, or drop"""
    parking: int
    """milliseconds a label waits for its request"""
    horizon: int
    """milliseconds in which a repeated request is recognised"""
    watch: MonitorSettings | None = None
    """when to alert; None where nothing is watched"""
    windows: tuple[int, ...] = (1, 7)
    """windows of the gauges, in buckets; no decision depends on them"""
    max_groups: int = 32
    max_experts: int = 64
    max_choices: int = 0
    """groups × experts under ``mixture``; 0 is no limit"""

    @property
    def solves_mixtures(self) -> bool:
        """Whether the policy in force or a shadow chooses among experts and not among instances."""
        policies = (self.settings.policy, *self.settings.shadows)
        return any(one.policy == "gforce" and one.objective == "mixture" for one in policies)


@dataclass(slots=True)
class Tenant:
    number: int
    name: str
    rules: TenantSettings
    names: Names
    learner: Learner
    tally: Counter[str]
    """what has happened, by name; see ``docs/operations.md``"""
    waits: PendingAges
    watch: Monitor | None = None
    recorded: str = ""
    """digest of the rules the journal has this tenant under"""
    observed: bool = False
    """whether the watch has seen anything since this copy was made; until then it is shared"""
    _tables: tuple[Names, Axes, Tables] | None = None
    _writer: tuple[Axes, DecisionWriter] | None = None
    _all_labelled: tuple[str, ...] = ()
    """the labels, once each of them has been decided and got its own label; remembered to save looking"""

    @classmethod
    def new(cls, number: int, name: str, rules: TenantSettings) -> Tenant:
        names = shared_names(Names(labels=NameTable(rules.settings.labels)))
        learner = Learner(rules.settings, rules.seed)
        return cls(number, name, rules, names, learner, Counter(), PendingAges.new(rules.expiry), _new_watch(rules))

    def clone(self) -> Tenant:
        """A copy to change; nothing of the original is touched. The watch is shared until it has something to see."""
        tally: Counter[str] = Counter.__new__(Counter)
        dict.update(tally, self.tally)  # what ``Counter(self.tally)`` does, in a tenth of the time
        return Tenant(
            self.number,
            self.name,
            self.rules,
            self.names,
            self.learner.clone(),
            tally,
            self.waits.clone(),
            self.watch,
            self.recorded,
            _tables=self._tables,
            _writer=self._writer,
            _all_labelled=self._all_labelled,
        )

    @property
    def tables(self) -> Tables:
        """Between the numbers in entries and the indices of counters, for the names known now."""
        names, axes, known = self.names, self.learner.state.axes, self._tables
        if known is None or known[0] is not names or known[1] is not axes:
            self._tables = known = (names, axes, tables_of(names, axes))
        return known[2]

    @property
    def kind(self) -> Hashable:
        """Tenants of the same kind can be worked on together: settings, numbers of names and policies are the same."""
        return self.learner.kind, self.tables.shape

    @property
    def writer(self) -> DecisionWriter:
        """Writes this tenant's decisions, with the names known now."""
        axes = self.learner.state.axes
        if self._writer is None or self._writer[0] is not axes:
            policy = self.rules.settings.policy
            writer = DecisionWriter(
                tenant=self.name,
                groups=axes.groups,
                labels=axes.labels,
                experts=axes.experts,
                instances=axes.labels if policy.has_instances else (),
                policy=policy.policy,
                objective=policy.objective if policy.policy == "gforce" else None,
                config=self.rules.digest,
            )
            self._writer = (axes, writer)
        return self._writer[1]

    def knows(self, panel: Panel) -> bool:
        """Whether everybody on it was met before."""
        names = self.names
        return (
            panel.group in names.groups.known
            and names.experts.known.keys() >= {*panel.experts}
            and self.learner.accepts(panel.group)
        )

    def meet(self, panel: Panel) -> None:
        """Give numbers to names that were not met before."""
        self.names = with_panel(self.names, panel.group, panel.experts)

    def register_policies(self) -> None:
        """The same for policies."""
        names, policies = self.names, self.learner.policies
        if not policies.keys() <= names.policies.known.keys():
            self.names = shared_names(replace(names, policies=names.policies.and_(*policies)))

    def begin_under_other_rules(self, latest: int) -> None:
        """Drop time buckets later than any record: they were numbered by another width, and none newer would come."""
        state = self.learner.state
        state.drop_after(latest // state.bucket)

    def expects_label(self, entry: Pending) -> bool:
        """Whether a label may come for this decision at all."""
        settings = self.rules.settings
        return settings.feedback == "all" or self._decided(entry, IN_FORCE) == settings.positive

    def observe(self, cells: Sequence[tuple[int, int, bool, int]]) -> list[AlertChange]:
        """Watch labels that were joined, in order; see ``Monitor.observe``. What was raised or cleared."""
        watch = self._own_watch() if cells else None
        if watch is None:
            return []
        return watch.observe(cells) + watch.one_sided(self._unlabelled(), cells[-1][3])

    def _unlabelled(self) -> tuple[int, ...]:
        """Decisions that never get a label, by number. Once every decision has had one, that is settled."""
        axes = self.learner.state.axes
        if self._all_labelled == axes.labels or self.tally["decisions"] < ENOUGH:
            return ()
        counters, policy = self.learner.counters(), axes.policy_index[IN_FORCE]
        if counters.outcomes[0, policy].sum(axis=(0, 1)).all():
            self._all_labelled = axes.labels
        silent = unlabelled_decisions(counters, axes, policy)
        return tuple(sorted(self.names.labels.known[label] for label in silent))

    def published(self, change: AlertChange, batch: int) -> AlertEvent:
        """The record of an alert raised or cleared in this batch."""
        assert self.rules.watch is not None
        return alert_event(
            change,
            self.rules.watch,
            tenant=self.name,
            groups=self.names.groups,
            labels=self.names.labels,
            config=self.rules.digest,
            batch=batch,
        )

    def acknowledge(self, alert: int, at: int) -> list[AlertChange]:
        """A person has seen this alert; nothing happens if it is not open."""
        watch = self._own_watch()
        return watch.acknowledge(alert, at) if watch else []

    def _own_watch(self) -> Monitor | None:
        """To be changed: no other copy of this tenant has it."""
        if self.watch is not None and not self.observed:
            self.watch, self.observed = self.watch.clone(), True
        return self.watch

    def _encode_names(self) -> bytes:
        names, axes = self.tables.stored
        tally = sorted(self.tally.items())
        return _encode((BINARY_FORM, self.name, names, axes, tally, self.recorded, self.waits.encode()))

    @classmethod
    def from_fields(
        cls, number: int, fields: Mapping[bytes, bytes], settings_for: Callable[[str], TenantSettings | None]
    ) -> Tenant:
        """Rebuild a tenant from its own fields; ``settings_for`` gives the rules of a name."""
        head = number.to_bytes(2, "big")
        if missing := [kind for kind in (b"t", b"c") if kind + head not in fields]:
            raise IncompatibleStateError(
                f"the stored state of tenant number {number} has no field {missing[0].decode()}: it is damaged. "
                "Reconstruct it with `gforce rebuild`"
            )
        name, names, axes_names, tally, recorded, waits = _own_field(fields[b"t" + head])
        rules = settings_for(name)
        if rules is None:
            raise IncompatibleStateError(
                f'the state holds tenant "{name}", which the configuration no longer accepts: add [tenants."{name}"], '
                "or set accept_unknown = true"
            )
        settings = rules.settings
        axes = shared_axes(Axes(*(tuple(part) for part in axes_names)))
        unit = 1 if settings.feedback == "all" else WEIGHT_UNIT
        state = State(axes, bucket=settings.bucket, keep=settings.keep, unit=unit)
        state.lifetime = decode_counters(fields[b"c" + head], axes, unit)
        prefix = b"b" + head
        state.buckets = {
            int.from_bytes(key[3:], "big"): decode_counters(value, axes, unit)
            for key, value in sorted(fields.items())
            if key.startswith(prefix)
        }
        try:
            _count_as_configured(settings, state)
            learner = Learner(settings, rules.seed, state)
        except IncompatibleStateError as error:
            raise IncompatibleStateError(f'tenant "{name}": {error}') from None
        state.unwritten = set(state.touched)  # the rules know more names than what is stored
        return cls(
            number,
            name,
            rules,
            _known_names(names, settings.labels),
            learner,
            Counter(dict(tally)),
            PendingAges.decode(waits),
            _stored_watch(rules, fields.get(b"w" + head)),
            recorded,
        )

    def _decided(self, entry: Pending, policy: str) -> str | None:
        number = self.names.policies.known[policy]
        digit = entry.decided[number] if number < len(entry.decided) else 0
        return self.names.labels[digit - 1] if digit else None


def check_form(what: str, form: object, known: int) -> None:
    """Refuse a stored field of another form: a later version wrote it, and what it means is not known here."""
    if form != known:
        raise IncompatibleStateError(
            f"the stored {what} is of form {form} and this version reads {known}: run the version that wrote it, or "
            "`gforce rebuild` with the version that wrote the changelog"
        )


_OwnField = tuple[str, list[list[str]], list[list[str]], list[tuple[str, int]], str, list[Any]]
"""name, names, axes, tally, recorded, waits"""


def _own_field(data: bytes) -> _OwnField:
    """The tenant's own field without its form, which is checked."""
    try:
        form, *rest = msgspec.msgpack.decode(data, type=list[Any])
        check_form("tenant", form, BINARY_FORM)
        field: _OwnField = msgspec.convert(rest, type=_OwnField)
    except (msgspec.MsgspecError, ValueError) as error:
        if isinstance(error, IncompatibleStateError):
            raise
        raise IncompatibleStateError(f"a stored tenant is damaged: {error}. Rebuild it") from None
    return field


ToWrite = tuple[Writes, Sequence[tuple[Tenant, Tenant | None]]]
"""Where to write tenants, each with what is stored of it already."""


def write_tenants(parts: Sequence[ToWrite]) -> None:
    """Write what is needed so that the stores hold these tenants; the counters of all of them are encoded at once."""
    counters: list[Counters] = []
    changed: list[list[int]] = []
    for tenant in [tenant for _, tenants in parts for tenant, _ in tenants]:
        state = tenant.learner.state
        numbers = [number for number in sorted(state.touched) if number in state.buckets]
        changed.append(numbers)
        counters += (state.lifetime, *[state.buckets[number] for number in numbers])
    encoded, buckets = iter(encode_many(counters)), iter(changed)
    for writes, tenants in parts:
        writes.add_fields(
            [field for tenant, before in tenants for field in _fields(tenant, before, next(buckets), encoded)]
        )


def _fields(
    tenant: Tenant, before: Tenant | None, numbers: Sequence[int], encoded: Iterator[bytes]
) -> list[tuple[bytes, bytes | None]]:
    """Those to be set or deleted; the next of ``encoded`` are its counters."""
    head = tenant.number.to_bytes(2, "big")
    fields: list[tuple[bytes, bytes | None]] = [
        (b"t" + head, tenant._encode_names()),
        (b"c" + head, next(encoded)),
    ]
    if tenant.watch is not None and tenant.observed:
        fields.append((b"w" + head, _encode((tenant.rules.watch, tenant.watch.encode()))))
    fields += [(_bucket_field(head, number), next(encoded)) for number in numbers]
    if before is not None:
        gone = sorted(before.learner.state.buckets.keys() - tenant.learner.state.buckets.keys())
        fields += [(_bucket_field(head, number), None) for number in gone]
    return fields


def fields_by_tenant(fields: Mapping[bytes, bytes]) -> dict[int, dict[bytes, bytes]]:
    """The stored fields of a partition, apart by the number of their tenant.

    >>> fields_by_tenant({b"p": b"head", b"t\\0\\7": b"names", b"b\\0\\7......": b"bucket"})
    {7: {b't\\x00\\x07': b'names', b'b\\x00\\x07......': b'bucket'}}
    """
    found: dict[int, dict[bytes, bytes]] = {}
    for name, value in fields.items():
        if name != HEAD:
            found.setdefault(int.from_bytes(name[1:3], "big"), {})[name] = value
    return found


def _bucket_field(head: bytes, number: int) -> bytes:
    return b"b" + head + number.to_bytes(6, "big")


_ANEW = "give it another name, or let all tenants begin anew: gforce reset"


def _count_as_configured(settings: Settings, state: State) -> None:
    """Labels that count as one each and labels with weights do not add up.

    Who finds that labels come for positive decisions only, and says so from now on, begins anew: what was counted
    before was wrong. The other way round a line is missing in the configuration, and what was learnt stays.
    """
    if state.axes.labels != tuple(sorted(settings.labels)):
        raise IncompatibleStateError(
            f"its labels are {list(state.axes.labels)} and the configuration says {sorted(settings.labels)}: set them "
            f"back. Should it have others from now on, {_ANEW}"
        )
    counted = state.lifetime
    weighted = bool((counted.labels != counted.seen).any())
    if not counted.seen.any() or weighted == (settings.feedback == "positive-only"):
        return
    if weighted:
        raise IncompatibleStateError(
            'its labels were counted with feedback = "positive-only" and the configuration says "all": set it back. '
            f"Should all its decisions get labels from now on, {_ANEW}"
        )
    state.begin_anew()


def _known_names(stored: Sequence[Sequence[str]], labels: Sequence[str]) -> Names:
    groups, experts, met, policies = map(NameTable, stored)
    return shared_names(Names(groups, experts, met.and_(*labels), policies))


def _new_watch(rules: TenantSettings) -> Monitor | None:
    settings = rules.settings
    if rules.watch is None or settings.feedback != "all":
        return None  # labels that come for some decisions only say nothing about the others
    return Monitor.new(rules.watch, len(settings.labels), len(settings.groups))


def _stored_watch(rules: TenantSettings, stored: bytes | None) -> Monitor | None:
    """As stored, under the present settings."""
    fresh = _new_watch(rules)
    if fresh is None or stored is None or rules.watch is None:
        return fresh
    settings, state = msgspec.msgpack.decode(stored, type=tuple[MonitorSettings, bytes])
    return Monitor.decode(settings, state).under(rules.watch)
