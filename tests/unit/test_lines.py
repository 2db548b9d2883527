"""JSON lines through the embedded processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from processor.runtime.config import load
from processor.runtime.lines import AT_ONCE, as_they_come, run_lines

SEED = {"GFORCE_PROCESSING__SEED": "ab" * 32}
REQUEST = (
    '{"topic": "requests", "key": "acme", "payload": '
    '{"tenant": "acme", "decision_id": "loan-%d", "group": "A", "predictions": {"model": true}}}\n'
)


def test_a_pipe_that_pauses_gets_its_decisions_before_it_ends() -> None:
    read, write = os.pipe()
    out: list[bytes] = []

    def lines() -> Iterator[bytes | None]:
        with os.fdopen(write, "w") as sender, os.fdopen(read, "rb") as receiver:
            sender.write(REQUEST % 1)
            sender.flush()
            for line in as_they_come(receiver):
                yield line
                if line is None and any(b"loan-1" in text for text in out):  # else it was the line that came late
                    sender.write(REQUEST % 2)
                    sender.close()

    totals = run_lines(load(None, SEED), lines(), out.append)
    assert totals["decisions"] == 2


def lines_of(content: bytes) -> list[bytes]:
    """What is made of these bytes when they come through a pipe."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    with os.fdopen(read, "rb") as receiver:
        return [line for line in as_they_come(receiver) if line is not None]


def test_lines_come_in_their_order_and_end_with_the_pipe() -> None:
    assert lines_of(b"a\nb\n") == [b"a", b"b"]
    assert lines_of(b"a\n\nb") == [b"a", b"", b"b"]
    assert lines_of(b"") == []


def test_a_line_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    long = b"x" * (3 * AT_ONCE + 1)
    file = tmp_path / "lines"
    file.write_bytes(long + b"\n" + long)
    with file.open("rb") as stream:
        assert list(as_they_come(stream)) == [long, long]


def test_who_is_told_to_stop_waits_for_nothing_more() -> None:
    read, write = os.pipe()
    stop = iter([False, False, True])
    with os.fdopen(write, "wb"), os.fdopen(read, "rb") as receiver:
        os.write(write, b"a\nb")
        assert list(as_they_come(receiver, lambda: next(stop))) == [b"a", None]
