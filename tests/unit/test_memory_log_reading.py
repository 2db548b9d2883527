"""What is read in memory, and what happens to those who read what retention has taken."""

from __future__ import annotations

import pytest

from processor.adapters.memory.log import MemoryReader
from processor.ports.log import OperatorActionRequiredError
from tests.contract.worlds import flat

from .memory_clients import IN, LABELS, LOG, OUT, member, new_broker, poll, producer, values


def test_deleted_records_move_the_start_and_keep_the_offsets() -> None:
    broker = new_broker()
    for i in range(5):
        broker.produce(LOG, None, b"%d" % i)
    broker.delete_records(LOG, 3)
    broker.delete_records(LOG, 1)
    reader = MemoryReader(broker)
    assert reader.bounds(LOG) == (3, 5)
    assert [record.offset for record in reader.read(LOG, 3)] == [3, 4]
    assert broker.produce(LOG, None, b"5").offset == 5
    with pytest.raises(OperatorActionRequiredError, match="offset 2 is not kept, only 3 to 6"):
        reader.read(LOG, 2)
    with pytest.raises(OperatorActionRequiredError, match="the log ends at 6"):
        broker.delete_records(LOG, 7)


def test_records_of_an_open_transaction_may_be_deleted_under_it() -> None:
    broker = new_broker()
    output = producer(broker)
    output.begin()
    output.send(LOG, None, b"0")
    output.send(LOG, None, b"1")
    broker.delete_records(LOG, 1)
    assert MemoryReader(broker).bounds(LOG) == (1, 1)
    output.abort()
    assert MemoryReader(broker).bounds(LOG) == (1, 3)
    assert values(broker, LOG) == []


def test_a_member_whose_position_was_deleted_is_stopped() -> None:
    broker = new_broker()
    reading, _ = member(broker, "a", polls=2)
    for _ in range(3):
        broker.produce(IN, None, b"")
    broker.delete_records(IN, 2)
    reading.start(IN, 1)
    with pytest.raises(OperatorActionRequiredError, match="in-0: offset 1"):
        poll(reading)


def test_a_busy_partition_does_not_starve_the_others() -> None:
    broker = new_broker()
    reading, _ = member(broker, "a", polls=2)
    for at in (IN, LABELS):
        reading.start(at, 0)
        for _ in range(10):
            broker.produce(at, None, b"")
    seen = [record.topic for _ in range(4) for record in flat(reading.poll(2, 0.0))]
    assert seen.count("in") == seen.count("labels") == 4


def test_what_is_not_assigned_cannot_be_started() -> None:
    reading, _ = member(new_broker(), "a", polls=2)
    with pytest.raises(RuntimeError, match="out-0"):
        reading.start(OUT, 0)


def test_a_read_gives_what_was_stable_when_it_was_called() -> None:
    broker = new_broker()
    broker.produce(LOG, None, b"0")
    records = MemoryReader(broker).read(LOG, 0, 10)
    broker.produce(LOG, None, b"1")
    assert [record.value for record in records] == [b"0"]


def test_records_without_a_timestamp_get_the_brokers_clock() -> None:
    assert new_broker().produce(LOG, None, b"").timestamp == 7
