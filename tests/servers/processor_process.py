"""The processor as a process of its own, and what stands around it: its topics, their producers, their readers.

Everything here speaks to the outside only: records on topics, pages over HTTP, signals, exit codes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener
from uuid import uuid4

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import (
    TopicPartition as KafkaTopicPartition,
)
from prometheus_client.parser import text_string_to_metric_families

from processor.adapters.kafka.admin import Topic, create_topics
from processor.core.stream.partitioner import partition_of

from .redis_server import free_port

ROOT = Path(__file__).parents[2]
DEADLINE = float(os.environ.get("TEST_DEADLINE", "60"))
"""Seconds; only a test that fails ever waits so long."""
SEED = "5e" * 32
ROLES = ("requests", "feedback", "decisions", "journal", "changelog", "dead-letters", "alerts")
# Loopback needs no proxy, whatever the environment says.
_OPENER = build_opener(ProxyHandler({}))

Sections = Mapping[str, Mapping[str, object]]
T = TypeVar("T")


class Page(NamedTuple):
    """An answer over HTTP; status 0 is no answer."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text) if self.status else {}


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class Found(NamedTuple):
    """A record that was read."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]

    @property
    def json(self) -> Any:
        return json.loads(self.value or b"null")

    def header(self, name: str) -> str:
        return (self.headers.get(name) or b"").decode()


def eventually(attempt: Callable[[], T], wanted: Callable[[T], object] = bool, what: str = "it") -> T:
    """Try until the answer is the wanted one."""
    deadline = time.monotonic() + DEADLINE
    while True:
        seen = attempt()
        if wanted(seen):
            return seen
        shown = repr(seen)
        assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE:.0f} s; last seen: {shown[-2000:]}"
        time.sleep(0.05)


class ProcessorProcess:
    """``python -m processor.cli run`` with a configuration of its own, in a folder of its own."""

    def __init__(self, sections: Sections, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "gforce.toml"
        self.config.write_text(toml({**sections, "http": {"port": self.port}}))
        self._log = folder / "processor.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> ProcessorProcess:
        """Start, or start again with the same configuration."""
        assert self._process is None, "it runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "processor.cli", "run", "--config", str(self.config)],
                cwd=self._folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for pytest, which then stops us in order
            )
        return self

    def start_ready(self) -> ProcessorProcess:
        """Start, and wait until it owns and has recovered its partitions."""
        self.start()
        self.wait_ready()
        return self

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: nothing is committed on the way out, nobody is told."""
        self._end(signal.SIGKILL)

    def wait(self) -> int:
        """The exit code of a process that ends by itself."""
        assert self._process is not None
        code = self._process.wait(DEADLINE)
        self._process = None
        return code

    def ended(self, within: float) -> bool:
        """Whether it has ended by itself, or does within so many seconds."""
        assert self._process is not None
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of a process that has ended by itself; None while it runs, and if it was ended from here."""
        return self._process.poll() if self._process is not None else None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def resident_bytes(self) -> int:
        """Memory it holds now. Linux only."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak_bytes(self) -> int:
        """The most memory it has held. Linux only."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))

    # Pages

    def get(self, path: str, method: str = "GET") -> Page:
        request = Request(f"http://127.0.0.1:{self.port}{path}", headers={"X-Gforce": "1"}, method=method)
        try:
            with _OPENER.open(request, timeout=10) as answer:
                return Page(answer.status, answer.read().decode())
        except HTTPError as refused:
            with refused:
                return Page(refused.code, refused.read().decode())
        except (URLError, OSError):
            return Page(0, "")

    def post(self, path: str) -> Page:
        return self.get(path, "POST")

    def wait_ready(self) -> Page:
        return self.wait_page("/readyz", 200)

    def wait_page(self, path: str, status: int) -> Page:
        def attempt() -> Page:
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError(f"the processor ended with {self._process.returncode}:\n{self.log[-4000:]}")
            return self.get(path)

        return eventually(attempt, lambda page: page.status == status, f"{path} = {status} (log: {self.log[-1500:]})")

    def partitions(self) -> set[int]:
        """Those it says it owns."""
        return {int(number) for number in self.get("/readyz").json.get("partitions", {})}

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Every sample by its name and its labels in order."""
        page = self.get("/metrics")
        assert page.status == 200, page
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page.text)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics().get((name, tuple(sorted(labels.items()))), 0.0)

    def tally(self, tenant: str) -> dict[str, int]:
        """What the tenant's state says has happened since its first request."""
        tenants = self.get("/status").json.get("tenants", ())
        return next((dict(each["tally"]) for each in tenants if each["name"] == tenant), {})

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None, "it does not run"
        self._process.send_signal(how)
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._process = None
            raise AssertionError(f"the processor did not end on {how.name}:\n{self.log[-4000:]}") from None
        self._process = None
        return code


