"""Ask a running processor to let a partition go on."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from processor.core.errors import GForceError
from processor.runtime.config.values import Secret

TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    partition: int
    owned: bool
    state: str
    text: str


def resumed(url: str, partition: int, token: Secret | None = None) -> Answer:
    """Look whether the process has the partition and whether it is stopped; if so, ask."""
    base = url.rstrip("/")
    status, body = _ask(f"{base}/readyz", "GET", token)
    try:
        states: dict[str, str] = msgspec.json.decode(body)["partitions"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise GForceError(f"{base} is no processor: /readyz answered {status}. Give its address with --url") from None
    state = states.get(str(partition))
    if state is None:
        owns = ", ".join(sorted(states, key=int)) or "none"
        return Answer(partition, False, "", f"{base} does not own partition {partition}; it owns {owns}")
    if state not in ("broken", "quarantined"):
        return Answer(partition, True, state, f"partition {partition} is {state}: there is nothing to resume")
    status, body = _ask(f"{base}/partitions/{partition}/resume", "POST", token)
    if status != 202:
        raise GForceError(f"{base} refuses to resume partition {partition}: {status} {body.decode(errors='replace')}")
    return Answer(partition, True, state, f"partition {partition} was stopped and has been asked to go on")


def _ask(url: str, method: str, token: Secret | None) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token.reveal()}"} if token else {}
    try:
        request = Request(url, method=method, headers=headers)
        with urlopen(request, timeout=TIMEOUT) as answer:
            body: Any = answer.read()
            return answer.status, body
    except HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GForceError(f"cannot reach {url} ({reason}): give the processor's address with --url") from None
