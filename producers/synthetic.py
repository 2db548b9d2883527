"""Synthetic populations: who comes, what is true of them, and how often each expert errs on whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from processor.core.errors import InvalidInputError
from processor.core.exact import Floats, Ints
from processor.core.learner.counters import ABSENT


@dataclass(frozen=True)
class Cases:
    """Cases in order of arrival, for many runs at once: [run, round] and [run, round, expert]."""

    group: Ints
    label: Ints
    predictions: Ints

    @property
    def runs(self) -> int:
        return int(self.group.shape[0])

    @property
    def rounds(self) -> int:
        return int(self.group.shape[1])

    def then(self, later: Cases) -> Cases:
        """These cases, followed by those of another population; missing experts are absent."""
        experts = max(self.predictions.shape[2], later.predictions.shape[2])
        return Cases(
            np.concatenate([self.group, later.group], axis=1),
            np.concatenate([self.label, later.label], axis=1),
            np.concatenate([_padded(c.predictions, experts) for c in (self, later)], axis=1),
        )


def _padded(predictions: Ints, experts: int) -> Ints:
    missing = experts - predictions.shape[2]
    return np.pad(predictions, ((0, 0), (0, 0), (0, missing)), constant_values=ABSENT)


@dataclass(frozen=True)
class Population:
    """``share[g]`` of the cases, ``base_rate[g, y]`` of the labels, ``error[f, g, y]`` of the experts."""

    share: Floats
    base_rate: Floats
    error: Floats
    abstain: float = 0.0
    """probability that an expert gives no prediction; at least one always does"""

    def __post_init__(self) -> None:
        _check_distribution("group shares", self.share)
        _check_distribution("base rates", self.base_rate)
        experts, groups, labels = self.error.shape
        if self.base_rate.shape != (groups, labels) or self.share.shape != (groups,):
            raise InvalidInputError(
                f"{experts} experts' error rates are for {groups} groups and {labels} labels, but the shares have "
                f"shape {self.share.shape} and the base rates {self.base_rate.shape}: make them agree"
            )
        if not 0.0 <= self.abstain < 1.0:
            raise InvalidInputError(f"abstain is {self.abstain}: use a probability from 0 to below 1")

    def draw(self, rng: np.random.Generator, runs: int, rounds: int) -> Cases:
        """Independent cases; a wrong expert says one of the other labels with equal probability."""
        experts, _, labels = self.error.shape
        group = _categorical(rng, np.broadcast_to(self.share, (runs, rounds, len(self.share))))
        label = _categorical(rng, self.base_rate[group])
        rate = np.moveaxis(self.error, 0, -1)[group, label]
        wrong = rng.random((runs, rounds, experts)) < rate
        shift = rng.integers(1, labels, size=wrong.shape) if labels > 2 else 1
        predictions = np.where(wrong, (label[..., None] + shift) % labels, label[..., None])
        return Cases(group, label, self._with_abstentions(rng, predictions))

    def _with_abstentions(self, rng: np.random.Generator, predictions: Ints) -> Ints:
        if self.abstain == 0.0:
            return predictions
        roll = rng.random(predictions.shape)
        absent = (roll < self.abstain) & (roll < roll.max(axis=-1, keepdims=True))
        return np.where(absent, ABSENT, predictions)

    def with_error(self, error: Floats) -> Population:
        """The same people, other experts."""
        return replace(self, error=error)

    def worsened(self, by: float = 0.25) -> Population:
        """After a bad day for the last group: its base rates are turned round, and the expert that knew the cases of
        its last label best now errs on ``by`` more of them.

        >>> paper_population(0.3).worsened().base_rate[1].tolist()
        [0.3, 0.7]
        """
        base_rate, error = self.base_rate.copy(), self.error.copy()
        base_rate[-1] = base_rate[-1, ::-1]
        best = int(np.argmin(error[:, -1, -1]))
        error[best, -1, -1] = min(error[best, -1, -1] + by, 1.0)
        return replace(self, base_rate=base_rate, error=error)


@dataclass(frozen=True)
class Shift:
    """Other people come from case ``start`` on, and the first ones again from case ``end`` on.

    >>> Shift.parse("2000-5000", paper_population(0.3)).end
    5000
    """

    start: int
    end: int
    people: Population

    @classmethod
    def parse(cls, text: str, before: Population) -> Shift:
        """Read ``START-END``, for people that are worsened between these cases."""
        first, _, last = text.partition("-")
        if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
            raise InvalidInputError(f'"{text}" is not a shift: use START-END in cases, as in 20000-35000')
        return cls(int(first), int(last), before.worsened())

    def lasts(self, case: int) -> bool:
        return self.start <= case < self.end

    def next_change(self, case: int) -> float:
        """The first case after this one from which on others come."""
        return min((edge for edge in (self.start, self.end) if edge > case), default=float("inf"))


def paper_population(mu_b: float, mu_a: float = 0.7, p_a: float = 0.9) -> Population:
    """The paper's: two groups, two labels (0 and 1), and a perfect expert for each of the four cells."""
    return Population(
        share=np.array([p_a, 1.0 - p_a]),
        base_rate=np.array([[1.0 - mu_a, mu_a], [1.0 - mu_b, mu_b]]),
        error=one_cell_experts(2, 2),
    )


def one_cell_experts(groups: int, labels: int, elsewhere: float = 0.5) -> Floats:
    """error[f, g, y]: expert f never errs on its own (group, label) and tosses a coin elsewhere."""
    cells = groups * labels
    error = np.full((cells, cells), elsewhere)
    np.fill_diagonal(error, 0.0)
    return error.reshape(cells, groups, labels)


def _categorical(rng: np.random.Generator, probabilities: Floats) -> Ints:
    edges = np.cumsum(probabilities, axis=-1)[..., :-1]
    drawn: Ints = (rng.random(edges.shape[:-1])[..., None] >= edges).sum(axis=-1)
    return drawn


def _check_distribution(name: str, probabilities: npt.NDArray[np.float64]) -> None:
    if (probabilities < 0).any() or not np.allclose(probabilities.sum(axis=-1), 1.0, atol=1e-9):
        raise InvalidInputError(
            f"{name} {probabilities.tolist()} are not probabilities: each must be at least 0, together 1"
        )
