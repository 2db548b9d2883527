"""Arithmetic that gives the same bits on every machine.

A decision must be recomputable years later on another CPU. NumPy's transcendental functions, reductions and
matrix products choose their instructions (and with them the last bit) by what the CPU offers, so nothing here
uses them on floats. Allowed are elementwise ``+ - * / sqrt`` (correctly rounded by IEEE 754 everywhere),
comparisons, rounding to integers, and any operation on integers.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int16] | Ints
"""Where there are many of them, as predictions are, small numbers are kept small."""
Parts = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

PARTS_BITS = 32
ONE = 1 << PARTS_BITS
"""Probabilities are drawn and recorded as integers out of this."""

FEW = 64
"""Up to so many numbers plain floats are faster than an array, and the same operations give the same bits."""


MAX_DOUBLINGS = 13
"""Powers of one number are looked up in a table of at most so many doublings: enough for 0.9."""


def ordered_sum(values: Floats, axis: int) -> Floats:
    """Sum along an axis, from the first element to the last.

    >>> ordered_sum(np.array([[1.0, 2.0, 3.0]]), axis=1)
    array([6.])
    """
    axis %= values.ndim
    moved = values.transpose(axis, *(i for i in range(values.ndim) if i != axis))  # np.moveaxis, but quick
    if len(moved) == 0:
        return np.zeros(moved.shape[1:])
    total: Floats = moved[0].copy()
    for term in moved[1:]:
        total += term
    return total


def power(base: Floats, exponent: Ints) -> Floats:
    """Raise to non-negative integer powers by repeated squaring; underflow ends in 0.

    >>> power(np.array([0.5, 0.65, 0.65]), np.array([3, 0, 10**9]))
    array([0.125, 1.   , 0.   ])
    """
    first = float(base.flat[0]) if base.size else 0.0
    if (table := _powers(first)) is not None and (base.size == 1 or bool((base == first).all())):
        found: Floats = table[np.minimum(exponent, len(table) - 1)]
        shape = np.broadcast(base, exponent).shape
        return found if found.shape == shape else np.broadcast_to(found, shape).copy()
    base, exponent = np.broadcast_arrays(base, exponent)
    if base.size <= FEW:
        pairs = zip(base.ravel().tolist(), exponent.ravel().tolist(), strict=True)
        return np.array([_power_of_one(*pair) for pair in pairs], dtype=np.float64).reshape(base.shape)
    return _power_of_many(base, exponent)


def _power_of_many(base: Floats, exponent: Ints) -> Floats:
    result = np.ones(base.shape)
    square = base.astype(np.float64)
    left = exponent.astype(np.int64)
    for _ in range(int(left.max(initial=0)).bit_length()):
        result = np.where(left & 1, result * square, result)
        square = square * square
        left = left >> 1
    return result


@lru_cache(maxsize=16)
def _powers(base: float) -> Floats | None:
    """All powers of a number, up to one from which on they are 0; None if these would be too many."""
    if not 0.0 <= base < 1.0:
        return None
    square, doublings = base, 0
    while square > 0.0:
        square, doublings = square * square, doublings + 1
        if doublings > MAX_DOUBLINGS:
            return None
    exponents = np.arange((1 << doublings) + 1)
    return _power_of_many(np.full(exponents.shape, base), exponents)


def _power_of_one(base: float, exponent: int) -> float:
    result, square, left = 1.0, base, exponent
    while left:
        if left & 1:
            result *= square
        square *= square
        left >>= 1
    return result


def ln_of(number: int) -> float:
    """The natural logarithm of a positive integer: a sum of ln 2 and one fast series.

    >>> round(ln_of(10), 12)
    2.302585092994
    """
    doublings = number.bit_length() - 1
    return doublings * LN2 + _ln_near_one(number / (1 << doublings))


def _ln_near_one(ratio: float) -> float:
    """ln of a number in [1, 2): 2·artanh(z) with z = (r − 1)/(r + 1) ≤ 1/3."""
    z = (ratio - 1.0) / (ratio + 1.0)
    total, term = 0.0, z
    for odd in range(1, 41, 2):
        total += term / odd
        term *= z * z
    return 2.0 * total


LN2 = _ln_near_one(2.0)


def exp_minus(x: Floats) -> Floats:
    """e^−x for 0 ≤ x ≤ 1, by its power series from the smallest term up (Horner).

    >>> exp_minus(np.array([0.0, 0.5])).round(12)
    array([1.        , 0.60653066])
    """
    result = np.ones(np.shape(x))
    for n in range(20, 0, -1):
        result = 1.0 - result * x / n
    return result


def quantise(probabilities: Floats) -> Parts:
    """Round probabilities along the last axis to integers that sum to 2³².

    Each is rounded down and the few units left go to the most probable entry, so an impossible entry stays
    impossible.

    >>> quantise(np.array([0.5, 0.25, 0.25])).tolist()
    [2147483648, 1073741824, 1073741824]
    >>> quantise(np.array([1 / 3, 2 / 3, 0.0])).tolist()
    [1431655765, 2863311531, 0]
    """
    parts = (probabilities * float(ONE)).astype(np.int64)
    left = ONE - parts.sum(axis=-1)
    largest = probabilities.argmax(axis=-1)
    parts += np.where(np.arange(parts.shape[-1]) == largest[..., None], left[..., None], 0)
    return parts.view(np.uint64)


def times(left: Parts, right: Parts) -> Parts:
    """The product of two probabilities in parts, rounded down.

    >>> half = np.array([ONE // 2], dtype=np.uint64)
    >>> times(half, half).tolist() == [ONE // 4], times(half, half * 2).tolist() == [ONE // 2]
    (True, True)
    """
    both_certain = left & right & np.uint64(ONE)  # 2³² · 2³² does not fit into 64 bits: there the product is 0
    return ((left * right) >> np.uint64(PARTS_BITS)) | both_certain
