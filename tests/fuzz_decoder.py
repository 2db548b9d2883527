"""Throw damaged events at the decoders: ``python -m tests.fuzz_decoder --inputs 100000``.

Anything but an event or ``RejectedEventError`` is a failure, and so is an event that does not come back the same, or
that a batch, which the native tier decodes with a memory of what was said before, takes otherwise.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from processor.core.events import Limits, RejectedEventError, RequestEvent, decode_feedback, decode_request
from processor.core.stream.decode import InputRecord, StreamSettings, decode, split_by_source
from tests.unit.bad_events import BAD_EVENTS, VALID

DECODERS: dict[str, Callable[[bytes | None, Limits], Any]] = {
    "request": decode_request,
    "feedback": decode_feedback,
}
SOURCES = {"request": "requests", "feedback": "feedback"}
PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\\u0000", b"\\ud800", b"\xff", b"\x7f", b"NaN", b"1e999",
    b"null", b"true", b"9" * 400, b"[" * 70, b"\xef\xbb\xbf", b"\xc2\x85", b'"tenant":', b'"predictions":{}', b"-0",
]  # fmt: skip
WIDE = msgspec.json.encode(
    {"tenant": "t", "decision_id": "1", "group": "A", "predictions": {f"m{n}": n % 3 > 0 for n in range(20)}}
)
"""So many experts that what they say is remembered in pieces."""
SMALL = [bad.value for bad in BAD_EVENTS if bad.value and len(bad.value) < 2_000]


def damaged(rng: random.Random) -> bytes:
    """A valid or bad event with up to six changes, or only noise."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(rng.choice([*VALID.values(), WIDE]) if rng.random() < 0.7 else rng.choice(SMALL))
    for _ in range(rng.randrange(7)):
        at, end = sorted(rng.choices(range(len(data) + 1), k=2))
        change = rng.randrange(4)
        if change == 0 and at < len(data):
            data[at] = rng.randrange(256 if rng.random() < 0.1 else 128)
        elif change == 1:
            del data[at : min(end, at + 8)]
        elif change == 2:
            data[at:at] = rng.choice(PIECES)
        else:
            data[at:at] = data[at:end][:40]
    return bytes(data)


def try_one(value: bytes | None, limits: Limits, kind: str) -> str:
    """The reason of the refusal, or ``accepted``."""
    try:
        event = DECODERS[kind](value, limits)
    except RejectedEventError as refused:
        if len(refused.detail) >= 200:
            raise AssertionError("a detail is for people: keep it short") from None
        batched = read_in_batches(value, limits, kind)
        if not isinstance(batched, RejectedEventError) or (batched.reason, batched.detail) != (
            refused.reason,
            refused.detail,
        ):
            raise AssertionError("refused otherwise in a batch") from None
        return refused.reason.value
    again = DECODERS[kind](msgspec.json.encode(content(event)), limits)
    assert content(again) == content(event), "an accepted event must come back the same"
    batched = read_in_batches(value, limits, kind)
    assert not isinstance(batched, RejectedEventError), "refused in a batch"
    assert content(batched) == content(event), "read otherwise in a batch"
    return "accepted"


def read_in_batches(value: bytes | None, limits: Limits, kind: str) -> msgspec.Struct | RejectedEventError:
    """Alone and between good ones, which must not suffer from it."""
    good = VALID[kind]
    in_a_batch([WIDE if kind == "request" else good], limits, kind)
    [alone], (before, event, after) = in_a_batch([value], limits, kind), in_a_batch([good, value, good], limits, kind)
    expected = content(DECODERS[kind](good, limits))
    assert content(before) == content(after) == expected, "a good event beside a bad one is read otherwise"
    assert isinstance(alone, RejectedEventError) == isinstance(event, RejectedEventError), "judged by its neighbours"
    return event


def in_a_batch(values: Sequence[bytes | None], limits: Limits, kind: str = "request") -> list[Any]:
    """What each value of a batch is decoded to: an event, or why it is refused."""
    raws = []
    for offset, value in enumerate(values):
        try:
            key = DECODERS[kind](value, limits).tenant.encode()
        except RejectedEventError:
            key = b""
        raws.append(InputRecord(SOURCES[kind], offset, 0, key, value))
    batch = decode(*split_by_source(raws), 0, 1, 0, StreamSettings(limits, lambda name: None, 0, 60_000), set())
    found: dict[int, Any] = {raw.offset: event for raw, event, _ in (*batch.requests, *batch.feedback)}
    found |= {letter.raw.offset: RejectedEventError(letter.reason, letter.detail) for letter in batch.refused}
    return [found[offset] for offset in range(len(values))]


def content(event: msgspec.Struct) -> dict[str, object]:
    """All but the context, which comes back as it was written and not as it was read."""
    if isinstance(event, RequestEvent):
        said = {"group": event.group, "predictions": event.predictions, "content": event.advice.content(b"")}
        return {"tenant": event.tenant, "decision_id": event.decision_id, **said}
    return msgspec.structs.asdict(event)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng, limits, counts, slowest = random.Random(chosen.seed), Limits(), Counter[str](), 0.0
    for _ in range(chosen.inputs):
        value, kind = damaged(rng), rng.choice(list(DECODERS))
        start = time.perf_counter()
        try:
            counts[try_one(value, limits, kind)] += 1
        except BaseException:
            print(f"failed on this {kind}: {value!r}")
            raise
        slowest = max(slowest, time.perf_counter() - start)
    for reason, count in counts.most_common():
        print(f"{count:>10}  {reason}")
    print(f"slowest {slowest * 1000:.1f} ms")


if __name__ == "__main__":
    main()
