"""A processor as a service."""

from __future__ import annotations

import socket

import pytest

from processor.audit.verify.audit import heads
from processor.core.errors import GForceError
from processor.runtime.config import Config, load
from processor.runtime.loop.worker import Worker
from processor.runtime.service import Service

SEED = {"GFORCE_PROCESSING__SEED": "ab" * 32, "GFORCE_KAFKA__INSTANCE": "one"}


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


def test_a_head_is_taken_as_an_audit_prints_it() -> None:
    assert heads(["head, to be kept elsewhere: 3=ab12:7:ffee"]) == heads(["3=ab12:7:ffee"])
