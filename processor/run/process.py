"""A processor as a service: the loop, its signals, its log and its port."""

from __future__ import annotations

import gc
import logging
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from processor.config import Config
from processor.core.errors import GForceError
from processor.operations.skipping import SkipAnswer, Skipping, judged, refused
from processor.ports.log import LogError, OperatorActionRequiredError, TopicPartition
from processor.service.worker import Worker
from processor.telemetry.connections import ConnectionLimits
from processor.telemetry.http import HttpServer
from processor.telemetry.logs import log
from processor.telemetry.status import Status, status_of

from .assembly import monotonic_ms, worker_of
from .registration import Registration, registration_of
from .store_watch import StoreWatch, store_watch_of

STATUS_EVERY = 0.5
"""Seconds between two pictures of the worker; they only point to its state and cost next to nothing."""

SWITCH_EVERY = 0.001
"""Seconds after which a busy thread lets another one go on: the loop is always busy, and those that ask the store and
hash for it have little to do before they wait for something else. With Python's 5 ms it waits for them instead."""


LEVELS = {
    "breaker": logging.ERROR,
    "configuration": logging.WARNING,
    "internal": logging.ERROR,
    "foreign record": logging.WARNING,
    "not trimmed": logging.WARNING,
    "offsets lost": logging.ERROR,
    "quarantined": logging.ERROR,
    "store damaged": logging.ERROR,
    "recovering": logging.WARNING,
    "skipped": logging.WARNING,
}
"""of what is told besides that all goes well"""


class Service:
    """Runs a worker until it is told to stop."""

    def __init__(
        self,
        config: Config,
        make_worker: Callable[[Config, Callable[[str, dict[str, object]], None]], Worker] = worker_of,
        make_registration: Callable[[Config, threading.Event], Registration] | None = registration_of,
        make_store_watch: Callable[[Config], StoreWatch] | None = store_watch_of,
    ) -> None:
        self._config, self._make_worker = config, make_worker
        self._stop = threading.Event()
        self._resumes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._acknowledged: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._skips: queue.SimpleQueue[tuple[int, str, int, int]] = queue.SimpleQueue()
        self._worker: Worker | None = None
        self._status = Status()
        self._registration = make_registration(config, self._stop) if make_registration else None
        self._store_watch = make_store_watch(config) if make_store_watch else None
        self._turned = time.monotonic()
        token = config.http.token.reveal() if config.http.token else None
        self._http = HttpServer(
            config.http.host,
            config.http.port,
            self._current,
            self._resumes.put,
            token,
            acknowledge=lambda tenant, number: self._acknowledged.put((tenant, number)),
            skip=self._skip,
            max_tenants=config.metrics.max_tenants,
            allowed_hosts=config.http.allowed_hosts,
            limits=ConnectionLimits(config.http.max_connections, config.http.request_timeout_ms / 1_000),
        )

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Until SIGTERM or SIGINT; what has been read is committed before it returns."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        self._http.start()  # first: whoever finds the port taken must not take partitions from who holds it
        try:
            if self._registration:
                self._registration.start()  # before the consumer is made: to join would fence who has our name
            if not self._stop.is_set():
                self._run(self._make_worker(self._config, self._notify))
        except GForceError as error:
            if doubled := self._doubled():
                raise doubled from error
            raise
        finally:
            self._http.stop()
            if self._registration:
                self._registration.stop()
        if doubled := self._doubled():
            raise doubled
        log(logging.INFO, "stopped")

    def _doubled(self) -> OperatorActionRequiredError | None:
        """Why we end, if another process has our name."""
        return (
            OperatorActionRequiredError(self._registration.trouble)
            if self._registration and self._registration.trouble
            else None
        )

    def _run(self, worker: Worker) -> None:
        self._turned, self._worker = time.monotonic(), worker
        gc.freeze()  # what is there now stays; and a batch makes more objects than the collector expects of a program
        gc.set_threshold(200_000, 20, 100)
        sys.setswitchinterval(SWITCH_EVERY)
        log(logging.INFO, "started", instance=self._config.kafka.instance, port=self._config.http.port)
        try:
            if self._store_watch:
                self._store_watch.start()
            self._loop(worker)
            worker.drain()
        finally:
            worker.close()
            if self._store_watch:
                self._store_watch.stop()

    def _loop(self, worker: Worker) -> None:
        stalled: set[int] = set()
        looked = 0.0
        while not self._stop.is_set():
            worker.run_once()
            self._turned = time.monotonic()
            while not self._resumes.empty():
                worker.resume(self._resumes.get())
            while not self._acknowledged.empty():
                worker.acknowledge(*self._acknowledged.get())
            while not self._skips.empty():
                worker.skip(*self._skips.get())
            if time.monotonic() - looked >= STATUS_EVERY:
                looked = time.monotonic()
                self._status = status_of(worker, monotonic_ms(), self._config.processing.stall_seconds)
                stalled = self._report_stalls(stalled)

    def _skip(self, number: int, wanted: Skipping) -> tuple[SkipAnswer, int]:
        """Asked over HTTP, in a thread of its own: how far the batch reaches is found out by reading."""
        worker = self._worker
        partitions = {one.number: one for one in self._current().partitions}
        no = refused(number, wanted, partitions.get(number))
        if no is not None or worker is None:
            return no or (SkipAnswer(number, wanted.topic, wanted.offset, 0, False, "it has not started yet"), 503)
        topic = next(topic for topic, name in worker.topics.sources.items() if name == wanted.topic)
        try:
            batch = worker.reader.unreadable(TopicPartition(topic, number), wanted.offset)
        except LogError as error:
            return SkipAnswer(number, wanted.topic, wanted.offset, 0, False, str(error)), 503
        answer, status = judged(number, wanted, batch)
        if answer.done:
            self._skips.put((number, wanted.topic, wanted.offset, answer.to))
        return answer, status

    def _current(self) -> Status:
        """The latest status; a loop that hangs in a call cannot say so itself."""
        silent = time.monotonic() - self._turned
        status = self._status
        if self._store_watch and self._store_watch.unsafe:
            status = replace(status, store_unsafe=self._store_watch.unsafe)
        if silent <= self._config.processing.stall_seconds:
            return status
        why = f"the loop has not turned for {silent:.0f} s"
        stalled = (replace(p, state="stalled", trouble=why) for p in status.partitions)
        return replace(status, ready=False, partitions=tuple(stalled))

    def _report_stalls(self, known: set[int]) -> set[int]:
        now = {p.number: p for p in self._status.partitions if p.state == "stalled"}
        for number in sorted(now.keys() - known):
            log(logging.ERROR, "stalled", partition=number, seconds=round(now[number].still), why=now[number].trouble)
        for number in sorted(known - now.keys()):
            log(logging.INFO, "moves again", partition=number)
        return set(now)

    def _notify(self, event: str, details: dict[str, object]) -> None:
        level = LEVELS.get(event, logging.INFO)
        if event == "breaker":
            details = {
                **details,
                "remedy": "most records are unreadable: somebody points the wrong stream here. Correct the producer, "
                f"then: gforce resume {details['partition']}",
            }
        elif event == "quarantined":
            details = {**details, "remedy": f"mend the cause, then: gforce resume {details['partition']}"}
        log(level, event, **details)
