"""Confidence sequences: intervals for error rates that hold at every moment at once, however often one looks.

For S errors in n labels a rate p is believed while the labels are not much likelier under the Beta(½, ½) mixture of
rates than under p:

    ln B(½ + S, ½ + n − S) − ln B(½, ½) − S ln p − (n − S) ln(1 − p) < ln(1/α)

The chance that the true rate is ever outside is at most α. These are figures to look at, not to decide by, so SciPy
and libm are welcome here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import betaln

from processor.core.errors import InvalidInputError
from processor.core.exact import Floats, Ints, Mask

STEPS = 60
"""Newton's method needs four to eight; past this many rounding alone moves it."""

CLOSE = 1e-13


def interval(errors: npt.ArrayLike, trials: npt.ArrayLike, alpha: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Lower and upper end for each cell; nothing seen is (0, 1). 40 000 cells take 0.03 s.

    >>> lower, upper = interval([0, 20, 100], [0, 100, 100], alpha=0.05)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.0, 0.091, 0.943], [1.0, 0.352, 1.0])
    """
    errors, trials, alpha = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (errors, trials, alpha)))
    if np.any((errors < 0) | (errors > trials)):
        raise InvalidInputError(
            "a cell has more errors than labels, or fewer than none: count both over the same labels"
        )
    mixture = betaln(0.5 + errors, 0.5 + trials - errors) - betaln(0.5, 0.5)
    allowed = np.log(1.0 / alpha) - mixture
    ends = _lower_ends(np.stack([errors, trials - errors]), trials, allowed)
    return ends[0], 1.0 - ends[1]


def gap_interval(
    errors: npt.ArrayLike, trials: npt.ArrayLike, alpha: float, cells: npt.ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Ends for the worst difference between two groups (last axis) on any label (the axis before).

    The gap on one label alone is that of ``errors[…, [y], :]``. Each cell gets α divided by ``cells``, by how many
    the figure is made of (default: all that are given, with labels or without, for a count that grew with the
    labels would spend α again each time). Groups without labels are left out of the comparison, and fewer than two
    with labels give NaN, as in ``metrics.difference``.

    >>> lower, upper = gap_interval([[300, 100, 0]], [[1000, 1000, 0]], alpha=0.05)
    >>> float(lower.round(3)), float(upper.round(3))
    (0.104, 0.292)
    """
    errors, trials = np.broadcast_arrays(np.asarray(errors, np.float64), np.asarray(trials, np.float64))
    count = np.asarray(errors.shape[-1] * errors.shape[-2] if cells is None else cells, np.float64)
    lower, upper = interval(errors, trials, alpha / count[..., None, None])
    seen = trials > 0
    at_least = np.maximum(_largest(lower, seen)[0] + _largest(-upper, seen)[0], 0.0)  # of one and the same cell: < 0
    comparable = seen.sum(axis=-1) >= 2
    return _over_labels(at_least, comparable), _over_labels(_farthest(lower, upper, seen), comparable)


def _farthest(lower: Floats, upper: Floats, seen: Mask) -> Floats:
    """The largest upper − lower of two different groups."""
    high, second_high, highest = _largest(upper, seen)
    low, second_low, lowest = _largest(-lower, seen)
    return np.where(highest != lowest, high + low, np.maximum(high + second_low, second_high + low))


def _largest(values: Floats, seen: Mask) -> tuple[Floats, Floats, Ints]:
    """The largest and the second largest along the last axis, and where the largest is; 0 where there is none."""
    known = np.where(seen, values, -np.inf)
    where = known.argmax(axis=-1)
    first = known.max(axis=-1, initial=-np.inf)
    others = np.where(np.arange(known.shape[-1]) == where[..., None], -np.inf, known)
    second = others.max(axis=-1, initial=-np.inf)
    return (*(np.where(np.isfinite(a), a, 0.0) for a in (first, second)), where)


def _over_labels(figure: Floats, comparable: Mask) -> Floats:
    worst = np.where(comparable, figure, -np.inf).max(axis=-1, initial=-np.inf)
    return np.where(np.isfinite(worst), worst, np.nan)


def _lower_ends(errors: Floats, trials: Floats, allowed: Floats) -> Floats:
    """Where −S ln p − (n − S) ln(1 − p), falling from p = 0 to p = S/n, comes down to what is allowed."""
    ends = np.zeros(errors.shape)
    where = errors > 0
    s, n, c = errors[where], np.broadcast_to(trials, errors.shape)[where], np.broadcast_to(allowed, errors.shape)[where]
    ends[where] = np.exp(_newton(s, n, c, np.log(_wilson(s, n, c))))
    return ends


def _wilson(s: Floats, n: Floats, c: Floats) -> Floats:
    """A first guess: the curve near its lowest point is nearly a parabola."""
    rate = s / n
    least = -(s * np.log(rate) + _xlogy(n - s, 1.0 - rate))
    z2 = 2.0 * np.maximum(c - least, 1e-12)
    middle, spread = rate + z2 / (2.0 * n), np.sqrt(z2 * (rate * (1.0 - rate) + z2 / (4.0 * n)) / n)
    guess: Floats = (rate * rate) / (middle + spread)  # (middle − spread)/(1 + z²/n) without the difference
    return np.minimum(guess, rate * (1.0 - 1e-9))


def _newton(s: Floats, n: Floats, c: Floats, t: Floats) -> Floats:
    """In t = ln p the curve is convex and nearly straight where S is small; from the second step on it only rises."""
    for _ in range(STEPS):
        p = np.exp(t)
        away = -s * t - (n - s) * np.log1p(-p) - c
        step = away / (s - (n - s) * p / (1.0 - p))
        t = np.minimum(t + step, -CLOSE)
        if np.all(np.abs(step) <= CLOSE * np.maximum(1.0, np.abs(t))):
            break
    return t


def _xlogy(x: Floats, y: Floats) -> Floats:
    return np.where(x > 0, x * np.log(np.where(x > 0, y, 1.0)), 0.0)
