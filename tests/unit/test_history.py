"""Charts over time: sampled while the process runs, and from the buckets of the state before that."""

from __future__ import annotations

from itertools import pairwise
from math import isnan

import pytest

from processor.core import IN_FORCE, fairness
from processor.core.learner.counters import Counters
from processor.core.stream.tenant import Tenant
from processor.telemetry import history
from processor.telemetry.history import Histories, Track, past_points
from processor.telemetry.observer import Observer
from processor.telemetry.status import Status

from .observed import DAY, NOW, partition_of, status_with, tenant_of

SECOND, MINUTE = 1_000, 60_000


class Watching:
    """Histories over a status and a time that the test sets."""

    def __init__(self, *tenants: Tenant) -> None:
        self.now, self.status = NOW, Status()
        self.histories = Histories(Observer(lambda: self.status), wall_ms=lambda: self.now)
        self.show(*tenants)

    def show(self, *tenants: Tenant) -> None:
        self.status = status_with(partition_of(*tenants))

    def pass_time(self, seconds: int, changing: Tenant | None = None) -> None:
        for _ in range(seconds):
            if changing is not None:
                self.show(changing.clone())
            self.histories.sample()
            self.now += SECOND


def test_before_the_first_sample_there_is_one_point_per_kept_bucket() -> None:
    tenant = tenant_of()
    seen = Watching(tenant).histories.history("acme")
    assert seen is not None
    ends = [(number + 1) * DAY for number in sorted(tenant.learner.state.buckets)]
    assert seen.times == [*(end for end in ends if end < NOW), NOW]


def test_a_point_of_the_past_is_the_lifetime_as_it_was_then() -> None:
    tenant = tenant_of()
    state = tenant.learner.state
    at, point = past_points(tenant, NOW)[3]
    counters = Counters.zeros(state.axes)
    for number, bucket in state.buckets.items():
        if (number + 1) * DAY <= at:
            counters += bucket
    then = fairness(counters, state.axes.policy_index[IN_FORCE])
    assert point["gap", "equalized_odds", "value"] == then.equalized_odds_difference
    assert point["rate", "A"] == then.error_rate[0]
    assert point["gap", "fpr", "lower"] <= point["gap", "fpr", "value"] <= point["gap", "fpr", "upper"]
    of_shadow = fairness(counters, state.axes.policy_index["mw"])
    assert point["shadow", "mw", "error_rate"] == of_shadow.zero_one_loss_difference


def test_the_last_point_is_the_present() -> None:
    tenant = tenant_of()
    watching = Watching(tenant)
    watching.pass_time(3)
    seen = watching.histories.history("acme")
    assert seen is not None
    now = fairness(tenant.learner.counters(), tenant.learner.state.axes.policy_index[IN_FORCE])
    assert seen.times[-1] == watching.now
    assert seen.gaps["equalized_odds"].value[-1] == now.equalized_odds_difference
    assert seen.rates["B"][-1] == now.error_rate[1]
    assert set(seen.shadows) == {"groupaware", "mw"}
    assert all(len(line.value) == len(line.lower) == len(line.upper) == len(seen.times) for line in seen.gaps.values())
    assert seen.times == sorted(set(seen.times))


def test_every_second_for_ten_minutes_then_every_minute() -> None:
    tenant = tenant_of()
    watching = Watching(tenant)
    watching.pass_time(1_500, changing=tenant)
    seen = watching.histories.history("acme")
    assert seen is not None
    sampled = [at for at in seen.times if at >= NOW]
    steps = [b - a for a, b in pairwise(sampled)]
    assert steps[-500:] == [SECOND] * 500
    assert steps[:10] == [MINUTE] * 10
    assert len(sampled) <= 600 + 1_500 // 60 + 2


def test_a_tenant_that_does_not_change_takes_no_room() -> None:
    watching = Watching(tenant_of())
    watching.pass_time(300)
    kept = watching.histories._kept["acme"]
    assert (len(kept.fine.times), len(kept.coarse.times)) == (1, 1)


def test_many_tenants_are_sampled_every_minute_and_one_that_is_looked_at_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "FINE_TENANTS", 1)
    tenants = [tenant_of(f"t{i}", number=i, count=20) for i in range(3)]
    watching = Watching(*tenants)
    assert watching.histories.history("t2") is not None
    for _ in range(90):
        watching.show(*(tenant.clone() for tenant in tenants))
        watching.pass_time(1)
    points = {name: (len(kept.fine.times), len(kept.coarse.times)) for name, kept in watching.histories._kept.items()}
    assert points == {"t0": (90, 2), "t1": (0, 2), "t2": (90, 2)}


def test_nothing_is_kept_of_a_tenant_that_has_moved_away() -> None:
    watching = Watching(tenant_of())
    watching.pass_time(5)
    watching.status = Status()
    assert watching.histories.history("acme") is None
    watching.pass_time(61)
    assert watching.histories._kept == {}


def test_memory_is_bounded() -> None:
    track = Track(most=10)
    for at in range(100):
        track.add(at, {("rate", "A"): float(at)})
    assert len(track.times) < 20
    assert [at for at, _ in track.between(-1, 1_000)] == list(range(90, 100))


def test_a_series_that_begins_later_is_unknown_before() -> None:
    track = Track(most=10)
    track.add(1, {("rate", "A"): 0.5})
    track.add(2, {("rate", "A"): 0.5, ("rate", "B"): 0.25})
    track.add(3, {("rate", "B"): 0.25})
    points = [point for _, point in track.between(0, 4)]
    assert isnan(points[0]["rate", "B"])
    assert points[1] == {("rate", "A"): 0.5, ("rate", "B"): 0.25}
    assert isnan(points[2]["rate", "A"])
