"""What a rule decides for many requests at once is what the plain version decides for each, to the unit."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core import ABSENT, InvalidInputError, Policy, rule_of
from processor.core.exact import ONE, Parts, _power_of_many, power, quantise, times
from processor.core.learner.draws import draws
from processor.core.learner.policies import rules_of
from processor.core.learner.rule import RequestColumns, Rule, decide, distinct

from .strategies import axes, random_counters

POLICIES = [
    Policy(),
    Policy(eta="auto"),
    Policy(objective="mixture"),
    Policy(policy="groupaware", eta=0.01),
    Policy(policy="mw"),
]


def questions(rng: np.random.Generator, shape: tuple[int, int, int], rows: int, missing: float) -> RequestColumns:
    groups, labels, experts = shape
    predictions = rng.integers(0, labels, size=(rows, experts))
    predictions[rng.random(predictions.shape) < missing] = ABSENT
    predictions[:, -1] = np.maximum(predictions[:, -1], 0)
    uniforms = draws(b"sixteen bytes ok", (str(i) for i in range(rows)))
    return RequestColumns(rng.integers(0, 7, size=rows), rng.integers(0, groups, size=rows), predictions, uniforms)


def plain(rule: Rule, asked: RequestColumns, row: int, labels: int) -> tuple[int, int, int, list[int]]:
    """Label, instance, expert and probabilities of one request, number by number."""
    said = asked.predictions[row]
    selection, experts = rule.chances(int(asked.group[row]), said != ABSENT, int(asked.learner[row]))
    first, second, _ = asked.draws[row].tolist()
    instance = pick(selection, first)
    expert = pick(experts[instance], second)
    parts = [
        sum(
            q * sum(part for part, prediction in zip(pi, said.tolist(), strict=True) if prediction == y) // ONE
            for q, pi in zip(selection.tolist(), experts.tolist(), strict=True)
        )
        for y in range(labels)
    ]
    parts[parts.index(max(parts))] += ONE - sum(parts)
    return int(said[expert]), instance, expert, parts


def pick(parts: Parts, draw: int) -> int:
    return next(i for i, bound in enumerate(accumulate(parts.tolist())) if draw < bound)


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("shape", [(2, 2, 4), (3, 3, 1), (2, 4, 9), (1, 2, 20)], ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.name}-{policy.eta}")
def test_requests_decided_together_are_decided_as_one_by_one(
    policy: Policy, shape: tuple[int, int, int], missing: float
) -> None:
    rng = np.random.default_rng([*shape, int(10 * missing)])
    of, labels = axes(*shape), shape[1]
    rule = rule_of(policy, random_counters(rng, of, batch=7), of.labels)
    asked = questions(rng, shape, 60, missing)
    made = rule.decide(asked, labels)
    for row in range(60):
        label, instance, expert, parts = plain(rule, asked, row, labels)
        assert (made.label[row], made.instance[row], made.expert[row]) == (label, instance, expert)
        assert made.probabilities[row].tolist() == parts


@pytest.mark.parametrize("explore", [None, (1, 0.3)])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("shape", [(2, 2, 4), (3, 3, 1), (1, 2, 20)], ids=str)
def test_rules_that_decide_together_decide_as_each_alone(
    shape: tuple[int, int, int], missing: float, explore: tuple[int, float] | None
) -> None:
    rng = np.random.default_rng([*shape, int(10 * missing)])
    of, labels = axes(*shape), shape[1]
    counters = random_counters(rng, of, batch=7)
    policies = {str(number): policy for number, policy in enumerate(POLICIES)}
    asked = questions(rng, shape, 60, missing)
    for names in ("01234", "034", "34"):
        rules = rules_of({name: policies[name] for name in names}, counters, of.labels)
        together = decide(rules, asked, labels, explore, published="3")
        for name in names:
            made, alone = together[name], rule_of(policies[name], counters, of.labels).decide(asked, labels, explore)
            assert made.label.tolist() == alone.label.tolist()
            assert made.instance.tolist() == alone.instance.tolist()
            assert made.expert.tolist() == alone.expert.tolist()
            assert made.probabilities.tolist() == (alone.probabilities.tolist() if name == "3" else [[]] * 60)


def test_a_request_that_cannot_be_decided_is_refused() -> None:
    rng = np.random.default_rng(1)
    of = axes(2, 2, 3)
    rule = rule_of(Policy(), random_counters(rng, of, batch=7), of.labels)
    asked = questions(rng, (2, 2, 3), 5, 0.0)
    with pytest.raises(InvalidInputError, match="label index 1 but there are 1 labels"):
        rule.decide(asked, 1)
    asked.predictions[3] = ABSENT
    with pytest.raises(InvalidInputError, match="request 3 has no prediction"):
        rule.decide(RequestColumns(asked.learner, asked.group, asked.predictions, asked.draws), 2)


@given(st.lists(st.integers(0, 40), min_size=1), st.sampled_from([41, 10**6]))
def test_distinct_numbers_are_the_same_by_table_and_by_sorting(numbers: list[int], count: int) -> None:
    some, which = distinct(np.array(numbers), count)
    assert [numbers[place] for place in some] == sorted(set(numbers))
    assert [numbers[some[kind]] for kind in which] == numbers


@pytest.mark.parametrize("base", [0.0, 0.3, 0.5, 0.65, 0.9, 0.99, 1.0])
def test_powers_from_the_table_are_those_worked_out(base: float) -> None:
    exponents = np.concatenate([np.arange(5_000), 2 ** np.arange(12, 30)])
    bases = np.full(exponents.shape, base)
    assert power(bases, exponents).tobytes() == _power_of_many(bases, exponents).tobytes()
    assert power(np.array([base]), exponents).tobytes() == _power_of_many(bases, exponents).tobytes()


PARTS = st.integers(0, ONE) | st.just(ONE)


@given(st.lists(st.tuples(PARTS, PARTS), min_size=1))
def test_products_of_parts_are_those_of_whole_numbers(pairs: list[tuple[int, int]]) -> None:
    left, right = np.array(pairs, dtype=np.uint64).T
    assert times(left, right).tolist() == [a * b // ONE for a, b in pairs]


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=9).filter(any))
def test_parts_add_up_to_one(weights: list[int]) -> None:
    shares = [weight / sum(weights) for weight in weights]
    expected = [int(share * ONE) for share in shares]
    expected[shares.index(max(shares))] += ONE - sum(expected)
    assert quantise(np.array(shares)).tolist() == expected
    assert quantise(np.array([shares, shares]).T.copy().T).tolist() == [expected, expected]
