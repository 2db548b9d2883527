"""Many pending entries at once, as columns. The bytes are those of ``entries.Pending``, one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from processor.core.exact import Indices, Ints

from .entries import PENDING, PENDING_WEIGHTED

_HEAD = [
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
_PLAIN = np.dtype([*_HEAD, ("tail", ">u8")])
_WEIGHTED = np.dtype([*_HEAD, ("propensity", ">u4"), ("tail", ">u8")])
"""The digits are a number without leading zeros. Here it begins where it does in the entry, and zeros follow."""
_TAIL = 8
_WIDE = _PLAIN.itemsize
_SIZE = _WIDE - _TAIL
_PROPENSITY = 4
_KINDS, _POLICIES, _EXPERTS = range(_SIZE - 3, _SIZE)
"""Where these are."""
_POWERS = np.array([1 << 8 * n for n in range(_TAIL)], dtype=np.int64)
"""The least numbers of so many bytes and one."""
_SHIFTS = np.array([8 * (_TAIL - n) % 64 for n in range(_TAIL + 1)], dtype=np.uint64)
"""How far numbers of so many bytes are from the beginning of eight."""
_LARGEST = 1 << 62
"""Digits up to here fit into 64 bits; more experts or labels than that are taken one entry at a time."""
_TABLE = 1 << 13
"""Numbers below this are taken apart by looking them up."""


@dataclass(frozen=True, slots=True)
class PendingRows:
    """Decisions that wait for their label, one row each; the columns are the fields of ``entries.Pending``."""

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


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """What is needed of pending decisions once their labels have come; columns of ``PendingRows``."""

    at: Ints
    propensity: Ints | None
    group: Ints
    decided: Indices
    predictions: Indices


def encode_pending(rows: PendingRows, kinds: int) -> list[bytes]:
    """The entries of decisions of tenants that know ``kinds`` labels."""
    policies, experts = rows.decided.shape[1], rows.predictions.shape[1]
    weighted, base, count = rows.propensity is not None, kinds + 1, policies + experts
    whole = _blank(weighted, kinds, policies, experts).repeat(len(rows.tenant))
    whole["tenant"], whole["content"], whole["at"] = rows.tenant, rows.content, rows.at
    whole["due"], whole["remove"], whole["group"] = rows.due, rows.remove, rows.group
    if weighted:
        whole["propensity"] = rows.propensity
    starts, head = range(0, whole.nbytes, whole.itemsize), whole.itemsize - _TAIL
    if base**count > _LARGEST:
        text = whole.tobytes()
        return [
            text[start : start + head] + number.to_bytes((number.bit_length() + 7) >> 3, "big")
            for start, number in zip(starts, _long_numbers(rows, base), strict=True)
        ]
    powers = _powers(base, count)
    numbers = rows.decided @ powers[:policies] + rows.predictions @ powers[policies:]
    lengths = _POWERS.searchsorted(numbers, side="right")
    whole["tail"] = numbers.view(np.uint64) << _SHIFTS.take(lengths)
    text = whole.tobytes()
    return [text[start : start + head + more] for start, more in zip(starts, lengths.tolist(), strict=True)]


@lru_cache(maxsize=1_000)
def _blank(weighted: bool, kinds: int, policies: int, experts: int) -> npt.NDArray[np.void]:
    """What all entries of tenants that know as many names have in common."""
    blank = np.zeros(1, _WEIGHTED if weighted else _PLAIN)
    blank["kind"], blank["kinds"] = PENDING_WEIGHTED if weighted else PENDING, kinds
    blank["policies"], blank["experts"] = policies, experts
    return blank


@lru_cache(maxsize=1_000)
def _powers(base: int, count: int) -> Ints:
    return np.array([base**place for place in range(count)], dtype=np.int64)


def _long_numbers(rows: PendingRows, base: int) -> list[int]:
    found = []
    for row in np.concatenate([rows.decided, rows.predictions], axis=1).tolist():
        number = 0
        for digit in reversed(row):
            number = number * base + digit
        found.append(number)
    return found


def decode_pending(entries: Sequence[bytes]) -> LabelledRows:
    """The columns of entries that are known to be pending; labels and experts not yet known then are 0."""
    text = b"".join([entry.ljust(_WIDE, b"\0")[:_WIDE] for entry in entries])
    whole, lengths = np.frombuffer(text, _PLAIN), list(map(len, entries))
    propensity = None
    if PENDING_WEIGHTED in text[::_WIDE] or max(lengths, default=0) >= _WIDE:
        propensity, numbers = _one_by_one(entries)
    else:
        shifts = _SHIFTS.take(np.array(lengths, dtype=np.int64) - _SIZE)
        numbers = (whole["tail"].astype(np.uint64) >> shifts).view(np.int64)
    decided, predictions = _digits_of(text, numbers)
    return LabelledRows(whole["at"].astype(np.int64), propensity, whole["group"].astype(np.int64), decided, predictions)


def _one_by_one(entries: Sequence[bytes]) -> tuple[Ints | None, npt.NDArray[Any]]:
    """How likely positive decisions were, and the digits of each entry as a number, of any size."""
    weighted = [entry[0] == PENDING_WEIGHTED for entry in entries]
    starts = [_SIZE + _PROPENSITY if each else _SIZE for each in weighted]
    parts = [int.from_bytes(entry[_SIZE:start], "big") for entry, start in zip(entries, starts, strict=True)]
    numbers = [int.from_bytes(entry[start:], "big") for entry, start in zip(entries, starts, strict=True)]
    propensity = np.array(parts, dtype=np.int64) if any(weighted) else None
    return propensity, np.array(numbers, dtype=np.int64 if max(numbers) <= _LARGEST else object)


def _digits_of(text: bytes, numbers: npt.NDArray[Any]) -> tuple[Indices, Indices]:
    """What was decided and what was predicted, 0 where nothing was known; ``text`` has all entries, equally wide."""
    columns = [text[place::_WIDE] for place in (_KINDS, _POLICIES, _EXPERTS)]
    if text and all(column == column[:1] * len(numbers) for column in columns):
        kinds, policies, experts = text[_KINDS : _EXPERTS + 1]
        digits = _digits(numbers, kinds + 1, policies + experts)
        return digits[:, :policies], digits[:, policies:]
    alike: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for row, sizes in enumerate(zip(*columns, strict=True)):
        alike[sizes].append(row)
    decided, predictions = (np.zeros((len(numbers), max(each, default=0)), np.int16) for each in columns[1:])
    for (kinds, policies, experts), rows in alike.items():
        digits = _digits(numbers[rows], kinds + 1, policies + experts)
        decided[rows, :policies], predictions[rows, :experts] = digits[:, :policies], digits[:, policies:]
    return decided, predictions


def _digits(numbers: npt.NDArray[Any], base: int, count: int) -> Indices:
    """[n, count]: the digits of each number, the least first."""
    table, parts = _table(base), []
    for _ in range(table.shape[1], count, table.shape[1]):
        rest = numbers // len(table)
        parts.append(table.take((numbers - rest * len(table)).astype(np.int64), axis=0))
        numbers = rest
    parts.append(table.take(numbers.astype(np.int64), axis=0))
    found: Indices = (np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0])[:, :count]
    return found


@cache
def _table(base: int) -> Indices:
    """The digits of all numbers of some digits."""
    width = 1
    while base ** (width + 1) <= _TABLE:
        width += 1
    return (np.arange(base**width)[:, None] // _powers(base, width) % base).astype(np.int16)
