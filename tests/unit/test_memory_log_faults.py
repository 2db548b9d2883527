"""A call may be lost on its way or on its way back: what is there then, and how to go on."""

from __future__ import annotations

import pytest

from processor.adapters.memory.log import MemoryReader
from processor.ports.log import Committed, CommitUnknownError, FencedError, RetryableError, TransactionAbortedError

from .memory_clients import GROUP, IN, NOBODY, OUT, member, new_broker, poll, producer, send_batch, values


class Fault:
    """A hook that raises once, at the named moment, and remembers all calls."""

    def __init__(self, moment: str, error: Exception) -> None:
        self.moment, self.error = moment, error
        self.calls: list[tuple[str, str]] = []

    def __call__(self, process: str, moment: str) -> None:
        self.calls.append((process, moment))
        if moment == self.moment:
            self.moment = ""
            raise self.error


def test_when_the_answer_to_a_commit_is_lost_the_effect_is_there() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("commit:after", CommitUnknownError("lost"))
    with pytest.raises(CommitUnknownError):
        output.commit()
    assert values(broker, OUT) == [b"out"]
    assert broker.committed(GROUP, [IN]) == {IN: Committed(1, "said")}


def test_when_the_request_to_commit_is_lost_nothing_is_there_and_opening_aborts() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("commit:before", CommitUnknownError("lost"))
    with pytest.raises(CommitUnknownError):
        output.commit()
    with pytest.raises(RetryableError):
        broker.committed(GROUP, [IN])
    output.open()
    assert broker.committed(GROUP, [IN]) == {IN: None}
    assert values(broker, OUT) == []


@pytest.mark.parametrize("moment", ["commit:before", "commit:after"])
def test_after_unknown_a_producer_is_finished_until_it_is_opened_again(moment: str) -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault(moment, CommitUnknownError("lost"))
    with pytest.raises(CommitUnknownError):
        output.commit()
    output.abort()
    with pytest.raises(FencedError, match="finished"):
        output.commit()
    output.open()
    assert values(broker, OUT) == ([b"out"] if moment == "commit:after" else [])


@pytest.mark.parametrize("moment", ["abort:before", "abort:after"])
def test_after_an_abort_that_failed_too(moment: str) -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault(moment, RetryableError("lost"))
    with pytest.raises(RetryableError):
        output.abort()
    with pytest.raises(FencedError, match="finished"):
        output.begin()
    output.open()
    assert values(broker, OUT) == []
    assert MemoryReader(broker).bounds(OUT) == (0, 2)


def test_a_commit_that_must_be_rewound_can_be_aborted() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("commit:before", TransactionAbortedError("not now"))
    with pytest.raises(TransactionAbortedError):
        output.commit()
    output.abort()
    send_batch(output, NOBODY)
    output.commit()
    assert values(broker, OUT) == [b"out"]


def test_closing_aborts_and_never_fails() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("abort:before", RetryableError("lost"))
    output.close()
    assert broker.open_transactions() == ["a"]
    output.open()
    send_batch(output, NOBODY)
    output.close()
    assert broker.open_transactions() == []
    assert values(broker, OUT) == []


def test_when_the_answer_to_open_is_lost_the_caller_has_fenced_itself() -> None:
    broker = new_broker()
    output = producer(broker)
    broker.hook = Fault("open:after", RetryableError("lost"))
    with pytest.raises(RetryableError):
        output.open()
    with pytest.raises(FencedError):
        output.begin()
    output.open()
    output.begin()


def test_when_the_answer_to_a_poll_is_lost_the_records_come_again() -> None:
    broker = new_broker()
    reading, _ = member(broker, "a", polls=2)
    reading.start(IN, 0)
    broker.produce(IN, None, b"0")
    broker.hook = Fault("poll:after", RetryableError("lost"))
    with pytest.raises(RetryableError):
        poll(reading)
    assert [record.value for record in poll(reading, times=2)] == [b"0"]


def test_the_hook_sees_every_call_that_reaches_the_broker_and_who_makes_it() -> None:
    broker = new_broker()
    fault = Fault("", ValueError())
    broker.hook = fault
    reading, diary = member(broker, "a", polls=2)
    output, reader = producer(broker, "b"), MemoryReader(broker, "c")
    send_batch(output, diary.membership)
    output.commit()
    output.begin()
    output.abort()
    reading.committed([IN])
    reader.bounds(IN)
    reader.read(IN, 0)
    reader.partitions("in")
    reading.close()
    before = [(who, moment.split(":")[0]) for who, moment in fault.calls if moment.endswith(":before")]
    assert before == [
        *[("a", "poll")] * 2,
        *[("b", call) for call in ("open", "send", "send", "send_offsets", "commit", "abort")],
        ("a", "committed"),
        *[("c", call) for call in ("bounds", "read", "partitions")],
        ("a", "close"),
    ]
    assert len(fault.calls) == 2 * len(before)
