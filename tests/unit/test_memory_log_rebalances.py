"""Rebalances in every order that Kafka allows: what each member owns, and what it is told."""

from __future__ import annotations

import pytest

from processor.adapters.memory.log import MemoryInput
from processor.ports.log import Committed, FencedError, OperatorActionRequiredError, TopicPartition
from tests.contract.worlds import Diary, named

from .memory_clients import GROUP, IN, member, new_broker, poll, producer


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
    assert others.owned == {TopicPartition(topic, i) for topic in ("in", "labels") for i in (2, 3)}
    poll(first)
    assert diary.owned == {TopicPartition(topic, i) for topic in ("in", "labels") for i in (0, 1)}
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
    with pytest.raises(FencedError, match="not a member"):
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
    with pytest.raises(OperatorActionRequiredError, match='as instance "a"'):
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
    with pytest.raises(OperatorActionRequiredError, match='"nowhere"'):
        poll(MemoryInput(new_broker(), "a", GROUP, named(["nowhere"]), Diary()))