class Deployment:
    """One set of topics with a group, a store, and the processors on them. ``close`` ends whatever it started."""

    def __init__(self, bootstrap: str, redis_url: str, folder: Path, partitions: int = 2) -> None:
        self.bootstrap, self.partitions = bootstrap, partitions
        self.name = f"t{uuid4().hex[:10]}"
        self._redis_url, self._folder = redis_url, folder
        self._processors: list[ProcessorProcess] = []
        self._tails: dict[str, Tail] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "message.max.bytes": 4 << 20,
            }
        )
        # By default the broker itself refuses timestamps more than an hour ahead; the processor must not rely on it.
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        create_topics(
            {"bootstrap.servers": bootstrap}, [Topic(self.topic(role), partitions, configs) for role in ROLES]
        )

    def topic(self, role: str) -> str:
        return f"{self.name}.{role}"

    def processor(self, instance: str = "one", sections: Sections | None = None) -> ProcessorProcess:
        """One that is not started yet. ``sections`` change single keys of the configuration."""
        own: dict[str, dict[str, object]] = {
            "kafka": {
                "bootstrap_servers": self.bootstrap,
                "group": self.name,
                "instance": instance,
                "session_timeout_ms": 6_000,  # the least an unconfigured broker allows
                "consumer_properties": {"heartbeat.interval.ms": 300},
            },
            "topics": {"prefix": f"{self.name}."},
            "redis": {"url": self._redis_url, "prefix": self.name},
            "processing": {"seed": SEED, "grace_ms": 200},
            "log": {"format": "json"},
        }
        for section, keys in (sections or {}).items():
            own[section] = {**own.get(section, {}), **keys}
        made = ProcessorProcess(own, self._folder / f"{self.name}-{instance}")
        self._processors.append(made)
        return made

    # Producing

    def send(
        self,
        role: str,
        records: Iterable[tuple[bytes | None, bytes | None]],
        *,
        partition: int | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp: int = 0,
    ) -> list[Place]:
        """Produce (key, value) pairs, by key unless a partition is given, and wait until the broker has them."""
        places: dict[int, Place] = {}

        def reported(index: int) -> Callable[[KafkaError | None, Message], None]:
            def report(error: KafkaError | None, message: Message) -> None:
                assert error is None, error
                places[index] = Place(message.topic() or "", message.partition() or 0, message.offset() or 0)

            return report

        count = 0
        for index, (key, value) in enumerate(records):
            count += 1
            where = -1 if partition is None else partition
            while True:
                try:
                    self._producer.produce(
                        self.topic(role), value, key, where, reported(index), timestamp=timestamp, headers=headers
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(DEADLINE) == 0, "the broker did not take the records"
        return [places[index] for index in range(count)]

    def request(self, tenant: str, decision_id: str, **more: Any) -> tuple[bytes, bytes]:
        """Key and value of a valid request."""
        event = {"tenant": tenant, "decision_id": decision_id, "group": "A", "predictions": {"m": "true"}, **more}
        return tenant.encode(), json.dumps(event).encode()

    def label(self, tenant: str, decision_id: str, label: str = "true") -> tuple[bytes, bytes]:
        event = {"tenant": tenant, "decision_id": decision_id, "label": label}
        return tenant.encode(), json.dumps(event).encode()

    def tenants_on(self, partition: int, count: int = 1) -> list[str]:
        """Names whose key belongs to a partition."""
        names = (f"tenant-{number}" for number in range(100_000))
        return [name for name, _ in zip(self._belonging(names, partition), range(count), strict=False)]

    def _belonging(self, names: Iterable[str], partition: int) -> Iterable[str]:
        return (name for name in names if partition_of(name.encode(), self.partitions) == partition)

    # Reading

    def records(self, role: str) -> list[Found]:
        """Everything committed to a topic so far."""
        if role not in self._tails:
            self._tails[role] = Tail(self.bootstrap, self.topic(role), self.partitions)
        return self._tails[role].read()

    def decisions(self) -> list[tuple[str, str]]:
        """Tenant and id of every decision, in no order."""
        found = (record.json for record in self.records("decisions"))
        return [(event["tenant"], event["decision_id"]) for event in found]

    def dead_letters(self) -> dict[Place, Found]:
        """By the place of the original record; one letter for each."""
        letters: dict[Place, Found] = {}
        for letter in self.records("dead-letters"):
            source = [letter.header(f"gforce.{part}") for part in ("topic", "partition", "offset")]
            place = Place(source[0], int(source[1]), int(source[2]))
            assert place not in letters, f"two dead letters for {place}"
            letters[place] = letter
        return letters

    def close(self) -> None:
        for processor in self._processors:
            processor.close()
        for tail in self._tails.values():
            tail.close()


class Tail:
    """A ``read_committed`` consumer of a whole topic from its beginning, as any client would write it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"tail-{uuid4().hex[:8]}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([KafkaTopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        self._found: list[Found] = []

    def read(self) -> list[Found]:
        """What has been read by now; each call reads on for a moment."""
        until = time.monotonic() + 0.3
        while messages := self._consumer.consume(10_000, max(until - time.monotonic(), 0.0)):
            for message in messages:
                self._take(message)
        return list(self._found)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            place = Place(message.topic() or "", message.partition() or 0, message.offset() or 0)
            headers: Any = message.headers() or []
            self._found.append(Found(place, message.key(), message.value(), dict(headers)))
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)

    def close(self) -> None:
        self._consumer.close()


def clean_environment() -> dict[str, str]:
    """The environment without our own variables: a test says what it configures."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GFORCE_", "COV_CORE"))}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def toml(sections: Sections) -> str:
    """Tables of plain values as TOML; JSON's spelling of strings, numbers, booleans and arrays is TOML's too."""
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_value(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)
