"""A processor as a service."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from processor.audit.verify.audit import parse_heads
from processor.config import Config, load
from processor.core.errors import GForceError
from processor.run.process import Service
from processor.service.worker import Worker
from tests.servers.processor_process import clean_environment
from tests.servers.redis_server import free_port

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


def test_who_cannot_reach_the_store_is_told_what_to_look_at() -> None:
    away = f"redis://127.0.0.1:{free_port()}/0"
    settings = {**SEED, "GFORCE_REDIS__URL": away, "GFORCE_HTTP__PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-m", "processor.cli", "run"],
        env=clean_environment() | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = done.stderr.splitlines()
    assert done.returncode == 2
    assert said[-2].startswith(f"error: {away}: ")
    assert said[-1].startswith("Is Redis or Valkey up where redis.url says")


def test_a_head_is_taken_as_an_audit_prints_it() -> None:
    assert parse_heads(["head, to be kept elsewhere: 3=ab12:7:ffee"]) == parse_heads(["3=ab12:7:ffee"])
