"""A transaction takes what there is time for; what it leaves out comes first next time."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from processor import config as configuration
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.config import Config
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partitioner import partition_of
from processor.ports.log import TopicPartition
from processor.run.assembly import stream_settings
from processor.service.assigned import LoopSettings
from processor.service.transaction import TransactionResult
from processor.service.worker import Worker
from tests.recordings.stream import GROUP, START, Event, Running

PACE = LoopSettings(commit_interval=0, most_records=10_000, transaction_budget=2_500)
CONFIG = configuration.load(None, {"GFORCE_PROCESSING__SEED": "0badc0de" * 4})
PARTITIONS = 6


class Late(Future[Any]):
    """Comes when its time is there; who waits lets that time pass."""

    def __init__(self, queue: SlowQueue, due: int) -> None:
        super().__init__()
        self._queue, self.due = queue, due

    def done(self) -> bool:
        self._queue.go_on()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        running = self._queue.running
        until = self.due if timeout is None else min(self.due, running.clock + int(timeout * 1_000))
        running.clock = max(running.clock, until)
        if not self.done():
            raise TimeoutError
        return super().result()


class SlowQueue(Executor):
    """A thread beside the loop whose every call takes ``delay`` milliseconds."""

    def __init__(self, running: Slowly) -> None:
        self.running = running
        self._waiting: deque[tuple[Late, Callable[[], Any]]] = deque()
        self._free_at = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Late:
        self._free_at = max(self._free_at, self.running.clock) + self.running.delay
        late = Late(self, self._free_at)
        self._waiting.append((late, lambda: call(*args, **kwargs)))
        return late

    def go_on(self) -> None:
        while self._waiting and self._waiting[0][0].due <= self.running.clock:
            late, call = self._waiting.popleft()
            late.set_result(call())


class TimedOutput(MemoryOutput):
    """Notes how long each transaction is open."""

    def __init__(self, running: Slowly) -> None:
        super().__init__(running.broker, "one")
        self._running, self._began = running, 0

    def begin(self) -> None:
        self._began = self._running.clock
        super().begin()

    def commit(self) -> dict[TopicPartition, int]:
        self._running.open_for.append(self._running.clock - self._began)
        return super().commit()


class Slowly(Running):
    """A processor beside which the store is slow. Its clock stands still but while somebody waits."""

    def __init__(self, loop_settings: LoopSettings, delay: int) -> None:
        self.clock, self.delay = 0, delay
        self.open_for: list[int] = []
        super().__init__(CONFIG, PARTITIONS, loop_settings)

    def start(self, config: Config) -> None:
        self.worker = Worker(
            topics=self.topics,
            make_input=lambda listener: MemoryInput(self.broker, "one", GROUP, self.topics.sources, listener),
            make_output=lambda: TimedOutput(self),
            reader=MemoryReader(self.broker),
            store=self.store,
            stream_settings=stream_settings(config),
            loop_settings=self.loop_settings,
            wall_ms=lambda: self.now,
            monotonic_ms=lambda: self.clock,
            entropy=self._entropy,
            store_executors=[SlowQueue(self), SlowQueue(self)],
        )

    def decided(self) -> Counter[int]:
        """Decisions by partition."""
        found: Counter[int] = Counter()
        for owned in self.worker.owned.values():
            for tenant in owned.partition.tenants.values() if owned.partition is not None else ():
                found[owned.number] += tenant.tally["decisions"]
        return found

    def until(self, wanted: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if wanted():
                return
            self.run(1)
        raise AssertionError(f"it did not happen: {self.decided()}, {self.worker.totals}")

    def journal(self, partition: int) -> list[JournalRecord]:
        records = MemoryReader(self.broker).read(TopicPartition(self.topics.journal, partition), 0)
        return [JournalRecord.decode(record.value or b"") for record in records]


TENANTS = [
    next(name for name in (f"t{n}" for n in range(1_000)) if partition_of(name.encode(), PARTITIONS) == number)
    for number in range(PARTITIONS)
]


def request(tenant: str, number: int, groups: int = 2, experts: int = 2) -> Event:
    said = {f"e{expert}": "true" for expert in range(experts)}
    value = {"tenant": tenant, "decision_id": f"d{number}", "group": f"g{number % groups}", "predictions": said}
    return Event(START, "requests", tenant, json.dumps(value).encode())


def backlog(running: Running, stream: list[Event]) -> None:
    """Records that are there before anybody reads them."""
    running.now = START + 1_000_000
    for event in stream:
        key = event.tenant.encode()
        at = TopicPartition(running.topics.requests, partition_of(key, PARTITIONS))
        running.broker.produce(at, key, event.value, timestamp=event.at)


@pytest.mark.parametrize(("delay", "transactions"), [(0, 1), (400, 1), (1_500, 2), (4_000, 3)])
def test_a_slow_store_leads_to_fewer_partitions_in_a_transaction_and_to_no_longer_ones(
    delay: int, transactions: int
) -> None:
    running = Slowly(PACE, delay)
    running.run()
    backlog(running, [request(tenant, number) for tenant in TENANTS for number in range(20)])
    running.run(40)
    assert running.decided() == dict.fromkeys(range(PARTITIONS), 20)
    assert max(running.open_for) <= PACE.transaction_budget
    totals = running.worker.totals
    assert (totals["transactions"], totals["batches"]) == (transactions, PARTITIONS)
    assert totals["recoveries"] == PARTITIONS


@pytest.mark.parametrize("budget", [0, 1, 2_500])
def test_nobody_is_starved(budget: int) -> None:
    """However little a transaction takes, all partitions are taken in turn."""
    running = Slowly(replace(PACE, transaction_budget=budget), delay=1_500)
    running.run(PARTITIONS)
    for number in range(60):
        backlog(running, [request(tenant, number) for tenant in TENANTS])
        running.run(1)
    batches = [len(running.journal(number)) for number in range(PARTITIONS)]
    assert min(batches) >= 8
    assert max(batches) - min(batches) <= 2


def test_what_was_asked_and_left_out_is_not_asked_again() -> None:
    running = Slowly(replace(PACE, transaction_budget=0), delay=100)
    running.run(PARTITIONS)
    asked: Counter[int] = Counter()
    look_up = running.store.look_up

    def counted(partition: int, *rest: Any) -> Any:
        asked[partition] += 1
        return look_up(partition, *rest)

    running.store.look_up = counted  # type: ignore[method-assign, assignment]
    backlog(running, [request(tenant, 1) for tenant in TENANTS])
    running.until(lambda: sum(running.decided().values()) == PARTITIONS)
    assert asked == dict.fromkeys(range(PARTITIONS), 1)


def test_a_question_that_was_left_out_is_dropped_with_the_state_it_was_asked_for() -> None:
    running = Slowly(replace(PACE, transaction_budget=0), delay=100)
    running.run(PARTITIONS)
    backlog(running, [request(tenant, 1) for tenant in TENANTS])
    running.until(lambda: any(owned.lookup is not None for owned in running.worker.owned.values()))
    waiting = [owned for owned in running.worker.owned.values() if owned.lookup is not None]
    for owned in waiting:
        running.worker._invalidate(owned, "a test")
        assert owned.lookup is None
    running.run(30)
    assert running.decided() == dict.fromkeys(range(PARTITIONS), 1)


def test_a_batch_is_cut_to_what_can_be_worked_out_in_time_and_all_of_it_is_decided() -> None:
    running = Slowly(replace(PACE, step_budget=40), delay=0)
    running.run()
    backlog(running, [request(TENANTS[0], number, 32, 64) for number in range(3_000)])
    running.run(200)
    assert running.decided()[0] == 3_000
    sizes = [record.requests.count for record in running.journal(0) if record.requests.count]
    assert len(sizes) > 3
    assert running.worker.totals["recoveries"] == PARTITIONS


def test_others_are_decided_while_a_costly_backlog_is_worked_off() -> None:
    running = Slowly(replace(PACE, step_budget=40), delay=0)
    running.run()
    costly = [request(TENANTS[0], number, 32, 64) for number in range(3_000)]
    backlog(running, [*costly, *(request(tenant, 1) for tenant in TENANTS[1:])])
    running.until(lambda: running.decided()[0] > 0)
    decided = running.decided()
    assert decided[0] < 3_000
    assert [decided[number] for number in range(1, PARTITIONS)] == [1] * (PARTITIONS - 1)


def test_a_batch_that_takes_long_by_itself_is_worked_out_before_a_transaction_begins() -> None:
    running = Slowly(replace(PACE, step_budget=1, transaction_budget=60), delay=0)
    running.run()
    costly = request(TENANTS[3], 1, 1, 1)
    backlog(running, [request(tenant, 1) for tenant in TENANTS if tenant != costly.tenant])
    of = running.worker.costs.of
    running.worker.costs.of = lambda partition, *rest: 70.0 if partition.number == 3 else of(partition, *rest)  # type: ignore[method-assign]
    backlog(running, [costly])
    began: list[list[int]] = []
    end = running.worker.transactions.end

    def noted() -> TransactionResult:
        ended = end()
        began.append([batch.owned.number for batch in ended.batches])
        return ended

    running.worker.transactions.end = noted  # type: ignore[method-assign]
    running.run(4)
    assert [numbers for numbers in began if numbers] == [[0, 1, 2, 4, 5], [3]]
