"""Which processes run, by the name each one has (its ``instance``): a registry beside the state.

Every process keeps one record with an expiry and refreshes it. So a name has one user at a time, a second one learns at
its start who has it, and whoever looks at the registry sees the whole fleet.

Two implementations: ``redis`` (one key for each process) and ``memory``. One contract suite runs on both.
"""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

FORM = 1
"""of a record"""
EXPIRY_MS = 10_000
"""milliseconds until a record that nobody refreshes is gone"""
REFRESH_SECONDS = 2.0

Milliseconds = Annotated[int, Meta(ge=0, le=2**53)]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process as it registers."""

    form: int = FORM
    instance: str
    host: str
    pid: Annotated[int, Meta(ge=1)]
    kernel: str
    """the boot of the machine and the namespace of ``pid``: where both are the same, so is what a pid means"""
    start: str
    """when the process started, by that kernel: a pid is used again, but not with this"""
    http: str
    """host:port of its pages"""
    version: str
    started: Milliseconds
    """milliseconds since 1970, by its own clock"""
    refreshed: Milliseconds
    """the same, of the record"""
    token: str
    """random, its own"""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class ForeignProcess(msgspec.Struct, frozen=True):
    """Somebody is there of whom nothing more is known: a later form, or no record of ours at all."""

    form: int | None = None
    """None: not a record"""


def read(text: bytes) -> Process | ForeignProcess:
    """What a record says.

    >>> read(b'{"form": 2, "who": "knows"}'), read(b"something else")
    (ForeignProcess(form=2), ForeignProcess(form=None))
    """
    try:
        form = msgspec.json.decode(text, type=_OnlyForm).form
        return msgspec.json.decode(text, type=Process) if form == FORM else ForeignProcess(form)
    except msgspec.DecodeError:
        return ForeignProcess()


class _OnlyForm(msgspec.Struct):
    form: int


class Processes(Protocol):
    """Raises StoreUnavailableError and StoreUnusableError as a ``Store`` does."""

    def hold(self, process: Process, instead_of: str = "") -> bytes | None:
        """Write or refresh the record of a process; None if that was done.

        If there is a record with another token, it stays and is returned; except where its token is ``instead_of``.
        """

    def release(self, process: Process) -> None:
        """Delete its record if it still is its own."""

    def close(self) -> None: ...
