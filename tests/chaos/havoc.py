"""The chaos loop: a seeded plan of what goes wrong when, carried out while the load runs."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from tests.servers.redis_server import RedisCluster, RedisServer

from .fleet import FENCES, Fleet, Processor
from .world import Transactions, World

KILL, BROKER, REDIS, FLUSH, FREEZE = "processor SIGKILL", "broker SIGKILL", "Redis SIGKILL", "FLUSHALL", "SIGSTOP"
FROZEN_SECONDS = 30.0
WATCH_SECONDS = 25.0
"""how long a woken process has to notice that it was replaced"""
STOP_TRIES = 200
"""how often a processor is stopped and let go until it was caught inside a transaction"""


@dataclass(frozen=True)
class Amounts:
    kills: int = 25
    broker_kills: int = 3
    redis_kills: int = 3
    flushes: int = 1
    freezes: int = 1


def plan(rng: Random, amounts: Amounts, span: float) -> list[tuple[float, str]]:
    """When what is done, in seconds from the start of the load. No broker is killed around a SIGSTOP.

    The freeze comes at a third of the span; the servers' failures are spread over the rest.
    """
    freeze_at = 0.3 * span
    actions = [(freeze_at, FREEZE)] * amounts.freezes
    servers = [BROKER] * amounts.broker_kills + [REDIS] * amounts.redis_kills + [FLUSH] * amounts.flushes
    rng.shuffle(servers)
    before = [freeze_at * share for share in (0.25, 0.7)]
    begin = min(freeze_at + (FROZEN_SECONDS + WATCH_SECONDS) * min(amounts.freezes, 1) * 0.7, 0.7 * span)
    count = max(len(servers) - len(before), 1)
    after = [begin + (0.97 * span - begin) * (i + rng.uniform(0.2, 0.8)) / count for i in range(count)]
    actions += zip([*before, *after], servers, strict=False)
    width = 0.93 * span / max(amounts.kills, 1)
    actions += [(0.03 * span + width * (i + rng.random()), KILL) for i in range(amounts.kills)]
    return sorted(actions)


@dataclass
class Frozen:
    """A processor that was stopped with SIGSTOP, and what became of its partitions."""

    victim: Processor
    pid: int
    partitions: set[int]
    fences_before: int
    wake_at: float
    moved: set[int] = field(default_factory=set)
    woken_at: float | None = None
    fenced: bool = False


class Havoc:
    """Carries out a plan; ``done`` counts what really happened, ``problems`` what the contract forbids."""

    def __init__(self, world: World, fleet: Fleet, rng: Random, say: Callable[[str], None]) -> None:
        self._world, self._fleet, self._rng, self._say = world, fleet, rng, say
        self._frozen: Frozen | None = None
        self._looked = 0.0
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self.fence_figures: dict[str, int] = {}

    def run(self, actions: list[tuple[float, str]], deadline: float) -> None:
        """Until every action is done, or the deadline (``time.monotonic``)."""
        began = time.monotonic()
        waiting = list(actions)
        while (waiting or self._frozen) and time.monotonic() < deadline:
            self._fleet.tend()
            self._look()
            now = time.monotonic() - began
            ready = next((one for one in waiting if one[0] <= now and self._possible(one[1])), None)
            if ready is not None:
                waiting.remove(ready)
                self._do(ready[1])
            else:
                time.sleep(0.1)
        if waiting:
            self.problems.append(f"no time was left for {dict(Counter(what for _, what in waiting))}")

    def _possible(self, what: str) -> bool:
        if what == KILL:
            return bool(self._killable())
        if what == BROKER:
            return self._frozen is None  # while it is watched, nothing else may explain a lost partition
        if what == FREEZE:
            return all(m.alive and m.look() for m in self._fleet.members)
        return True

    def _killable(self) -> list[Processor]:
        watched = self._frozen.victim if self._frozen else None
        return [m for m in self._fleet.members if m.alive and m is not watched]

    def _do(self, what: str) -> None:
        self._say(what)
        {
            KILL: self._kill_processor,
            BROKER: self._kill_broker,
            REDIS: self._kill_redis,
            FLUSH: self._world.flush_redis,
            FREEZE: self._freeze,
        }[what]()
        self.done[what] += 1

    def _kill_processor(self) -> None:
        victim = self._rng.choice(self._killable())
        victim.look()
        victim.kill()
        # Mostly back within its session; sometimes only after the others have taken its partitions.
        pause = self._rng.uniform(0.1, 3.0) if self._rng.random() < 0.7 else self._rng.uniform(6.0, 10.0)
        self._fleet.start_later(victim, pause)

    def _kill_broker(self) -> None:
        with self._outage():
            self._world.broker.kill()
            time.sleep(self._rng.uniform(0.5, 3.0))
            self._world.broker.start()

    def _kill_redis(self) -> None:
        redis = self._world.redis
        pause = self._rng.uniform(0.2, 3.0)
        with self._outage():
            if isinstance(redis, RedisCluster):
                node: RedisServer = redis.owner(f"{{gforce:{self._rng.randrange(4)}}}:meta")
                redis.kill(node)
                time.sleep(pause)
                redis.restart(node)
            else:
                redis.kill()
                time.sleep(pause)
                redis.restart()

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._fleet.outages.append((began, time.monotonic()))

    # The zombie

    def _freeze(self) -> None:
        owners = [(m, set(m.look())) for m in self._fleet.members]
        victim, owned = self._rng.choice([pair for pair in owners if pair[1]])
        assert victim.process is not None
        caught = self._stop_inside_a_transaction(victim, owned)
        self._frozen = Frozen(victim, victim.process.pid, owned, victim.fences(), time.monotonic() + FROZEN_SECONDS)
        self._say(f"stopped with a transaction open on partitions {sorted(caught)}")

    def _stop_inside_a_transaction(self, victim: Processor, owned: set[int]) -> set[int]:
        """Stop it where the first thing it does after waking is to write.

        A process stopped anywhere else polls first, learns that its partitions are gone, and never tries to write;
        that is right, but shows nothing of what keeps a zombie from writing.
        """
        transactions = Transactions(self._world.broker.bootstrap)
        for _ in range(STOP_TRIES):
            victim.signal(signal.SIGSTOP)
            time.sleep(0.05)  # what it had sent arrives
            if caught := transactions.open_on("journal") & owned:
                return caught
            victim.signal(signal.SIGCONT)
            time.sleep(self._rng.uniform(0.01, 0.15))
        victim.signal(signal.SIGSTOP)
        self.problems.append(f"in {STOP_TRIES} attempts {victim.name} was never stopped inside a transaction")
        return set()

    def _look(self) -> None:
        """Once a second: note everybody's counters, and how the frozen one and its partitions are."""
        if time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        seen = self._fleet.look()
        if self._frozen is not None:
            self._watch(self._frozen, seen)

    def _watch(self, frozen: Frozen, seen: dict[str, dict[int, dict[str, object]]]) -> None:
        victim = frozen.victim
        if frozen.woken_at is None:
            for name, owned in seen.items():
                if name != victim.name:
                    ready = {n for n, p in owned.items() if p["state"] == "ready"}
                    frozen.moved |= frozen.partitions & ready
            if time.monotonic() >= frozen.wake_at:
                victim.signal(signal.SIGCONT)
                frozen.woken_at = time.monotonic()
                self._say(f"SIGCONT; of its partitions {sorted(frozen.partitions)} {sorted(frozen.moved)} had moved")
            return
        same = victim.process is not None and victim.alive and victim.process.pid == frozen.pid
        frozen.fenced = frozen.fenced or (same and victim.fences() > frozen.fences_before)
        if frozen.fenced or not same or time.monotonic() > frozen.woken_at + WATCH_SECONDS:
            self._judge(frozen, same)

    def _judge(self, frozen: Frozen, same: bool) -> None:
        self._frozen = None
        if frozen.moved != frozen.partitions:
            left = sorted(frozen.partitions - frozen.moved)
            self.problems.append(f"partitions {left} of the stopped processor were not taken over in its absence")
        if not frozen.fenced:
            how = "it had ended" if not same else "none of its counters of fences grew"
            self.problems.append(f"the processor that was stopped was not seen to be fenced after waking: {how}")
        self.fence_figures = {name: frozen.victim.totals[name] for name in FENCES}
        self._say(f"woken processor: {self.fence_figures}")
