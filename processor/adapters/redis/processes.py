"""The registry of processes in Redis: ``<prefix>:process:<instance>``, a JSON text with an expiry for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from redis.exceptions import RedisClusterException, RedisError

from processor.ports.processes import EXPIRY_MS, Process

from .connecting import RedisConnection
from .store import translated


@cache
def _script(name: str) -> str:
    return (resources.files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


class RedisProcesses:
    """See ``Processes`` for the contract. Each call is one script on one key, so on one node of a cluster."""

    def __init__(self, url: str, prefix: str, cluster: bool = False, timeout: float = 5.0) -> None:
        self._link = RedisConnection(url, cluster, timeout)
        self._prefix = prefix

    def key(self, instance: str) -> str:
        return f"{self._prefix}:process:{instance}"

    def hold(self, process: Process, instead_of: str = "") -> bytes | None:
        arguments = (process.encode(), process.token, EXPIRY_MS, instead_of)
        found: bytes | None = self._run("hold_process", process, *arguments)
        return found

    def release(self, process: Process) -> None:
        self._run("release_process", process, process.token)

    def close(self) -> None:
        self._link.close()

    def _run(self, name: str, process: Process, *arguments: bytes | str | int) -> Any:
        ask: Callable[[Any], Any] = lambda client: client.eval(  # noqa: E731
            _script(name), 1, self.key(process.instance), *arguments
        )
        try:
            return self._link.call(ask)
        except (RedisError, RedisClusterException, OSError) as error:
            raise translated(error, self._link.address) from error
