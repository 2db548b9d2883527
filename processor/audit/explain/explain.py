"""Explain one decision: the advice, how likely each label was and why, and what was learnt from it later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from processor.audit.replay.findings import Finding, NotAuditableError
from processor.audit.replay.recorded_settings import Secrets
from processor.audit.replay.replay import Replay, ReplayedBatch
from processor.audit.sources.source import Source
from processor.audit.verify.decisions import Decisions, RecordedDraws
from processor.core.events import DecisionEvent, RequestEvent, decode_decision
from processor.core.exact import ONE
from processor.core.learner.draws import draws
from processor.core.stream.entries import Parked, decode_entry, entry_id
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partitioner import partition_of
from processor.core.stream.step import FEW_LABELS, REQUESTS_PER_SOLVE_WHEN_FEW_LABELS, DecodedBatch, InputRecord, step
from processor.core.stream.tenant import Tenant
from processor.ports.codec import Codec

from .label_history import LabelHistory, PastDecision, label_history


class ExpertShare(msgspec.Struct, kw_only=True):
    """How likely an expert was to be followed, in one instance."""

    expert: str
    said: str
    share: float
    """π: the chance that this expert is followed if its instance is chosen"""
    errors: int
    """how often it was wrong about cases like those its instance learns from"""
    trials: int


class InstanceShare(msgspec.Struct, kw_only=True):
    """One set of weights over the experts. ``name`` is the true label it specialises in, where there are several."""

    name: str | None
    chance: float
    """q: the chance that this set of weights decides"""
    experts: list[ExpertShare]


class Draw(msgspec.Struct, kw_only=True):
    """A number from 0 to below 1, made from the seed and the decision's id."""

    what: str
    value: float
    chose: str
    below: float
    """it chose the entry whose share of the unit interval begins at ``above`` and ends at ``below``"""
    above: float


class Explanation(msgspec.Struct, kw_only=True):
    tenant: str
    decision_id: str
    partition: int
    lineage: str
    batch: int
    clock: int
    """time of its batch"""
    requested: int
    """timestamp of the request"""
    request_offset: int
    group: str
    decision: str
    expert: str | None
    instance: str | None
    explored: bool
    predictions: dict[str, str]
    probabilities: dict[str, float]
    parts: dict[str, int]
    policy: str
    objective: str | None
    config: str
    configuration: dict[str, object]
    explore: float | None
    labels_learnt: int
    """that the rule rested on"""
    instances: list[InstanceShare]
    draws: list[Draw] | None
    """None where the seed is not known"""
    shadows: list[str]
    differences: list[str]
    """where the record of decisions says otherwise than what follows from the inputs, which is what is explained"""
    aftermath: LabelHistory


@dataclass
class _FoundDecision:
    batch: ReplayedBatch
    raw: InputRecord
    event: RequestEvent
    made: DecisionEvent
    value: bytes
    """of the decision that follows, as it is published"""


def explain_decision(
    source: Source,
    tenant: str,
    decision_id: str,
    secrets: Secrets,
    codec: Callable[[], Codec | None] | None = None,
) -> Explanation | None:
    """None if the record has no such decision. Raises NotAuditableError where it cannot be recomputed."""
    number = _find_partition(source, tenant)
    if number is None:
        return None
    replay = Replay(source, number, secrets, codec=codec() if codec else None, keep_entries=True)
    draws_recorded = replay.drawn = RecordedDraws(source, number, read_all=True)
    key = entry_id(tenant, decision_id)
    for batch in replay.batches():
        if replay.lost:
            raise NotAuditableError(
                f"the record does not lead to the decision: {replay.lost} (batch {batch.journal.sequence} of partition "
                f"{number}). `gforce audit` tells what is wrong with it."
            )
        found = _find(batch, tenant, decision_id, key)
        if found is not None:
            differences = _differences(source, draws_recorded.decisions, found, replay.codec)
            return _explanation(replay, found, key, differences)
    return None


def _find_partition(source: Source, tenant: str) -> int | None:
    for number in source.partitions("journal"):
        first = next(iter(source.read("journal", number)), None)
        if first is not None:
            return partition_of(tenant.encode(), JournalRecord.decode(first.value or b"").partitions)
    return None


