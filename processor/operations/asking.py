"""Ask a running processor over its port, as a command does."""

from __future__ import annotations

from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from processor.config.values import Secret
from processor.core.errors import GForceError
from processor.telemetry.guard import OWN_HEADER

TIMEOUT_SECONDS = 5.0
"""Seconds."""


def ask(
    url: str, method: str, token: Secret | None = None, body: bytes | None = None, timeout: float = TIMEOUT_SECONDS
) -> tuple[int, bytes]:
    """The status of the answer and its content. The body is JSON."""
    headers = {OWN_HEADER: "1"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if token:
        headers["Authorization"] = f"Bearer {token.reveal()}"
    try:
        with urlopen(Request(url, body, headers, method=method), timeout=timeout) as answer:
            content: bytes = answer.read()
            return int(answer.status), content
    except HTTPError as error:
        with error:
            content = error.read()
        if error.code == 421:
            raise GForceError(f"{url}: {said(content)}, or give the processor's IP address with --url") from None
        return error.code, content
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GForceError(f"cannot reach {url} ({reason}): give the processor's address with --url") from None


def said(content: bytes) -> str:
    """What an answer says is wrong.

    >>> said(b'{"error": "a bearer token is needed"}')
    'a bearer token is needed'
    >>> said(b"no processor at all")
    'no processor at all'
    """
    try:
        return str(msgspec.json.decode(content)["error"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return content.decode(errors="replace").strip()
