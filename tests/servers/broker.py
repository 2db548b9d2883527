"""A real Apache Kafka broker for the tests.

Found in this order: ``KAFKA_BOOTSTRAP`` in the environment; Docker through testcontainers; Java and Maven, which
resolve the broker's jars once into a cache outside the checkout. librdkafka's mock cluster is no substitute: it
enforces neither transactions nor fencing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

POM = Path(__file__).with_name("pom.xml")
START_SECONDS = 90.0

# One node is the whole cluster: replication 1, few internal partitions, and no wait for members that never come.
SINGLE_NODE = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",  # a killed broker may register again only when its old session is over
    "default.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.retention.ms": "-1",  # tests write records of years ago
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}


class Listener(NamedTuple):
    """One more way into the broker, which then must be a process of ours."""

    name: str
    protocol: str
    port: int


class UnsupportedError(RuntimeError):
    """This kind of broker cannot be killed or restarted."""


def available() -> str | None:
    """Why no broker can be had, or None if one can."""
    if os.environ.get("KAFKA_BOOTSTRAP") or _docker_answers():
        return None
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if not missing or (missing == ["mvn"] and (_cache() / "complete").exists()):
        return None
    return f"no KAFKA_BOOTSTRAP in the environment, no Docker engine answers, and {' and '.join(missing)} not found"


class Broker:
    """A single-node cluster on loopback. ``properties`` override the broker's own, ``listeners`` come on top of it."""

    def __init__(self, properties: Mapping[str, str] | None = None, listeners: Sequence[Listener] = ()) -> None:
        self._properties, self._listeners = dict(properties or {}), listeners
        self._running: _Address | _Container | _Process | None = None

    @property
    def bootstrap(self) -> str:
        assert self._running is not None, "start() the broker first"
        return self._running.bootstrap

    @property
    def pid(self) -> int | None:
        """The broker's process, where it is one of ours."""
        return self._running.pid if isinstance(self._running, _Process) else None

    @property
    def restartable(self) -> bool:
        """Whether ``kill`` and ``restart`` work here."""
        return not isinstance(self._running, _Address)

    def start(self) -> Broker:
        """Start, or start again on the same data and port after ``kill`` or ``stop``."""
        if self._running is None:
            self._running = _choose(self._properties, self._listeners)
        self._running.start()
        return self

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        assert self._running is not None, "start() the broker first"
        self._running.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        """End it and delete its data."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _choose(properties: Mapping[str, str], listeners: Sequence[Listener]) -> _Address | _Container | _Process:
    if listeners:
        return _Process(properties, listeners)
    if address := os.environ.get("KAFKA_BOOTSTRAP"):
        return _Address(address)
    if _docker_answers():
        return _Container(properties)
    return _Process(properties)


class _Address:
    """Somebody else's broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        _wait_for(self.bootstrap, lambda: None)

    def kill(self) -> None:
        raise UnsupportedError("the broker of KAFKA_BOOTSTRAP is not ours to kill; unset it to start one here")

    def stop(self) -> None:
        pass


class _Container:
    """A broker in Docker. Stopped and started again as the same container, so port and data stay."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        # The advertised port must survive a restart, and a published port of Docker's choice does not.
        self._port = _free_port()
        self._container = _apache_image(self._port, {**SINGLE_NODE, **properties})
        self._created = False
        self.bootstrap = f"127.0.0.1:{self._port}"

    def start(self) -> None:
        if self._created:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._created = True
        _wait_for(self.bootstrap, self._ended)

    def _ended(self) -> str | None:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return None if wrapped.status in {"created", "running"} else wrapped.logs(tail=30).decode()

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def stop(self) -> None:
        if self._created:
            self._container.stop()
            self._created = False


def _apache_image(port: int, properties: Mapping[str, str]) -> Any:
    """The official image, configured by KAFKA_* variables; testcontainers' own class is for Confluent's image."""
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(f"apache/kafka:{kafka_version()}").with_bind_ports(9092, port)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **properties,
    }
    for name, value in settings.items():
        container = container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    return container


class _Process:
    """A broker as a child process of ours."""

    def __init__(self, properties: Mapping[str, str], listeners: Sequence[Listener] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gforce-kafka-"))
        self._port, self._controller = _free_port(), _free_port()
        self._config = self._folder / "server.properties"
        self._log = self._folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._formatted = False
        self._write_config(properties, listeners)
        self.bootstrap = f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _write_config(self, properties: Mapping[str, str], listeners: Sequence[Listener]) -> None:
        more = "".join(f",{one.name}://localhost:{one.port}" for one in listeners)
        protocols = "".join(f",{one.name}:{one.protocol}" for one in listeners)
        settings = {
            **SINGLE_NODE,
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller}{more}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}{more}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "log.dirs": str(self._folder / "data"),
            "num.io.threads": "4",
            "num.network.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            **properties,
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def start(self) -> None:
        jars = resolved_jars()
        if not self._formatted:
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # An id that begins with a dash would be read as an option.
            cluster = cluster.replace("-", "a", 1) if cluster.startswith("-") else cluster
            self._java(jars, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", self._config)
            self._formatted = True
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_command(jars, "-Xmx512m", "-Xms256m"), "kafka.Kafka", str(self._config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for pytest, which then stops us in order
            )
        _wait_for(self.bootstrap, self._ended)

    def _java(self, jars: Path, *arguments: object) -> None:
        command = [*_command(jars, "-Xmx128m"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} failed: {done.stderr or done.stdout}")

    def _ended(self) -> str | None:
        if self._process is None or self._process.poll() is None:
            return None
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        # Its data is thrown away, so there is nothing an orderly shutdown would save but time.
        self._end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
        if self._process is not None:
            self._process.wait(timeout=30)
        self._process = None


def _command(jars: Path, *options: str) -> list[str]:
    logs = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
    # C1 only and one collector thread: a test broker lives for seconds, on a machine with two cores.
    return ["java", *options, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *logs, "-cp", f"{jars}/*"]


def resolved_jars() -> Path:
    """The folder with the broker's jars, filled by Maven on first use."""
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / "lock"):
        if not (folder / "complete").exists():
            _resolve(folder)
            (folder / "complete").touch()
    return folder


def _resolve(folder: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"Maven could not resolve the Kafka broker: {done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Parallel test workers resolve once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kafka_version() -> str:
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text())
    assert found is not None
    return found.group(1)


def _cache() -> Path:
    root = os.environ.get("GFORCE_CACHE") or Path.home() / ".cache" / "gforce"
    return Path(root) / f"kafka-{kafka_version()}"


def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        timeout=20,
        check=False,
    )
    return asked.returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(bootstrap: str, ended: Any) -> None:
    """Until the broker answers a metadata request with itself in it."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if reason := ended():
            raise RuntimeError(f"the Kafka broker ended while starting:\n{reason}")
        with contextlib.suppress(KafkaException):
            if client.list_topics(timeout=1).brokers:
                return
        time.sleep(0.1)
    raise RuntimeError(f"no Kafka broker answered at {bootstrap} within {START_SECONDS:.0f} s")
