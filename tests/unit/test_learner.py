"""Deciding and learning: the same alone and in a batch, whoever is present, whatever is unknown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from processor.core import (
    Balance,
    Counters,
    IncompatibleStateError,
    InvalidInputError,
    InvalidSettingsError,
    Learner,
    Policy,
    Request,
    Settings,
    State,
    decode_state,
    rule_of,
)
from processor.core.exact import ONE
from processor.core.learner.draws import draws
from processor.core.learner.estimates import estimate, weights
from processor.core.settings import OBJECTIVES, Prior

from .strategies import axes, random_counters, seeds

SEED = b"sixteen bytes ok"
LABELS = ("deny", "grant")
POLICIES = [*(Policy(objective=o) for o in OBJECTIVES), Policy(policy="groupaware"), Policy(policy="mw")]


def settings(**other: object) -> Settings:
    return Settings(**{"labels": LABELS, "positive": "grant", "groups": ("A", "B"), **other})  # type: ignore[arg-type]


def requests(rng: np.random.Generator, count: int, experts: int = 4, absent: float = 0.2) -> list[Request]:
    made = []
    for i in range(count):
        said = {f"e{f}": LABELS[rng.integers(2)] for f in range(experts) if rng.random() >= absent}
        made.append(Request(f"id-{i}", "AB"[rng.integers(2)], said or {"e0": "deny"}))
    return made


def taught(policy: Policy, seed: int, **other: object) -> Learner:
    rng = np.random.default_rng(seed)
    learner = Learner(settings(policy=policy, **other), SEED)
    for _ in range(3):
        decisions = learner.decide_batch(requests(rng, 20))
        learner.learn_batch([(d, LABELS[rng.integers(2)]) for d in decisions])
    return learner


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@hypothesis_settings(max_examples=20)
@given(seed=seeds)
def test_every_decision_recomputed_alone_equals_the_one_in_the_batch(policy: Policy, seed: int) -> None:
    learner = taught(policy, seed, shadows=tuple(p for p in POLICIES if p.name != policy.name))
    state = learner.encode()
    cases = requests(np.random.default_rng([seed, 1]), 12)
    together = learner.decide_batch(cases)
    for case, decision in zip(cases, together, strict=True):
        assert Learner(learner.settings, SEED, decode_state(state)).decide(case) == decision


@pytest.mark.parametrize("objective", ["gap", "mixture"])
@given(seed=seeds)
def test_what_a_batch_names_for_the_first_time_is_known_to_all_of_it(objective: str, seed: int) -> None:
    learner = taught(Policy(objective=objective), seed)  # type: ignore[arg-type]
    state = learner.encode()
    strangers = [Request("from-c", "C", {"e0": "grant"}), Request("by-new", "A", {"new": "deny", "e1": "grant"})]
    cases = [*requests(np.random.default_rng([seed, 3]), 6), *strangers]
    together = learner.decide_batch(cases)
    for case, decision in zip(cases, together, strict=True):
        alone = Learner(learner.settings, SEED, decode_state(state))
        alone.ensure_axes({"C"}, {"new"})
        assert alone.decide(case) == decision


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@given(seed=seeds)
def test_a_decision_follows_an_expert_that_was_present_and_its_probabilities_sum_to_one(
    policy: Policy, seed: int
) -> None:
    learner = taught(policy, seed)
    for decision in learner.decide_batch(requests(np.random.default_rng([seed, 2]), 20, absent=0.6)):
        assert decision.expert is not None
        assert decision.predictions[decision.expert] == decision.label
        assert sum(decision.parts.values()) == ONE
        assert decision.parts[decision.label] > 0
        assert (decision.instance is not None) == policy.has_instances


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_the_draws_follow_the_recorded_probabilities(policy: Policy) -> None:
    learner = taught(policy, 7)
    said = {"e0": "grant", "e1": "deny", "e2": "grant", "e3": "deny"}
    decisions = learner.decide_batch([Request(f"many-{i}", "A", said) for i in range(20_000)])
    granted = np.mean([d.label == "grant" for d in decisions])
    assert granted == pytest.approx(decisions[0].probabilities["grant"], abs=0.015)


def test_a_billion_labels_in_a_cell_give_finite_weights() -> None:
    counters = Counters.zeros(axes(experts=3))
    counters.labels[...] = counters.seen[...] = 10**9
    counters.trials[...] = 10**9
    counters.losses[0, 0], counters.losses[0, 1], counters.losses[0, 2] = 10**6, 4 * 10**8, 10**9
    for policy in POLICIES:
        rule = rule_of(policy, counters, ("y0", "y1"))
        assert np.isfinite(rule.selection).all()
        assert rule.expert_parts[0, 0, 0].tolist() == [ONE, 0, 0]


def test_an_absent_best_expert_leaves_proper_weights() -> None:
    exponents = np.array([[[[0, 10**6, 10**6 + 1]]]])
    pi = weights(exponents, np.full((1, 1, 1), 0.65), np.array([False, True, True]))
    assert pi[0, 0, 0] == pytest.approx([0.0, 1 / 1.65, 0.65 / 1.65])


def test_an_expert_without_trials_starts_at_the_mean_of_the_others() -> None:
    counters = Counters.zeros(axes(experts=3))
    counters.labels[...] = counters.seen[...] = 100
    counters.trials[0, :2] = 100
    counters.losses[0, 0], counters.losses[0, 1] = 10, 30
    estimates = estimate(counters, Prior())
    assert (estimates.exponents[0, :, :, 2] == 20).all()
    assert estimates.error[0, 2] == pytest.approx((10.5 / 101 + 30.5 / 101) / 2)


def test_before_the_first_label_every_expert_present_is_equally_likely() -> None:
    decision = Learner(settings(), SEED).decide(Request("x", "A", {"a": "grant", "b": "deny", "c": "deny"}))
    assert decision.probabilities == pytest.approx({"deny": 2 / 3, "grant": 1 / 3})


def test_without_abstentions_the_exponents_are_the_losses() -> None:
    counters = random_counters(np.random.default_rng(3), axes(), batch=2)
    counters.trials[...] = counters.labels[:, None]
    counters.losses[...] = counters.losses % (counters.trials + 1)
    assert (np.moveaxis(estimate(counters, Prior()).exponents, 3, 1) == counters.losses).all()


def test_a_group_without_labels_does_not_change_what_the_others_get() -> None:
    counters = random_counters(np.random.default_rng(8), axes(), batch=1)
    counters.labels[0, 1] = counters.seen[0, 1] = 0
    counters.trials[0, :, 1] = counters.losses[0, :, 1] = 0
    fair = rule_of(Policy(), counters, ("y0", "y1")).selection[0, 0]
    unfair = rule_of(Policy(balance=(Balance(fairness=0.0),)), counters, ("y0", "y1")).selection[0, 0]
    assert fair == pytest.approx(unfair, abs=1e-6)


def test_lambda_follows_its_schedule() -> None:
    schedule = (Balance(fairness=0.0), Balance(fairness=1.0, from_labels=500))
    counters = random_counters(np.random.default_rng(9), axes(), batch=2)
    counters.seen[0], counters.seen[1] = 100, 200
    scheduled = rule_of(Policy(balance=schedule), counters, ("y0", "y1")).selection
    early, late = (rule_of(Policy(balance=(b,)), counters, ("y0", "y1")).selection for b in schedule_plain(schedule))
    assert scheduled[0].tolist() == early[0].tolist()
    assert scheduled[1].tolist() == late[1].tolist()


def schedule_plain(schedule: tuple[Balance, ...]) -> list[Balance]:
    return [Balance(fairness=b.fairness, regret=b.regret) for b in schedule]


@given(n=st.integers(1, 10**9), experts=st.integers(2, 64))
def test_the_automatic_rate_is_the_formula_rounded_to_sixteen_bits(n: int, experts: int) -> None:
    from math import exp, log, sqrt

    from processor.core.learner.estimates import keep_rate

    rate = 1.0 - keep_rate("auto", np.array([[[float(n)]]]), experts)[0, 0, 0]
    beta = min(log(2), sqrt(8 * log(experts) / n))
    assert rate == pytest.approx(1 - exp(-beta), abs=2**-16)
    assert (rate * 2**16).is_integer()


def test_a_new_group_and_a_new_expert_join_without_a_restart() -> None:
    learner = taught(Policy(), 1)
    decision = learner.decide(Request("late", "C", {"e0": "grant", "newcomer": "deny"}))
    learner.learn(decision, "grant")
    assert learner.state.axes.groups == ("A", "B", "C")
    assert "newcomer" in learner.state.axes.experts


def test_a_window_forgets() -> None:
    learner = Learner(settings(bucket=10, keep=4, window=2), SEED)
    first = learner.decide(Request("a", "A", {"x": "grant", "y": "deny"}), at=0)
    learner.learn(first, "grant", at=0)
    for i in range(3):
        learner.decide(Request(f"b{i}", "A", {"x": "grant", "y": "deny"}), at=10 * (i + 1))
    assert learner.counters(window=2).joined.tolist() == [0]
    assert learner.counters().joined.tolist() == [1]
    fresh = learner.decide(Request("c", "A", {"x": "grant", "y": "deny"}), at=40)
    assert fresh.probabilities == {"deny": 0.5, "grant": 0.5}


class TestPositiveOnly:
    """Labels come for positive decisions only."""

    learner_settings = settings(feedback="positive-only", explore=0.1)

    def test_every_case_has_at_least_the_floor_of_a_positive_decision(self) -> None:
        learner = Learner(self.learner_settings, SEED)
        decisions = learner.decide_batch([Request(f"r{i}", "A", {"rule": "deny"}) for i in range(4_000)])
        assert decisions[0].probabilities["grant"] == pytest.approx(0.1)
        explored = [d for d in decisions if d.label == "grant"]
        assert len(explored) == pytest.approx(400, abs=80)
        assert all(d.expert is None and d.instance is None for d in explored)

    def test_a_label_counts_by_how_unlikely_it_was_to_be_seen(self) -> None:
        learner = Learner(self.learner_settings, SEED)
        decisions = learner.decide_batch([Request(f"r{i}", "A", {"rule": "deny"}) for i in range(4_000)])
        learner.learn_batch([(d, "deny") for d in decisions if d.label == "grant"])
        counters = learner.counters()
        assert counters.labels[0, 0, 0] / counters.unit == pytest.approx(4_000, abs=800)
        assert counters.seen[0, 0, 0] == pytest.approx(400, abs=80)

    def test_the_label_of_a_negative_decision_is_refused(self) -> None:
        learner = Learner(self.learner_settings, SEED)
        decisions = learner.decide_batch([Request(f"r{i}", "A", {"rule": "deny"}) for i in range(10)])
        denied = next(d for d in decisions if d.label == "deny")
        with pytest.raises(InvalidInputError, match='was "deny".*drop this label'):
            learner.learn(denied, "deny")

    @pytest.mark.parametrize("explore", [None, 0.01, 1.0])
    def test_the_floor_is_a_decision_somebody_must_make(self, explore: float | None) -> None:
        with pytest.raises(InvalidSettingsError, match="needs explore"):
            settings(feedback="positive-only", explore=explore)


class TestBadInput:
    """Every refusal names the value and the remedy."""

    def test_an_unknown_label_in_a_prediction(self) -> None:
        with pytest.raises(InvalidInputError, match='unknown label "grnat".*Did you mean "grant"'):
            Learner(settings(), SEED).decide(Request("x", "A", {"rule": "grnat"}))

    def test_an_unknown_true_label(self) -> None:
        learner = Learner(settings(), SEED)
        decision = learner.decide(Request("x", "A", {"rule": "grant"}))
        with pytest.raises(InvalidInputError, match='unknown label "yes"'):
            learner.learn(decision, "yes")

    def test_a_request_without_predictions(self) -> None:
        with pytest.raises(InvalidInputError, match='"x" has no predictions'):
            Learner(settings(), SEED).decide(Request("x", "A", {}))

    def test_a_third_group_for_a_binary_objective(self) -> None:
        learner = Learner(settings(policy=Policy(objective="paper")), SEED)
        with pytest.raises(InvalidInputError, match='group "C".*"gap" or "mixture"'):
            learner.decide(Request("x", "C", {"rule": "grant"}))

    def test_a_rule_for_three_groups_by_a_binary_objective(self) -> None:
        with pytest.raises(InvalidSettingsError, match="here are 3 groups"):
            rule_of(Policy(objective="bound"), Counters.zeros(axes(groups=3)), ("y0", "y1"))

    @pytest.mark.parametrize("eta", [0.0, 0.5, -1.0, 2.0, float("nan")])
    def test_a_learning_rate_outside_its_range(self, eta: float) -> None:
        with pytest.raises(InvalidSettingsError, match="strictly between 0 and 0.5"):
            Policy(eta=eta)

    def test_a_short_seed(self) -> None:
        with pytest.raises(InvalidInputError, match="seed has 4 bytes"):
            draws(b"1234", [])

    def test_a_state_kept_under_other_labels(self) -> None:
        other = State(axes(), bucket=86_400_000, keep=32)
        with pytest.raises(IncompatibleStateError, match="kept with labels"):
            Learner(settings(), SEED, other)

    def test_a_name_that_is_no_string(self) -> None:
        with pytest.raises(InvalidInputError, match='the group is 3: use a string, such as "3"'):
            Learner(settings(), SEED).decide(Request("x", 3, {"rule": "grant"}))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"labels": ("one",)}, "name at least two"),
            ({"labels": ("a", "a")}, "each once"),
            ({"positive": "maybe"}, 'positive is "maybe"'),
            ({"labels": ("a", "b", "c"), "positive": "a", "policy": Policy(objective="paper")}, "for two labels"),
            ({"groups": ("A", "B", "C"), "policy": Policy(objective="paper")}, "exactly two groups"),
            ({"explore": 0.1}, "remove explore"),
            ({"feedback": "some"}, 'feedback is "some"'),
            ({"window": 40}, "use 1 to 32"),
            ({"bucket": 0}, "bucket is 0"),
            ({"shadows": (Policy(), Policy())}, "same name"),
            ({"policy": Policy(balance=(Balance(fairness={"x": 1.0}),))}, 'λ is set for "x"'),
        ],
    )
    def test_settings_that_contradict_themselves(self, change: dict[str, object], says: str) -> None:
        with pytest.raises(InvalidSettingsError, match=says):
            settings(**change)

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: Policy(policy="gforec"), 'policy is "gforec".*Did you mean "gforce"'),  # type: ignore[arg-type]
            (lambda: Policy(objective="gaps"), 'Did you mean "gap"'),  # type: ignore[arg-type]
            (lambda: Policy(eta="automatic"), "eta"),  # type: ignore[arg-type]
            (lambda: Policy(balance=()), "first from_labels must be 0"),
            (lambda: Balance(regret=-1.0), "λ for regret is -1.0"),
            (lambda: Balance(fairness=float("inf")), "λ for fairness is inf"),
            (lambda: Balance(from_labels=-1), "from_labels is -1"),
            (lambda: Prior(label=0.0), "prior label is 0.0"),
        ],
    )
    def test_choices_that_do_not_exist(self, make: object, says: str) -> None:
        with pytest.raises(InvalidSettingsError, match=says):
            make()  # type: ignore[operator]
