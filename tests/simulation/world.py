"""The whole processor under a seeded scheduler that crashes, delays, loses, fences and wipes at every step.

Every process runs in a greenlet and gives way to the scheduler at every call that reaches the broker or the store.
The scheduler decides who goes on, and what goes wrong there. One seed, one history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.adapters.memory.store import MemoryStore
from processor.core.alerts.alerts import MonitorSettings
from processor.core.events import Limits
from processor.core.settings import Policy, Settings
from processor.core.stream.step import StreamSettings
from processor.core.stream.tenant import TenantSettings
from processor.ports.log import (
    CommitUnknownError,
    Input,
    LogError,
    OperatorActionRequiredError,
    Output,
    Record,
    RetryableError,
    TopicPartition,
)
from processor.ports.store import (
    Applied,
    Identity,
    LookupResult,
    SnapshotPage,
    Store,
    StoreError,
    StoreUnavailableError,
)
from processor.service.topics import TopicNames
from processor.service.worker import LoopSettings, Worker

from .accidents import Accidents
from .oracle import Oracle, ViolationError, must
from .workload import LABELS, workload

TOPICS = TopicNames("requests", "feedback", "decisions", "journal", "changelog", "dead-letters", "alerts")
PARTITIONS = 2
GROUP = "gforce"
START = 1_700_000_000_000
RULES = TenantSettings(
    settings=Settings(labels=LABELS, positive="grant", bucket=60_000, keep=4, shadows=(Policy(policy="groupaware"),)),
    seed=b"sixteen bytes ok",
    digest="00",
    canonical="{}",
    expiry=9_000,
    on_expiry=None,
    parking=6_000,
    horizon=12_000,
    watch=MonitorSettings(alpha=0.9, false_alarm_pairs=2, clear=2, learning=1),
)
TERMS = StreamSettings(limits=Limits(), settings_for=lambda name: RULES, max_future=300_000, slot=500, sweep=4)
PACE = LoopSettings(
    commit_interval=20,
    most_records=40,
    for_each_tenant=12,
    grace=200,
    retry_after=20,
    breaker_records=10_000,
    snapshot_bytes=1_500,
    slice_bytes=700,
)
TIGHT = replace(PACE, most_records=4, for_each_tenant=0, most_held=6, present=20)
"""small batches and buffers: records are held back, and inputs paused and read on, all the time"""
HURRIED = replace(TIGHT, transaction_budget=0)
"""there is never time for a second partition, so that one is left out of nearly every transaction"""


PATIENT = replace(PACE, transaction_budget=100)
"""where the store is slow"""
SLOW = 200
"""milliseconds that each call to a slow store takes: more than a transaction may wait"""


AT_ONCE = 2_000
"""bytes of the changelog for one call of the store: sometimes several batches, sometimes one"""
PERSON_COMES = 3_000
"""turns of calm after which a person looks at what is in quarantine"""
QUIET = ("send:", "bounds:", "partitions:", "poll:after")
"""Calls at which nothing can happen that could not happen at the next one."""


TROUBLE = {
    "kill": 0.008,
    "revive": 0.02,
    "sleep": 0.01,
    "expire_a_session": 0.008,
    "expire_a_transaction": 0.006,
    "take_snapshot": 0.05,
    "fail_over": 0.01,
    "flush": 0.003,
}
"""What goes wrong, and how likely it is at a step of an ordinary seed."""


class Crash(BaseException):
    """SIGKILL."""


@dataclass
class HookedStore:
    """A process's connection to the store: gives way before and after every call."""

    inner: MemoryStore
    name: str
    hook: Callable[[str, str], None]
    claims: set[tuple[int, bytes]]
    """of all processes, by partition and token"""

    def _call(self, what: str, work: Callable[[], Any]) -> Any:
        self.hook(self.name, f"store.{what}:before")
        result = work()
        self.hook(self.name, f"store.{what}:after")
        return result

    def claim(self, partition: int, token: bytes) -> None:
        must((partition, token) not in self.claims, "two claims have the same token: one does not fence the other")
        self.claims.add((partition, token))
        self._call("claim", lambda: self.inner.claim(partition, token))

    def look_up(
        self, partition: int, token: bytes, ids: Sequence[bytes], due: int, most: int, sweep: int | None = None
    ) -> LookupResult:
        return self._call("look_up", lambda: self.inner.look_up(partition, token, ids, due, most, sweep))  # type: ignore[no-any-return]

    def apply(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        return self._call("apply", lambda: self.inner.apply(partition, token, after, before, writes))  # type: ignore[no-any-return]

    def fill(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        return self._call("fill", lambda: self.inner.fill(partition, token, after, before, writes))  # type: ignore[no-any-return]

    def fields(self, partition: int, token: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._call("fields", lambda: list(self.inner.fields(partition, token))))

    def page(self, partition: int, token: bytes, cursor: bytes, most: int) -> tuple[Identity | None, SnapshotPage]:
        return self._call("page", lambda: self.inner.page(partition, token, cursor, most))  # type: ignore[no-any-return]

    def wipe(self, partition: int, token: bytes) -> None:
        self._call("wipe", lambda: self.inner.wipe(partition, token))

    def check(self) -> None: ...

    def close(self) -> None: ...


class Answer(Future[Any]):
    """Whoever wants it waits until the calls before it, and its own, are made."""

    def __init__(self, beside: Beside) -> None:
        super().__init__()
        self._beside = beside

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._beside.wait(timeout)
        self._beside.go_on(until=self)
        return super().result(timeout)


class Beside(Executor):
    """In place of a thread beside the loop, now fast and now slow: a call is made at once, or when it is wanted."""

    def __init__(self, rng: Random, wait: Callable[[float | None], None]) -> None:
        self._rng = rng
        self.wait = wait
        """called when somebody waits for an answer, with the seconds they have"""
        self._waiting: deque[tuple[Answer, Callable[[], Any]]] = deque()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Answer:
        answer = Answer(self)
        self._waiting.append((answer, partial(call, *args, **kwargs)))
        if self._rng.random() < 0.5:
            self.go_on(answer)
        return answer

    def go_on(self, until: Answer) -> None:
        while not until.done():
            answer, call = self._waiting.popleft()
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)


@dataclass
class Process:
    """One processor: alive in its greenlet, asleep, or dead."""

    name: str
    let: greenlet | None = None
    at: str = ""
    asleep: int = 0


class World:
    """One run."""

    def __init__(self, seed: int, worker: type[Worker] = Worker, steps: int = 700, processes: int = 2) -> None:
        self.rng = Random(seed)
        self.beside = Random(seed)
        """by itself, so that a seed keeps its history whatever is done aside"""
        self.steps = steps
        self.slow = SLOW if seed % 12 == 4 else 0
        self.loop_settings = PATIENT if self.slow else {3: TIGHT, 7: HURRIED}.get(seed % 8, PACE)
        self.worker = type(worker.__name__, (worker,), {"world": self})
        self.claims: set[tuple[int, bytes]] = set()
        self.tokens: dict[int, int] = {}
        """the counters of the mutant that keeps its token in the store"""
        self.now = START
        self.broker = MemoryBroker(lambda: self.now, manual_markers=True, hook=self._hook)
        for topic in vars(TOPICS).values():
            self.broker.create_topic(topic, PARTITIONS)
        self.store = MemoryStore()
        self.snapshots: list[Any] = []
        self.processes = [Process(f"p{i}") for i in range(processes)]
        self.workload = workload(self.rng, PARTITIONS, count=60, span=int(steps * 0.7))
        self.fed = 0
        self.calm = False
        self.faults = 0
        self.temperament = {what: share * self.rng.choice([0, 0.3, 1, 3, 8]) for what, share in TROUBLE.items()}
        self.temperament["revive"] = 0.02
        self.temperament["land_a_marker"] = self.rng.choice([0.05, 0.15, 0.4])
        self._main = getcurrent()
        self.workers: dict[str, Worker] = {}
        self.accidents = Accidents(seed, self.broker, self.store, TOPICS, GROUP) if seed % 3 == 1 else None

    # Processes

    def _hook(self, name: str, call: str) -> None:
        here = getcurrent()
        if here is self._main or call.startswith(QUIET):
            return
        process = next(p for p in self.processes if p.let is here)
        process.at = call
        fault = self._main.switch()
        if fault is not None:
            raise fault

    def _start(self, process: Process) -> None:
        process.let = greenlet(lambda _: self._live(process), parent=self._main)
        process.at, process.asleep = "start", 0

    def _live(self, process: Process) -> None:
        wait = partial(self._wait_for_the_store, process.name)
        worker = self.worker(
            topics=TOPICS,
            make_input=lambda listener: self.make_input(process.name, listener),
            make_output=lambda: self.make_output(process.name),
            reader=MemoryReader(self.broker, process.name),
            store=self.make_store(process.name),
            stream_settings=TERMS,
            loop_settings=self.loop_settings,
            wall_ms=lambda: self.now,
            monotonic_ms=lambda: self.now,
            entropy=lambda n: self.rng.randbytes(n),
            store_executors=[Beside(self.beside, wait), Beside(self.beside, wait)],
            trim=self.broker.delete_records,
            notify=self._told,
        )
        worker.recovery = replace(worker.recovery, at_once=AT_ONCE)
        self.workers[process.name] = worker
        while True:
            try:
                worker.run_once(0.0)
            except (LogError, StoreError) as error:
                if isinstance(error, OperatorActionRequiredError) and self.accidents is None:
                    raise ViolationError(f"a processor stopped: {error}") from error
                return  # as an unhandled error would: the process ends and is started again
            if self.now % 7 == 0:  # without the generator, so that a seed keeps its history whatever is acknowledged
                self._acknowledge(worker)
            self._hook(process.name, "turn")

    def _told(self, event: str, details: dict[str, object]) -> None:
        if event == "quarantined":
            number, why = int(str(details["partition"])), str(details["why"])
            if self.accidents is None or not self.accidents.expects(number, why):
                raise ViolationError(f"partition {number} was quarantined: {why}")
            self.accidents.quarantined[number] = why

    @staticmethod
    def _acknowledge(worker: Worker) -> None:
        """A person looks, and acknowledges what is open."""
        for owned in worker.owned.values():
            for tenant in owned.partition.tenants.values() if owned.partition else ():
                for alert in tenant.watch.alerts if tenant.watch else ():
                    worker.acknowledge(tenant.name, alert.number)

    def make_input(self, name: str, listener: Worker) -> Input:
        return MemoryInput(self.broker, name, GROUP, TOPICS.sources, listener)

    def make_output(self, name: str) -> Output:
        return MemoryOutput(self.broker, name)

    def make_store(self, name: str) -> Store:
        return HookedStore(self.store, name, self._hook, self.claims)

    def _wait_for_the_store(self, name: str, timeout: float | None) -> None:
        """A slow store takes its time, for which no transaction may stay open."""
        if not self.slow:
            return
        if timeout is not None and timeout * 1_000 < self.slow:
            raise TimeoutError
        must(name not in self.broker.open_transactions(), "a transaction stays open while its process waits")
        self.now += self.slow

    def next_token(self, partition: int) -> bytes:
        self.tokens[partition] = self.tokens.get(partition, 0) + 1
        return str(self.tokens[partition]).encode()

    # The scheduler

    def run(self) -> None:
        """Trouble for a while, then calm until all is processed, then the oracle."""
        try:
            for process in self.processes:
                self._start(process)
            for step in range(self.steps):
                self.now += self.rng.randrange(1, 25)
                self._feed(step)
                self._trouble()
                if self.accidents is not None:
                    self.accidents.step()
                self._turn()
            self._settle_down()
            self._stop_all()
            Oracle(self.broker, self.store, TOPICS, TERMS, PARTITIONS).check(self.workload)
            if self.accidents is not None:
                self._create_inputs_again(self.accidents)
        finally:
            self._stop_all()

    def _stop_all(self) -> None:
        """A greenlet that waits for ever keeps its whole world in memory."""
        for process in self.processes:
            if process.let is not None and process.at != "start":
                self._throw(process)
            process.let = None

    def _create_inputs_again(self, accidents: Accidents) -> None:
        """Everything is processed, and nothing runs: what comes next must not be read as if it were the same topics."""
        journals = [len(self.records(TOPICS.journal, number)) for number in range(PARTITIONS)]
        accidents.create_inputs_again()
        accidents.quarantined.clear()
        self.broker.hook = self._hook
        for turn in range(20_000):
            self.now += 5
            self.broker.land_markers()
            self._revive()
            self._turn()
            if turn % 50 == 0 and len(accidents.quarantined) == PARTITIONS:
                break
        self._stop_all()
        self.broker.hook = None
        must(
            journals == [len(self.records(TOPICS.journal, number)) for number in range(PARTITIONS)],
            "an input that was created again is read on",
        )
        must(len(accidents.quarantined) == PARTITIONS, "an input that was created again is not noticed")

    def _feed(self, step: int) -> None:
        events = self.workload.events
        while self.fed < len(events) and events[self.fed].step <= step:
            event = events[self.fed]
            self.broker.produce(
                TopicPartition(event.topic, event.partition), event.key, event.value, timestamp=self.now
            )
            self.fed += 1

    def _turn(self) -> None:
        """Let one process go on to its next call, perhaps with a fault there."""
        able = [p for p in self.processes if p.let is not None and p.asleep <= 0]
        for process in self.processes:
            process.asleep -= 1
        if not able:
            return
        process = self.rng.choice(able)
        assert process.let is not None
        fault = None
        if not self.calm and self.rng.random() < 0.01:
            fault = self._fault_at(process.at)
        self.faults += fault is not None
        process.let.switch(fault)
        if process.let.dead:
            process.let = None

    def _fault_at(self, call: str) -> Exception | None:
        if call.startswith("store."):
            return StoreUnavailableError("no answer")
        if call.startswith("commit"):
            return CommitUnknownError("no answer")
        if call.startswith(("committed", "send", "bounds", "read")):
            return RetryableError("no answer")
        return None

    def _trouble(self) -> None:
        """At most one thing a step; how often which, each seed has its own temperament."""
        roll = self.rng.random()
        for trouble, share in self.temperament.items():
            if roll < share:
                getattr(self, f"_{trouble}")()
                return
            roll -= share

    def _sleep(self) -> None:
        self.rng.choice(self.processes).asleep = self.rng.choice([5, 30, 120])

    def _take_snapshot(self) -> None:
        self.snapshots.append((self.store.snapshot(), dict(self.tokens)))

    def _fail_over(self) -> None:
        """The store goes back to what its replica had: tail loss, tokens included."""
        if self.snapshots:
            kept = max(len(self.snapshots) - self.rng.randrange(1, 4), 0) + 1
            self.snapshots = self.snapshots[:kept]
            snapshot, tokens = self.snapshots[-1]
            self.store.restore(snapshot)
            self.tokens = dict(tokens)

    def _flush(self) -> None:
        self.store.flush()
        self.tokens.clear()
        self.snapshots.clear()

    def _land_a_marker(self) -> None:
        pending = self.broker.pending_markers()
        if pending:
            self.broker.land_marker(self.rng.randrange(len(pending)))

    def _kill(self) -> None:
        alive = [p for p in self.processes if p.let is not None]
        if alive:
            victim = self.rng.choice(alive)
            assert victim.let is not None
            if victim.at != "start":
                self._throw(victim)
            victim.let = None

    def _throw(self, process: Process) -> None:
        assert process.let is not None
        with suppress(Crash):
            process.let.throw(Crash)

    def _revive(self) -> None:
        for process in self.processes:
            if process.let is None:
                self._start(process)
                return

    def _expire_a_session(self) -> None:
        """The broker gives up on a member that does not poll: dead, asleep, or slow."""
        waited_for = set(self.broker.awaited(GROUP))
        silent = [p.name for p in self.processes if (p.let is None or p.asleep > 0 or p.name in waited_for)]
        if silent:
            self.broker.expire_session(self.rng.choice(silent))

    def _expire_a_transaction(self) -> None:
        open_ones = self.broker.open_transactions()
        if open_ones:
            self.broker.expire_transaction(self.rng.choice(open_ones))

    def _settle_down(self) -> None:
        """No more faults: whatever is dead comes back, and everything must be processed in bounded time."""
        self.calm = True
        self._feed(1 << 60)
        for process in self.processes:
            process.asleep = 0
        for turn in range(20_000):
            self.now += 5
            self.broker.land_markers()
            self._revive()
            self._turn()
            if turn % 50 == 0 and self._finished(range(PARTITIONS)):
                return
            if self.accidents is not None and turn >= PERSON_COMES and turn % 50 == 0:
                self._mend(self.accidents, turn)
        raise ViolationError("it does not come to an end: " + ", ".join(f"{p.name} at {p.at}" for p in self.processes))

    def _mend(self, accidents: Accidents, turn: int) -> None:
        """Nobody has looked after a quarantined partition so far: the others must be through all the same."""
        healthy = set(range(PARTITIONS)) - accidents.quarantined.keys()
        if turn == PERSON_COMES and accidents.quarantined:
            must(self._finished(healthy), "a healthy partition waits for one that is quarantined")
        for process in self.processes:
            if process.let is not None and process.name in self.workers:
                accidents.mend(self.workers[process.name])

    def _finished(self, numbers: Iterable[int]) -> bool:
        reader = MemoryReader(self.broker)
        try:
            for topic in TOPICS.inputs:
                for number in numbers:
                    at = TopicPartition(topic, number)
                    committed = self.broker.committed(GROUP, [at])[at]
                    _, end = reader.bounds(at)
                    if committed is None or committed.offset < end:
                        return False
            return self._store_is_current(numbers)
        except RetryableError:
            return False

    def records(self, topic: str, partition: int) -> list[Record]:
        """All that was committed to a partition."""
        reader = MemoryReader(self.broker)
        return list(reader.read(TopicPartition(topic, partition), 0))

    def _store_is_current(self, numbers: Iterable[int]) -> bool:
        """Every partition's state has reached the last commit: the apply comes after it."""
        for number in numbers:
            at = TopicPartition(TOPICS.requests, number)
            committed = self.broker.committed(GROUP, [at])[at]
            identity = self.store.peek(number)
            if committed is None or identity is None or identity.text() != committed.metadata:
                return False
        return True


def trial(world: World) -> str:
    """What a run breaks; empty if the contract holds. An error of the processor's own breaks it too."""
    try:
        world.run()
    except ViolationError as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
