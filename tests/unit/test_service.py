"""A processor as a service, and lines from a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from processor.audit.verify.audit import heads
from processor.core.errors import GForceError
from processor.runtime.config import Config, load
from processor.runtime.embedded import as_they_come, run_lines
from processor.runtime.loop.worker import Worker
from processor.runtime.service import Service

SEED = {"GFORCE_PROCESSING__SEED": "ab" * 32, "GFORCE_KAFKA__INSTANCE": "one"}
REQUEST = (
    '{"topic": "requests", "key": "acme", "payload": '
    '{"tenant": "acme", "decision_id": "loan-%d", "group": "A", "predictions": {"model": true}}}\n'
)


def test_who_finds_the_port_taken_takes_no_partitions() -> None:
    made = []

    def make_worker(config: Config, notify: object) -> Worker:
        made.append(config)
        raise AssertionError("a worker would join the group")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(GForceError, match="the port is taken"):
            Service(load(None, {**SEED, "GFORCE_HTTP__PORT": port}), make_worker).run()
    assert not made


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


def test_a_head_is_taken_as_an_audit_prints_it() -> None:
    assert heads(["head, to be kept elsewhere: 3=ab12:7:ffee"]) == heads(["3=ab12:7:ffee"])
