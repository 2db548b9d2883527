"""Whoever was replaced, as producer or as member, commits nothing more."""

from __future__ import annotations

from uuid import uuid4

import pytest

from processor.ports.log import Committed, FencedError, TopicPartition

from .log_clients import commit_value, joined, open_it, opened, values
from .worlds import Diary, World, eventually, poll_until


def test_a_newer_producer_of_the_name_fences_the_older_and_aborts_what_it_left(world: World, topic: str) -> None:
    name, reader, at = f"instance-{uuid4().hex[:8]}", world.reader(), TopicPartition(topic, 0)
    older = opened(world, name)
    older.begin()
    older.send(at, None, b"older")
    newer = opened(world, name)
    with pytest.raises(FencedError):
        older.commit()
    commit_value(newer, at, b"newer")
    assert eventually(lambda: values(reader, at)) == [b"newer"]


def test_a_fenced_producer_cannot_start_again(world: World, topic: str) -> None:
    name, at = f"instance-{uuid4().hex[:8]}", TopicPartition(topic, 0)
    older = opened(world, name)
    newer = opened(world, name)
    with pytest.raises(FencedError):
        commit_value(older, at, b"older")
    commit_value(newer, at, b"newer")
    assert eventually(lambda: values(world.reader(), at)) == [b"newer"]


def test_offsets_sent_with_an_old_generation_are_refused(world: World, names: tuple[str, str, str]) -> None:
    first, diary = joined(world, names)
    old = diary.membership
    second_diary = Diary()
    second = world.input(f"instance-{uuid4().hex[:8]}", names[2], names[:2], second_diary)
    poll_until(lambda _: bool(second_diary.owned) and bool(diary.owned), first, second)
    assert diary.membership.generation > old.generation
    output = opened(world)
    output.begin()
    with pytest.raises(FencedError):
        output.send_offsets({TopicPartition(names[0], 0): Committed(1, "")}, old)
    output.abort()
    output.begin()
    output.send_offsets({TopicPartition(names[0], 0): Committed(2, "")}, diary.membership)
    output.commit()
    assert eventually(lambda: first.committed([TopicPartition(names[0], 0)])) == {
        TopicPartition(names[0], 0): Committed(2, "")
    }


def test_offsets_of_a_member_that_has_left_are_refused(world: World, names: tuple[str, str, str]) -> None:
    member, diary = joined(world, names)
    member.close()
    output = opened(world)

    def refused() -> bool:
        output.begin()
        try:
            output.send_offsets({TopicPartition(names[0], 0): Committed(1, "")}, diary.membership)
        except FencedError:
            return True
        finally:
            output.abort()
        return False

    eventually(refused, what="the end of the session")  # a static member of a real group is missed only then


def test_abort_may_always_be_called_on_the_way_out(world: World, topic: str) -> None:
    name = f"instance-{uuid4().hex[:8]}"
    output = world.output(name)
    output.abort()
    open_it(output)
    output.abort()
    newer = opened(world, name)
    with pytest.raises(FencedError):
        commit_value(output, TopicPartition(topic, 0), b"v")
    output.abort()
    with pytest.raises(FencedError):
        output.begin()
    commit_value(newer, TopicPartition(topic, 0), b"v")
