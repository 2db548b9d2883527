"""What one fetch brings, in an order that a real broker gives only now and then."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from processor.adapters.kafka.assigned_input import AssignedInput, ReadState
from processor.adapters.kafka.input import UNREADABLE_RETRY_SECONDS, KafkaInput
from processor.core.stream.decode import FEEDBACK, REQUESTS
from processor.ports.log import OperatorActionRequiredError, TopicPartition

HERE, THERE = TopicPartition("requests", 0), TopicPartition("feedback", 0)


@dataclass
class Fetched:
    """Stands in for a message of confluent-kafka, which cannot be made in Python."""

    at: TopicPartition
    number: int
    end: bool = False
    code: int | None = None

    def error(self) -> KafkaError | None:
        if self.code is not None:
            return KafkaError(self.code)
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
    made._positions = {HERE: 0, THERE: 0}
    made._assigned = {at: AssignedInput(ReadState.READING) for at in (HERE, THERE)}
    made._sources = {"requests": REQUESTS, "feedback": FEEDBACK}
    made._problems = []
    made._protocol, made._clock = "classic", lambda: 0.0
    made._consumer = Watermarks()  # type: ignore[assignment]
    return made


class Watermarks:
    """Stands in for the consumer, which is asked for ends only."""

    heard, stable = 9, 9

    def get_watermark_offsets(self, *_: object, cached: bool, timeout: float) -> tuple[int, int]:
        return 0, self.heard if cached else self.stable


def record(at: TopicPartition, number: int) -> Fetched:
    return Fetched(at, number)


def end(at: TopicPartition, number: int) -> Fetched:
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
def test_an_end_holds_until_a_record_comes_after_it(fetched: list[Fetched], ended: set[TopicPartition]) -> None:
    member = reading()
    pieces = member._taken(fetched)  # type: ignore[arg-type]
    assert {at for at in (HERE, THERE) if member.ended(at)} == ended
    taken = [(piece.at, one.offset) for piece in pieces for one in piece.records]
    assert taken == [(one.at, one.number) for one in fetched if not one.end]


UNREADABLE = [KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG]


@pytest.mark.parametrize("code", UNREADABLE)
def test_a_batch_that_cannot_be_read_rests_its_partition_and_no_other(code: int) -> None:
    member = reading()
    member._taken([record(HERE, 0), end(HERE, 1)])  # type: ignore[list-item]
    pieces = member._taken([Fetched(HERE, 1, code=code), record(THERE, 0)])  # type: ignore[list-item]
    assert [piece.at for piece in pieces] == [THERE]
    member._raise_noted()
    failure = member.failure(HERE)
    assert failure is not None
    assert (failure.offset, failure.unreadable) == (1, True)
    assert "requests[0] at offset 1" in failure.why
    assert member.failure(THERE) is None
    assert not member.ended(HERE)
    assert member.lag(HERE, 1) == 8
    assert set(member._positions) == {THERE}


def test_a_batch_that_could_not_be_read_is_tried_again_and_the_failure_stands_until_something_comes() -> None:
    member = reading()
    member._taken([Fetched(HERE, 0, code=KafkaError._BAD_COMPRESSION)])  # type: ignore[list-item]
    member._try_again()
    assert HERE not in member._positions
    member._clock = lambda: UNREADABLE_RETRY_SECONDS
    member._try_again()
    assert (member._positions[HERE], member._assigned[HERE].state) == (0, ReadState.STARTING)
    assert member.failure(HERE) is not None
    member._taken([record(HERE, 0)])  # type: ignore[list-item]
    assert member.failure(HERE) is None


def test_the_offset_of_a_failure_is_the_next_to_be_read_be_the_batch_begun_or_after_markers() -> None:
    for base, offset in ((0, 2), (5, 5)):
        member = reading()
        member._positions[HERE] = 2
        member._taken([Fetched(HERE, base, code=KafkaError._BAD_COMPRESSION)])  # type: ignore[list-item]
        failure = member.failure(HERE)
        assert failure is not None
        assert failure.offset == offset


def test_another_error_of_a_partition_is_its_own_and_reading_goes_on() -> None:
    member = reading()
    member._taken([Fetched(HERE, -1, code=KafkaError.KAFKA_STORAGE_ERROR)])  # type: ignore[list-item]
    member._raise_noted()
    failure = member.failure(HERE)
    assert failure is not None
    assert not failure.unreadable
    assert HERE in member._positions


def test_what_a_person_must_act_on_is_raised() -> None:
    member = reading()
    member._taken([Fetched(HERE, -1, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)])  # type: ignore[list-item]
    with pytest.raises(OperatorActionRequiredError, match="grant this user"):
        member._raise_noted()


@pytest.mark.parametrize(
    ("heard", "stable", "asked", "unasked"), [(1, 1, False, False), (9, 1, False, True), (9, 9, True, True)]
)
def test_a_log_has_moved_on_if_its_stable_end_is_after_the_one_heard(
    heard: int, stable: int, asked: bool, unasked: bool
) -> None:
    member = reading()
    member._consumer.heard, member._consumer.stable = heard, stable  # type: ignore[attr-defined]
    assert not member.moved_on(HERE)
    member._taken([record(HERE, 0), end(HERE, 1)])  # type: ignore[list-item]
    assert (member.moved_on(HERE, ask=True), member.moved_on(HERE)) == (asked, unasked)
