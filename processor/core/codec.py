"""The bytes of a state: versioned, compact, and the same for the same counts.

A MessagePack array ``[b"GFORCE", version, names, bucket, keep, unit, lifetime, [[number, counters], …]]`` in
which each array of counters is packed into the narrowest unsigned integers that hold its largest value.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from .axes import Axes
from .counters import Counters
from .errors import IncompatibleState
from .exact import Ints
from .state import State

MAGIC = b"GFORCE"
VERSION = 1
_WIDTHS = tuple(map(np.dtype, ("<u1", "<u2", "<u4", "<u8")))
_MARKS = (b"\x00", b"\x01", b"\x02", b"\x03")


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
    return b"".join(_pack(array) for array in counters.arrays())


def decode_counters(data: bytes, axes: Axes, unit: int) -> Counters:
    counters = Counters.zeros(axes, unit=unit)
    start = 0
    for array in counters.arrays():
        start = _unpack_into(array, data, start)
    if start != len(data):
        raise IncompatibleState(f"{len(data)} bytes of counters where the axes ask for {start}")
    return counters


def _pack(array: Ints) -> bytes:
    largest = int(array.view(np.uint64).max(initial=0))  # a negative one would be the largest of all
    if largest >= 1 << 63:
        raise IncompatibleState("a counter is negative: counters only ever grow, so this state is damaged")
    width = (largest > 0xFF) + (largest > 0xFFFF) + (largest > 0xFFFF_FFFF)
    return _MARKS[width] + array.astype(_WIDTHS[width]).tobytes()


def _unpack_into(array: Ints, data: bytes, start: int) -> int:
    if start >= len(data) or data[start] >= len(_WIDTHS):
        raise IncompatibleState("the counters end too early or have an unknown width")
    dtype = _WIDTHS[data[start]]
    end = start + 1 + array.size * dtype.itemsize
    if end > len(data):
        raise IncompatibleState(f"{len(data)} bytes of counters where at least {end} are needed")
    array[...] = np.frombuffer(data, dtype, count=array.size, offset=start + 1).reshape(array.shape)
    return end
