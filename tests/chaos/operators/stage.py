"""One scenario's topics, processors and load, and what an operator does and sees."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.processor_process import ROOT, Deployment, ProcessorProcess, Sections, clean_environment

from .checks import complaints, wrong_counters
from .group_offsets import GroupOffsets
from .stream import Load, Reader, Sender
from .supervisor import Servers, Supervisor
from .table import Row

PARTITIONS = 4
TENANTS_EACH = 3
"""tenants on each partition"""
RATE = 120.0
"""requests per second, of all partitions together"""
QUIET = 10.0
"""seconds that a healthy partition may be silent, unless a scenario says otherwise"""
SESSION_MS = 4_000
_DELETE = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end"
"""at one moment, as FLUSHALL does, and of one scenario only"""


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
    """Rows of their own: the name by partition. What concerns no single partition is in the first row."""
    quiet: float = QUIET
    settle: float = 30.0
    """seconds from the end of the load until everything must be decided"""
    sees: list[tuple[int | None, str]] = field(default_factory=list)
    """with the partition it concerns, if it is a single one"""
    problems: list[tuple[int | None, str]] = field(default_factory=list)

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
        self.offsets = GroupOffsets(bootstrap, self.deployment.name, self.sender.topics, self.partitions)
        self.properties: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 2}
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
        return all(key in self.reader.decided for key in wanted) and self.offsets.behind(on) == 0

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
            self.problems.append((partition, otherwise))
        return bool(true)

    def see(self, text: str, partition: int | None = None) -> None:
        self.sees.append((partition, text))

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
        self.see(f"{number} {state}: {trouble[:200]}", number)
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
        words += ["--yes"] if "--yes" in offered else []
        words += ["--url", f"http://127.0.0.1:{owner.port}"] if owner and "--url" in offered else []
        return self.gforce(*words)

    def reported(self, number: int, *words: str, fails: bool = True) -> None:
        """``gforce doctor`` or ``gforce topics check`` must name the partition and these words, and fail if so said."""
        codes, named = {}, []
        for name, command in (("doctor", ["doctor"]), ("topics check", ["topics", "check"])):
            answer = self.gforce(*command, "-c", str(self.config), "--json")
            codes[name] = answer.returncode
            if answer.returncode or not fails:
                named += [f"{name}: {text}" for text in complaints(answer.stdout, number)]
        told = [text for text in named if all(word in text for word in words)]
        exits = ", ".join(f"{name} exits {code}" for name, code in codes.items())
        self.see(f"{exits}: {(told or ['-'])[0][:120]}", number)
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
        names = list(dict.fromkeys(self.parts.values()))
        parts = [(name, [p for p in self.parts if self.parts[p] == name]) for name in names]
        rows = [self._row(*part) for part in parts or [(self.name, list(range(self.partitions)))]]
        rows[0].problems = [text for at, text in self.problems if at is None] + rows[0].problems
        rows[0].sees = [text for at, text in self.sees if at is None] + rows[0].sees
        for problem in self.sender.failed[:3]:
            rows[0].problems.append(f"the test's own producer: {problem}")
        if exits := self.supervisor.exits:
            words = f"{len(exits)} times a processor ended by itself, such as {exits[0].instance} with {exits[0].code}"
            rows[0].problems.append(f"{words}: {exits[0].last_words}")
            rows[0].sees.append(f"{len(exits)} processes ended by themselves")
        return rows

    def _row(self, name: str, partitions: list[int]) -> Row:
        row = Row(name)
        row.problems = [text for at, text in self.problems if at in partitions]
        row.sees = [text for at, text in self.sees if at in partitions]
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
        wrong = wrong_counters(self.config, self.sender.books, [p for p in partitions if p not in self.held])
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
