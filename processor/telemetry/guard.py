"""What every request must be before a route sees it: meant for this server, small, and, if it changes something, ours.

A new route needs nothing of its own: whatever is not a GET, HEAD or OPTIONS counts as a change.
"""

from __future__ import annotations

import logging
import time
from hmac import compare_digest
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .hosts import Hosts
from .logs import log

MAX_HEAD_BYTES = 16_384
"""Bytes of a request's line and headers. A cookie of another service on the same name fits."""
MAX_PATH_BYTES = 4_000
"""Bytes. Python reads no number with more than 4 300 digits."""
MAX_BODY_BYTES = 10_000
"""Bytes. Nobody has more to say than this."""
MAX_PARTITION_NUMBER = 2**31 - 1
"""Kafka numbers partitions in 32 bits, with a sign."""
WARNING_INTERVAL_SECONDS = 60.0
"""Seconds between two lines of the log about the same thing."""
OWN_HEADER = "X-Gforce"
"""Any value. A form cannot send it, and a script of another site only after asking, which is refused."""
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})

T = TypeVar("T", bound=msgspec.Struct)


class Guard:
    """An ASGI middleware that answers what must not reach a route."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts, token: str | None) -> None:
        self._app, self._hosts, self._token = app, hosts, token
        self._complained = -WARNING_INTERVAL_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # uvicorn is told to send nothing else
            raise RuntimeError(f"the port speaks HTTP only, and was asked for {scope['type']}")
        answer = self._refusal(scope)
        if answer is None:
            await self._app(scope, _limited(receive), send)
        else:
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._hosts.allow(host):
            self._complain(host)
            what = f"this port is not served under the name {host[:100]!r}: list the name in http.allowed_hosts"
            return problem(421, what)
        sizes = [len(scope["raw_path"]), len(scope["query_string"]), *(len(n) + len(v) for n, v in scope["headers"])]
        if sum(sizes) > MAX_HEAD_BYTES:
            return problem(
                431, f"the request's line and headers have {sum(sizes)} bytes: send at most {MAX_HEAD_BYTES}"
            )
        if sizes[0] > MAX_PATH_BYTES:
            return problem(414, f"the path has {sizes[0]} bytes: send at most {MAX_PATH_BYTES}")
        length = headers.get("content-length", "0")
        if len(length) > 9 or int(length) > MAX_BODY_BYTES:  # h11 has made sure that these are digits
            return _too_much()
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        return self._refused_change(headers)

    def _refused_change(self, headers: Headers) -> Response | None:
        """Browsers leave ``Sec-Fetch-Site`` out where the page came by http from another machine."""
        if not bears(self._token, headers):
            return needs_token()
        site = headers.get("sec-fetch-site")
        if site is not None:
            proven = site in ("same-origin", "none")
        else:
            proven = self._token is not None or OWN_HEADER in headers or _same_origin(headers)
        if proven:
            return None
        return problem(403, f'this may be a page of another site: send the header "{OWN_HEADER}: 1", or set http.token')

    def _complain(self, host: str) -> None:
        if time.monotonic() - self._complained >= WARNING_INTERVAL_SECONDS:
            self._complained = time.monotonic()
            remedy = "if it is yours, list it in http.allowed_hosts"
            log(logging.WARNING, "host refused", host=ascii(host[:100]), remedy=remedy)


def bears(token: str | None, headers: Headers) -> bool:
    """Whether the token is there; without one everybody may. Tells nobody how much of a wrong one was right."""
    given = headers.get("authorization", "")
    return token is None or compare_digest(given.encode(), f"Bearer {token}".encode())


def problem(status: int, what: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says what is wrong and what to do."""
    return Response(msgspec.json.encode({"error": what}), status, media_type="application/json", headers=headers)


def needs_token(headers: dict[str, str] | None = None) -> Response:
    return problem(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer", **(headers or {})})


async def body_of(request: Request, kind: type[T]) -> T:
    """What was sent as JSON. Whatever is wrong with it is answered with 400."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fields = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise HTTPException(400, f"send a JSON object with {fields}: {error}") from None


def partition_of(request: Request) -> int:
    """The partition that the path names. A number that Kafka cannot have is answered with 404."""
    given: str = request.path_params["number"]
    if not (given.isascii() and given.isdigit() and len(given) <= 10 and int(given) <= MAX_PARTITION_NUMBER):
        raise HTTPException(
            404, f"there is no partition {given[:20]!r}: give a number from 0 to {MAX_PARTITION_NUMBER}"
        )
    return int(given)


def _same_origin(headers: Headers) -> bool:
    try:
        origin = urlsplit(headers.get("origin", ""))
    except ValueError:
        return False
    return origin.scheme in ("http", "https") and origin.netloc.lower() == headers.get("host", "").lower()


def _limited(receive: Receive) -> Receive:
    """A body without a length is counted as it comes."""
    taken = 0

    async def received() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            raise HTTPException(413, _too_much_text())
        return message

    return received


def _too_much() -> Response:
    return problem(413, _too_much_text())


def _too_much_text() -> str:
    return f"the body is too large: send at most {MAX_BODY_BYTES} bytes"
