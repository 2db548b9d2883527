"""The routes of the status page.

The page and its files are for everybody who reaches the port: they say nothing. The figures ask for the token, if one
is configured. Names in them come from events and are not to be trusted: the page inserts them as text only, and its
policy lets the browser run no script and load nothing but what is served here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from processor.telemetry.guard import needs_token, problem
from processor.telemetry.sharing import Shared

from .answers import overview, since, tenant_page
from .files import PAGE, File, page_files
from .view import View

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class BadQuestionError(ValueError):
    """The query lacks something."""


def routes(view: View) -> list[Route]:
    """The page at ``/``, its files under ``/assets/`` and its figures under ``/api/``."""
    kept = page_files()

    def page(request: Request) -> Response:
        return _sent(request, kept[PAGE])

    def asset(request: Request) -> Response:
        file = kept.get(request.path_params["name"])
        return _sent(request, file) if file else _problem(404, "no such file")

    shared_overview = Shared(lambda: _encoded(overview(view.status(), view.figures(), now())))

    async def get_overview(request: Request) -> Response:
        return _sent(request, await shared_overview.get()) if view.token_ok(request) else needs_token(HEADERS)

    def get_tenant(request: Request) -> Any:
        found = view.tenant(_name(request))
        return tenant_page(view.status(), found, now()) if found else None

    def get_history(request: Request) -> Any:
        found, moment = view.history(_name(request)), _moment(request)
        return since(found, moment) if found else None

    return [
        Route("/", page),
        Route("/assets/{name}", asset),
        Route("/api/overview", get_overview),
        Route("/api/tenant", _figures(view, get_tenant)),
        Route("/api/history", _figures(view, get_history)),
    ]


def now() -> int:
    """The time on the wall, in milliseconds."""
    return time.time_ns() // 1_000_000


def _figures(view: View, answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    """Not async, so Starlette runs it in a thread: figures of many tenants take a moment, and others are waiting."""

    def endpoint(request: Request) -> Response:
        if not view.token_ok(request):
            return needs_token(HEADERS)
        try:
            found = answer(request)
        except BadQuestionError as error:
            return _problem(400, str(error))
        if found is None:
            return _problem(404, "this processor does not have that tenant")
        return _sent(request, _encoded(found))

    return endpoint


def _encoded(answer: Any) -> File:
    # Figures nothing is known about are NaN, which msgspec writes as null.
    content = msgspec.json.encode(answer)
    return File(content, "application/json", f'"{blake2b(content, digest_size=12).hexdigest()}"')


def _name(request: Request) -> str:
    name = request.query_params.get("name")
    if name is None:
        raise BadQuestionError("name the tenant: ?name=…")
    return name


def _moment(request: Request) -> int:
    given = request.query_params.get("since", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise BadQuestionError(f"since is {given[:40]!r}: give milliseconds since 1970")
    return int(given)


def _sent(request: Request, file: File) -> Response:
    """The file, or word that the browser has it already."""
    headers = {**HEADERS, "ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _problem(status: int, what: str) -> Response:
    return problem(status, what, HEADERS)
