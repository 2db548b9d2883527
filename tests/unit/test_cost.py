"""How long a batch will take is estimated before it is worked out, and learnt from how long others took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from processor.core.settings import Policy, Settings
from processor.core.stream.step import (
    FEW_LABELS,
    REQUESTS_PER_SOLVE_WHEN_FEW_LABELS,
    DecodedBatch,
    InputRecord,
    decode,
    split_by_source,
)
from processor.core.stream.tenant import TenantSettings
from processor.service.cost import FASTEST, MIN_MEASURED_MS, RECORD, SLOWEST, CostModel, solving

from .test_step import Bench, rules
from .tiers import tier as tier


def of_objective(policy: Policy, **change: object) -> TenantSettings:
    return rules(settings=Settings(labels=("no", "yes"), positive="yes", policy=policy), **change)


def asked(bench: Bench, raws: list[InputRecord]) -> DecodedBatch:
    return decode(*split_by_source(raws), 0, 1, 1_000, bench.terms, set())


def requests(bench: Bench, count: int, groups: int = 2, experts: int = 2, tenant: str = "t") -> list[InputRecord]:
    said = {f"e{number}": "yes" for number in range(experts)}
    return [bench.request(f"{tenant}-{n}", f"g{n % groups}", tenant, predictions=said) for n in range(count)]


def cost(bench: Bench, raws: list[InputRecord]) -> float:
    return CostModel().of(bench.partition, asked(bench, raws), bench.terms)


def test_a_batch_costs_more_the_more_groups_and_experts_its_tenant_has() -> None:
    bench = Bench()
    shapes = [(2, 2), (4, 2), (8, 8), (32, 64)]
    costs = [cost(bench, requests(bench, 500, *shape)) for shape in shapes]
    assert costs == sorted(costs)
    assert costs[-1] > 2 * costs[0]


def test_a_young_tenant_pays_for_a_rule_every_few_requests_and_another_for_one() -> None:
    bench = Bench()
    young = cost(bench, requests(bench, 20 * REQUESTS_PER_SOLVE_WHEN_FEW_LABELS, 16, 8))
    first = requests(bench, FEW_LABELS, 16, 8)
    bench.batch(*first, *[bench.label(f"t-{n}") for n in range(FEW_LABELS)])
    assert bench.joined() == FEW_LABELS
    once = solving(rules().settings, 16, 8)
    assert young - cost(bench, requests(bench, 20 * REQUESTS_PER_SOLVE_WHEN_FEW_LABELS, 16, 8)) >= 19 * once


def test_a_tenant_that_nobody_knows_is_judged_by_its_requests_within_the_limits() -> None:
    bench = Bench(of_objective(Policy(objective="mixture"), max_groups=4, max_experts=8))
    within = cost(bench, requests(bench, 200, 4, 8))
    assert cost(bench, requests(bench, 200, 4, 6)) < within
    assert cost(bench, requests(bench, 200, 64, 8)) == within


def test_a_known_tenant_that_grows_in_the_batch_is_judged_as_it_will_be() -> None:
    bench = Bench(of_objective(Policy(objective="mixture")))
    bench.batch(*requests(bench, 1, 1, 1))
    assert cost(bench, requests(bench, 200, 8, 8)) > 200 * cost(bench, requests(bench, 1, 1, 1)) / 100


def test_shadows_are_paid_for() -> None:
    alone, shadowed = Policy(), Policy(objective="mixture")
    settings = Settings(labels=("no", "yes"), policy=alone)
    both = Settings(labels=("no", "yes"), policy=alone, shadows=(shadowed,))
    assert solving(both, 8, 8) > solving(settings, 8, 8) + solving(Settings(labels=("no", "yes")), 2, 2)


def test_requests_of_nobody_cost_what_any_record_does() -> None:
    bench = Bench()
    assert cost(bench, requests(bench, 100, tenant="stranger")) == pytest.approx(100 * RECORD)


@pytest.mark.parametrize("budget", [20, 100, 300])
def test_a_batch_is_cut_to_the_most_records_that_fit(budget: int) -> None:
    bench, costs = Bench(), CostModel()
    raws = requests(bench, 5_000, 32, 64)
    batch = asked(bench, raws)
    assert costs.of(bench.partition, batch, bench.terms) > budget
    most = costs.fitting(bench.partition, batch, bench.terms, budget)
    assert cost(bench, raws[:most]) <= budget < cost(bench, raws[: most + 1 + REQUESTS_PER_SOLVE_WHEN_FEW_LABELS])


def test_labels_count_too() -> None:
    bench, costs = Bench(), CostModel()
    batch = asked(bench, [bench.label(str(n)) for n in range(5_000)])
    assert costs.fitting(bench.partition, batch, bench.terms, 10) == pytest.approx(10 / RECORD, rel=0.01)


def test_one_record_is_taken_whatever_it_costs() -> None:
    bench, costs = Bench(of_objective(Policy(objective="mixture"))), CostModel()
    batch = asked(bench, requests(bench, 10, 8, 8))
    assert costs.fitting(bench.partition, batch, bench.terms, 0) == 1


def test_the_estimate_follows_what_batches_took() -> None:
    bench, costs = Bench(), CostModel()
    batch = asked(bench, requests(bench, 2_000, 8, 8))
    for _ in range(30):
        costs.took(costs.of(bench.partition, batch, bench.terms), 900)
    assert costs.of(bench.partition, batch, bench.terms) == pytest.approx(900, rel=0.01)


def test_short_batches_say_nothing_and_odd_ones_not_too_much() -> None:
    costs = CostModel()
    costs.took(MIN_MEASURED_MS / 2, MIN_MEASURED_MS / 3)
    costs.took(0.0, 10_000)
    assert costs.scale == 1.0
    for _ in range(200):
        costs.took(100, 0)
    assert costs.scale == pytest.approx(FASTEST)
    for _ in range(200):
        costs.took(100, 1e9)
    assert costs.scale == pytest.approx(SLOWEST)


def test_an_estimate_that_fails_stops_nobody() -> None:
    bench = Bench()
    batch = asked(bench, requests(bench, 5))

    def broken(name: str) -> TenantSettings | None:
        raise RuntimeError("a defect of ours")

    assert CostModel().of(bench.partition, batch, replace(bench.terms, settings_for=broken)) == 0.0
