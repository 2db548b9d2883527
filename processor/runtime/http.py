"""Health, readiness and metrics on one port, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hmac import compare_digest

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from processor import __version__
from processor.core.errors import GForceError

from .metrics import StatusCollector
from .status import Status


class HttpServer:
    """Serves what ``status`` returns; asks for partitions to be resumed through ``resume``."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Callable[[], Status],
        resume: Callable[[int], None],
        token: str | None = None,
    ) -> None:
        self._status, self._resume, self._token = status, resume, token
        self._registry = CollectorRegistry()
        self._registry.register(StatusCollector(status))
        routes = [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/status", self._status_page),
            Route("/partitions/{number:int}/resume", self._resume_partition, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host=host, port=port, log_level="error", access_log=False, lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise GForceError(
                    f"cannot listen on {self._server.config.host}:{self._server.config.port}: the port is taken or "
                    "not allowed. Set http.port to a free one."
                )
            self._thread.join(0.02)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse({"alive": True, "version": __version__})

    async def _readyz(self, _: Request) -> Response:
        status = self._status()
        stuck = [p for p in status.partitions if p.state != "ready"]
        body = {
            "ready": status.ready and not stuck,
            "partitions": {str(p.number): p.state for p in status.partitions},
            "trouble": {str(p.number): p.trouble for p in stuck if p.trouble},
        }
        return JSONResponse(body, status_code=200 if body["ready"] else 503)

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _allowed(self, request: Request) -> bool:
        """Without a token everybody may; the comparison does not tell how much of a wrong one was right."""
        given = request.headers.get("authorization", "")
        return self._token is None or compare_digest(given.encode(), f"Bearer {self._token}".encode())

    async def _status_page(self, request: Request) -> Response:
        if not self._allowed(request):
            return PlainTextResponse("a bearer token is needed\n", status_code=401)
        # msgspec writes a rate that nothing is known of yet (NaN) as null; JSON has no NaN, and Starlette refuses it.
        return Response(msgspec.json.encode(self._status()), media_type="application/json")

    async def _resume_partition(self, request: Request) -> Response:
        if not self._allowed(request):
            return PlainTextResponse("a bearer token is needed\n", status_code=401)
        self._resume(request.path_params["number"])
        return PlainTextResponse("asked\n", status_code=202)
