"""The servers of all scenarios, and who looks at the processors and starts again what has ended by itself."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.servers.broker import Broker
from tests.servers.processor_process import Page, ProcessorProcess
from tests.servers.redis_server import RedisServer

AFTER_EXIT = 1.0
"""seconds after which the supervisor starts a processor again"""
LOOK_EVERY = 0.2
"""seconds"""


class Servers:
    """One broker and one Redis for all scenarios."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.redis = RedisServer(own=True)
        self.folder = Path(tempfile.mkdtemp(prefix="gforce-operators-"))

    def __enter__(self) -> Servers:
        try:
            self.broker.start()
            self.redis.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self.broker.stop()
        self.redis.stop()


class Look(NamedTuple):
    """What ``/readyz`` of one processor said."""

    at: float
    instance: str
    page: Page

    @property
    def states(self) -> dict[str, str]:
        return dict(self.page.json.get("partitions", {}))

    @property
    def trouble(self) -> dict[str, str]:
        return dict(self.page.json.get("trouble", {}))


@dataclass(frozen=True)
class Exit:
    """A processor that ended without being told to."""

    instance: str
    code: int
    last_words: str


class Supervisor(threading.Thread):
    """Looks at every processor five times a second, and starts again what has ended by itself."""

    def __init__(self) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.processors: dict[str, ProcessorProcess] = {}
        self.looks: list[Look] = []
        self.exits: list[Exit] = []
        self._halt = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._halt.wait(LOOK_EVERY):
            with self._lock:
                for instance, processor in list(self.processors.items()):
                    self._tend(instance, processor)

    def _tend(self, instance: str, processor: ProcessorProcess) -> None:
        code = processor.exit_code
        if code is None:
            self.looks.append(Look(time.monotonic(), instance, processor.get("/readyz")))
            return
        processor.wait()
        self.exits.append(Exit(instance, code, processor.log.strip().splitlines()[-1][-400:]))
        self._halt.wait(AFTER_EXIT)
        processor.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """So that a processor can be ended on purpose."""
        with self._lock:
            yield

    def stop(self) -> None:
        self._halt.set()
        self.join(30)
