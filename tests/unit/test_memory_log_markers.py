"""The markers of a transaction land one by one, in any order, and nobody sees more than has landed."""

from __future__ import annotations

import pytest

from processor.adapters.memory.log import MemoryOutput, MemoryReader
from processor.ports.log import Committed, FencedError, RetryableError

from .memory_clients import GROUP, IN, LABELS, LOG, NOBODY, OUT, member, new_broker, poll, producer, send_batch, values


def test_the_markers_of_a_commit_land_one_by_one() -> None:
    broker = new_broker(manual_markers=True)
    reader, (reading, diary) = MemoryReader(broker), member(broker, "a", polls=2)
    output = producer(broker)
    send_batch(output, diary.membership)
    assert broker.pending_markers() == []
    assert output.commit() == {OUT: 0, LOG: 0}
    assert [marker.where for marker in broker.pending_markers()] == [OUT, LOG, GROUP]
    assert all(marker.commit for marker in broker.pending_markers())

    broker.land_marker(1)
    assert (values(broker, OUT), values(broker, LOG)) == ([], [b"log"])
    assert (reader.bounds(OUT), reader.bounds(LOG)) == ((0, 0), (0, 2))
    with pytest.raises(RetryableError):
        reading.committed([IN])

    broker.land_marker(1)
    assert reading.committed([IN]) == {IN: Committed(1, "said")}
    assert values(broker, OUT) == []
    broker.land_marker(0)
    assert values(broker, OUT) == [b"out"]


def test_a_decided_transaction_cannot_be_undone_while_its_markers_land() -> None:
    broker = new_broker(manual_markers=True)
    output = producer(broker)
    send_batch(output, NOBODY)
    output.commit()
    with pytest.raises(RetryableError, match="still landing"):
        MemoryOutput(broker, "a").open()
    broker.expire_transaction("a")
    broker.land_markers()
    MemoryOutput(broker, "a").open()
    assert values(broker, OUT) == [b"out"]


def test_a_producer_waits_for_its_own_markers_before_it_begins_again() -> None:
    broker = new_broker(manual_markers=True)
    output = producer(broker)
    send_batch(output, NOBODY)
    output.commit()
    broker.land_marker(0)
    with pytest.raises(RetryableError):
        output.begin()
    broker.land_markers()
    output.begin()


def test_opening_aborts_and_fences_at_once_but_waits_for_the_abort_markers() -> None:
    broker = new_broker(manual_markers=True)
    older, newer = producer(broker), MemoryOutput(broker, "a")
    send_batch(older, NOBODY)
    with pytest.raises(RetryableError):
        newer.open()
    with pytest.raises(FencedError):
        older.commit()
    assert not any(marker.commit for marker in broker.pending_markers())
    broker.land_markers()
    newer.open()
    assert values(broker, OUT) == []
    assert MemoryReader(broker).bounds(OUT) == (0, 2)


def test_the_stable_end_stays_before_an_open_transaction_for_members_and_readers() -> None:
    broker = new_broker()
    reading, _ = member(broker, "a", polls=2)
    reading.start(IN, 0)
    output = producer(broker)
    broker.produce(IN, None, b"0")
    output.begin()
    output.send(IN, None, b"1")
    broker.produce(IN, None, b"2")
    assert MemoryReader(broker).bounds(IN) == (0, 1)
    assert [record.value for record in poll(reading, times=3)] == [b"0"]
    output.abort()
    assert [(record.offset, record.value) for record in poll(reading)] == [(2, b"2")]
    assert MemoryReader(broker).bounds(IN) == (0, 4)


def test_positions_sent_later_win_even_if_their_marker_lands_first() -> None:
    broker = new_broker(manual_markers=True)
    first, second = producer(broker, "a"), producer(broker, "b")
    for output, offset in ((first, 1), (second, 2)):
        output.begin()
        output.send_offsets({IN: Committed(offset, "")}, NOBODY)
        output.commit()
    broker.land_marker(1)
    assert broker.committed_unstable(GROUP, [IN]) == {IN: Committed(2, "")}
    broker.land_marker(0)
    assert broker.committed(GROUP, [IN]) == {IN: Committed(2, "")}


def test_committed_waits_only_for_the_partitions_it_was_asked_for() -> None:
    broker = new_broker()
    output = producer(broker)
    output.begin()
    output.send_offsets({IN: Committed(1, "")}, NOBODY)
    assert broker.committed(GROUP, [LABELS]) == {LABELS: None}
    with pytest.raises(RetryableError):
        broker.committed(GROUP, [LABELS, IN])


def test_committed_unstable_does_not_wait_and_tells_the_past() -> None:
    broker = new_broker(manual_markers=True)
    reading, diary = member(broker, "a", polls=2)
    output = producer(broker)
    send_batch(output, diary.membership)
    output.commit()
    assert reading.committed_unstable([IN]) == {IN: None}
    broker.land_markers()
    assert reading.committed_unstable([IN]) == {IN: Committed(1, "said")}


def test_the_offsets_of_a_group_can_expire() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    output.commit()
    broker.expire_group_offsets(GROUP)
    assert broker.committed(GROUP, [IN]) == {IN: None}
