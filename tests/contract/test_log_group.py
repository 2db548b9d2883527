"""The members of a group own the same partitions of both inputs, and give all of them back before they get others."""

from __future__ import annotations

from uuid import uuid4

import pytest

from processor.ports.log import Committed, FencedError, OperatorActionRequiredError, TopicPartition

from .log_clients import joined, opened
from .worlds import Diary, World, poll_until


def test_a_rebalance_revokes_everything_before_it_assigns(world: World, names: tuple[str, str, str]) -> None:
    first, diary = joined(world, names)
    everything = tuple(sorted(TopicPartition(topic, i) for topic in names[:2] for i in range(4)))
    assert diary.events == [("assigned", everything)]
    second_diary = Diary()
    second = world.input(f"instance-{uuid4().hex[:8]}", names[2], names[:2], second_diary)
    poll_until(lambda _: bool(second_diary.owned) and len(diary.names) >= 3, first, second)
    assert diary.events[1] == ("revoked", everything)
    assert diary.names[:3] == ["assigned", "revoked", "assigned"]
    assert diary.owned.isdisjoint(second_diary.owned)


def test_two_members_own_the_same_partitions_of_both_inputs(world: World, names: tuple[str, str, str]) -> None:
    left, right, group = names
    diaries = [Diary(), Diary()]
    members = [world.input(f"{i}-{uuid4().hex[:8]}", group, [left, right], diaries[i]) for i in range(2)]
    poll_until(lambda _: all(len(diary.owned) == 4 for diary in diaries), *members)
    for diary in diaries:
        of_left = {at.partition for at in diary.owned if at.topic == left}
        assert of_left == {at.partition for at in diary.owned if at.topic == right}
    assert sorted(diaries[0].owned | diaries[1].owned) == [
        TopicPartition(t, i) for t in sorted(names[:2]) for i in range(4)
    ]


def test_closing_revokes_and_another_member_takes_over(world: World, names: tuple[str, str, str]) -> None:
    first, diary = joined(world, names)
    first.close()
    assert diary.names == ["assigned", "revoked"]
    _, second_diary = joined(world, names)
    assert len(second_diary.owned) == 8


def test_a_process_that_takes_an_instance_over_shuts_the_older_out(world: World, names: tuple[str, str, str]) -> None:
    left, right, group = names
    instance, diary, newer_diary = f"instance-{uuid4().hex[:8]}", Diary(), Diary()
    older = world.input(instance, group, [left, right], diary)
    poll_until(lambda _: bool(diary.owned), older)
    newer = world.input(instance, group, [left, right], newer_diary)
    poll_until(lambda _: bool(newer_diary.owned), newer)
    output = opened(world)
    output.begin()
    with pytest.raises(FencedError):
        output.send_offsets({TopicPartition(left, 0): Committed(1, "")}, diary.membership)
    with pytest.raises(OperatorActionRequiredError):
        poll_until(lambda _: False, older)


def test_a_member_is_told_its_generation_and_member_id(world: World, names: tuple[str, str, str]) -> None:
    _, diary = joined(world, names)
    assert diary.membership.generation >= 1
    assert diary.membership.member_id
