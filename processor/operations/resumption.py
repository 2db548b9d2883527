"""Ask a running processor to let a partition go on."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from processor.config.values import Secret
from processor.core.errors import GForceError

from .asking import ask, said


@dataclass(frozen=True, slots=True)
class ResumeAnswer:
    partition: int
    owned: bool
    state: str
    text: str


def resumed(url: str, partition: int, token: Secret | None = None) -> ResumeAnswer:
    """Look whether the process has the partition and whether it is stopped; if so, ask."""
    base = url.rstrip("/")
    status, body = ask(f"{base}/readyz", "GET", token)
    try:
        states: dict[str, str] = msgspec.json.decode(body)["partitions"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise GForceError(f"{base} is no processor: /readyz answered {status}. Give its address with --url") from None
    state = states.get(str(partition))
    if state is None:
        owns = ", ".join(sorted(states, key=int)) or "none"
        return ResumeAnswer(partition, False, "", f"{base} does not own partition {partition}; it owns {owns}")
    if state not in ("broken", "quarantined"):
        return ResumeAnswer(partition, True, state, f"partition {partition} is {state}: there is nothing to resume")
    status, body = ask(f"{base}/partitions/{partition}/resume", "POST", token)
    if status != 202:
        raise GForceError(f"{base} refuses to resume partition {partition}: {status} {said(body)}")
    return ResumeAnswer(partition, True, state, f"partition {partition} was stopped and has been asked to go on")
