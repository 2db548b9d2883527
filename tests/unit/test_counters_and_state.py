"""Order does not matter, states merge, windows are sums, bytes are stable."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.core import (
    ABSENT,
    Axes,
    Counters,
    IncompatibleStateError,
    InvalidInputError,
    State,
    decode_state,
    encode_state,
)
from processor.core.learner.codec import decode_counters, encode_counters, encode_many
from processor.core.learner.counters import WEIGHT_UNIT, label_weight

from .strategies import axes, random_labels, seeds

BUCKET, KEEP = 20, 6


def new_state(of: Axes | None = None, unit: int = 1) -> State:
    return State(of or axes(), bucket=BUCKET, keep=KEEP, unit=unit)


@given(seed=seeds, count=st.integers(0, 120), cut=st.integers(0, 120), unit=st.sampled_from([1, WEIGHT_UNIT]))
def test_any_permutation_split_and_merge_of_the_same_labels_gives_the_same_bytes(
    seed: int, count: int, cut: int, unit: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = random_labels(rng, axes(), count, unit)
    at_once = labels.add_to(new_state(unit=unit))
    shuffled = labels.take(rng.permutation(count))
    first, second = shuffled.take(np.arange(min(cut, count))), shuffled.take(np.arange(min(cut, count), count))
    one_by_one = new_state(unit=unit)
    for i in range(count):
        shuffled.take(np.array([i])).add_to(one_by_one)
    in_two = second.add_to(first.add_to(new_state(unit=unit)))
    merged, other = first.add_to(new_state(unit=unit)), second.add_to(new_state(unit=unit))
    merged.merge(other)
    expected = encode_state(at_once)
    assert encode_state(one_by_one) == expected
    assert encode_state(in_two) == expected
    assert encode_state(merged) == expected


@given(seed=seeds)
def test_names_met_in_another_order_give_the_same_bytes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    full = axes(groups=3, experts=4)
    labels = random_labels(rng, full, 60)
    few = labels.take(np.nonzero((labels.group < 2) & (labels.predictions[:, 3] == -1))[0])
    rest = labels.take(np.nonzero((labels.group >= 2) | (labels.predictions[:, 3] != -1))[0])
    small = Axes.of(groups=full.groups[:2], labels=full.labels, experts=full.experts[:3], policies=full.policies)
    grown = new_state(small)
    grown.add_decisions(few.at, few.group, few.decided[:, 0])
    grown.add_labels(few.at, few.group, few.label, few.predictions[:, :3], few.decided)
    grown.merge(rest.add_to(new_state(full)))
    assert encode_state(grown) == encode_state(labels.add_to(new_state(full)))


@given(seed=seeds, count=st.integers(0, 60), unit=st.sampled_from([1, WEIGHT_UNIT]))
def test_a_state_survives_its_bytes(seed: int, count: int, unit: int) -> None:
    state = random_labels(np.random.default_rng(seed), axes(3, 3, 4), count, unit).add_to(
        new_state(axes(3, 3, 4), unit)
    )
    assert decode_state(encode_state(state)) == state


def test_the_bytes_of_a_state_are_those_of_format_1() -> None:
    state = random_labels(np.random.default_rng(1), axes(), 50).add_to(new_state())
    data = encode_state(state)
    assert data.startswith(b"\x98\xc4\x06GFORCE\x01")
    assert hashlib.blake2b(data, digest_size=8).hexdigest() == "270be19159116de7"


def test_a_window_is_the_sum_of_its_buckets_and_all_of_them_are_the_lifetime() -> None:
    labels = random_labels(np.random.default_rng(2), axes(), 200, span=BUCKET * KEEP)
    state = labels.add_to(new_state())
    assert state.window(KEEP) == state.lifetime
    last_two = labels.take(np.nonzero(labels.at >= BUCKET * (KEEP - 2))[0]).add_to(new_state())
    assert state.window(2) == last_two.lifetime


def test_a_late_label_goes_to_the_bucket_of_its_own_time() -> None:
    labels = random_labels(np.random.default_rng(3), axes(), 2)
    state = new_state()
    for at, row in ((100, 0), (65, 1)):
        one = labels.take(np.array([row]))
        state.add_labels(np.array([at]), one.group, one.label, one.predictions, one.decided)
    assert sorted(state.buckets) == [65 // BUCKET, 100 // BUCKET]


def test_a_label_older_than_the_ring_counts_in_the_lifetime_only() -> None:
    labels = random_labels(np.random.default_rng(4), axes(), 2)
    state = new_state()
    for at, row in ((1_000, 0), (5, 1)):
        one = labels.take(np.array([row]))
        state.add_labels(np.array([at]), one.group, one.label, one.predictions, one.decided)
    assert sorted(state.buckets) == [50]
    assert state.lifetime.joined.tolist() == [2]


def test_a_clone_and_its_origin_go_their_own_ways() -> None:
    labels = random_labels(np.random.default_rng(5), axes(), 30)
    origin = new_state()
    labels.add_to(origin)
    before, clone = encode_state(origin), origin.clone()
    labels.add_to(clone)
    clone.merge(origin)
    assert encode_state(origin) == before
    assert clone.lifetime.joined.tolist() == [90]
    labels.add_to(origin)
    assert clone.lifetime.joined.tolist() == [90]


def test_the_same_names_are_the_same_axes_whoever_has_them() -> None:
    assert Axes.of(groups=["B", "A"], labels=["x", "y"]) is Axes.of(groups=["A", "B"], labels=["y", "x"])


def test_states_of_other_settings_do_not_merge() -> None:
    with pytest.raises(IncompatibleStateError, match="bucket = 20 .* rebuild"):
        new_state().merge(State(axes(), bucket=30, keep=KEEP))
    with pytest.raises(IncompatibleStateError, match="unit = 1 "):
        new_state().merge(new_state(unit=WEIGHT_UNIT))


def test_counters_of_other_shapes_do_not_add() -> None:
    with pytest.raises(IncompatibleStateError, match="cannot be added"):
        Counters.zeros(axes(2)) + Counters.zeros(axes(3))
    with pytest.raises(IncompatibleStateError, match="positive-only"):
        Counters.zeros(axes()) + Counters.zeros(axes(), unit=WEIGHT_UNIT)
    with pytest.raises(IncompatibleStateError, match="different units"):
        Counters.stack([Counters.zeros(axes()), Counters.zeros(axes(), unit=WEIGHT_UNIT)])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a G-FORCE state"),
        (b"\xff\xfe", "not a G-FORCE state"),
        (b"\x92\xc4\x03abc\x01", "they start with b'abc'"),
        (b"\x92\xc4\x06GFORCE\x07", "format 7 and this version reads 1"),
        (b"\x92\xc4\x06GFORCE\x01", "damaged"),
    ],
)
def test_bytes_that_are_no_state_are_named(data: bytes, says: str) -> None:
    with pytest.raises(IncompatibleStateError, match=says):
        decode_state(data)


def test_a_cut_off_state_is_refused() -> None:
    data = encode_state(random_labels(np.random.default_rng(1), axes(), 50).add_to(new_state()))
    for end in range(1, len(data)):
        with pytest.raises(IncompatibleStateError):
            decode_state(data[:end])


@given(seed=seeds, shape=st.tuples(*[st.integers(0, 3)] * 4))
def test_counters_written_together_are_read_back_one_by_one(seed: int, shape: tuple[int, int, int, int]) -> None:
    of, rng = axes(*shape), np.random.default_rng(seed)
    many = [Counters.zeros(of) for _ in range(4)]
    for counters in many[1:]:
        for array in counters.arrays():
            array[...] = rng.integers(0, 1 << int(rng.choice([8, 16, 32, 62])), size=array.shape)
    texts = encode_many(many)
    assert [decode_counters(text, of, 1) for text in texts] == many
    assert texts == [encode_counters(counters) for counters in many]


def test_a_negative_count_is_refused() -> None:
    damaged = Counters.zeros(axes())
    damaged.losses[0, 0, 0, 0] = -1
    with pytest.raises(IncompatibleStateError, match="negative"):
        encode_many([Counters.zeros(axes()), damaged])


def test_a_window_that_is_not_kept_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="window of 7 buckets .* 6 are kept"):
        new_state().window(7)


def test_a_label_of_probability_zero_has_no_weight() -> None:
    with pytest.raises(InvalidInputError, match="probability 0"):
        label_weight(0)


@given(seed=seeds, weighted=st.booleans())
def test_labels_are_counted_as_one_by_one(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    of, unit = axes(groups=3, labels=4, experts=2, policies=3), WEIGHT_UNIT if weighted else 1
    few, learner = random_labels(rng, of, 20, unit=unit), rng.integers(0, 5, size=20)
    together, plain = Counters.zeros(of, batch=5, unit=unit), Counters.zeros(of, batch=5, unit=unit)
    together.add_decisions(learner, few.group, few.decided[:, 0])
    together.add_labels(learner, few.group, few.label, few.predictions, few.decided, few.weight)
    for i in range(20):
        b, g, y, units = learner[i], few.group[i], few.label[i], 1 if few.weight is None else few.weight[i]
        plain.decisions[b, g, few.decided[i, 0]] += 1
        plain.seen[b, g, y] += 1
        plain.labels[b, g, y] += units
        for expert, said in enumerate(few.predictions[i]):
            plain.trials[b, expert, g, y] += units * (said != ABSENT)
            plain.losses[b, expert, g, y] += units * (said not in (ABSENT, y))
        for policy, made in enumerate(few.decided[i]):
            plain.outcomes[b, policy, g, y, made] += units
    assert together == plain


@pytest.mark.parametrize(("group", "label", "decided"), [(2, 0, 0), (0, 2, 0), (0, 0, 2), (-1, 0, 0)])
def test_an_index_beyond_its_axis_is_refused_and_not_counted_elsewhere(group: int, label: int, decided: int) -> None:
    counters = Counters.zeros(Axes.of(groups=["A", "B"], labels=["0", "1"], experts=["m"], policies=["p"]))
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(InvalidInputError, match="index"):
        counters.add_labels(one, one + group, one + label, one[:, None], one[:, None] + decided)
    assert not counters.flat.any()
