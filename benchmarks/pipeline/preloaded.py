"""A deployment that already holds pending decisions, and rounds of the same traffic on top of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .lines import LIMIT
from .processes import Deployment
from .stage import Offsets, Stage
from .timing import Measured, StuckError, reached, tail, timed
from .workload import Event, Shape, backlog, publish, waiting

SMALL_FETCHES = {"kafka": {"consumer_properties": {"fetch.message.max.bytes": 64 << 10}}}
"""Smaller still than ``FETCH``, because labels may be only ten thousand requests late here, in eight partitions."""
LOADING = 3_600.0

Told = Callable[[int], None]


@dataclass
class Preloaded:
    """One point of a growth curve. ``pending`` requests are decided once; every round adds ``shape.cases`` more and
    labels for the ``shape.cases`` oldest, so that as many are pending afterwards as before."""

    stage: Stage
    name: str
    shape: Shape
    pending: int
    partitions: int = 4
    processors: int = 1
    deployment: Deployment = field(init=False)
    _next: int = 0
    _total: int = 0

    def prepare(self, told: Told) -> None:
        """Create the topics, decide what is to be pending, and stop."""
        inputs = self.stage.inputs(self.name, self.partitions)
        self.deployment = Deployment(self.stage, self.name, inputs, self.partitions, self.shape, SMALL_FETCHES)
        self.deployment.create()
        for _ in range(self.processors):
            self.deployment.add()
        self.shape = replace(self.shape, late=self.pending)
        self._publish(waiting(self.shape))
        if self.pending:
            self._load(told)

    def _load(self, told: Told) -> None:
        offsets, process = self._offsets(), self.deployment.processes[0]

        def look() -> int:
            told(seen := offsets.count())
            return seen

        try:
            reached(look, self._total, [process.start()], process.log, LOADING)
        finally:
            offsets.close()
            self.deployment.stop()

    def round(self, told: Told) -> Measured:
        """Produce a backlog while nobody reads, start, and time it from the first commit to the last."""
        before = self._total
        shape = replace(self.shape, first=self._next)
        self._next += shape.cases
        self._publish(backlog(shape))
        try:
            found = self._process(lambda done: told(done - before), before)
            early = self.deployment.metric("gforce_labels_parked_total") / self.shape.cases
        finally:
            self.deployment.stop()
        return replace(found, notes={"early": early})

    def _publish(self, stream: Iterator[Event]) -> None:
        self._total += publish(stream, self.stage.bootstrap, self.deployment.inputs, self.partitions)

    def _process(self, told: Told, before: int) -> Measured:
        offsets, processes = self._offsets(), self.deployment.processes
        try:
            running = [process.start() for process in processes]
            return timed(offsets.count, self._total, running, processes[0].log, LIMIT, before=before, told=told)
        finally:
            offsets.close()

    def _offsets(self) -> Offsets:
        return Offsets(self.stage.bootstrap, self.deployment.group, self.deployment.inputs, self.partitions)

    def entries(self) -> int:
        """Entries in the store."""
        with self.stage.redis.client() as client:
            keys = [f"{{{self.deployment.group}:{number}}}:entries" for number in range(self.partitions)]
            return sum(client.hlen(key) for key in keys)

    def settled(self) -> None:
        """Wait until the store has what was committed: it is told after the commit."""
        deadline = time.monotonic() + 60
        count = -1
        while count != (count := self.entries()) or count < self.pending:
            if time.monotonic() > deadline:
                raise StuckError(f"only {count} of {self.pending} entries: {tail(self.deployment.processes[0].log)}")
            time.sleep(0.3)

    def remove(self) -> None:
        self.deployment.remove()
        self.stage.delete(self.deployment.inputs)
