"""Producers in memory: who is fenced, what a group refuses from them, and what it does not check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from processor.adapters.memory.log import MemoryOutput
from processor.ports.log import Committed, FencedError, OperatorActionRequiredError, RetryableError, TopicPartition

from .memory_clients import GROUP, IN, NOBODY, OUT, member, new_broker, poll, producer, send_batch, values

# producers


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    assert broker.open_transactions() == ["a"]
    broker.expire_transaction("a")
    assert broker.open_transactions() == []
    assert broker.committed(GROUP, [IN]) == {IN: None}
    with pytest.raises(FencedError):
        output.commit()
    output.open()
    send_batch(output, NOBODY)
    output.commit()
    assert values(broker, OUT) == [b"out"]


def test_nothing_expires_where_nothing_is_open() -> None:
    broker = new_broker()
    output = producer(broker)
    broker.expire_transaction("a")
    send_batch(output, NOBODY)
    output.commit()
    assert values(broker, OUT) == [b"out"]


CALLS: dict[str, Callable[[MemoryOutput], object]] = {
    "send": lambda output: output.send(OUT, None, b"zombie"),
    "send_offsets": lambda output: output.send_offsets({IN: Committed(9, "")}, NOBODY),
    "commit": lambda output: output.commit(),
    "abort": lambda output: output.abort(),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_a_fenced_producer_is_refused(call: str) -> None:
    broker = new_broker()
    older = producer(broker)
    older.begin()
    producer(broker)
    with pytest.raises(FencedError):
        CALLS[call](older)
    assert broker.partition(OUT).end == 0


def test_begin_of_a_fenced_producer_is_refused() -> None:
    broker = new_broker()
    older = producer(broker)
    producer(broker)
    with pytest.raises(FencedError):
        older.begin()


def test_calls_out_of_order_are_mistakes_of_the_program() -> None:
    output = MemoryOutput(new_broker(), "a")
    with pytest.raises(FencedError, match="open"):
        output.begin()
    output.open()
    with pytest.raises(RuntimeError, match="idle"):
        output.commit()
    output.begin()
    with pytest.raises(RuntimeError, match="active"):
        output.begin()


def test_a_failed_send_leaves_a_transaction_that_can_be_aborted() -> None:
    broker = new_broker()
    output = producer(broker)
    output.begin()
    with pytest.raises(OperatorActionRequiredError, match="no topic"):
        output.send(TopicPartition("nowhere", 0), None, b"")
    with pytest.raises(OperatorActionRequiredError, match="no partition 7"):
        output.send(TopicPartition("out", 7), None, b"")
    output.abort()
    output.begin()
    assert output.commit() == {}


# the group's checks


def test_a_classic_group_accepts_offsets_from_nobody() -> None:
    broker = new_broker()
    member(broker, "a", polls=2)
    output = producer(broker, "stranger")
    send_batch(output, NOBODY, offset=99)
    output.commit()
    assert broker.committed(GROUP, [IN]) == {IN: Committed(99, "said")}


def test_a_group_does_not_check_who_owns_the_partitions() -> None:
    broker = new_broker()
    (first, mine), (second, theirs) = member(broker, "a"), member(broker, "b")
    poll(first, second, times=4)
    assert IN in mine.owned
    assert IN not in theirs.owned
    output = producer(broker, "b")
    send_batch(output, theirs.membership)
    output.commit()
    assert broker.committed(GROUP, [IN]) == {IN: Committed(1, "said")}


def test_offsets_already_sent_are_committed_though_the_generation_has_moved_on() -> None:
    broker = new_broker()
    _, diary = member(broker, "a", polls=2)
    output = producer(broker)
    send_batch(output, diary.membership)
    broker.expire_session("a")
    other, others = member(broker, "b", polls=2)
    assert IN in others.owned
    with pytest.raises(RetryableError):
        other.committed([IN])
    output.commit()
    assert other.committed([IN]) == {IN: Committed(1, "said")}


def test_a_member_may_commit_until_it_has_rejoined() -> None:
    broker = new_broker()
    first, diary = member(broker, "a", polls=2)
    second, _ = member(broker, "b", polls=1)
    output = producer(broker)
    send_batch(output, diary.membership)
    output.commit()
    poll(first, second)
    send_batch_again = producer(broker)
    send_batch_again.begin()
    with pytest.raises(FencedError, match="generation 1"):
        send_batch_again.send_offsets({IN: Committed(2, "")}, diary.membership)
