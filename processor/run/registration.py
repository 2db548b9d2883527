"""One process for each ``instance``: who comes second gives up at its start, before it could disturb the first.

The broker would do the opposite: it lets a newer static member fence the older one, and under a supervisor the two end
each other for ever. So a process registers before it joins the group, and refreshes its record while it runs.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from processor import __version__
from processor.adapters.redis.processes import RedisProcesses
from processor.config import Config
from processor.ports.log import OperatorActionRequiredError
from processor.ports.processes import EXPIRY_MS, REFRESH_SECONDS, ForeignProcess, Process, Processes, read
from processor.ports.store import StoreError, StoreUnavailableError, StoreUnusableError
from processor.telemetry.logs import log

from .assembly import monotonic_ms, wall_ms

CHECK_INTERVAL_SECONDS = 0.2
"""Seconds between two looks at the record of somebody who may still run."""
LONGEST_WAIT_MS = 3 * EXPIRY_MS
"""Milliseconds for a record to expire or to be refreshed; longer, and somebody keeps it there by other means."""
STOP_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for the answer to a refresh when we stop."""
NOT_ALLOWED = "allow this user GET and SET on the keys <redis.prefix>:process:*; until then no double is noticed here"


class Registration:
    """The record of this process: taken by ``start``, refreshed by a thread beside the loop, deleted by ``stop``.

    ``trouble`` says why this process must end, once another one has its name: ``told`` is then set.
    """

    def __init__(
        self,
        processes: Processes,
        process: Process,
        told: threading.Event,
        gone: Callable[[Process, Process], bool] | None = None,
        clock: Callable[[], int] = wall_ms,
        monotonic: Callable[[], int] = monotonic_ms,
    ) -> None:
        """``told``: set when this process should stop. Both clocks in milliseconds."""
        self.trouble = ""
        self._processes, self._process, self._told = processes, process, told
        self._gone, self._clock, self._monotonic = gone or is_gone, clock, monotonic
        self._seen: bytes | None = None
        """the record of somebody else under our name, at the last refresh"""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="registration", daemon=True)

    def start(self) -> None:
        """Take the name, and keep it.

        Raises OperatorActionRequiredError if another process runs under it, StoreUnavailableError without a store.

        Without the rights for it we run unregistered, and say so: the group still has one member of a name only.
        """
        try:
            self.enter()
        except StoreUnusableError as error:
            log(logging.WARNING, "not registered", why=error, remedy=NOT_ALLOWED)
            return
        self._thread.start()

    def stop(self) -> None:
        """Give the name back, if it is still ours. A store that does not answer is not waited for: it expires."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_SECONDS)
            if self._thread.is_alive():
                return
            with suppress(StoreError):
                self._processes.release(self._process)
        self._processes.close()

    def enter(self) -> None:
        """Take the name, at once or when the record of somebody who does not run any more has expired."""
        first, since = b"", self._monotonic()
        while not self._told.is_set():
            found = self._hold()
            other = read(found) if found is not None else None
            if isinstance(other, Process) and self._gone(other, self._process):
                found = self._hold(instead_of=other.token)
            if found is None:
                return
            if first and found != first:
                raise OperatorActionRequiredError(self._taken(read(found)))
            if not first:
                first = found
                log(logging.WARNING, "waiting", why=f"{_who(read(found))} may still run as {self._process.instance}")
            if self._monotonic() - since > LONGEST_WAIT_MS:
                raise OperatorActionRequiredError(
                    f'the record of instance "{self._process.instance}" in the registry of processes is neither '
                    f"refreshed nor does it expire. Remedy: if nothing runs under that name, delete the key "
                    f"<redis.prefix>:process:{self._process.instance} in Redis"
                )
            self._told.wait(CHECK_INTERVAL_SECONDS)

    def refresh(self, suspended: bool = False) -> None:
        """Write our record again. If somebody else's is there, whoever started later gives up.

        Both may have found nothing when they started: Redis was emptied, or fell back to an older copy. The older one
        takes the name back; the newer one gives up when it has seen that refreshed, since the broker may have ended
        the older one already. ``suspended``: we did not run for longer than our record lives, so whoever took our place
        did it rightly.
        """
        found, seen = self._hold(), self._seen
        self._seen = found
        if found is None:
            return
        other = read(found)
        if isinstance(other, Process) and not suspended and _order(self._process) < _order(other):
            self._seen = self._hold(instead_of=other.token)
        elif suspended or (seen is not None and seen != found):
            self.trouble = self._taken(other)
            self._told.set()

    def _hold(self, instead_of: str = "") -> bytes | None:
        return self._processes.hold(msgspec.structs.replace(self._process, refreshed=self._clock()), instead_of)

    def _keep(self) -> None:
        complained = ""
        while not self.trouble:
            before = self._monotonic()
            if self._ended.wait(REFRESH_SECONDS):
                return
            try:
                self.refresh(suspended=self._monotonic() - before > EXPIRY_MS)
            except StoreUnavailableError:
                continue  # the loop says so already; we go on and try again
            except StoreUnusableError as error:
                if str(error) != complained:
                    complained = str(error)
                    log(logging.WARNING, "not registered", why=complained, remedy=NOT_ALLOWED)

    def _taken(self, other: Process | ForeignProcess) -> str:
        return (
            f'another process runs as instance "{self._process.instance}": {_who(other)}. '
            'Remedy: give every process its own "instance"'
        )


def _order(process: Process) -> tuple[int, str]:
    return process.started, process.token


def _who(other: Process | ForeignProcess) -> str:
    if isinstance(other, ForeignProcess):
        return "somebody of a later version" if other.form else "somebody whose record cannot be read"
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(other.started / 1_000))
    return f"host {other.host}, pid {other.pid}, since {since}, its pages at {other.http}"


def registration_of(config: Config, told: threading.Event) -> Registration:
    """The registration of this process in Redis."""
    redis = config.redis
    processes = RedisProcesses(redis.url.reveal(), redis.prefix, redis.cluster, redis.timeout_ms / 1_000)
    return Registration(processes, this_process(config), told)


def this_process(config: Config) -> Process:
    now = wall_ms()
    return Process(
        instance=config.kafka.instance,
        host=socket.gethostname(),
        pid=os.getpid(),
        kernel=_kernel(),
        start=_stat(os.getpid())[1],
        http=f"{config.http.host}:{config.http.port}",
        version=__version__,
        started=now,
        refreshed=now,
        token=secrets.token_hex(16),
    )


def is_gone(other: Process, ours: Process) -> bool:
    """Whether a process certainly does not run any more: known only of one whose pid means the same here.

    Host and pid are not enough. Every container has a pid 1, and two of them can have one hostname. So one that was
    killed and comes back in another namespace waits until its old record has expired.
    """
    if not ours.kernel or (other.host, other.kernel) != (ours.host, ours.kernel):
        return False
    if (other.pid, other.start) == (ours.pid, ours.start):
        return not ours.start  # without a start we have its pid, so it has none
    return not _runs(other.pid, other.start)


def _runs(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's, so it runs
    state, now = _stat(pid)
    return not now or (now == start and state not in ("Z", "X"))


def _stat(pid: int) -> tuple[str, str]:
    """State and start of a process by its kernel (clock ticks since the boot); empty where that cannot be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def _kernel() -> str:
    """Where a pid means the same; empty if that cannot be known."""
    if not sys.platform.startswith("linux"):
        return sys.platform  # no namespaces
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
