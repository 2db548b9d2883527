"""JSON lines through the embedded processor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from processor.runtime.config import load
from processor.runtime.lines import as_they_come, run_lines

SEED = {"GFORCE_PROCESSING__SEED": "ab" * 32}
REQUEST = (
    '{"topic": "requests", "key": "acme", "payload": '
    '{"tenant": "acme", "decision_id": "loan-%d", "group": "A", "predictions": {"model": true}}}\n'
)


def test_a_pipe_that_pauses_gets_its_decisions_before_it_ends() -> None:
    read, write = os.pipe()
    out: list[str] = []

    def lines() -> Iterator[str | None]:
        with os.fdopen(write, "w") as sender, os.fdopen(read) as receiver:
            sender.write(REQUEST % 1)
            sender.flush()
            for line in as_they_come(receiver):
                yield line
                if line is None and any("loan-1" in text for text in out):  # else it was the line that came late
                    sender.write(REQUEST % 2)
                    sender.close()

    totals = run_lines(load(None, SEED), lines(), out.append)
    assert totals["decisions"] == 2


def test_bytes_that_are_no_text_end_a_pipe_with_an_error() -> None:
    read, write = os.pipe()
    os.write(write, b"\xff\xfe\n")
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as receiver, pytest.raises(UnicodeDecodeError):
        list(as_they_come(receiver))


def test_lines_come_in_their_order_and_end_with_the_pipe() -> None:
    read, write = os.pipe()
    os.write(write, b"a\nb\n")
    os.close(write)
    with os.fdopen(read) as receiver:
        assert [line for line in as_they_come(receiver) if line is not None] == ["a\n", "b\n"]
