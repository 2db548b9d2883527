"""Many pending entries at once, as columns. The bytes are those of ``entry.Pending``, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .entry import PENDING, PENDING_WEIGHTED
from .exact import Indices, Ints

Bytes = npt.NDArray[np.uint8]

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
_WHOLE = np.dtype([("head", _HEAD), ("tail", ">u8")])
_WIDE = _WHOLE.itemsize
"""Shorter entries are read with their digits, as numbers of 8 bytes that begin with them."""
_PROPENSITY = 4
_POWERS = np.array([1 << 8 * n for n in range(8)], dtype=np.int64)
"""The least numbers of so many bytes and one."""
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
    decided: Indices
    """[n, policy number]"""
    predictions: Indices
    """[n, expert number]"""


def encode_pending(rows: PendingRows, kinds: int) -> list[bytes]:
    """The entries of decisions of tenants that know ``kinds`` labels."""
    heads = np.empty(len(rows.tenant), _HEAD)
    heads["kind"] = PENDING if rows.propensity is None else PENDING_WEIGHTED
    heads["kinds"] = kinds
    for name in ("tenant", "content", "at", "due", "remove", "group"):
        heads[name] = getattr(rows, name)
    heads["policies"], heads["experts"] = rows.decided.shape[1], rows.predictions.shape[1]
    packed = heads.view(np.uint8).reshape(len(heads), _SIZE)
    if rows.propensity is not None:
        packed = np.concatenate([packed, rows.propensity.astype(">u4").view(np.uint8).reshape(-1, _PROPENSITY)], axis=1)
    return _with_numbers(packed, [*rows.decided.T, *rows.predictions.T], kinds + 1)


def _with_numbers(heads: Bytes, digits: Sequence[Indices], base: int) -> list[bytes]:
    """Each row of bytes, then its digits as one number, the first digit the least, in as few bytes as it needs."""
    if base ** len(digits) > _LARGEST:
        return [
            head.tobytes() + number.to_bytes((number.bit_length() + 7) >> 3, "big")
            for head, number in zip(heads, _long_numbers(digits, base), strict=True)
        ]
    numbers = np.zeros(len(heads), dtype=np.int64)
    for column in reversed(digits):
        numbers *= base
        numbers += column
    lengths = np.searchsorted(_POWERS, numbers, side="right")
    tails = numbers.astype(">u8").view(np.uint8).reshape(len(numbers), 8)
    found = [b""] * len(numbers)
    for length in np.unique(lengths).tolist():
        mine = np.nonzero(lengths == length)[0]
        together = np.concatenate([heads[mine], tails[mine, 8 - length :]], axis=1)
        text, size = together.tobytes(), together.shape[1]
        for at, row in enumerate(mine.tolist()):
            found[row] = text[at * size : at * size + size]
    return found


def decode_pending(entries: Sequence[bytes]) -> PendingRows:
    """The columns of entries that are known to be pending; labels and experts not yet known then are 0."""
    whole = np.frombuffer(b"".join([entry.ljust(_WIDE, b"\0")[:_WIDE] for entry in entries]), _WHOLE)
    heads = whole["head"]
    column = {name: heads[name].astype(np.int64) for name in _HEAD.names or ()}
    policies, experts = column["policies"], column["experts"]
    base, count = column["kinds"] + 1, int((policies + experts).max(initial=0))
    lengths = np.fromiter(map(len, entries), np.int64, len(entries))
    propensity = None
    if (weighted := heads["kind"] == PENDING_WEIGHTED).any() or lengths.max(initial=0) >= _WIDE:
        tails = [entry[_SIZE:] for entry in entries]
        if weighted.any():
            propensity = np.zeros(len(entries), dtype=np.int64)
            for i in np.nonzero(weighted)[0]:
                propensity[i] = int.from_bytes(tails[i][:_PROPENSITY], "big")
                tails[i] = tails[i][_PROPENSITY:]
        digits = _digits_of(tails, base, count)
    else:
        digits = _digits(whole["tail"].astype(np.uint64) >> (8 * (_WIDE - lengths)).astype(np.uint64), base, count)
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


def _columns(digits: Indices, start: Ints, count: Ints) -> Indices:
    """``count`` columns of each row from ``start`` on, 0 beyond."""
    width = int(count.max(initial=0))
    if not len(digits) or (start == start[0]).all():
        first = int(start[0]) if len(start) else 0
        found: Indices = digits[:, first : first + width]
    else:
        padded = np.pad(digits, ((0, 0), (0, width)))
        found = padded[np.arange(len(padded))[:, None], start[:, None] + np.arange(width)]
    if not (count == width).all():
        found = found * (np.arange(width) < count[:, None])
    return found


def _long_numbers(digits: Sequence[Indices], base: int) -> list[int]:
    found = []
    for row in np.stack(digits, axis=1).tolist():
        number = 0
        for digit in reversed(row):
            number = number * base + digit
        found.append(number)
    return found


def _digits_of(tails: Sequence[bytes], base: Ints, count: int) -> Indices:
    """[n, count]: the digits of each number, given as its bytes, in its own base."""
    if max(map(len, tails), default=0) < 8:
        return _digits(np.frombuffer(b"".join([tail.rjust(8, b"\0") for tail in tails]), ">u8"), base, count)
    digits = np.zeros((len(tails), count), dtype=np.int16)
    for i, tail in enumerate(tails):
        number = int.from_bytes(tail, "big")
        for column in range(count):
            number, digits[i, column] = divmod(number, int(base[i]))
    return digits


def _digits(numbers: npt.NDArray[np.uint64], base: Ints, count: int) -> Indices:
    """The same of numbers of less than 8 bytes."""
    digits = np.empty((count, len(numbers)), dtype=np.int16)
    left = numbers.astype(np.int64)
    divisor = base[0] if len(base) and (base == base[0]).all() else base  # by a single number is much faster
    for column in digits:
        rest = left // divisor
        column[:] = left - rest * divisor
        left = rest
    return digits.T
