"""What one fetch brings, in an order that a real broker gives only now and then."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from processor.adapters.kafka.input import KafkaInput
from processor.adapters.log import At
from processor.core.stream.batch import FEEDBACK, REQUESTS

HERE, THERE = At("requests", 0), At("feedback", 0)


@dataclass
class Fetched:
    """Stands in for a message of confluent-kafka, which cannot be made in Python."""

    at: At
    number: int
    end: bool = False

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.end else None

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes:
        return b"acme"

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> None:
        return None


def reading() -> KafkaInput:
    """Both partitions started at their beginning."""
    made = KafkaInput.__new__(KafkaInput)
    made._next, made._at_end = {HERE: 0, THERE: 0}, set()
    made._sources = {"requests": REQUESTS, "feedback": FEEDBACK}
    return made


def record(at: At, number: int) -> Fetched:
    return Fetched(at, number)


def end(at: At, number: int) -> Fetched:
    return Fetched(at, number, end=True)


@pytest.mark.parametrize(
    ("fetched", "ended"),
    [
        ([record(HERE, 0), end(HERE, 1)], {HERE}),
        ([record(HERE, 0), end(HERE, 1), record(THERE, 0)], {HERE}),
        ([record(HERE, 0), record(THERE, 0), end(HERE, 1), end(THERE, 1)], {HERE, THERE}),
        ([end(HERE, 0), record(THERE, 0)], {HERE}),
        ([record(HERE, 0), end(HERE, 1), record(HERE, 1)], set()),
        ([record(HERE, 0), end(THERE, 0), record(HERE, 1), end(HERE, 2)], {HERE, THERE}),
    ],
)
def test_an_end_holds_until_a_record_comes_after_it(fetched: list[Fetched], ended: set[At]) -> None:
    member = reading()
    pieces = member._taken(fetched)  # type: ignore[arg-type]
    assert {at for at in (HERE, THERE) if member.ended(at)} == ended
    taken = [(piece.at, one.offset) for piece in pieces for one in piece.records]
    assert taken == [(one.at, one.number) for one in fetched if not one.end]