def _differences(source: Source, published: Decisions | None, found: _FoundDecision, codec: Codec | None) -> list[str]:
    """Where the published decision differs; nothing where decisions were not recorded, or not as JSON."""
    if published is None or not source.has("decisions"):
        return []
    if codec is not None and codec.from_json(published.topic, found.value) != found.value:
        return []
    return [finding_text(one) for one in published.about(found.batch.journal, found.value)]


def finding_text(finding: Finding) -> str:
    """A finding in one line."""
    at = "" if finding.offset is None else f" at offset {finding.offset}"
    sides = f": recorded is {finding.recorded}; {finding.follows} follows" if finding.recorded else ""
    return f"{finding.topic} [{finding.partition}]{at}: {finding.text}{sides}"


def _find(batch: ReplayedBatch, tenant: str, decision_id: str, key: bytes) -> _FoundDecision | None:
    if batch.decoded is None or batch.outcome is None:
        return None
    mine = [(raw, event) for raw, event, other in batch.decoded.requests if other == key]
    if not mine:
        return None
    wanted = decision_id.encode()
    for made in batch.outcome.decisions:
        if made.tenant == tenant and (wanted in made.value or not wanted.isascii() or b"\\" in made.value):
            event = decode_decision(made.value)
            if event.decision_id == decision_id:
                return _FoundDecision(batch, *mine[0], event, made.value)
    return None


def _explanation(replay: Replay, found: _FoundDecision, key: bytes, differences: list[str]) -> Explanation:
    batch, made, event = found.batch, found.made, found.event
    rules = replay.recorded_settings.settings_for(made.tenant)
    assert rules is not None
    tenant, parked = _tenant_as_decided(replay, found, key)
    settings = rules.settings
    instances = _instances(tenant, event)
    later = PastDecision(
        made.tenant,
        made.decision_id,
        made.decision,
        replay.number,
        batch.journal.lineage,
        batch.journal.sequence,
        batch.offset,
        batch.clock,
        found.raw.timestamp if found.raw.timestamp >= 0 else batch.clock,
        parked,
        tenant.names.labels[parked.label] if parked else "",
    )
    seedless = made.tenant in replay.recorded_settings.seedless
    return Explanation(
        tenant=made.tenant,
        decision_id=made.decision_id,
        partition=replay.number,
        lineage=batch.journal.lineage,
        batch=batch.journal.sequence,
        clock=batch.clock,
        requested=found.raw.timestamp,
        request_offset=found.raw.offset,
        group=made.group,
        decision=made.decision,
        expert=made.expert,
        instance=made.instance,
        explored=made.expert is None,
        predictions=dict(event.predictions),
        probabilities=made.probabilities,
        parts=made.parts,
        policy=made.policy,
        objective=made.objective,
        config=made.config,
        configuration=msgspec.json.decode(rules.canonical),
        explore=settings.explore,
        labels_learnt=int(tenant.learner.counters(settings.window).joined[0]),
        instances=instances,
        draws=None if seedless else _draws(tenant, made, instances),
        shadows=[shadow.name for shadow in settings.shadows],
        differences=differences,
        aftermath=label_history(replay.source, later, rules, replay.recorded_settings.stream_settings(), replay.codec),
    )


def _tenant_as_decided(replay: Replay, found: _FoundDecision, key: bytes) -> tuple[Tenant, Parked | None]:
    """The tenant as it was when its rule decided this case, and the label that was waiting for it, if any.

    A batch is decided in chunks; the rule of a chunk knows what the ones before have left behind.
    """
    batch = found.batch
    assert batch.decoded is not None
    requests = [one for one in batch.decoded.requests if one[1].tenant == found.made.tenant]
    position = next(i for i, (raw, _, _) in enumerate(requests) if raw.offset == found.raw.offset)
    start = 0
    while True:
        tenant = _after(replay, batch, found.made.tenant, requests[:start])
        young = tenant is None or int(tenant.learner.counters().joined[0]) < FEW_LABELS
        size = REQUESTS_PER_SOLVE_WHEN_FEW_LABELS if young else len(requests)
        if position < start + size:
            break
        start += size
    rules = replay.recorded_settings.settings_for(found.made.tenant)
    assert rules is not None
    ready = tenant.clone() if tenant is not None else Tenant.new(0, found.made.tenant, rules)
    chunk = [event for _, event, _ in requests[start : start + size]]
    made = {event.decision_id: event.group for event in _decisions_of(batch, found.made.tenant)}
    _ensure_axes(ready, [event for event in chunk if made.get(event.decision_id) == event.group])
    stored = batch.entries.get(key)
    entry = decode_entry(stored) if stored else None
    return ready, entry if isinstance(entry, Parked) else None


