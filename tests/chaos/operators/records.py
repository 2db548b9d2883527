"""Records that are too large to be fetched, and records that somebody else wrote into our topics."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from .registry import scenario
from .stage import Stage

STALL_SECONDS = 6
MARGIN = 6.0
"""seconds beyond ``stall_seconds`` in which it must be reported"""
BIG = 0
STRAY = 1


@scenario
def oversized_90_mb(stage: Stage) -> None:
    """A record of 90 MB of zeros, small on the wire: a dead letter (too-large) or reported, and never silent."""
    _oversized(stage, 90_000_000)


@scenario
def oversized_150_mb(stage: Stage) -> None:
    """A record of 150 MB of zeros, which no fetch can hold: reported with its offset, then skipped by hand."""
    _oversized(stage, 150_000_000)


def _oversized(stage: Stage, size: int) -> None:
    stage.open({"processing": {"stall_seconds": STALL_SECONDS}})
    stage.unhealthy = {BIG}
    stage.run()
    stage.load()
    time.sleep(2)
    topic = stage.sender.topics[0]
    offset = _produce_zeros(stage, topic, stage.tenants[BIG][0].encode(), size)
    since = time.monotonic()
    passed = stage.wait(
        lambda: _is_dead(stage, topic, offset) or _is_reported(stage, topic, offset), STALL_SECONDS + MARGIN
    )
    took = time.monotonic() - since
    state, trouble, _ = stage.states().get(BIG, ("owned by nobody", "", None))
    if _is_dead(stage, topic, offset):
        stage.see(f"dead letter too-large after {took:.1f} s")
        return
    stage.see(f"{BIG} {state}: {trouble[:200]}")
    why = f"neither a dead letter nor a reason with topic and offset {offset} within {STALL_SECONDS} s + {MARGIN:.0f} s"
    stage.check(passed, f"{why}: {state} {trouble!r}")
    answer = stage.skip(BIG, "requests", offset)
    stage.see(f"gforce skip exits {answer.returncode} after {took:.1f} s")
    stage.check(
        answer.returncode == 0, f"gforce skip exits {answer.returncode}: {(answer.stdout + answer.stderr)[-300:]}"
    )
    time.sleep(3)
    stage.loads[-1].stop()
    stage.wait(stage.decided, 20)
    stage.audit()


def _produce_zeros(stage: Stage, topic: str, key: bytes, size: int) -> int:
    """Its offset."""
    producer = Producer(
        {
            **stage.properties,
            "compression.type": "zstd",
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "partitioner": "murmur2_random",
        }
    )
    places: list[int] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            places.append(message.offset() or 0)

    producer.produce(topic, bytes(size), key, on_delivery=report)
    producer.flush(60)
    if not places:
        raise RuntimeError(f"the broker did not take a record of {size} zeros")
    return places[0]


def _is_dead(stage: Stage, topic: str, offset: int) -> bool:
    letters = stage.deployment.dead_letters()
    return any(
        place.topic == topic and place.offset == offset and letter.header("gforce.reason") == "too-large"
        for place, letter in letters.items()
    )


def _is_reported(stage: Stage, topic: str, offset: int) -> bool:
    state, trouble, _ = stage.states().get(BIG, ("", "", None))
    return state != "ready" and topic in trouble and str(offset) in trouble


@scenario
def stray_records(stage: Stage) -> None:
    """Text, JSON and random bytes in changelog and journal, then Redis is lost: recovered, with warnings."""
    stage.open()
    stage.quiet = 20.0  # it is stopped and started
    stage.run()
    load = stage.load()
    time.sleep(3)
    first = _write_strays(stage)
    time.sleep(2)
    stage.flush([STRAY])  # while it runs
    time.sleep(4)
    stage.stop_processors()
    last = _write_strays(stage)
    stage.flush()
    stage.start_again()
    stage.wait(lambda: len(stage.ready()) == stage.partitions, 30)
    time.sleep(3)
    load.stop()
    stage.wait(stage.decided, 20)
    # A recovery reads the changelog up to the committed batch, and the end of the journal.
    for role, offset in [*(s for s in first if s[0] == "changelog"), *(s for s in last if s[0] == "journal")]:
        lines = [line for line in stage.logged(stage.deployment.topic(role), level="warning") if _names(line, offset)]
        stage.check(lines, f"no warning names {role} [{STRAY}] at {offset}")
    stage.see(f"{len(stage.logged('foreign record'))} lines about foreign records")
    stage.reported(STRAY, fails=False)  # a warning: they do no harm
    journal = [str(offset) for role, offset in [*first, *last] if role == "journal"]
    answer, _ = stage.audited()
    stage.see(f"audit exits {answer.returncode}")
    missing = [offset for offset in journal if offset not in answer.stdout + answer.stderr]
    stage.check(not missing, f"the audit does not name the journal's records at {', '.join(missing)}")


def _names(line: dict[str, Any], offset: int) -> bool:
    """Whether a line of the log says the partition and this offset, as fields or in words."""
    text = " ".join(str(value) for name, value in line.items() if name not in ("ts", "partition", "offset"))
    there = line.get("partition") == STRAY or f"[{STRAY}]" in text or f"partition {STRAY}" in text
    return there and (line.get("offset") == offset or re.search(rf"\b{offset}\b", text) is not None)


def _write_strays(stage: Stage) -> list[tuple[str, int]]:
    """Role and offset of what somebody's test producer wrote."""
    written = []
    for role in ("changelog", "journal"):
        for value in (b"hello, is anybody there?", b'{"form": 1, "hello": "world"}', os.urandom(300)):
            places = stage.deployment.send(role, [(b"test", value)], partition=STRAY)
            written.append((role, places[0].offset))
    return written
