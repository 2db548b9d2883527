"""A stream of requests and late labels, in the order in which they happen; pure but for ``play``, which sends it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from processor.core.exact import Floats, Ints

from .delays import NEVER, Delay
from .synthetic import Population, Shift, one_cell_experts

LABELS = ("false", "true")
"""as in the default configuration of a tenant"""
CHUNK = 1_024
START = 1_700_000_000_000
"""When a stream that is written down begins, in milliseconds: always the same, so that its bytes are too."""
UNPACED = 1_000.0
"""Cases per second that label delays refer to where nothing is paced."""

Input = Literal["requests", "feedback"]


class Case(NamedTuple):
    """Something to decide, with what turns out to be right."""

    tenant: str
    group: str
    label: int
    predictions: dict[str, str]


class Event(NamedTuple):
    """A record for one of the inputs, ``at`` milliseconds after the start."""

    at: float
    input: Input
    tenant: str
    value: bytes
    kind: str
    """request, label, repeated or contradicting"""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """How cases become events. Shares are probabilities."""

    run: str
    """first part of every decision id, so that two runs do not repeat each other"""
    delay: Delay
    """of labels, in milliseconds"""
    rate: float = 0.0
    """cases per second; 0 is as fast as possible"""
    repeated: float = 0.0
    """of requests and of labels, each sent once more"""
    contradicting: float = 0.0
    """of labels, followed by the other label"""
    seed: int = 1


def population(groups: int, experts: int) -> Population:
    """Groups of falling size and base rate; each expert is perfect on one group and label and guesses elsewhere."""
    share = 1.0 / np.arange(1, groups + 1)
    positive = np.linspace(0.7, 0.3, groups) if groups > 1 else np.array([0.5])
    cells = one_cell_experts(groups, len(LABELS))
    return Population(
        share=share / share.sum(),
        base_rate=np.stack([1.0 - positive, positive], axis=1),
        error=cells[np.arange(experts) % len(cells)],
    )


def synthetic_cases(
    people: Population, tenants: int, count: int, seed: int, shift: Shift | None = None
) -> Iterator[Case]:
    """Cases of tenants ``tenant-0`` and on, in random order; while a shift lasts, of its people."""
    rng = np.random.default_rng([seed, 1])
    experts = [f"expert-{number}" for number in range(people.error.shape[0])]
    start = 0
    while start < count:
        size = int(min(CHUNK, count - start, shift.next_change(start) - start if shift else CHUNK))
        source = shift.people if shift and shift.lasts(start) else people
        drawn = source.draw(rng, 1, size)
        names = [f"tenant-{number}" for number in rng.integers(0, tenants, size)]
        yield from cases(names, [_letter(g) for g in drawn.group[0]], drawn.label[0], drawn.predictions[0], experts)
        start += size


def _letter(group: int) -> str:
    """
    >>> [_letter(number) for number in (0, 1, 25, 26)]
    ['A', 'B', 'Z', 'A1']
    """
    return chr(ord("A") + group % 26) + (str(group // 26) if group >= 26 else "")


def cases(
    tenants: Iterable[str], groups: Iterable[str], label: Ints, predictions: Ints, experts: list[str]
) -> Iterator[Case]:
    """Cases from arrays: ``label[t]`` and ``predictions[t, f]`` are indices into ``LABELS``."""
    for tenant, group, right, said in zip(tenants, groups, label.tolist(), predictions.tolist(), strict=True):
        yield Case(tenant, group, right, {e: LABELS[y] for e, y in zip(experts, said, strict=True) if y >= 0})


def scheduled(stream: Iterable[Case], traffic: Traffic) -> Iterator[Event]:
    """Requests at an even pace, and every label when its time has come.

    >>> case = Case("t", "A", 1, {"e": "true"})
    >>> [event.kind for event in scheduled([case, case], Traffic(run="x", delay=Delay.parse("fixed:1")))]
    ['request', 'label', 'request', 'label']
    """
    rng = np.random.default_rng([traffic.seed, 2])
    delays = _drawn(lambda: traffic.delay.draw(rng, (CHUNK,)))
    repeated = _drawn(lambda: _hits(rng.random(CHUNK), traffic.repeated))
    contradicting = _drawn(lambda: _hits(rng.random(CHUNK), traffic.contradicting))
    gap = 1_000.0 / (traffic.rate or UNPACED)
    waiting: list[tuple[float, int, Event]] = []
    for number, case in enumerate(stream):
        now = number * gap
        while waiting and waiting[0][0] <= now:
            yield heappop(waiting)[2]
        identity = f"{traffic.run}-{number}"
        yield from _requests(now, identity, case, next(repeated))
        delay, again, contradicts = next(delays), next(repeated), next(contradicting)
        if delay != NEVER:
            for order, event in enumerate(_labels(now + delay, identity, case, again, contradicts)):
                heappush(waiting, (event.at, number * 4 + order, event))
    while waiting:
        yield heappop(waiting)[2]


def _requests(at: float, identity: str, case: Case, again: int) -> Iterator[Event]:
    content = {"tenant": case.tenant, "decision_id": identity, "group": case.group, "predictions": case.predictions}
    value = msgspec.json.encode(content)
    yield Event(at, "requests", case.tenant, value, "request")
    if again:
        yield Event(at, "requests", case.tenant, value, "repeated")


def _labels(at: float, identity: str, case: Case, again: int, contradicts: int) -> Iterator[Event]:
    def label(right: int, kind: str) -> Event:
        content = {"tenant": case.tenant, "decision_id": identity, "label": LABELS[right]}
        return Event(at, "feedback", case.tenant, msgspec.json.encode(content), kind)

    yield label(case.label, "label")
    if again:
        yield label(case.label, "repeated")
    if contradicts:
        yield label(1 - case.label, "contradicting")


def line_of(event: Event) -> bytes:
    """An event as a line for ``gforce run --embedded``, with the time at which it happens.

    >>> line_of(Event(35.0, "feedback", "t", b'{"label":"true"}', "label"))
    b'{"topic":"feedback","key":"t","payload":{"label":"true"},"ts":1700000000035}\\n'
    """
    record = {"topic": event.input, "key": event.tenant, "payload": msgspec.Raw(event.value)}
    return msgspec.json.encode({**record, "ts": START + int(event.at)}) + b"\n"


def _drawn(draw: Callable[[], Ints]) -> Iterator[int]:
    """One by one what is drawn many at a time."""
    while True:
        yield from draw().tolist()


def _hits(rolls: Floats, share: float) -> Ints:
    hits: Ints = (rolls < share).astype(np.int64)
    return hits


class Sender(Protocol):
    """What ``play`` needs of a producer."""

    def send(self, topic: str, key: bytes | None, value: bytes | None) -> None: ...

    def poll(self, timeout: float) -> None: ...

    def flush(self) -> None: ...


def play(
    events: Iterable[Event],
    sender: Sender,
    topics: dict[Input, str],
    paced: bool,
    sent: Callable[[Event], None] = lambda event: None,
    clock: Callable[[], float] = time.monotonic,
) -> Counter[str]:
    """Send every event when it happens, or as fast as possible; how many there were of each kind."""
    start = clock()
    counts: Counter[str] = Counter()
    for event in events:
        while paced and (left := start + event.at / 1_000 - clock()) > 0:
            sender.poll(min(left, 0.5))
            if (left := start + event.at / 1_000 - clock()) > 0:
                time.sleep(min(left, 0.02))
        sender.send(topics[event.input], event.tenant.encode(), event.value)
        counts[event.kind] += 1
        sent(event)
    sender.flush()
    return counts
