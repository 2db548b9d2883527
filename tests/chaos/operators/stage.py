"""One scenario's topics, processors and load, and what an operator does and sees."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from processor.core.errors import GForceError
from processor.runtime.config import load as load_config
from processor.runtime.operations.group import opened
from processor.runtime.operations.tenant_state import tenant_state
from tests.servers.broker import Broker
from tests.servers.processor_process import ROOT, Deployment, Page, ProcessorProcess, Sections, clean_environment
from tests.servers.redis_server import RedisServer

from .stream import Load, Reader, Sender
from .table import Row

PARTITIONS = 4
TENANTS_EACH = 3
"""tenants on each partition"""
RATE = 120.0
"""requests per second, of all partitions together"""
QUIET = 10.0
"""seconds that a healthy partition may be silent, unless a scenario says otherwise"""
SESSION_MS = 4_000
AFTER_EXIT = 1.0
"""seconds after which the supervisor starts a processor again"""
LOOK_EVERY = 0.2
_DELETE = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end"
"""at one moment, as FLUSHALL does, and of one scenario only"""


class Servers:
    """One broker and one Redis for all scenarios."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.redis = RedisServer(own=True)
        self.folder = Path(tempfile.mkdtemp(prefix="gforce-operators-"))

    def __enter__(self) -> Servers:
        try:
            self.broker.start()
            self.redis.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self.broker.stop()
        self.redis.stop()


class Look(NamedTuple):
    """What ``/readyz`` of one processor said."""

    at: float
    instance: str
    page: Page

    @property
    def states(self) -> dict[str, str]:
        return dict(self.page.json.get("partitions", {}))

    @property
    def trouble(self) -> dict[str, str]:
        return dict(self.page.json.get("trouble", {}))


@dataclass(frozen=True)
class Exit:
    """A processor that ended without being told to."""

    instance: str
    code: int
    last_words: str


class Supervisor(threading.Thread):
    """Looks at every processor five times a second, and starts again what has ended by itself."""

    def __init__(self) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.processors: dict[str, ProcessorProcess] = {}
        self.looks: list[Look] = []
        self.exits: list[Exit] = []
        self._halt = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._halt.wait(LOOK_EVERY):
            with self._lock:
                for instance, processor in list(self.processors.items()):
                    self._tend(instance, processor)

    def _tend(self, instance: str, processor: ProcessorProcess) -> None:
        code = processor.exit_code
        if code is None:
            self.looks.append(Look(time.monotonic(), instance, processor.get("/readyz")))
            return
        processor.wait()
        self.exits.append(Exit(instance, code, processor.log.strip().splitlines()[-1][-400:]))
        self._halt.wait(AFTER_EXIT)
        processor.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """So that a processor can be ended on purpose."""
        with self._lock:
            yield

    def stop(self) -> None:
        self._halt.set()
        self.join(30)


