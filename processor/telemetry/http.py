"""Health, readiness, metrics, figures and the status page on one port, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from processor import __version__
from processor.adapters.kafka.settings import LastWords
from processor.core.errors import GForceError
from processor.operations.acknowledgement import ACKNOWLEDGE, Acknowledgement, AcknowledgementAnswer, judged
from processor.operations.skipping import SkipAnswer as SkipAnswer
from processor.operations.skipping import Skipping
from processor.web import HEADERS
from processor.web import routes as page_routes

from .connections import ConnectionLimits, bounded
from .figures import History, TenantFigures
from .guard import MAX_HEAD_BYTES, WARNING_INTERVAL_SECONDS, Guard, bears, body_of, needs_token, partition_of, problem
from .history import Histories
from .hosts import Hosts
from .logs import log
from .metrics import StatusCollector
from .observer import Observer
from .sharing import Shared
from .status import PartitionStatus, Status

SAMPLE_EVERY = 1.0
ATTAINABLE_SHARE = 0.05
"""How much of the time may go into linear programmes."""
BACKLOG = 128
"""Connections that the system keeps until they are accepted, and how many are accepted in one turn."""


class StatusPage(msgspec.Struct, frozen=True):
    """What ``/status`` says."""

    ready: bool
    partitions: tuple[PartitionStatus, ...]
    totals: dict[str, int]
    tenants: list[TenantFigures]
    """the listed ones"""


class HttpServer:
    """Serves what ``status`` returns; asks for things to be done through ``resume``, ``acknowledge`` and ``skip``."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Callable[[], Status],
        resume: Callable[[int], None],
        token: str | None = None,
        *,
        acknowledge: Callable[[str, int], None] = lambda tenant, number: None,
        skip: Callable[[int, Skipping], tuple[SkipAnswer, int]] | None = None,
        max_tenants: int = 500,
        allowed_hosts: Collection[str] = (),
        limits: ConnectionLimits = ConnectionLimits(),
    ) -> None:
        self.status, self._resume, self._acknowledge, self._token = status, resume, acknowledge, token
        self._skip = skip
        self._observer = Observer(status, max_tenants)
        self._histories = Histories(self._observer)
        self._registry = CollectorRegistry()
        self._registry.register(StatusCollector(self._observer))
        ProcessCollector(registry=self._registry)
        # Made in threads, and once for all who ask: figures of many tenants must hold up neither /healthz nor the loop.
        self._exposition = Shared(lambda: generate_latest(self._registry))
        self._figures_page = Shared(self._status_content)
        routes = [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/status", self._status_page),
            Route("/partitions/{number}/resume", self._resume_partition, methods=["POST"]),
            Route("/partitions/{number}/skip", self._skip_offsets, methods=["POST"]),
            Route(ACKNOWLEDGE, self._acknowledge_alert, methods=["POST"]),
            *page_routes(self),
        ]
        app = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, hosts=Hosts(host, allowed_hosts), token=token)],
            exception_handlers={HTTPException: _refused, ClientDisconnect: _gone},
        )
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=bounded(limits),
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            backlog=BACKLOG,
            ws="none",
            proxy_headers=False,  # nobody asks who the client is
            log_config=None,
            log_level="error",
            access_log=False,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="figures", daemon=True)

    def _serve(self) -> None:
        with suppress(SystemExit):  # by which uvicorn says that it cannot listen: ``start`` finds the thread gone
            self._server.run()

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise GForceError(
                    f"cannot listen on {self._server.config.host}:{self._server.config.port}: the port is taken or "
                    "not allowed. Set http.port to a free one."
                )
            self._thread.join(0.02)
        self._sampler.start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join(5)
        self._sampler.join(5)

    # What the pages ask for

    def figures(self) -> list[TenantFigures]:
        return self._observer.figures()

    def tenant(self, name: str) -> TenantFigures | None:
        return self._observer.tenant(name)

    def history(self, name: str) -> History | None:
        return self._histories.history(name)

    def token_ok(self, request: Request) -> bool:
        return bears(self._token, request.headers)

    def _sample(self) -> None:
        complained = -WARNING_INTERVAL_SECONDS
        while not self._stopping.wait(SAMPLE_EVERY):
            try:
                self._histories.sample()
                self._observer.refresh_attainable(SAMPLE_EVERY * ATTAINABLE_SHARE)
            except Exception as error:  # charts must not end with one mistake, nor take the processor along
                if time.monotonic() - complained >= WARNING_INTERVAL_SECONDS:
                    complained = time.monotonic()
                    log(logging.ERROR, "figures", error=repr(error))

    # Pages

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse({"alive": True, "version": __version__})

    async def _readyz(self, _: Request) -> Response:
        status = self.status()
        trouble = {str(p.number): p.trouble for p in status.partitions if p.state != "ready" and p.trouble}
        if not status.partitions:
            said = f"; Kafka's client last said: {LastWords.text}" if LastWords.text else ""
            trouble["group"] = f"the group has given this process no partition{said}"
        body = {
            "ready": status.moving,
            "partitions": {str(p.number): p.state for p in status.partitions},
            "trouble": trouble,
            "warnings": [status.store_unsafe] if status.store_unsafe else [],
        }
        return JSONResponse(body, status_code=200 if body["ready"] else 503)

    async def _metrics(self, _: Request) -> Response:
        return Response(await self._exposition.get(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status_page(self, request: Request) -> Response:
        if not self.token_ok(request):
            return needs_token()
        return Response(await self._figures_page.get(), media_type="application/json")

    def _status_content(self) -> bytes:
        status = self.status()
        page = StatusPage(status.moving, status.partitions, status.totals, self.figures())
        # msgspec writes a rate that nothing is known of yet (NaN) as null; JSON has no NaN, and Starlette refuses it.
        return msgspec.json.encode(page)

    # What a person asks for. The guard has seen to it that a person may.

    async def _resume_partition(self, request: Request) -> Response:
        self._resume(partition_of(request))
        return PlainTextResponse("asked\n", status_code=202)

    async def _skip_offsets(self, request: Request) -> Response:
        if not _is_json(request):
            return problem(403, "send what to skip as application/json")
        wanted = await body_of(request, Skipping)
        if self._skip is None:
            return problem(501, "nothing can be skipped here")
        return _answered(*await run_in_threadpool(self._skip, partition_of(request), wanted))

    async def _acknowledge_alert(self, request: Request) -> Response:
        if not _is_json(request):
            return problem(403, "send the alert as application/json")
        wanted = await body_of(request, Acknowledgement)
        answer, status = judged(wanted, self._observer.state_of(wanted.tenant))
        if answer.done:
            self._acknowledge(wanted.tenant, wanted.number)
        return _answered(answer, status)


def _is_json(request: Request) -> bool:
    """A form of another site can send text/plain unasked, but not this."""
    return request.headers.get("content-type", "").split(";")[0] == "application/json"


def _answered(answer: AcknowledgementAnswer | SkipAnswer, status: int) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", status_code=status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, {**HEADERS, **(error.headers or {})})


async def _gone(_: Request, error: Exception) -> Response:
    """Whoever sent half a body and left reads no answer, and is no mistake of ours that belongs into the log."""
    return problem(400, "the body ended before its end")
