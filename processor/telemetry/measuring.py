"""From tenants to their figures, for all tenants of one shape at once.

A committed tenant is never changed in place, so this may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from processor.config.values import Duration
from processor.core import IN_FORCE
from processor.core.exact import ONE, Ints
from processor.core.learner.counters import Counters
from processor.core.learner.policies import rule_of
from processor.core.learner.rule import Rule
from processor.core.metrics.diagnosis import absent_experts, constant_experts, unlabelled_decisions
from processor.core.metrics.rates import regret_per_round
from processor.core.settings import Policy
from processor.core.stream.tenant import Tenant

from .alert_figures import open_alerts, watched
from .figures import ALL, LIFETIME, MIXTURE, TenantFigures, WindowFigures
from .paper_bounds import bounds_of
from .window_figures import window_figures


@dataclass(frozen=True)
class TenantSnapshot:
    """A tenant as it is now, and the first bucket of each of its windows."""

    partition: int
    tenant: Tenant
    starts: tuple[int, ...]

    @classmethod
    def of(cls, partition: int, tenant: Tenant, clock: int) -> TenantSnapshot:
        """``clock`` is the partition's: windows begin at a multiple of their own length."""
        now = clock // tenant.rules.settings.bucket
        return cls(partition, tenant, tuple(now - now % width for width in tenant.rules.windows))

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be equal for tenants to be worked out together."""
        settings, state = self.tenant.rules.settings, self.tenant.learner.state
        axes = state.axes
        terms = msgspec.json.encode((settings.policy, settings.prior, settings.positive, axes.labels, axes.policies))
        return (len(axes.groups), len(axes.experts), state.unit, len(self.starts), terms)


def measured(cases: Sequence[TenantSnapshot]) -> list[TenantFigures]:
    """The figures of every tenant, in the order given. Attainable gap and age of pending are not among them."""
    by_shape: dict[tuple[object, ...], list[int]] = {}
    found: dict[int, TenantFigures] = {}
    for i, case in enumerate(cases):
        axes = case.tenant.learner.state.axes
        if axes.groups and axes.experts:
            by_shape.setdefault(case.shape, []).append(i)
        else:  # only labels came yet
            found[i] = TenantFigures(**_plain(case))
    for alike in by_shape.values():
        found |= zip(alike, _alike([cases[i] for i in alike]), strict=True)
    return [found[i] for i in range(len(cases))]


def _alike(cases: Sequence[TenantSnapshot]) -> list[TenantFigures]:
    first = cases[0].tenant
    settings, axes = first.rules.settings, first.learner.state.axes
    learnt = rule_counters([case.tenant for case in cases])
    rule = rule_of(settings.policy, learnt, axes.labels, settings.prior)
    pending = np.array([case.tenant.waits.pending for case in cases], dtype=np.float64)
    bounds = bounds_of(rule, learnt, settings.prior, pending) if settings.policy.has_instances else None
    lifetime = Counters.stack([case.tenant.learner.state.lifetime for case in cases])
    regret = regret_per_round(lifetime, axes.policy_index[IN_FORCE], first.learner.hidden).tolist()
    windows = _windows(cases, lifetime)
    made = []
    for i, case in enumerate(cases):
        tenant, own = case.tenant, case.tenant.learner.state.axes
        made.append(
            TenantFigures(
                **_plain(case),
                windows=windows[i],
                regret=regret[i],
                bounds={name: bound[i] for name, bound in bounds.items()} if bounds else {},
                **_rule_figures(rule, settings.policy, tenant, i),
                one_sided=_one_sided(tenant),
                constant_experts=[name for name, _ in constant_experts(learnt, own, i)],
                absent_experts=absent_experts(learnt, own, i),
            )
        )
    return made


def rule_counters(tenants: Sequence[Tenant]) -> Counters:
    """What the policy in force learns from: the lifetime, or the configured window."""
    return Counters.stack([tenant.learner.counters(tenant.rules.settings.window) for tenant in tenants])


def _plain(case: TenantSnapshot) -> dict[str, Any]:
    """What needs no arithmetic."""
    tenant = case.tenant
    axes, settings, waits = tenant.learner.state.axes, tenant.rules.settings, tenant.waits
    streams = watched(tenant)
    return {
        "name": tenant.name,
        "partition": case.partition,
        "groups": axes.groups,
        "labels": tuple(sorted(axes.labels, key=_place_in(settings.labels))),
        "experts": axes.experts,
        "positive": settings.positive,
        "positive_only": settings.feedback == "positive-only",
        "policy": settings.policy.name,
        "tolerance": tenant.watch.settings.tolerance if tenant.watch else float("nan"),
        "tally": dict(tenant.tally),
        "pending": waits.pending,
        "awaited": _awaited(tenant),
        "delays": list(waits.delays),
        "delay_sum": waits.delay_sum,
        "alerts": open_alerts(tenant),
        "streams": streams,
        "learning": sum(stream.state == "learning" and stream.kind == "tolerance" for stream in streams),
    }


def _place_in(names: Sequence[str]) -> Callable[[str], int]:
    """Where a name was configured; others come last."""
    places = {name: place for place, name in enumerate(names)}
    return lambda name: places.get(name, len(places))


def _awaited(tenant: Tenant) -> int:
    """Which of the expired were positive is not known, so this may be too many; never more than are pending."""
    axes, settings, lifetime = tenant.learner.state.axes, tenant.rules.settings, tenant.learner.state.lifetime
    pending = tenant.waits.pending
    if settings.feedback == "all" or settings.positive is None:
        return pending
    positive = int(lifetime.decisions[..., axes.label_index[settings.positive]].sum())
    return min(pending, max(positive - int(lifetime.seen.sum()), 0))


def _one_sided(tenant: Tenant) -> list[str]:
    axes = tenant.learner.state.axes
    if tenant.rules.settings.feedback != "all":
        return []
    return unlabelled_decisions(tenant.learner.state.lifetime, axes, axes.policy_index[IN_FORCE])


def _rule_figures(rule: Rule, policy: Policy, tenant: Tenant, i: int) -> dict[str, Any]:
    axes = tenant.learner.state.axes
    only = MIXTURE if rule.shares is not None else ALL
    instances = axes.labels if policy.has_instances else (only,)
    selection, parts = rule.selection[i].tolist(), (rule.expert_parts[i] / ONE).tolist()
    return {
        "selection": {
            group: dict(zip(instances, chances, strict=True))
            for group, chances in zip(axes.groups, selection, strict=True)
        },
        "weights": {
            group: {
                instance: dict(zip(axes.experts, weights, strict=True))
                for instance, weights in zip(instances, by_instance, strict=True)
            }
            for group, by_instance in zip(axes.groups, parts, strict=True)
        },
    }


# Windows


def _windows(cases: Sequence[TenantSnapshot], lifetime: Counters) -> list[list[WindowFigures]]:
    """The windows of each tenant, the lifetime first."""
    sums = [_since(cases, w) for w in range(len(cases[0].starts))]
    outcomes = np.stack([lifetime.outcomes, *(outcomes for outcomes, _ in sums)])
    seen = np.stack([lifetime.seen, *(seen for _, seen in sums)])
    found = window_figures([case.tenant for case in cases], outcomes, seen, [_spans(case) for case in cases])
    return [[by_tenant[i] for by_tenant in found] for i in range(len(cases))]


def _spans(case: TenantSnapshot) -> list[tuple[str, int]]:
    """The name of each window, and when it began."""
    rules = case.tenant.rules
    bucket = rules.settings.bucket
    named = [
        (str(Duration(width * bucket)), start * bucket) for width, start in zip(rules.windows, case.starts, strict=True)
    ]
    return [(LIFETIME, 0), *named]


def _since(cases: Sequence[TenantSnapshot], window: int) -> tuple[Ints, Ints]:
    """outcomes[b, p, g, y, ŷ] and seen[b, g, y] of the buckets from the window's start on."""
    outcomes, seen = [], []
    for case in cases:
        state = case.tenant.learner.state
        inside = [counters for number, counters in state.buckets.items() if number >= case.starts[window]]
        if inside:
            outcomes.append(sum((c.outcomes for c in inside[1:]), start=inside[0].outcomes))
            seen.append(sum((c.seen for c in inside[1:]), start=inside[0].seen))
        else:
            outcomes.append(np.zeros_like(state.lifetime.outcomes))
            seen.append(np.zeros_like(state.lifetime.seen))
    return np.concatenate(outcomes), np.concatenate(seen)
