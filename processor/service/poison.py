"""Nothing a producer sends stops a partition: a step that fails is bisected to the records at fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from processor.core.stream.expiry import DueSlot
from processor.core.stream.partition import Partition
from processor.core.stream.step import (
    DecodedBatch,
    InputRecord,
    StepResult,
    StreamSettings,
    decode,
    split_by_source,
    step,
)

Poison = set[tuple[str, int]]
"""Records at fault: (input, offset)."""


def step_around_faults(
    partition: Partition,
    taken: tuple[list[InputRecord], list[InputRecord]],
    asked: DecodedBatch,
    entries: Mapping[bytes, bytes | None],
    due: Mapping[int, DueSlot],
    clock: int,
    now: int,
    stream_settings: StreamSettings,
    report: Callable[[Exception], None],
    poison: Poison,
    acknowledged: Sequence[tuple[str, int]] = (),
) -> StepResult:
    """Step; should that fail, find the records at fault and step without them. Requests and labels were taken.

    ``poison`` are those found before, which ``asked`` is without; what is found now is added to them.
    """
    try:
        return step(partition, asked, entries, due, clock, stream_settings, acknowledged)
    except Exception as error:  # the boundary that keeps a partition moving
        report(error)
    poison |= _bisect(partition, [*taken[0], *taken[1]], entries, clock, now, stream_settings, poison)
    without = decode(*taken, partition.number, partition.partitions, now, stream_settings, poison)
    return step(partition, without, entries, due, clock, stream_settings, acknowledged)


def _bisect(
    partition: Partition,
    raws: Sequence[InputRecord],
    entries: Mapping[bytes, bytes | None],
    clock: int,
    now: int,
    stream_settings: StreamSettings,
    known: Poison,
) -> Poison:
    """The records that fail by themselves or together with the good ones before them."""
    poison = set(known)

    def fails(part: Sequence[InputRecord]) -> bool:
        asked = decode(*split_by_source(part), partition.number, partition.partitions, now, stream_settings, poison)
        try:
            step(partition, asked, entries, {}, clock, stream_settings)
        except Exception:
            return True
        return False

    good: list[InputRecord] = []
    pieces = [list(raws)]
    while pieces:
        piece = pieces.pop()
        if not fails(good + piece):
            good += piece
        elif len(piece) == 1:
            poison.add((piece[0].source, piece[0].offset))
        else:
            middle = len(piece) // 2
            pieces += [piece[middle:], piece[:middle]]
    return poison
