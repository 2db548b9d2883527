"""What only the model can show: every order of events that Kafka allows, one step at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from processor.adapters.log import At, Committed, Fenced, Membership, Record, Retry, Rewind, Stop, Unknown
from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from tests.contract.worlds import Diary, flat, named

IN, LABELS, OUT, LOG = At("in", 0), At("labels", 0), At("out", 0), At("log", 0)
GROUP = "group"


def new_broker(manual_markers: bool = False) -> MemoryBroker:
    broker = MemoryBroker(clock=lambda: 7, manual_markers=manual_markers)
    for name, partitions in (("in", 4), ("labels", 4), ("out", 1), ("log", 1)):
        broker.create_topic(name, partitions)
    return broker


def member(broker: MemoryBroker, instance: str, polls: int = 0) -> tuple[MemoryInput, Diary]:
    diary = Diary()
    made = MemoryInput(broker, instance, GROUP, named(["in", "labels"]), diary)
    poll(made, times=polls)
    return made, diary


def poll(*members: MemoryInput, times: int = 1) -> list[Record]:
    return [record for _ in range(times) for each in members for record in flat(each.poll(100, 0.0))]


def producer(broker: MemoryBroker, name: str = "a") -> MemoryOutput:
    output = MemoryOutput(broker, name)
    output.open()
    return output


def values(broker: MemoryBroker, at: At) -> list[bytes | None]:
    return [record.value for record in MemoryReader(broker).read(at, broker.partition(at).start)]


def send_batch(output: MemoryOutput, membership: Membership, offset: int = 1) -> None:
    output.begin()
    output.send(OUT, None, b"out")
    output.send(LOG, None, b"log")
    output.send_offsets({IN: Committed(offset, "said"), LABELS: Committed(0, "said")}, membership)


NOBODY = Membership(-1, "", GROUP)


# markers


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
    with pytest.raises(Retry):
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
    with pytest.raises(Retry, match="still landing"):
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
    with pytest.raises(Retry):
        output.begin()
    broker.land_markers()
    output.begin()


def test_opening_aborts_and_fences_at_once_but_waits_for_the_abort_markers() -> None:
    broker = new_broker(manual_markers=True)
    older, newer = producer(broker), MemoryOutput(broker, "a")
    send_batch(older, NOBODY)
    with pytest.raises(Retry):
        newer.open()
    with pytest.raises(Fenced):
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
    with pytest.raises(Retry):
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


# producers


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    assert broker.open_transactions() == ["a"]
    broker.expire_transaction("a")
    assert broker.open_transactions() == []
    assert broker.committed(GROUP, [IN]) == {IN: None}
    with pytest.raises(Fenced):
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
    with pytest.raises(Fenced):
        CALLS[call](older)
    assert broker.partition(OUT).end == 0


def test_begin_of_a_fenced_producer_is_refused() -> None:
    broker = new_broker()
    older = producer(broker)
    producer(broker)
    with pytest.raises(Fenced):
        older.begin()


def test_calls_out_of_order_are_mistakes_of_the_program() -> None:
    output = MemoryOutput(new_broker(), "a")
    with pytest.raises(Fenced, match="open"):
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
    with pytest.raises(Stop, match="no topic"):
        output.send(At("nowhere", 0), None, b"")
    with pytest.raises(Stop, match="no partition 7"):
        output.send(At("out", 7), None, b"")
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
    with pytest.raises(Retry):
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
    with pytest.raises(Fenced, match="generation 1"):
        send_batch_again.send_offsets({IN: Committed(2, "")}, diary.membership)


# rebalances


def test_an_assignment_waits_until_every_member_has_revoked() -> None:
    broker = new_broker()
    first, diary = member(broker, "a", polls=2)
    second, others = member(broker, "b", polls=5)
    assert broker.awaited(GROUP) == ["a"]
    assert (len(diary.owned), len(others.owned)) == (8, 0)
    poll(first)
    assert broker.awaited(GROUP) == []
    assert len(diary.owned) == 0
    poll(second)
    assert others.owned == {At(topic, i) for topic in ("in", "labels") for i in (2, 3)}
    poll(first)
    assert diary.owned == {At(topic, i) for topic in ("in", "labels") for i in (0, 1)}
    assert diary.membership.generation == others.membership.generation == 2


def test_a_zombie_believes_in_its_assignment_until_it_polls() -> None:
    broker = new_broker()
    zombie, diary = member(broker, "a", polls=2)
    old = diary.membership
    other, others = member(broker, "b", polls=1)
    broker.expire_session("a")
    poll(other)
    assert len(others.owned) == len(diary.owned) == 8
    output = producer(broker)
    output.begin()
    with pytest.raises(Fenced, match="not a member"):
        output.send_offsets({IN: Committed(1, "")}, old)

    poll(zombie)
    assert diary.names == ["assigned", "lost"]
    poll(other, zombie, times=3)
    assert diary.names == ["assigned", "lost", "assigned"]
    assert others.names == ["assigned", "revoked", "assigned"]
    assert diary.membership.member_id != old.member_id
    assert len(diary.owned) == len(others.owned) == 4


def test_a_member_expired_while_it_waits_has_nothing_to_lose() -> None:
    broker = new_broker()
    first, diary = member(broker, "a", polls=2)
    second, others = member(broker, "b", polls=1)
    broker.expire_session(next(id for id in broker.group(GROUP).members if id.startswith("b")))
    poll(first, second, times=5)
    assert others.names == ["assigned"]
    assert len(diary.owned) == len(others.owned) == 4


def test_a_second_rebalance_before_the_assignment_was_delivered_tells_nothing_twice() -> None:
    broker = new_broker()
    first, diary = member(broker, "a", polls=2)
    second, others = member(broker, "b", polls=1)
    poll(first)
    third, _ = member(broker, "c", polls=1)
    poll(first, second, third, times=4)
    assert diary.names == ["assigned", "revoked", "assigned"]
    assert others.names == ["assigned"]
    assert diary.membership.generation == 3


def test_a_restarted_instance_takes_its_place_without_a_rebalance() -> None:
    broker = new_broker()
    (older, diary), (second, others) = member(broker, "a"), member(broker, "b")
    poll(older, second, times=4)
    told = list(others.names)
    newer, newer_diary = member(broker, "a", polls=2)
    poll(second, times=3)
    assert others.names == told
    assert newer_diary.owned == diary.owned
    assert newer_diary.membership.generation == diary.membership.generation
    assert newer_diary.membership.member_id != diary.membership.member_id
    with pytest.raises(Stop, match='as instance "a"'):
        poll(older)
    assert diary.names[-1] == "lost"
    older.close()
    poll(newer, second, times=3)
    assert newer_diary.names == ["assigned"]


def test_uneven_partitions_go_to_the_first_members_and_a_member_may_have_none() -> None:
    broker = new_broker()
    members = [member(broker, f"m{i}") for i in range(5)]
    poll(*(each for each, _ in members), times=6)
    assert [len(diary.owned) for _, diary in members] == [2, 2, 2, 2, 0]
    members[4][0].close()
    members[3][0].close()
    poll(*(each for each, _ in members[:3]), times=6)
    assert [len(diary.owned) for _, diary in members[:3]] == [4, 2, 2]


def test_a_member_that_leaves_is_told_revoked_if_it_still_was_one_and_else_lost() -> None:
    broker = new_broker()
    (first, diary), (second, others) = member(broker, "a"), member(broker, "b")
    poll(first, second, times=4)
    broker.expire_session("a")
    first.close()
    second.close()
    assert (diary.names[-1], others.names[-1]) == ("lost", "revoked")
    assert broker.group(GROUP).members == {}


def test_a_missing_topic_is_named_when_joining() -> None:
    with pytest.raises(Stop, match='"nowhere"'):
        poll(MemoryInput(new_broker(), "a", GROUP, named(["nowhere"]), Diary()))


# faults


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
    broker.hook = Fault("commit:after", Unknown("lost"))
    with pytest.raises(Unknown):
        output.commit()
    assert values(broker, OUT) == [b"out"]
    assert broker.committed(GROUP, [IN]) == {IN: Committed(1, "said")}


def test_when_the_request_to_commit_is_lost_nothing_is_there_and_opening_aborts() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("commit:before", Unknown("lost"))
    with pytest.raises(Unknown):
        output.commit()
    with pytest.raises(Retry):
        broker.committed(GROUP, [IN])
    output.open()
    assert broker.committed(GROUP, [IN]) == {IN: None}
    assert values(broker, OUT) == []


@pytest.mark.parametrize("moment", ["commit:before", "commit:after"])
def test_after_unknown_a_producer_is_finished_until_it_is_opened_again(moment: str) -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault(moment, Unknown("lost"))
    with pytest.raises(Unknown):
        output.commit()
    output.abort()
    with pytest.raises(Fenced, match="finished"):
        output.commit()
    output.open()
    assert values(broker, OUT) == ([b"out"] if moment == "commit:after" else [])


@pytest.mark.parametrize("moment", ["abort:before", "abort:after"])
def test_after_an_abort_that_failed_too(moment: str) -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault(moment, Retry("lost"))
    with pytest.raises(Retry):
        output.abort()
    with pytest.raises(Fenced, match="finished"):
        output.begin()
    output.open()
    assert values(broker, OUT) == []
    assert MemoryReader(broker).bounds(OUT) == (0, 2)


def test_a_commit_that_must_be_rewound_can_be_aborted() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("commit:before", Rewind("not now"))
    with pytest.raises(Rewind):
        output.commit()
    output.abort()
    send_batch(output, NOBODY)
    output.commit()
    assert values(broker, OUT) == [b"out"]


def test_closing_aborts_and_never_fails() -> None:
    broker = new_broker()
    output = producer(broker)
    send_batch(output, NOBODY)
    broker.hook = Fault("abort:before", Retry("lost"))
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
    broker.hook = Fault("open:after", Retry("lost"))
    with pytest.raises(Retry):
        output.open()
    with pytest.raises(Fenced):
        output.begin()
    output.open()
    output.begin()


def test_when_the_answer_to_a_poll_is_lost_the_records_come_again() -> None:
    broker = new_broker()
    reading, _ = member(broker, "a", polls=2)
    reading.start(IN, 0)
    broker.produce(IN, None, b"0")
    broker.hook = Fault("poll:after", Retry("lost"))
    with pytest.raises(Retry):
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


# retention, reading


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
    with pytest.raises(Stop, match="offset 2 is not kept, only 3 to 6"):
        reader.read(LOG, 2)
    with pytest.raises(Stop, match="the log ends at 6"):
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
    with pytest.raises(Stop, match="in-0: offset 1"):
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