@dataclass
class Stage:
    """What a scenario works on. ``finish`` ends it and says how it went."""

    name: str
    servers: Servers
    options: dict[str, int] = field(default_factory=dict)
    partitions: int = PARTITIONS
    redis_url: str = ""
    """of the processors; the shared server unless a scenario says otherwise"""
    numbered: int = 0
    """requests on partition 0 that are counted by number"""
    held: set[int] = field(default_factory=set)
    """partitions that rightly stand still at the end"""
    unhealthy: set[int] = field(default_factory=set)
    """partitions whose silence is no matter"""
    parts: dict[int, str] = field(default_factory=dict)
    """rows of their own: the name by partition"""
    quiet: float = QUIET
    settle: float = 30.0
    """seconds from the end of the load until everything must be decided"""
    sees: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    of_part: dict[int, list[str]] = field(default_factory=dict)
    """problems of one partition only"""

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.loads: list[Load] = []
        self.supervisor = Supervisor()
        self.servers_of_its_own = contextlib.ExitStack()
        self._stopped: dict[str, ProcessorProcess] = {}

    def open(self, sections: Sections | None = None) -> None:
        """Topics, sender and reader; ``sections`` are of all its processors."""
        self.sections = sections or {}
        bootstrap = self.servers.broker.bootstrap
        url = self.redis_url or self.servers.redis.url
        self.deployment = Deployment(bootstrap, url, self.servers.folder / self.name, self.partitions)
        topics = [self.deployment.topic(role) for role in ("requests", "feedback")]
        self.sender = Sender(bootstrap, topics[0], topics[1], self.partitions)
        self.properties = {"bootstrap.servers": bootstrap, "log_level": 2}
        self.reader = Reader(bootstrap, self.deployment.topic("decisions"), self.partitions, self.numbered)
        self.reader.start()
        self.supervisor.start()
        self.tenants = {p: self.deployment.tenants_on(p, TENANTS_EACH) for p in range(self.partitions)}

    # Processors

    def run(self, *instances: str) -> list[ProcessorProcess]:
        """Start processors under the supervisor and wait until all partitions are ready."""
        made = [self.start(instance) for instance in instances or ("one",)]
        ready = self.wait(lambda: self.ready() == set(range(self.partitions)), 60)
        self.check(ready, f"not every partition became ready: {self.states_shown()}")
        return made

    def start(self, instance: str = "one", more: Sections | None = None) -> ProcessorProcess:
        processor = self.supervisor.processors.get(instance)
        if processor is None:
            own: dict[str, dict[str, object]] = {
                "kafka": {"session_timeout_ms": SESSION_MS, "consumer_properties": {"heartbeat.interval.ms": 500}},
                "redis": {"timeout_ms": 2_000},
            }
            for sections in (self.sections, more or {}):
                for section, keys in sections.items():
                    own[section] = {**own.get(section, {}), **keys}
            processor = self.deployment.processor(instance, own)
        processor.start()
        with self.supervisor.paused():
            self.supervisor.processors[instance] = processor
        return processor

    def stop_processors(self, kill: bool = False) -> list[ProcessorProcess]:
        """End all of them; ``start`` starts one again."""
        with self.supervisor.paused():
            stopped = self.supervisor.processors
            self.supervisor.processors = {}
        for processor in stopped.values():
            if processor.exit_code is not None:
                processor.wait()
            elif kill:
                processor.kill()
            else:
                processor.stop()
        self._stopped = stopped
        return list(stopped.values())

    def start_again(self) -> None:
        """Those that were stopped."""
        for processor in self._stopped.values():
            processor.start()
        with self.supervisor.paused():
            self.supervisor.processors = dict(self._stopped)

    @property
    def processors(self) -> list[ProcessorProcess]:
        return list(self.supervisor.processors.values())

    # Load

    def load(
        self, rate: float = RATE, partitions: Iterable[int] | None = None, label_after: float | None = 1.0
    ) -> Load:
        on = range(self.partitions) if partitions is None else partitions
        load = Load(self.sender, [tenant for p in on for tenant in self.tenants[p]], rate, label_after)
        load.start()
        self.loads.append(load)
        return load

    def decided(self, partitions: Iterable[int] | None = None) -> bool:
        """Whether everything sent to these partitions is decided and committed."""
        on = list(range(self.partitions) if partitions is None else partitions)
        wanted = self.sender.books.sent_on(on)
        return all(key in self.reader.decided for key in wanted) and self.behind(on) == 0

    # What an operator sees

    def wait(self, true: Callable[[], object], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def check(self, true: object, otherwise: str, partition: int | None = None) -> bool:
        if not true:
            of = self.problems if partition is None else self.of_part.setdefault(partition, [])
            of.append(otherwise)
        return bool(true)

    def see(self, text: str) -> None:
        self.sees.append(text)

    def states(self) -> dict[int, tuple[str, str, ProcessorProcess]]:
        """State and trouble of every partition, and who has it."""
        found = {}
        for processor in self.processors:
            body = processor.get("/readyz").json
            for number, state in body.get("partitions", {}).items():
                found[int(number)] = (state, body.get("trouble", {}).get(number, ""), processor)
        return found

    def ready(self) -> set[int]:
        return {number for number, (state, _, _) in self.states().items() if state == "ready"}

    def states_shown(self) -> str:
        return ", ".join(f"{number} {state}" for number, (state, _, _) in sorted(self.states().items())) or "nobody"

    def in_state(self, number: int, state: str) -> bool:
        return self.states().get(number, ("", "", None))[0] == state

    def logged(self, *words: str, level: str = "") -> list[dict[str, Any]]:
        """Lines of the logs that hold all these words."""
        found = []
        for processor in [*self.processors, *self._stopped.values()]:
            for line in processor.log.splitlines():
                if line.startswith("{") and all(word in line for word in words):
                    with contextlib.suppress(ValueError):
                        found.append(json.loads(line))
        return [line for line in found if not level or line.get("level") == level]

    def quarantined(self, number: int, *words: str, seconds: float = 30.0, others: bool = True) -> bool:
        """Check everything that must tell an operator of a quarantined partition, and the reason's words.

        With ``others`` the process has healthy partitions too, and must be ready.
        """
        there = self.wait(lambda: self.in_state(number, "quarantined"), seconds)
        state, trouble, processor = self.states().get(number, ("owned by nobody", "", None))
        self.see(f"{number} {state}: {trouble[:160]}")
        if not self.check(there, f"partition {number} is {state} and not quarantined after {seconds:.0f} s", number):
            return False
        assert processor is not None
        page = processor.get("/readyz")
        self.check(page.status == 200 or not others, f"/readyz is {page.status} with a quarantined partition", number)
        self.check(trouble, "/readyz gives no reason", number)
        for word in words:
            self.check(word in trouble, f"the reason does not say {word!r}: {trouble}", number)
        gauge = processor.metric("gforce_partition_state", partition=str(number), state="quarantined")
        self.check(gauge == 1, f"gforce_partition_state{{state=quarantined}} is {gauge}", number)
        lines = [line for line in self.logged("quarantined", level="error") if line.get("partition") == number]
        self.check(lines, "no ERROR line of the log says that it is quarantined", number)
        return True

    def gforce(self, *arguments: str, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
        """One of our commands, as an operator gives it."""
        command = [sys.executable, "-m", "processor.cli", *arguments]
        environment = clean_environment()
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    @property
    def config(self) -> Path:
        made = [*self.processors, *self._stopped.values()]
        return made[0].config

    def resume(self, number: int) -> subprocess.CompletedProcess[str]:
        owner = self.states().get(number, ("", "", None))[2]
        url = ["--url", f"http://127.0.0.1:{owner.port}"] if owner else []
        return self.gforce("resume", str(number), "-c", str(self.config), *url)

    def skip(self, number: int, topic: str, offset: int) -> subprocess.CompletedProcess[str]:
        """``gforce skip``, with the options it has."""
        offered = self.gforce("skip", "--help").stdout
        owner = self.states().get(number, ("", "", None))[2]
        words = ["skip", str(number), "-c", str(self.config), "--topic", topic, "--offset", str(offset)]
        words += ["--to", str(offset + 1)] if "--to " in offered else []
        words += ["--yes"] if "--yes" in offered else []
        words += ["--url", f"http://127.0.0.1:{owner.port}"] if owner and "--url" in offered else []
        return self.gforce(*words)

    def reported(self, number: int, *words: str) -> None:
        """``gforce doctor`` or ``gforce topics check`` must fail and name the partition and these words."""
        codes, named = {}, []
        for name, command in (("doctor", ["doctor"]), ("topics check", ["topics", "check"])):
            answer = self.gforce(*command, "-c", str(self.config), "--json")
            codes[name] = answer.returncode
            if answer.returncode:
                named += [f"{name}: {text}" for text in _complaints(answer.stdout, number)]
        told = [text for text in named if all(word in text for word in words)]
        self.see(f"{', '.join(f'{name} exits {code}' for name, code in codes.items())}; {(told or ['-'])[0][:120]}")
        self.check(told, f"neither doctor nor topics check reports partition {number} {words}: {codes} {named}", number)

    def audit(self) -> None:
        """It must be clean; what it finds is the matter of the partition where it finds it."""
        answer, found = self.audited()
        self.see(f"audit exits {answer.returncode}, {len(found)} findings")
        for one in found[:20] if answer.returncode else []:
            where = one.get("partition")
            at = where if where in self.parts else None
            self.check(False, f"the audit: {one.get('topic')} {where} at {one.get('offset')}: {one.get('text')}", at)
        said = (answer.stdout + answer.stderr)[-300:]
        self.check(answer.returncode == 0 or found, f"the audit exits {answer.returncode}: {said}")

    def audited(self) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        """The answer and its findings."""
        answer = self.gforce("audit", "-c", str(self.config), "--json")
        with contextlib.suppress(ValueError):
            return answer, list(json.loads(answer.stdout).get("findings", ()))
        return answer, []

    # What an operator does

    def flush(self, partitions: Iterable[int] | None = None) -> None:
        """Delete everything this scenario has in Redis, or all of some partitions."""
        tags = ["*"] if partitions is None else [str(p) for p in partitions]
        with self.servers.redis.client() as client:
            for tag in tags:
                client.eval(_DELETE, 0, f"{{{self.deployment.name}:{tag}}}:*")

    def key(self, partition: int, name: str) -> str:
        return f"{{{self.deployment.name}:{partition}}}:{name}"

    def committed(self) -> list[TopicPartition]:
        """The group's offsets of both inputs with their metadata."""
        wanted = [TopicPartition(topic, p) for topic in self.sender.topics for p in range(self.partitions)]
        with self._member() as consumer:
            return list(consumer.committed(wanted, 20))

    def behind(self, partitions: Iterable[int]) -> int:
        """Records of these partitions that are not committed."""
        wanted = [TopicPartition(topic, p) for topic in self.sender.topics for p in partitions]
        with self._member() as consumer:
            found = consumer.committed(wanted, 20)
            ends = [consumer.get_watermark_offsets(one, 20)[1] for one in found]
        return sum(end - max(one.offset, 0) for one, end in zip(found, ends, strict=True))

    def commit(self, positions: list[TopicPartition]) -> None:
        """Set the group's offsets by hand, metadata included, once its members' sessions have ended."""
        deadline = time.monotonic() + 30
        while True:
            try:
                with self._member() as consumer:
                    consumer.commit(offsets=positions, asynchronous=False)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def commit_meanwhile(self, positions: list[TopicPartition]) -> None:
        """The same while the group is alive: a transaction without member and generation is not refused."""
        bootstrap = self.servers.broker.bootstrap
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{self.name}-hand", "log_level": 2})
        producer.init_transactions(20)
        producer.begin_transaction()
        with self._member() as consumer:
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)

    @contextlib.contextmanager
    def _member(self) -> Iterator[Consumer]:
        bootstrap = self.servers.broker.bootstrap
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": self.deployment.name, "log_level": 2})
        try:
            yield consumer
        finally:
            consumer.close()

    # The end

    def finish(self) -> list[Row]:
        """Wait until all is decided that must be, compare, stop everything."""
        for load in self.loads:
            if load.is_alive():
                load.stop()
        self.sender.flush()
        expected = [p for p in range(self.partitions) if p not in self.held]
        self.wait(lambda: self.decided(expected), self.settle)
        time.sleep(1.0)  # for a second decision of anything, and for the last write to Redis
        rows = [self._row(name, [p]) for p, name in self.parts.items()] or [
            self._row(self.name, list(range(self.partitions)))
        ]
        for problem in self.sender.failed[:3]:
            rows[0].problems.append(f"the test's own producer: {problem}")
        for exit_ in self.supervisor.exits[:3]:
            rows[0].problems.append(f"{exit_.instance} ended by itself with {exit_.code}: {exit_.last_words[:300]}")
        if self.supervisor.exits:
            rows[0].sees.append(f"{len(self.supervisor.exits)} processes ended by themselves")
        return rows

    def _row(self, name: str, partitions: list[int]) -> Row:
        row = Row(name, sees=list(self.sees), problems=[*self.problems])
        for partition in partitions:
            row.problems += self.of_part.get(partition, [])
        sent = self.sender.books.sent_on(partitions)
        waiting = self.sender.books.sent_on(set(partitions) & self.held)
        times = {key: self.reader.decided.get(key, 0) for key in sent}
        row.sent = len(sent)
        row.once = sum(count == 1 for count in times.values())
        row.doubled = sum(count > 1 for count in times.values())
        row.held = sum(times[key] == 0 for key in waiting)
        row.lost = sum(times[key] == 0 for key in sent - waiting)
        if self.numbered and 0 in partitions:
            row.sent += self.numbered
            row.once += int((self.reader.numbered == 1).sum())
            row.doubled += int((self.reader.numbered > 1).sum())
            row.lost += int((self.reader.numbered == 0).sum())
        healthy = [p for p in partitions if p not in self.held | self.unhealthy]
        row.silence = max((self.reader.silence(healthy, one.began, one.ended) for one in self.loads), default=0.0)
        wrong = self.wrong_counters([p for p in partitions if p not in self.held])
        row.counters_wrong = len(wrong)
        row.seconds = round(time.monotonic() - self.began, 1)
        if row.doubled:
            row.problems.append(f"{row.doubled} requests were decided more than once")
        if row.lost:
            row.problems.append(f"{row.lost} requests were not decided within {self.settle:.0f} s")
        if wrong:
            row.problems.append(f"the counters of {len(wrong)} tenants are wrong, such as {wrong[0]}")
        if row.silence > self.quiet:
            row.problems.append(
                f"a healthy partition was silent for {row.silence:.1f} s; {self.quiet:.0f} s are allowed"
            )
        return row

    def wrong_counters(self, partitions: list[int]) -> list[str]:
        """Tenants whose counters in Redis are not what was sent, in words."""
        books, wrong = self.sender.books, []
        decisions, joined = books.decisions(), books.joined()
        with opened(load_config(self.config, {})) as place:
            for tenant in books.tenants_on(partitions):
                if not decisions[tenant]:
                    continue  # all of it was forgotten
                try:
                    state = tenant_state(place, tenant)
                except GForceError as error:
                    wrong.append(f"{tenant}: {error}")
                    continue
                wanted = [[joined[tenant, group, label] for label in state.labels] for group in state.groups]
                made = state.tally.get("decisions", 0)
                if made != decisions[tenant] or state.seen != wanted:
                    was = f"{made} decisions and labels {state.seen}"
                    wrong.append(f"{tenant} has {was}, and should have {decisions[tenant]} and {wanted}")
        return wrong

    def close(self) -> None:
        """End whatever is left."""
        for load in self.loads:
            if load.is_alive():
                load.stop()
        self.supervisor.stop()
        if hasattr(self, "reader"):
            self.reader.stop()
        if hasattr(self, "deployment"):
            self.deployment.close()
        self.servers_of_its_own.close()


def _complaints(document: str, number: int) -> list[str]:
    """What a command has found wrong that names the partition."""
    try:
        found = json.loads(document)
    except ValueError:
        return []
    about = re.compile(rf"partitions? (\d+, )*{number}\b|\[{number}\]|/{number}\b")
    texts = [
        f"{one['what']}: {one['found']} {one.get('remedy', '')}"
        for one in found.get("findings", ())
        if one["level"] != "ok"
    ]
    refused = [one["detail"] for one in found.get("partitions", ()) if one["action"] == "refuse"]
    mine = [
        f"refuse: {one['detail']}"
        for one in found.get("partitions", ())
        if one["partition"] == number and one["detail"] in refused
    ]
    return mine + [text for text in texts if about.search(text)]
