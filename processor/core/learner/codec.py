"""The bytes of a state: versioned, compact, and the same for the same counts.

A MessagePack array ``[b"GFORCE", version, names, bucket, keep, unit, lifetime, [[number, counters], …]]`` in
which each array of counters is packed into the narrowest unsigned integers that hold its largest value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from processor.core.errors import IncompatibleStateError, InvalidInputError
from processor.core.exact import Ints

from .axes import Axes
from .counters import Counters, Shape
from .state import State

MAGIC = b"GFORCE"
VERSION = 1
_WIDTHS = tuple(map(np.dtype, ("<u1", "<u2", "<u4", "<u8")))
_LARGEST = np.array([0xFF, 0xFFFF, 0xFFFF_FFFF, (1 << 63) - 1], dtype=np.uint64)


def encode_state(state: State) -> bytes:
    """A state as bytes; equal states give equal bytes."""
    if not isinstance(state, State):
        raise InvalidInputError(f"a {type(state).__name__} is not a state: use learner.encode(), or a learner's state")
    axes = state.axes
    return msgspec.msgpack.encode(
        [
            MAGIC,
            VERSION,
            [axes.groups, axes.labels, axes.experts, axes.policies],
            state.bucket,
            state.keep,
            state.unit,
            encode_counters(state.lifetime),
            [[number, encode_counters(state.buckets[number])] for number in sorted(state.buckets)],
        ]
    )


def decode_state(data: bytes) -> State:
    """The state behind the bytes, or an error that says what they are instead."""
    try:
        fields: list[Any] = msgspec.msgpack.decode(data, type=list)
        magic, version = fields[0], fields[1]
    except (msgspec.MsgspecError, IndexError, TypeError, ValueError) as error:
        raise IncompatibleStateError(
            f"these bytes are not a G-FORCE state ({error}): use what encode_state gave"
        ) from None
    if magic != MAGIC:
        raise IncompatibleStateError(
            f"these bytes are not a G-FORCE state, they start with {magic!r}: use what encode_state gave"
        )
    if version != VERSION:
        raise IncompatibleStateError(
            f"this state is of format {version} and this version reads {VERSION}: use the version that wrote it, "
            "or rebuild the state by replay"
        )
    try:
        _, _, names, bucket, keep, unit, lifetime, buckets = fields
        groups, labels, experts, policies = map(tuple, names)
        axes = Axes.of(groups=groups, labels=labels, experts=experts, policies=policies)
        if axes.parts != (groups, labels, experts, policies):
            raise ValueError("its names are not sorted, or one comes twice")
        state = State(axes, bucket=bucket, keep=keep, unit=unit)
        state.lifetime = decode_counters(lifetime, axes, unit)
        state.buckets = {number: decode_counters(counters, axes, unit) for number, counters in buckets}
        _check_counts(state, [number for number, _ in buckets])
    except (TypeError, ValueError) as error:
        raise IncompatibleStateError(f"this state is damaged: {error}. Rebuild it by replay.") from None
    return state


def _check_counts(state: State, numbers: Sequence[int]) -> None:
    """Raise ValueError where counts contradict each other. Those that do not may still be wrong: keep a digest."""
    if any(type(number) is not int for number in numbers) or list(numbers) != sorted(set(numbers)):
        raise ValueError(f"its buckets are {numbers}")
    if numbers and numbers[0] <= numbers[-1] - state.keep:
        raise ValueError(f"it keeps {state.keep} buckets and has some from {numbers[0]} to {numbers[-1]}")
    for counters in (state.lifetime, *state.buckets.values()):
        labels = counters.labels[:, None]
        if (counters.losses > counters.trials).any() or (counters.trials > labels).any():
            raise ValueError("an expert has more losses than trials, or more trials than there are labels")
        if (counters.outcomes.sum(axis=-1) > labels).any() or (state.unit * counters.seen > counters.labels).any():
            raise ValueError("more outcomes or labels were seen than there are")
        if (counters.flat > state.lifetime.flat).any():
            raise ValueError("a bucket counts more than the lifetime")


def encode_counters(counters: Counters) -> bytes:
    """Counters of one learner, without names: each array as a width and its numbers."""
    return encode_many([counters])[0]


def encode_many(many: Sequence[Counters]) -> list[bytes]:
    """``encode_counters`` of many learners: those of one shape whose arrays have the same widths are packed at once."""
    shapes: dict[Shape, list[int]] = {}
    for i, counters in enumerate(many):
        shapes.setdefault(counters.shape, []).append(i)
    found = [b""] * len(many)
    for shape, alike in shapes.items():
        for i, text in zip(alike, _encode_alike([many[i].flat for i in alike], shape), strict=True):
            found[i] = text
    return found


def _encode_alike(flats: Sequence[Ints], shape: Shape) -> list[bytes]:
    filled, starts = _filled(shape)
    if not filled:
        return [_record(shape, b"").tobytes()] * len(flats)
    flat = np.concatenate(flats)
    patterns: defaultdict[bytes, list[int]] = defaultdict(list)
    for row, pattern in enumerate(_widths(flat, starts)):
        patterns[pattern].append(row)
    found = [b""] * len(flat)
    for pattern, rows in patterns.items():
        alike = flat if len(patterns) == 1 else flat[rows]
        packed = _record(shape, pattern).repeat(len(rows))
        for name, start, end in filled:
            packed[name] = alike[:, start:end]
        text, size = packed.tobytes(), packed.itemsize
        for at, row in enumerate(rows):
            found[row] = text[at * size : (at + 1) * size]
    return found


@lru_cache(maxsize=1_000)
def _filled(shape: Shape) -> tuple[list[tuple[str, int, int]], Ints]:
    """The arrays that hold any numbers: their names in ``_record``, where they begin and end; where they begin."""
    spans = [(str(i), start, end) for i, (start, end) in enumerate(pairwise(shape.bounds)) if start < end]
    return spans, np.array([start for _, start, _ in spans], dtype=np.int64)


def _widths(flat: Ints, starts: Ints) -> list[bytes]:
    """For each learner, a byte for each array: which of the widths holds its largest number."""
    largest = np.maximum.reduceat(flat.view(np.uint64), starts, axis=1)  # a negative one would be the largest of all
    widths = _LARGEST.searchsorted(largest).astype(np.uint8)
    if len(_WIDTHS) in widths.tobytes():
        raise IncompatibleStateError("a counter is negative: counters only ever grow, so this state is damaged")
    rows: list[bytes] = widths.view(f"V{len(starts)}").ravel().tolist()
    return rows


@lru_cache(maxsize=256)
def _record(shape: Shape, pattern: bytes) -> npt.NDArray[np.void]:
    """What is stored of a learner whose arrays have these widths: every width, and after it room for the numbers."""
    filled, _ = _filled(shape)
    widths = {name: width for (name, _, _), width in zip(filled, pattern, strict=True)}
    fields: list[Any] = []
    for i, (start, end) in enumerate(pairwise(shape.bounds)):
        fields += ((f"width of {i}", np.uint8), (str(i), _WIDTHS[widths.get(str(i), 0)], (end - start,)))
    record = np.zeros(1, fields)
    for name, width in widths.items():
        record[f"width of {name}"] = width
    return record


def decode_counters(data: bytes, axes: Axes, unit: int) -> Counters:
    counters = Counters.zeros(axes, unit=unit)
    start = 0
    for array in counters.arrays():
        start = _unpack_into(array, data, start)
    if start != len(data):
        raise IncompatibleStateError(f"{len(data)} bytes of counters where the axes ask for {start}")
    return counters


def _unpack_into(array: Ints, data: bytes, start: int) -> int:
    if start >= len(data) or data[start] >= len(_WIDTHS):
        raise IncompatibleStateError("the counters end too early or have an unknown width")
    dtype = _WIDTHS[data[start]]
    end = start + 1 + array.size * dtype.itemsize
    if end > len(data):
        raise IncompatibleStateError(f"{len(data)} bytes of counters where at least {end} are needed")
    array[...] = np.frombuffer(data, dtype, count=array.size, offset=start + 1).reshape(array.shape)
    if dtype.itemsize == 8 and (array < 0).any():
        raise IncompatibleStateError("a counter is larger than 2⁶³ − 1")
    return end
