"""Clients of a log: producers that are open, members that have joined, and what a reader sees."""

from __future__ import annotations

from uuid import uuid4

from processor.ports.log import Input, Output, Reader, TopicPartition

from .worlds import Diary, World, eventually, poll_until


def opened(world: World, name: str | None = None) -> Output:
    output = world.output(name or f"instance-{uuid4().hex[:8]}")
    open_it(output)
    return output


def open_it(output: Output) -> None:
    def attempt() -> bool:
        output.open()
        return True

    eventually(attempt, what="open")


def values(reader: Reader, at: TopicPartition) -> list[bytes | None]:
    start, _ = bounds(reader, at)
    return [record.value for record in reader.read(at, start)]


def bounds(reader: Reader, at: TopicPartition) -> tuple[int, int]:
    """The first answer: a real broker asks for another try while a new topic has no leader."""
    return eventually(lambda: reader.bounds(at))


def commit_value(output: Output, at: TopicPartition, value: bytes) -> dict[TopicPartition, int]:
    output.begin()
    output.send(at, b"k", value)
    return output.commit()


def joined(world: World, names: tuple[str, str, str]) -> tuple[Input, Diary]:
    left, right, group = names
    diary = Diary()
    member = world.input(f"instance-{uuid4().hex[:8]}", group, [left, right], diary)
    poll_until(lambda _: bool(diary.owned), member)
    return member, diary
