"""Many pending entries at once, as columns. The bytes are those of ``entry.Pending``, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .entry import PENDING, PENDING_WEIGHTED
from .exact import Ints

_HEAD = np.dtype(
    [
        ("kind", "u1"),
        ("tenant", ">u2"),
        ("content", ">u4"),
        ("at", ">u4"),
        ("due", ">u4"),
        ("remove", ">u4"),
        ("group", "u1"),
        ("kinds", "u1"),
        ("policies", "u1"),
        ("experts", "u1"),
    ]
)
_SIZE = _HEAD.itemsize
_PROPENSITY = 4
_LARGEST = 1 << 62
"""Digits up to here fit into 64 bits; more experts or labels than that are taken one entry at a time."""


@dataclass(frozen=True, slots=True)
class PendingRows:
    """Decisions that wait for their label, one row each; the columns are the fields of ``entry.Pending``."""

    tenant: Ints
    content: Ints
    at: Ints
    due: Ints
    remove: Ints
    propensity: Ints | None
    group: Ints
    decided: Ints
    """[n, policy number]"""
    predictions: Ints
    """[n, expert number]"""


def encode_pending(rows: PendingRows, kinds: int) -> list[bytes]:
    """The entries of decisions of tenants that know ``kinds`` labels."""
    heads = np.empty(len(rows.tenant), _HEAD)
    heads["kind"] = PENDING if rows.propensity is None else PENDING_WEIGHTED
    heads["kinds"] = kinds
    for name in ("tenant", "content", "at", "due", "remove", "group"):
        heads[name] = getattr(rows, name)
    heads["policies"], heads["experts"] = rows.decided.shape[1], rows.predictions.shape[1]
    packed = heads.tobytes()
    numbers = _numbers(np.concatenate([rows.decided, rows.predictions], axis=1), kinds + 1)
    digits = [number.to_bytes((number.bit_length() + 7) >> 3, "big") for number in numbers]
    if rows.propensity is not None:
        digits = [
            int(parts).to_bytes(_PROPENSITY, "big") + rest for parts, rest in zip(rows.propensity, digits, strict=True)
        ]
    return [packed[i : i + _SIZE] + rest for i, rest in zip(range(0, len(packed), _SIZE), digits, strict=True)]


def decode_pending(entries: Sequence[bytes]) -> PendingRows:
    """The columns of entries that are known to be pending; labels and experts not yet known then are 0."""
    heads = np.frombuffer(b"".join([entry[:_SIZE] for entry in entries]), _HEAD)
    column = {name: heads[name].astype(np.int64) for name in heads.dtype.names or ()}
    tails = [entry[_SIZE:] for entry in entries]
    propensity = None
    if (weighted := heads["kind"] == PENDING_WEIGHTED).any():
        propensity = np.zeros(len(entries), dtype=np.int64)
        for i in np.nonzero(weighted)[0]:
            propensity[i] = int.from_bytes(tails[i][:_PROPENSITY], "big")
            tails[i] = tails[i][_PROPENSITY:]
    numbers = [int.from_bytes(tail, "big") for tail in tails]
    policies, experts = column["policies"], column["experts"]
    digits = _digits(numbers, column["kinds"] + 1, int((policies + experts).max(initial=0)))
    return PendingRows(
        tenant=column["tenant"],
        content=column["content"],
        at=column["at"],
        due=column["due"],
        remove=column["remove"],
        propensity=propensity,
        group=column["group"],
        decided=_columns(digits, np.zeros_like(policies), policies),
        predictions=_columns(digits, policies, experts),
    )


def _columns(digits: Ints, start: Ints, count: Ints) -> Ints:
    """``count`` columns of each row from ``start`` on, 0 beyond."""
    width = int(count.max(initial=0))
    if not len(digits) or (start == start[0]).all():
        first = int(start[0]) if len(start) else 0
        found = digits[:, first : first + width].copy()
    else:
        padded = np.pad(digits, ((0, 0), (0, width)))
        found = np.take_along_axis(padded, start[:, None] + np.arange(width), axis=1)
    found[np.arange(width) >= count[:, None]] = 0
    return found


def _numbers(digits: Ints, base: int) -> list[int]:
    """Each row of digits as one number, the first digit the least."""
    if base ** digits.shape[1] <= _LARGEST:
        numbers = np.zeros(len(digits), dtype=np.int64)
        for column in reversed(digits.T):
            numbers = numbers * base + column
        return numbers.tolist()
    found = []
    for row in digits.tolist():
        number = 0
        for digit in reversed(row):
            number = number * base + digit
        found.append(number)
    return found


def _digits(numbers: Sequence[int], base: Ints, count: int) -> Ints:
    """[n, count]: the digits of each number in its own base."""
    digits = np.zeros((len(numbers), count), dtype=np.int64)
    if max(numbers, default=0) <= _LARGEST:
        left = np.array(numbers, dtype=np.int64)
        for column in range(count):
            left, digits[:, column] = np.divmod(left, base)
        return digits
    for i, number in enumerate(numbers):
        for column in range(count):
            number, digits[i, column] = divmod(number, int(base[i]))
    return digits
