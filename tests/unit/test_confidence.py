"""Confidence sequences: the ends are where they should be, and the truth stays inside at every moment at once."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.errors import InvalidInputError
from processor.core.metrics.confidence import gap_interval, interval
from processor.core.metrics.rates import difference

cells = st.integers(0, 10**7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
small_cells = st.integers(0, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def ends(errors: int, trials: int, alpha: float) -> tuple[float, float]:
    """The two ends by halving, straight from the definition."""
    right = trials - errors
    mixture = math.lgamma(0.5 + errors) + math.lgamma(0.5 + right) - math.lgamma(1.0 + trials) - math.log(math.pi)

    def believed(p: float) -> bool:
        against = (errors * math.log(p) if errors else 0.0) + (right * math.log1p(-p) if right else 0.0)
        return mixture - against < math.log(1.0 / alpha)

    def border(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if believed(middle) else (inside, middle)
        return inside

    rate = errors / trials if trials else 0.5
    return (border(rate, 0.0) if errors else 0.0), (border(rate, 1.0) if right else 1.0)


@given(cells, st.sampled_from([0.05, 0.025, 0.001, 0.5]))
@settings(max_examples=150, deadline=None)
def test_the_ends_are_those_of_the_definition(cell: tuple[int, int], alpha: float) -> None:
    lower, upper = interval(*cell, alpha)
    slow_lower, slow_upper = ends(*cell, alpha)
    assert float(lower) == pytest.approx(slow_lower, rel=1e-6, abs=1e-12)
    assert float(upper) == pytest.approx(slow_upper, rel=1e-9)


@given(st.lists(small_cells, min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_many_cells_at_once_are_each_as_alone(many: list[tuple[int, int]]) -> None:
    errors, trials = np.array(many).T
    lower, upper = interval(errors, trials, 0.05)
    for i, cell in enumerate(many):
        alone = interval(*cell, 0.05)
        assert (lower[i], upper[i]) == pytest.approx((float(alone[0]), float(alone[1])), rel=1e-12)


def test_nothing_seen_says_nothing() -> None:
    lower, upper = interval([0, 0, 7], [0, 7, 7], 0.05)
    assert lower[:2].tolist() == [0.0, 0.0]
    assert (upper[0], upper[2]) == (1.0, 1.0)
    assert 0.0 < upper[1] < 1.0
    assert lower[2] == pytest.approx(1.0 - upper[1])


def test_a_cell_of_a_billion_labels_has_a_narrow_interval_around_its_rate() -> None:
    lower, upper = interval(200_000_000, 1_000_000_000, 0.05)
    assert 0.1999 < float(lower) < 0.2 < float(upper) < 0.2001


@pytest.mark.parametrize(("errors", "trials"), [(5, 4), (-1, 4)])
def test_impossible_counts_are_refused(errors: int, trials: int) -> None:
    with pytest.raises(InvalidInputError, match="more errors than labels"):
        interval(errors, trials, 0.05)


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5])
def test_the_true_rate_stays_inside_at_every_moment(rate: float) -> None:
    """A fixed-size interval (Wilson) looked at as often misses far more: that is why this is not one."""
    alpha, streams, length = 0.1, 300, 10_000
    wrong = np.random.default_rng(7).random((streams, length)) < rate
    errors = np.cumsum(wrong, axis=1, dtype=np.int64)
    looks = np.unique(np.geomspace(1, length, 150).astype(np.int64))
    lower, upper = interval(errors[:, looks - 1], looks, alpha)
    missed = np.any((rate < lower) | (rate > upper), axis=1).mean()
    assert missed <= alpha + 2 * math.sqrt(alpha * (1 - alpha) / streams)
    at_once = errors[:, looks - 1] / looks
    z, n = 1.645, looks
    middle, spread = (at_once + z * z / 2 / n), z * np.sqrt((at_once * (1 - at_once) + z * z / 4 / n) / n)
    naive = np.any((np.abs(rate * (1 + z * z / n) - middle) > spread) & (n >= 10), axis=1).mean()
    assert naive > 0.3


def _worst_pair(cells_of_label: list[tuple[int, int]], level: float) -> tuple[float, float]:
    found = [tuple(map(float, interval(s, n, level))) for s, n in cells_of_label if n > 0]
    pairs = list(permutations(found, 2))
    if not pairs:
        return math.nan, math.nan
    return max(max(a[0] - b[1], 0.0) for a, b in pairs), max(a[1] - b[0] for a, b in pairs)


@given(
    st.integers(1, 3).flatmap(lambda y: st.lists(st.lists(small_cells, min_size=4, max_size=4), min_size=y, max_size=y))
)
@settings(max_examples=100, deadline=None)
def test_the_gap_is_that_of_the_worst_pair_on_the_worst_label(table: list[list[tuple[int, int]]]) -> None:
    counts = np.array(table)
    lower, upper = gap_interval(counts[..., 0], counts[..., 1], 0.05)
    by_label = [_worst_pair(row, 0.05 / (4 * len(table))) for row in table]
    known = [pair for pair in by_label if not math.isnan(pair[0])]
    expected = (max(p[0] for p in known), max(p[1] for p in known)) if known else (math.nan, math.nan)
    assert (float(lower), float(upper)) == pytest.approx(expected, abs=1e-12, nan_ok=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        gaps = difference(np.where(counts[..., 1] > 0, counts[..., 0] / np.maximum(counts[..., 1], 1), np.nan))
    if known:
        assert lower <= np.nanmax(gaps) + 1e-12
        assert np.nanmax(gaps) <= upper + 1e-12
    else:
        assert np.isnan(gaps).all()


def test_many_tenants_at_once_are_each_as_alone() -> None:
    rng = np.random.default_rng(3)
    trials = rng.integers(0, 50, size=(6, 2, 3))
    errors = rng.binomial(trials, 0.3)
    lower, upper = gap_interval(errors, trials, 0.05)
    alone = [gap_interval(errors[i], trials[i], 0.05) for i in range(6)]
    np.testing.assert_allclose(lower, [float(a[0]) for a in alone])
    np.testing.assert_allclose(upper, [float(a[1]) for a in alone])


def test_padding_does_not_widen_the_interval_where_the_number_of_cells_is_given() -> None:
    plain = gap_interval([[300, 100]], [[1_000, 1_000]], 0.05)
    padded = gap_interval([[[300, 100, 0, 0]]], [[[1_000, 1_000, 0, 0]]], 0.05, cells=[2])
    np.testing.assert_array_equal(np.stack(plain), np.stack(padded)[:, 0])
    wider = gap_interval([[300, 100, 0, 0]], [[1_000, 1_000, 0, 0]], 0.05)
    assert wider[0] < plain[0] < plain[1] < wider[1]


def test_one_group_alone_has_no_gap() -> None:
    lower, upper = gap_interval([[3, 0]], [[10, 0]], 0.05)
    assert np.isnan(lower)
    assert np.isnan(upper)


def test_the_true_gap_stays_inside_at_every_moment() -> None:
    alpha, streams, length = 0.1, 300, 5_000
    rates = np.array([0.3, 0.2, 0.25])
    wrong = np.random.default_rng(8).random((streams, length, 3)) < rates
    errors = np.cumsum(wrong, axis=1, dtype=np.int64)
    looks = np.unique(np.geomspace(1, length, 80).astype(np.int64))
    lower, upper = gap_interval(errors[:, looks - 1][:, :, None, :], looks[:, None, None], alpha)
    missed = np.any((lower > 0.1) | (upper < 0.1), axis=1).mean()
    assert missed <= alpha
