"""Real servers for the integration tests. In CI a missing one is a failure, not a skip."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers.broker import Broker, available


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    reason = available()
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"no Kafka broker: {reason}")
    if reason is not None:
        pytest.skip(f"no Kafka broker: {reason}")
    with Broker() as running:
        yield running
