"""Partitions with tenants that have decided and learnt, for tests of what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from processor.core import Request
from processor.core.alerts.alerts import MonitorSettings
from processor.core.settings import Policy, Settings
from processor.core.stream.delays import DELAY_BOUNDS, bucket_of
from processor.core.stream.identity import Identity
from processor.core.stream.partition import Partition
from processor.core.stream.tenant import Tenant, TenantSettings
from processor.telemetry.status import Status

DAY = 86_400_000
NOW = 20_003 * DAY + DAY // 2
"""Noon of a day that is not the first of its week of buckets: 20 003 = 7 · 2857 + 4."""
SHADOWS = (Policy(policy="groupaware"), Policy(policy="mw"))


def settings_for(
    settings: Settings, watch: MonitorSettings | None = None, windows: tuple[int, ...] = (1, 7)
) -> TenantSettings:
    return TenantSettings(
        settings=settings,
        seed=b"a seed of 16 byt",
        digest="0123456789abcdef",
        canonical="{}",
        expiry=90 * DAY,
        on_expiry=None,
        parking=7 * DAY,
        horizon=7 * DAY,
        watch=watch,
        windows=windows,
    )


def binary(**changes: object) -> Settings:
    return Settings(**{"labels": ("deny", "grant"), "positive": "grant", "shadows": SHADOWS} | changes)  # type: ignore[arg-type]


def tenant_of(
    name: str = "acme",
    rules: TenantSettings | None = None,
    number: int = 0,
    count: int = 200,
    groups: Sequence[str] = ("A", "B"),
    experts: Sequence[str] = ("e0", "e1", "e2"),
    seed: int = 0,
    unlabelled: int = 0,
) -> Tenant:
    """``count`` cases with labels spread over the last ten days, then ``unlabelled`` that wait for theirs."""
    tenant = Tenant.new(number, name, rules or settings_for(binary()))
    rng = np.random.default_rng(seed)
    labels = tenant.rules.settings.labels
    truth = rng.integers(0, len(labels), count + unlabelled)
    requests, at = [], []
    for i in range(count + unlabelled):
        good = [labels[truth[i] if rng.random() < 0.55 + 0.1 * f else rng.integers(len(labels))] for f in range(9)]
        said = {expert: good[f % 9] for f, expert in enumerate(experts)}
        requests.append(Request(f"{name}-{i}", groups[int(rng.integers(len(groups)))], said))
        at.append(NOW - int(rng.integers(10 * DAY)))
    positive_only = tenant.rules.settings.feedback == "positive-only"
    joined, when, cells, delay = [], [], [], 60
    for i, decision in enumerate(tenant.learner.decide_batch(requests, at)):
        tenant.names = replace(tenant.names, groups=tenant.names.groups.and_(decision.group))
        group = tenant.names.groups.known[decision.group]
        tenant.tally["decisions"] += 1
        if i >= count or (positive_only and decision.label != tenant.rules.settings.positive):
            tenant.waits.asked([at[i] // 1_000])
            continue
        tenant.tally["labels_joined"] += 1
        tenant.waits.delays[bucket_of(delay, DELAY_BOUNDS)] += 1
        tenant.waits.delay_sum += delay
        label = labels[truth[i]]
        joined.append((decision, label))
        when.append(at[i] + 1_000 * delay)
        cells.append((tenant.names.labels.known[label], group, decision.label != label, when[-1]))
    tenant.learner.learn_batch(joined, when)
    tenant.observe(cells)
    return tenant


def partition_of(*tenants: Tenant, number: int = 0, clock: int = NOW) -> Partition:
    identity = Identity("test", 1, bytes(16))
    return Partition(number, 4, identity, clock=clock, tenants={tenant.name: tenant for tenant in tenants})


def status_with(*partitions: Partition) -> Status:
    return Status(ready=True, held=partitions)