def _after(
    replay: Replay, batch: ReplayedBatch, name: str, requests: list[tuple[InputRecord, RequestEvent, bytes]]
) -> Tenant | None:
    """The tenant once these requests of the batch are decided, and nothing has expired yet."""
    assert batch.decoded is not None
    keys = {key for *_, key in requests} | {key for _, event, key in batch.decoded.feedback if event.tenant == name}
    part = DecodedBatch(
        requests, [one for one in batch.decoded.feedback if one[1].tenant == name], [], 0, batch.decoded.latest
    )
    entries = {key: batch.entries.get(key) for key in keys}
    drawn = replay.drawn(batch.journal, batch.decoded, replay.recorded_settings) if replay.drawn else {}
    settings, clock = replay.recorded_settings.stream_settings(), batch.clock
    outcome = step(batch.before, part, entries, {}, clock, settings, batch.journal.acknowledged, drawn)
    return outcome.partition.tenants.get(name)


def _decisions_of(batch: ReplayedBatch, tenant: str) -> list[DecisionEvent]:
    assert batch.outcome is not None
    return [decode_decision(made.value) for made in batch.outcome.decisions if made.tenant == tenant]


def _ensure_axes(tenant: Tenant, chunk: list[RequestEvent]) -> None:
    """Extend the axes by the groups and experts of a chunk, some of which may be new."""
    state = tenant.learner.state
    experts = {expert for event in chunk for expert in event.predictions}
    state.extend(state.axes.extended(groups={event.group for event in chunk}, experts=experts))


def _instances(tenant: Tenant, event: RequestEvent) -> list[InstanceShare]:
    learner, settings = tenant.learner, tenant.rules.settings
    axes, counters = learner.state.axes, learner.counters(settings.window)
    group = axes.group_index[event.group]
    present = np.array([expert in event.predictions for expert in axes.experts])
    chances, shares = learner.rule().chances(group, present)
    several = settings.policy.has_instances
    groups = slice(None) if settings.policy.policy == "mw" else slice(group, group + 1)
    found = []
    for i, chance in enumerate(chances.tolist()):
        kinds = slice(i, i + 1) if several else slice(None)
        experts = [
            ExpertShare(
                expert=expert,
                said=event.predictions[expert],
                share=int(shares[i, f]) / ONE,
                errors=int(counters.losses[0, f, groups, kinds].sum()) // counters.unit,
                trials=int(counters.trials[0, f, groups, kinds].sum()) // counters.unit,
            )
            for f, expert in enumerate(axes.experts)
            if expert in event.predictions
        ]
        found.append(InstanceShare(name=axes.labels[i] if several else None, chance=chance / ONE, experts=experts))
    return found


def _draws(tenant: Tenant, made: DecisionEvent, instances: list[InstanceShare]) -> list[Draw]:
    first, second, third = draws(tenant.rules.seed, [made.decision_id])[0].tolist()
    explore = tenant.rules.settings.explore
    found = []
    if explore is not None:
        chose = "decide positively whatever the experts say" if made.expert is None else "ask the experts"
        above, below = (0.0, explore) if made.expert is None else (explore, 1.0)
        found.append(Draw(what="exploration", value=third / ONE, chose=chose, above=above, below=below))
    if made.expert is None:
        return found
    by_name = {one.name: one for one in instances}
    chosen = by_name.get(made.instance, instances[0])
    if len(instances) > 1:
        above, below = _share_interval([one.chance for one in instances], instances.index(chosen))
        found.append(Draw(what="instance", value=first / ONE, chose=f'"{chosen.name}"', above=above, below=below))
    order = [one.expert for one in chosen.experts]
    above, below = _share_interval([one.share for one in chosen.experts], order.index(made.expert))
    found.append(Draw(what="expert", value=second / ONE, chose=f'"{made.expert}"', above=above, below=below))
    return found


def _share_interval(shares: list[float], index: int) -> tuple[float, float]:
    above = sum(shares[:index])
    return above, above + shares[index]
