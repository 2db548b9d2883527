"""Whatever a caller gets wrong: an error that names the value and the remedy, and nothing is counted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core import (
    Axes,
    Balance,
    Counters,
    Decision,
    GForceError,
    IncompatibleStateError,
    InvalidInputError,
    InvalidSettingsError,
    Learner,
    Policy,
    Prior,
    Request,
    Rule,
    Settings,
    State,
    decode_state,
    encode_state,
    fairness,
    rule_of,
)
from processor.core.learner.counters import label_weight
from processor.core.metrics import rates
from processor.core.metrics.attainable import least_fair_loss, least_gap
from processor.core.metrics.bounds import delayed_regret, paper_bounds, printed_gamma

from .strategies import axes, random_counters

SEED = b"sixteen bytes ok"
LABELS = ("deny", "grant")
ASKED = Request("x", "A", {"rule": "grant", "model": "deny"})


def learner(**other: object) -> Learner:
    return Learner(Settings(**{"labels": LABELS, "positive": "grant", **other}), SEED)  # type: ignore[arg-type]


def decided() -> Decision:
    return learner().decide(ASKED)


def counters(experts: int = 2) -> Counters:
    return random_counters(np.random.default_rng(1), axes(experts=experts), batch=1)


def label_in(
    counts: Counters, *, learner: int = 0, predictions: object = ((1, 1),), decided: object = ((0, 0),)
) -> None:
    one = np.array([0])
    counts.add_labels(np.array([learner]), one, one, np.array(predictions), np.array(decided))


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    # Deciding and learning
    "fewer times than requests": (lambda: learner().decide_batch([ASKED, ASKED], at=[1]), "1 times .* for 2 events"),
    "more times than requests": (lambda: learner().decide_batch([ASKED], at=[1, 2]), "2 times .* for 1 events"),
    "half a time": (lambda: learner().decide(ASKED, at=2.9), r"time 2\.9 is not a whole number"),
    "a time in words": (lambda: learner().decide(ASKED, at="7"), "time '7' is not a whole number"),
    "a time that is a truth": (lambda: learner().decide(ASKED, at=True), "time True is not a whole number"),
    "a time beyond all": (lambda: learner().decide(ASKED, at=2**63), "is not a whole number from"),
    "an id that is a number": (lambda: learner().decide(Request(7, "A", {"m": "deny"})), "decision_id is 7"),
    "an id that no bytes can say": (lambda: learner().decide(Request("\ud800", "A", {"m": "deny"})), "surrogate"),
    "a prediction that is a truth": (
        lambda: learner().decide(Request("x", "A", {"m": True})),
        'prediction of "m" is True: labels are strings',
    ),
    "a label that is a number": (lambda: learner().learn(learner().decide(ASKED), 1), "1 is not a label"),
    "no rule yet": (lambda: learner().rule(), "decide a request first"),
    "a rule of nobody": (lambda: learner().rule("groupawre"), 'no policy "groupawre": use one of "in-force"'),
    "figures of nobody": (lambda: learner().fairness("mw"), 'no policy "mw"'),
    "a seed in words": (lambda: Learner(learner().settings, "y" * 16), "of type str: use bytes"),
    "no settings": (lambda: Learner({"labels": LABELS}, SEED), "the settings are .*make them with Settings"),
    "a state as bytes": (lambda: Learner(learner().settings, SEED, learner().encode()), "type bytes.*decode_state"),
    "no request": (lambda: learner().decide(None), "None is not a request: use Request"),
    "a request as a dictionary": (lambda: learner().decide({"group": "A"}), "is not a request: use Request"),
    "one request for many": (lambda: learner().decide_batch(ASKED), "use decide for one"),
    "no requests": (lambda: learner().decide_batch(None), "None is not a list of requests"),
    "one time for many": (lambda: learner().decide_batch([ASKED], at=5), "times are 5: give a list"),
    "predictions in a row": (
        lambda: learner().decide(Request("x", "A", ["deny"])),
        r"are \['deny'\]: use a dictionary",
    ),
    "a prediction of nothing": (
        lambda: learner().decide(Request("x", "A", {"m": None})),
        "is None: leave out an expert",
    ),
    "an id that says nothing": (
        lambda: learner().decide(Request("", "A", {"m": "deny"})),
        'decision_id is "": an empty',
    ),
    "a group that is not known": (
        lambda: learner().decide(Request("x", None, {"m": "deny"})),
        "group is None: use a str",
    ),
    "an expert that says nothing": (lambda: learner().decide(Request("x", "A", {"": "deny"})), 'an expert is ""'),
    "a label of an id": (lambda: learner().learn("x", "deny"), "'x' is not a decision: .* what decide gave"),
    "a label of a request": (lambda: learner().learn(ASKED, "deny"), "Request.* is not a decision"),
    "labels beside decisions": (lambda: learner().learn_batch([decided()], ["deny"]), r"zip\(decisions, labels\)"),
    "one label for many": (lambda: learner().learn_batch((decided(), "deny")), "is not a pair"),
    "three in a pair": (lambda: learner().learn_batch([(decided(), "deny", 1)]), "is not a pair"),
    "labels by decision": (lambda: learner().learn_batch({"x": "deny"}), "is not a list of pairs"),
    "no labels": (lambda: learner().learn_batch(None), "None is not a list of pairs"),
    "figures of a policy itself": (lambda: learner().fairness(Policy()), "no policy .*Policy.*use one of"),
    "a window in words": (lambda: learner().fairness(window="7"), "a window of '7' buckets"),
    "a window and a half": (lambda: learner().counters(1.5), "a window of 1.5 buckets"),
    "a window that is a truth": (lambda: learner().counters(True), "a window of True buckets"),
    "a learner merged with bytes": (lambda: learner().merge(learner().encode()), "is not a learner"),
    "a state merged with a learner": (lambda: learner().state.merge(learner()), "a Learner is not a state"),
    "bytes of a learner": (lambda: encode_state(learner()), r"a Learner is not a state: use learner\.encode"),
    # Settings
    "labels in an array": (lambda: learner(labels=np.array(LABELS)), r"labels is array.*list or tuple.*\.tolist"),
    "a rate in words": (lambda: Policy(eta="0.3"), 'eta is "0.3": use a number between 0 and 0.5, or "auto"'),
    "labels in one word": (lambda: learner(labels="deny"), "labels is 'deny'.*wrong type.*list or tuple"),
    "half a bucket": (lambda: learner(bucket=1.5), "bucket is 1.5.*wrong type"),
    "too long a bucket": (lambda: learner(bucket=2**70), "bucket is .*use a whole number"),
    "a positive number": (lambda: learner(positive=1), "positive is 1.*wrong type"),
    "no policy": (lambda: learner(policy=None), "policy is None.*wrong type"),
    "a policy by name": (lambda: learner(policy="mw"), r"policy is 'mw'.*use a Policy, such as Policy\(policy="),
    "the same group twice": (lambda: learner(groups=("A", "A")), r"groups are \['A', 'A'\]: name each once"),
    "no rate": (lambda: Policy(eta=None), "eta is None.*wrong type"),
    "NumPy's rate": (lambda: Policy(eta=np.float64(0.3)), r"eta is .*0\.3.*between 0 and 0\.5.*\.item\(\)"),
    "one balance, no schedule": (lambda: Policy(balance=Balance()), "balance is Balance.*wrong type"),
    "a balance in words": (lambda: Balance(fairness="1"), "fairness is '1'.*wrong type"),
    "too strong a prior": (lambda: Prior(group=1e7), "prior group is 10000000.0: use a positive number up to"),
    # Counters and states
    "one name for many": (lambda: Axes.of(groups="AB"), r'"AB" is one name .* use \["AB"\]'),
    "more predictions than experts": (lambda: label_in(counters(), predictions=[[0, 0, 0]]), "3 predictions"),
    "more decisions than policies": (lambda: label_in(counters(), decided=[[0, 0, 0]]), "3 decisions of each case"),
    "a learner that is not there": (lambda: label_in(counters(), learner=-1), "a learner has index -1"),
    "a prediction of no label": (lambda: label_in(counters(), predictions=[[0, 7]]), "a prediction has index 0 or 7"),
    "a prediction below absent": (lambda: label_in(counters(), predictions=[[-5, 0]]), "a prediction has index -5"),
    "a probability above one": (lambda: label_weight(2**40), "1099511627776/2³² cannot have been made"),
    "no bucket": (lambda: State(axes(), bucket=0, keep=1), "bucket is 0: use a whole number"),
    "too few names": (lambda: rule_of(Policy(), counters(), ("y0",)), r"1 names \['y0'\] were given for 2 labels"),
    # Probabilities
    "a rule with less than nothing": (lambda: _rule([[[-0.5, 1.5]]]).selection_parts, r"\[\[\[-0\.5, 1\.5\]\]\]"),
    "a rule with more than all": (lambda: _rule([[[0.7, 0.7]]]).selection_parts, "together 1"),
    "a rule of nothing known": (lambda: _rule([[[np.nan, 1.0]]]).selection_parts, "nan.*at least 0"),
    "nobody present": (lambda: _rule([[[0.5, 0.5]]]).chances(0, np.array([False, False])), "nobody is present"),
    "shares that are none": (lambda: _fair_loss(share=[2.0, -1.0]), r"group shares \[2\.0, -1\.0\] are not prob"),
    "base rates that are none": (lambda: _fair_loss(rate=[[5.0, 5.0]] * 2), "base rates .* are not probabilities"),
    "shares of other groups": (lambda: _fair_loss(share=[1.0]), r"shares of shape \(1,\)"),
    "a list of error rates": (lambda: least_gap([[[0.5]]]), "must be an array"),
    "no error rates": (lambda: least_gap(np.zeros((0, 2, 2))), "none of these axes empty"),
    # Figures
    "figures by name": (lambda: fairness(counters(), "in-force"), "policy is 'in-force' and there are 2"),
    "figures of a policy too many": (lambda: fairness(counters(), 5), "policy is 5 and there are 2"),
    "figures of a learner too many": (lambda: fairness(counters(), 0, learner=3), "learner is 3 and there are 1"),
    "positives of three labels": (lambda: rates.false_positive_rate(np.ones((2, 3, 3)), 1), r"shape \(2, 3, 3\)"),
    "a delay at no rate": (lambda: delayed_regret(4, float("nan"), 1, 1), "got rate nan"),
    "bounds of other counters": (
        lambda: paper_bounds(rule_of(Policy(), counters(3), ("y0", "y1")), counters(2)),
        "a rule for 3 experts does not go with counters of 2",
    ),
}


def _rule(selection: object) -> Rule:
    return Rule(np.array(selection), np.zeros((1, 1, 2, 2), dtype=np.int64), np.full((1, 1, 2), 0.65))


def _fair_loss(share: object = (0.5, 0.5), rate: object = ((0.5, 0.5), (0.5, 0.5))) -> object:
    return least_fair_loss(np.full((1, 2, 2), 0.5), np.array(share), np.array(rate))


@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_with_the_value_and_a_remedy(what: str) -> None:
    call, says = WRONG[what]
    with pytest.raises(GForceError, match=says):
        call()


def test_a_refused_request_leaves_no_trace() -> None:
    one = learner()
    before = one.encode()
    with pytest.raises(InvalidInputError):
        one.decide_batch([Request("x", "new", {"new": "grant"}), Request("y", "new", {"new": "grnat"})])
    with pytest.raises(InvalidInputError):
        one.decide(ASKED, at=2**60)
    assert one.encode() == before


def test_a_rate_next_to_nothing_has_a_gamma_next_to_one() -> None:
    assert printed_gamma(1e-17) == pytest.approx(1.0)


def test_a_label_of_another_learners_decision_is_learnt() -> None:
    made, other = learner().decide(Request("x", "B", {"late": "grant"})), learner()
    other.learn(made, "deny")
    assert other.state.axes.groups == ("B",)
    assert other.counters().losses.sum() == (made.label == "grant")


def test_a_positive_decision_without_its_probability_cannot_be_weighted() -> None:
    one = learner(feedback="positive-only", explore=0.1)
    made = Decision("x", "A", "grant", None, None, {}, {"rule": "grant"}, {})
    with pytest.raises(InvalidInputError, match="probability 0/2³² cannot have been made"):
        one.learn(made, "grant")


def test_strings_of_numpy_are_strings() -> None:
    made = learner().decide(Request(np.str_("x"), np.str_("A"), {np.str_("m"): np.str_("deny")}))
    assert made == learner().decide(Request("x", "A", {"m": "deny"}))
    assert {type(name) for name in (made.decision_id, made.group, *made.predictions, made.label)} == {str}


def test_a_generator_is_a_list() -> None:
    one = learner()
    made = one.decide_batch(Request(f"x{i}", "A", {"m": "deny"}) for i in range(3))
    one.learn_batch(zip(made, ("deny", "deny", "grant"), strict=True))
    assert one.fairness().labels == 3


def test_lists_and_sets_become_tuples() -> None:
    assert Settings(labels=["deny", "grant"]) == Settings(labels=LABELS)  # type: ignore[arg-type]
    assert hash(Settings(labels={"grant", "deny"})) == hash(Settings(labels=LABELS))  # type: ignore[arg-type]


def test_a_label_without_a_time_counts_when_its_case_was_decided() -> None:
    one, day = learner(window=7), 86_400_000
    for n in range(20):
        one.learn(one.decide(Request(f"x{n}", "A", {"m": "deny", "r": "grant"}), at=20_000 * day), "deny")
    assert one.counters(7).labels.sum() == 20


def test_a_merge_that_is_refused_changes_nothing() -> None:
    two = Learner(Settings(labels=LABELS, groups=("A", "B"), policy=Policy(objective="paper")), SEED)
    before = two.encode()
    with pytest.raises(IncompatibleStateError, match='one of "A", "B" only'):
        two.merge(learner(groups=("C",)))
    with pytest.raises(IncompatibleStateError, match="keep = 32 cannot take one with keep = 2"):
        two.merge(learner(keep=2))
    assert two.encode() == before


def test_states_of_other_labels_do_not_merge() -> None:
    mine, theirs = State(axes(), bucket=1, keep=2), State(Axes.of(labels=["no", "yes"]), bucket=1, keep=2)
    with pytest.raises(IncompatibleStateError, match=r"labels \['y0', 'y1'\] cannot take one of \['no', 'yes'\]"):
        mine.merge(theirs)


def test_a_state_of_three_groups_is_none_for_an_objective_of_two() -> None:
    three = learner(groups=("A", "B", "C")).state
    settings = Settings(labels=LABELS, groups=("A", "B"), policy=Policy(objective="paper"))
    with pytest.raises(IncompatibleStateError, match='use a state of these, or objective "gap" or "mixture"'):
        Learner(settings, SEED, three)


# States as bytes


def encoded() -> bytes:
    one = learner(keep=4, bucket=10)
    for i in range(30):
        one.learn(one.decide(Request(f"c{i}", "AB"[i % 2], {"m": LABELS[i % 2], "r": "deny"}), at=i), "grant", at=i)
    return one.encode()


@given(place=st.integers(0, len(encoded()) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_gives_counts_that_agree(place: int, bit: int) -> None:
    flipped = bytearray(encoded())
    flipped[place] ^= 1 << bit
    try:
        state = decode_state(bytes(flipped))
    except IncompatibleStateError as error:
        assert "replay" in str(error) or "encode_state" in str(error)  # noqa: PT017 - most flips are refused
        return
    for counts in (state.lifetime, *state.buckets.values()):
        assert (counts.flat >= 0).all()
        assert (counts.losses <= counts.trials).all()
        assert (counts.trials <= counts.labels[:, None]).all()


def changed(**fields: object) -> bytes:
    names = ("magic", "version", "names", "bucket", "keep", "unit", "lifetime", "buckets")
    was = dict(zip(names, msgspec.msgpack.decode(encoded()), strict=True))
    return msgspec.msgpack.encode(list((was | fields).values()))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"names": [["B", "A"], [*LABELS], ["m", "r"], ["in-force"]]}, "names are not sorted"),
        ({"names": [["A", "A"], [*LABELS], ["m", "r"], ["in-force"]]}, "one comes twice"),
        ({"keep": 0}, "keep is 0"),
        ({"bucket": "ten"}, "bucket is 'ten'"),
        ({"keep": 1}, "it keeps 1 buckets and has some from"),
        ({"version": 2}, "of format 2"),
        ({"magic": b"GFROCE"}, "they start with"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(fields: dict[str, object], says: str) -> None:
    decode_state(changed())
    with pytest.raises(IncompatibleStateError, match=says):
        decode_state(changed(**fields))


def test_settings_that_are_decoded_are_checked_by_the_same_rules() -> None:
    with pytest.raises((InvalidSettingsError, msgspec.ValidationError)):
        msgspec.convert({"labels": "deny"}, Settings)
