"""One tenant inside a partition: its learner, the order in which it met its names, and what has happened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec
import numpy as np

from .alert_events import AlertEvent, alert_event
from .alerts import Change, WatchSettings
from .axes import Axes
from .codec import decode_counters, encode_counters
from .counters import WEIGHT_UNIT, label_weight
from .diagnosis import unlabelled_decisions
from .entry import LAST_SECOND, Pending
from .errors import IncompatibleState
from .learner import IN_FORCE, Decision, Learner, Request
from .settings import Settings
from .state import State
from .waits import Waits
from .watch import Watch
from .writes import DeleteField, SetField, Write

BINARY_FORM = 2


class TenantRules(msgspec.Struct, frozen=True, kw_only=True):
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
    watch: WatchSettings | None = None
    """when to alert; None where nothing is watched"""
    windows: tuple[int, ...] = (1, 7)
    """windows of the gauges, in buckets; no decision depends on them"""
    max_groups: int = 32
    max_experts: int = 64


@dataclass
class Names:
    """Names in the order they were met: a number, once given, never changes."""

    groups: list[str] = field(default_factory=list)
    experts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)

    def copy(self) -> Names:
        return Names(list(self.groups), list(self.experts), list(self.labels), list(self.policies))


def number_of(names: list[str], name: str) -> int:
    """The number of a name; a new name gets the next one."""
    try:
        return names.index(name)
    except ValueError:
        names.append(name)
        return len(names) - 1


@dataclass(slots=True)
class Joined:
    """A label that has found its decision, or what an expired decision counts as."""

    entry: Pending
    label: int
    at: int
    expired: bool = False


@dataclass
class Tenant:
    number: int
    name: str
    rules: TenantRules
    names: Names
    learner: Learner
    tally: Counter[str]
    """what has happened, by name; see ``docs/operations.md``"""
    waits: Waits
    watch: Watch | None = None
    recorded: str = ""
    """digest of the rules the journal has this tenant under"""
    observed: bool = False
    """whether the watch has seen anything since this copy was made"""

    @classmethod
    def new(cls, number: int, name: str, rules: TenantRules) -> Tenant:
        names = Names(labels=list(rules.settings.labels))
        learner = Learner(rules.settings, rules.seed)
        return cls(number, name, rules, names, learner, Counter(), Waits.new(rules.expiry), _new_watch(rules))

    def clone(self) -> Tenant:
        """A copy to change; nothing of the original is touched."""
        learner = Learner(self.rules.settings, self.rules.seed, self.learner.state.clone())
        return Tenant(
            self.number,
            self.name,
            self.rules,
            self.names.copy(),
            learner,
            Counter(self.tally),
            self.waits.clone(),
            self.watch.clone() if self.watch else None,
            self.recorded,
        )

    def decide(self, requests: Sequence[Request], at: Sequence[int]) -> list[Decision]:
        return self.learner.decide_batch(requests, at)

    def pending(self, decision: Decision, content: int, at: int, due: int, remove: int) -> Pending:
        """The entry of a decision just made; ``at`` is the time of its request in milliseconds."""
        names, settings = self.names, self.rules.settings
        for name in (IN_FORCE, *(shadow.name for shadow in settings.shadows)):
            number_of(names.policies, name)
        said = {number_of(names.experts, e): number_of(names.labels, y) + 1 for e, y in decision.predictions.items()}
        decided = {**decision.shadows, IN_FORCE: decision.label}
        propensity = None
        if settings.feedback == "positive-only":
            assert settings.positive is not None
            propensity = max(decision.parts[settings.positive], 1) - 1
        return Pending(
            tenant=self.number,
            content=content,
            at=min(max(at // 1_000, 0), LAST_SECOND),
            due=due,
            remove=remove,
            propensity=propensity,
            group=number_of(names.groups, decision.group),
            kinds=len(names.labels),
            decided=tuple(
                names.labels.index(decided[policy]) + 1 if policy in decided else 0 for policy in names.policies
            ),
            predictions=tuple(said.get(number, 0) for number in range(len(names.experts))),
        )

    def expects_label(self, entry: Pending) -> bool:
        """Whether a label may come for this decision at all."""
        settings = self.rules.settings
        return settings.feedback == "all" or self._decided(entry, IN_FORCE) == settings.positive

    def join(self, joined: Sequence[Joined]) -> list[Change]:
        """Learn from labels, in any order, and watch them, in this one. What was raised or cleared."""
        if not joined:
            return []
        axes = self.learner.state.axes
        groups = [axes.group_index[name] for name in self.names.groups]
        labels = np.array([-1, *(axes.label_index.get(name, -1) for name in self.names.labels)])
        group = np.array([groups[j.entry.group] for j in joined], dtype=np.int64)
        label = labels[[j.label + 1 for j in joined]]
        predictions = self._aligned(
            [j.entry.predictions for j in joined],
            [axes.expert_index.get(e) for e in self.names.experts],
            len(axes.experts),
        )
        decided = self._aligned(
            [j.entry.decided for j in joined],
            [axes.policy_index.get(p) for p in self.names.policies],
            len(axes.policies),
        )
        in_force = labels[decided[:, axes.policy_index[IN_FORCE]]]
        decided_labels = np.where(decided > 0, labels[decided], in_force[:, None])
        weight = None
        if self.rules.settings.feedback == "positive-only":
            weight = np.array([label_weight((j.entry.propensity or 0) + 1) for j in joined], dtype=np.int64)
        at = np.array([j.at for j in joined], dtype=np.int64)
        self.learner.learn_arrays(at, group, label, labels[predictions], decided_labels, weight)
        for one in joined:
            if not one.expired:
                self.waits.joined(one.entry.at, one.at)
        return self._observe(joined)

    def _observe(self, joined: Sequence[Joined]) -> list[Change]:
        if self.watch is None:
            return []
        self.observed = True
        number = self.names.policies.index(IN_FORCE)
        changes = self.watch.observe(
            [(j.label, j.entry.group, j.entry.decided[number] != j.label + 1, j.at) for j in joined]
        )
        axes = self.learner.state.axes
        silent = unlabelled_decisions(self.learner.counters(), axes, axes.policy_index[IN_FORCE])
        numbers = tuple(sorted(self.names.labels.index(label) for label in silent))
        return changes + self.watch.one_sided(numbers, joined[-1].at)

    def published(self, change: Change, batch: int) -> AlertEvent:
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

    def acknowledge(self, alert: int, at: int) -> list[Change]:
        """A person has seen this alert; nothing happens if it is not open."""
        if self.watch is None:
            return []
        self.observed = True
        return self.watch.acknowledge(alert, at)

    def under(self, rules: TenantRules) -> Tenant:
        """The same tenant under other rules: what a process with another configuration makes of what is stored."""
        self.observed = True
        fields = {write.name: write.value for write in self.fields(None) if isinstance(write, SetField)}
        head = b"b" + self.number.to_bytes(2, "big")
        for number, counters in self.learner.state.buckets.items():
            fields[head + number.to_bytes(6, "big")] = encode_counters(counters)
        return Tenant.from_fields(self.number, fields, lambda _: rules)

    def fields(self, before: Tenant | None) -> Iterable[Write]:
        """What to write so that the store holds this tenant, given what it holds already."""
        state, head = self.learner.state, self.number.to_bytes(2, "big")
        yield SetField(b"t" + head, self._encode_names())
        yield SetField(b"c" + head, encode_counters(state.lifetime))
        if self.watch is not None and self.observed:
            yield SetField(b"w" + head, msgspec.msgpack.encode([self.rules.watch, self.watch.encode()]))
        for number in sorted(state.touched & set(state.buckets)):
            yield SetField(b"b" + head + number.to_bytes(6, "big"), encode_counters(state.buckets[number]))
        if before is not None:
            for number in sorted(set(before.learner.state.buckets) - set(state.buckets)):
                yield DeleteField(b"b" + head + number.to_bytes(6, "big"))

    def _encode_names(self) -> bytes:
        names = self.names
        return msgspec.msgpack.encode(
            [
                BINARY_FORM,
                self.name,
                [names.groups, names.experts, names.labels, names.policies],
                [list(axis) for axis in _axes(self.learner.state.axes)],
                sorted(self.tally.items()),
                self.recorded,
                self.waits.encode(),
            ]
        )

    @classmethod
    def from_fields(
        cls, number: int, fields: Mapping[bytes, bytes], rules_for: Callable[[str], TenantRules | None]
    ) -> Tenant:
        """Rebuild a tenant from what ``fields`` wrote; ``rules_for`` gives the rules of a name."""
        head = number.to_bytes(2, "big")
        _, name, names, axes_names, tally, recorded, waits = msgspec.msgpack.decode(fields[b"t" + head])
        rules = rules_for(name)
        if rules is None:
            raise IncompatibleState(
                f'the state holds tenant "{name}", which the configuration no longer accepts: add [tenants."{name}"], '
                "or set accept_unknown = true"
            )
        settings = rules.settings
        axes = Axes(*(tuple(part) for part in axes_names))
        unit = 1 if settings.feedback == "all" else WEIGHT_UNIT
        state = State(axes, bucket=settings.bucket, keep=settings.keep, unit=unit)
        state.lifetime = decode_counters(fields[b"c" + head], axes, unit)
        prefix = b"b" + head
        state.buckets = {
            int.from_bytes(key[3:], "big"): decode_counters(value, axes, unit)
            for key, value in sorted(fields.items())
            if key.startswith(prefix)
        }
        learner = Learner(settings, rules.seed, state)
        return cls(
            number,
            name,
            rules,
            Names(*names),
            learner,
            Counter(dict(tally)),
            Waits.decode(waits),
            _stored_watch(rules, fields.get(b"w" + head)),
            recorded,
        )

    def _decided(self, entry: Pending, policy: str) -> str | None:
        number = self.names.policies.index(policy)
        digit = entry.decided[number] if number < len(entry.decided) else 0
        return self.names.labels[digit - 1] if digit else None

    @staticmethod
    def _aligned(
        rows: Sequence[tuple[int, ...]], columns: Sequence[int | None], width: int
    ) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Digits in the order names were met, brought into the order of the axes; 0 where nothing was said."""
        aligned = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            for digit, column in zip(row, columns, strict=False):
                if digit and column is not None:
                    aligned[i, column] = digit
        return aligned


def _new_watch(rules: TenantRules) -> Watch | None:
    settings = rules.settings
    if rules.watch is None or settings.feedback != "all":
        return None  # labels that come for some decisions only say nothing about the others
    return Watch.new(rules.watch, len(settings.labels), len(settings.groups))


def _stored_watch(rules: TenantRules, stored: bytes | None) -> Watch | None:
    """As stored, under the present settings."""
    fresh = _new_watch(rules)
    if fresh is None or stored is None or rules.watch is None:
        return fresh
    settings, state = msgspec.msgpack.decode(stored, type=tuple[WatchSettings, bytes])
    return Watch.decode(settings, state).under(rules.watch)


def _axes(axes: Axes) -> tuple[tuple[str, ...], ...]:
    return (axes.groups, axes.labels, axes.experts, axes.policies)


def content_hash(group: str, predictions: Mapping[str, str], context: bytes) -> int:
    """32 bits of what a request says, independent of the order of its experts."""
    canonical = msgspec.msgpack.encode([group, sorted(predictions.items()), context])
    return int.from_bytes(blake2b(canonical, digest_size=4).digest(), "big")
