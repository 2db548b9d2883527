"""The experts learn, repeat themselves for the same seed, and their gaps are fairlearn's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from processor.core.errors import InvalidInputError
from processor.experiments import experts
from processor.experiments.experts import EXPERTS, ExperimentsNotInstalledError, Split, expert_fairness, predictions
from producers.datasets import Dataset


def synthetic(n: int = 600, rounds: int = 200) -> Dataset:
    """A label that two of four features decide up to noise, harder to tell in group 1."""
    rng = np.random.default_rng(7)
    features, group = rng.normal(size=(n, 4)), rng.integers(0, 2, n)
    noise = rng.normal(size=n) * (0.3 + 0.7 * group)
    label = (features[:, 0] + features[:, 1] + noise > 0).astype(np.int64)
    return Dataset("synthetic", features * [1, 100, 1, 1], label, group, ("A", "B"), ("no", "yes"), rounds)


@pytest.fixture(scope="module")
def split() -> Split:
    pytest.importorskip("sklearn")
    return predictions(synthetic(), seed=1)


def test_the_rounds_arrive_online_with_one_prediction_per_expert(split: Split) -> None:
    assert split.group.shape == split.label.shape == (200,)
    assert split.predictions.shape == (200, len(EXPERTS))
    assert split.predictions.dtype == np.int64
    assert set(np.unique(split.predictions)) <= {0, 1}


def test_every_expert_is_far_better_than_chance(split: Split) -> None:
    assert ((split.predictions != split.label[:, np.newaxis]).mean(axis=0) < 0.3).all()


def test_the_same_seed_gives_the_same_split_and_another_seed_another(split: Split) -> None:
    again, other = predictions(synthetic(), seed=1), predictions(synthetic(), seed=2)
    assert np.array_equal(again.predictions, split.predictions)
    assert np.array_equal(again.label, split.label)
    assert np.array_equal(again.group, split.group)
    assert not np.array_equal(other.label, split.label)


def test_no_online_case_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[int], set[int]]] = []

    def spy(_: object, dataset: Dataset, training: experts.Ints, online: experts.Ints) -> experts.Ints:
        seen.append((set(training.tolist()), set(online.tolist())))
        return dataset.label[online]

    monkeypatch.setattr(experts, "_answers", spy)
    monkeypatch.setattr(experts, "MOST_ROWS", {"rbf-svm": 50})
    predictions(synthetic(), seed=3)
    assert [len(training) for training, _ in seen] == [400, 400, 50, 400, 400]
    assert all(len(online) == 200 and not training & online for training, online in seen)


def test_too_few_rows_to_train_on_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"210 rows less 200 online leave 10 for training"):
        predictions(synthetic(n=210), seed=0)


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ExperimentsNotInstalledError, match=r'pip install "gforce\[experiments\]"'):
        predictions(synthetic(), seed=0)


def test_the_gaps_are_those_of_fairlearn(split: Split) -> None:
    metrics = pytest.importorskip("fairlearn.metrics")
    gaps = expert_fairness(split)
    for f in range(len(EXPERTS)):
        case = {"y_true": split.label, "y_pred": split.predictions[:, f], "sensitive_features": split.group}
        assert gaps.false_positive_rate_difference[f] == pytest.approx(metrics.false_positive_rate_difference(**case))
        assert gaps.false_negative_rate_difference[f] == pytest.approx(metrics.false_negative_rate_difference(**case))
        assert gaps.error_rate_difference[f] == pytest.approx(metrics.zero_one_loss_difference(**case))


def test_a_gap_with_an_empty_side_is_not_a_number() -> None:
    alone = Split(np.array([0, 0, 1]), np.array([0, 1, 1]), np.zeros((3, 5), dtype=np.int64))
    gaps = expert_fairness(alone)
    assert np.isnan(gaps.false_positive_rate_difference).all()
    assert gaps.false_negative_rate_difference.tolist() == [0.0] * 5
    assert gaps.error_rate_difference.tolist() == [0.5] * 5
