"""The bytes of a state: versioned, compact, and the same for the same counts.

A MessagePack array ``[b"GFORCE", version, names, bucket, keep, unit, lifetime, [[number, counters], …]]`` in
which each array of counters is packed into the narrowest unsigned integers that hold its largest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .axes import Axes
from .counters import Counters, Shape
from .errors import IncompatibleState
from .exact import Ints
from .state import State

MAGIC = b"GFORCE"
VERSION = 1
_WIDTHS = tuple(map(np.dtype, ("<u1", "<u2", "<u4", "<u8")))
_LARGEST = np.array([0xFF, 0xFFFF, 0xFFFF_FFFF], dtype=np.uint64)


def encode_state(state: State) -> bytes:
    """A state as bytes; equal states give equal bytes."""
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
    except (msgspec.MsgspecError, IndexError) as error:
        raise IncompatibleState(f"these {len(data)} bytes are not a G-FORCE state ({error})") from None
    if magic != MAGIC:
        raise IncompatibleState(f"these {len(data)} bytes are not a G-FORCE state: they start with {magic!r}")
    if version != VERSION:
        raise IncompatibleState(
            f"this state is of format {version} and this version reads {VERSION}: use the version that wrote it, "
            "or rebuild the state by replay"
        )
    try:
        _, _, names, bucket, keep, unit, lifetime, buckets = fields
        axes = Axes(*(tuple(part) for part in names))
        state = State(axes, bucket=bucket, keep=keep, unit=unit)
        state.lifetime = decode_counters(lifetime, axes, unit)
        state.buckets = {number: decode_counters(counters, axes, unit) for number, counters in buckets}
    except (TypeError, ValueError) as error:
        raise IncompatibleState(f"this state is damaged: {error}. Rebuild it by replay.") from None
    return state


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
    flat = np.concatenate(flats)
    spans = list(pairwise(shape.bounds))
    widths = np.stack([_widths(flat[:, start:end]) for start, end in spans])
    pattern = widths.T @ (len(_WIDTHS) ** np.arange(len(spans)))
    found = [b""] * len(flat)
    for one in np.unique(pattern):
        rows = np.nonzero(pattern == one)[0]
        alike = flat[rows]
        parts = [_packed(alike[:, start:end], int(widths[i, rows[0]])) for i, (start, end) in enumerate(spans)]
        together = np.concatenate(parts, axis=1)
        text, size = together.tobytes(), together.shape[1]
        for at, row in enumerate(rows.tolist()):
            found[row] = text[at * size : (at + 1) * size]
    return found


def _widths(numbers: Ints) -> Ints:
    """[learner]: which of the widths holds its largest number."""
    largest = numbers.view(np.uint64).max(axis=1, initial=0)  # a negative one would be the largest of all
    if (largest >= np.uint64(1 << 63)).any():
        raise IncompatibleState("a counter is negative: counters only ever grow, so this state is damaged")
    which: Ints = np.searchsorted(_LARGEST, largest)
    return which


def _packed(numbers: Ints, width: int) -> npt.NDArray[np.uint8]:
    """[learner, byte]: the width, then the numbers."""
    mark = np.full((len(numbers), 1), width, np.uint8)
    narrow = np.ascontiguousarray(numbers.astype(_WIDTHS[width]))
    return np.concatenate([mark, narrow.view(np.uint8).reshape(len(numbers), -1)], axis=1)


def decode_counters(data: bytes, axes: Axes, unit: int) -> Counters:
    counters = Counters.zeros(axes, unit=unit)
    start = 0
    for array in counters.arrays():
        start = _unpack_into(array, data, start)
    if start != len(data):
        raise IncompatibleState(f"{len(data)} bytes of counters where the axes ask for {start}")
    return counters


def _unpack_into(array: Ints, data: bytes, start: int) -> int:
    if start >= len(data) or data[start] >= len(_WIDTHS):
        raise IncompatibleState("the counters end too early or have an unknown width")
    dtype = _WIDTHS[data[start]]
    end = start + 1 + array.size * dtype.itemsize
    if end > len(data):
        raise IncompatibleState(f"{len(data)} bytes of counters where at least {end} are needed")
    array[...] = np.frombuffer(data, dtype, count=array.size, offset=start + 1).reshape(array.shape)
    return end
