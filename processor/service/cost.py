"""How long a batch will take, so that it can be cut before it is worked out.

What a record costs depends on its tenant: one with many groups and experts, and few labels yet, has a large problem
solved anew every few requests. The estimate is a formula with the shapes of the batch's tenants in it, times one factor
that follows how long batches really took: that of this machine, under the load of this moment.

The formula is for the worst case of the solver, in which every choice comes into play, as it does while nothing is
known of any. Its constants were measured; docs/operations.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from processor.core import native
from processor.core.settings import Settings
from processor.core.stream.decide import DecodedRequest
from processor.core.stream.partition import Partition
from processor.core.stream.step import FEW_LABELS, REQUESTS_PER_SOLVE_WHEN_FEW_LABELS, DecodedBatch, StreamSettings
from processor.core.stream.tenant import Tenant, TenantSettings

# In milliseconds.
RECORD = 0.006
"""A request or a label, whatever is in it."""
PREDICTION = 0.0004
"""One expert's advice in a request, or judged by a label."""
TENANT = 0.1
"""A tenant in a batch: it is copied, and its counters are written."""
ROUND = 1.5
"""Deciding for tenants of one shape, however few they are: what it costs to call NumPy."""
CELL = 0.0002
"""One expert's figures for one group and label, each time a rule is made."""
PRODUCT = {"native": 1.7e-7, "reference": 4e-6}
"""One multiplication in the solver, by tier."""
STEP = {"native": 0.0, "reference": 0.3}
"""One step of the solver, whatever its size, by tier."""
TERM = 1.5e-6
"""One term of the quadratic that is to be solved."""

SAMPLED_REQUESTS = 64
"""Requests of a tenant that are looked at for groups and experts that it has not met."""
MIN_MEASURED_MS = 50.0
"""Shorter batches (in milliseconds) say little of how long others take."""
WEIGHT = 0.2
"""of the last batch in the factor"""
MAX_REMEMBERED_COSTS = 10_000
"""Kinds of tenants whose cost is remembered."""
FASTEST, SLOWEST = 0.25, 64.0
"""Bounds of the factor."""


Kind = tuple[str, int, int]
"""What the cost of making a tenant's rules depends on: its configuration, by digest, its groups and its experts."""


class CostModel:
    """Estimates the milliseconds that batches take, and is told what they took."""

    def __init__(self) -> None:
        self.scale = 1.0
        self._solving: dict[Kind, float] = {}

    def of(self, partition: Partition, asked: DecodedBatch, stream_settings: StreamSettings) -> float:
        """How long a batch will take; 0 where that cannot be said, since a fault is found in the step."""
        try:
            return self._of(partition, asked.requests, len(asked.feedback), stream_settings)
        except Exception:
            return 0.0

    def fitting(self, partition: Partition, asked: DecodedBatch, stream_settings: StreamSettings, budget: int) -> int:
        """How many records of each input, the first, can be worked out in so many milliseconds; one at least."""
        low, high = 1, max(len(asked.requests), len(asked.feedback), 1)
        while low < high:
            middle = (low + high + 1) // 2
            labels = min(middle, len(asked.feedback))
            if self._of(partition, asked.requests[:middle], labels, stream_settings) <= budget:
                low = middle
            else:
                high = middle - 1
        return low

    def took(self, estimated: float, milliseconds: float) -> None:
        """A batch has taken so long."""
        if max(estimated, milliseconds) >= MIN_MEASURED_MS and estimated > 0.0:
            wanted = min(max(self.scale * milliseconds / estimated, FASTEST), SLOWEST)
            self.scale += WEIGHT * (wanted - self.scale)

    def _of(
        self, partition: Partition, requests: list[DecodedRequest], labels: int, stream_settings: StreamSettings
    ) -> float:
        total = RECORD * (len(requests) + labels)
        rounds: dict[Kind, int] = {}
        most = 0
        for name, theirs in native.by_tenant(requests).items():
            tenant = partition.tenants.get(name)
            rules = stream_settings.settings_for(name) if tenant is None else tenant.rules
            if rules is None:
                continue  # all of these are refused
            groups, experts = _size(tenant, rules, theirs)
            kind, count = (rules.digest, groups, experts), len(theirs)
            if kind not in self._solving:
                self._solving[kind] = solving(rules.settings, groups, experts)
            solves = (
                -(-count // REQUESTS_PER_SOLVE_WHEN_FEW_LABELS)
                if count > REQUESTS_PER_SOLVE_WHEN_FEW_LABELS and _is_young(tenant)
                else 1
            )
            total += TENANT + PREDICTION * experts * count + solves * self._solving[kind]
            rounds[kind], most = max(rounds.get(kind, 0), solves), max(most, experts)
        if len(self._solving) > MAX_REMEMBERED_COSTS:
            self._solving.clear()
        return self.scale * (total + PREDICTION * most * labels + ROUND * sum(rounds.values()))


def solving(settings: Settings, groups: int, experts: int) -> float:
    """Milliseconds for making the rules of one tenant once, at worst."""
    labels, total = len(settings.labels), 0.0
    for policy in (settings.policy, *settings.shadows):
        total += CELL * groups * labels * experts
        if policy.policy == "gforce":
            total += _minimising(groups, experts if policy.objective == "mixture" else labels, groups * labels + 1)
    return total


def _minimising(groups: int, choices: int, rows: int) -> float:
    """At worst all choices come into play, one with every second step, and each step solves for those that have."""
    if (groups, choices) == (2, 2):
        return 0.0  # a closed form, in no time
    size, free = groups * choices, groups * (choices - 1)
    products = free**3 / 24 + 1.5 * size * size
    tier = native.tier()
    return TERM * rows * size * size + 2 * free * (STEP[tier] + PRODUCT[tier] * products)


def _size(tenant: Tenant | None, rules: TenantSettings, requests: Sequence[DecodedRequest]) -> tuple[int, int]:
    """How many groups and experts a tenant will have after these requests, of which some are looked at."""
    if tenant is not None and len(requests) <= REQUESTS_PER_SOLVE_WHEN_FEW_LABELS:
        return len(tenant.learner.state.axes.groups), len(tenant.learner.state.axes.experts)
    of = rules.settings if tenant is None else tenant.learner.state.axes
    groups, experts = set(of.groups), set(of.experts)
    for panel in {event.advice.panel for _, event, _ in requests[:: max(len(requests) // SAMPLED_REQUESTS, 1)]}:
        groups.add(panel.group)
        experts.update(panel.experts)
    # Those beyond the limits are refused.
    return min(len(groups), max(rules.max_groups, len(of.groups))), min(
        len(experts), max(rules.max_experts, len(of.experts))
    )


def _is_young(tenant: Tenant | None) -> bool:
    return tenant is None or int(tenant.learner.counters().joined[0]) < FEW_LABELS
