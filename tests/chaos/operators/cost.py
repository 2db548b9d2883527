"""Work that is much for one batch: very many expiries at once, and a tenant at the documented limits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from random import Random

from processor.adapters.redis.store import script
from processor.config import load as load_config
from processor.operations.group import opened
from processor.operations.tenant_state import tenant_state

from .registry import scenario
from .stage import Stage
from .stream import LABELS, NUMBERED

SLOTS = 16
LONGEST_MS = 100.0
"""that one call may keep Redis busy"""
MUCH = 0
"""the partition that has it all"""
BACKLOG = 20_000
MOST_GROUPS, MOST_EXPERTS = 32, 64
FEW_LABELS = 900


@scenario
def many_expiries(stage: Stage) -> None:
    """Very many decisions are due in 16 slots at once: bounded calls to Redis, all expire, others are decided."""
    count = stage.options["expiries"]
    stage.numbered = count
    stage.settle = 30 + count / 4_000
    # Longer than the slots are wide; soon over for the last batch, which is decided at the time on the wall.
    times = {"expiry": "20s", "duplicate_horizon": "20s", "parking": "1h"}
    stage.open({"processing": {"slot_ms": 1_000}, "tenants.default": times})
    stage.unhealthy = {MUCH}
    with stage.servers.redis.client() as client:
        client.config_set("slowlog-log-slower-than", 20_000)
        client.config_set("slowlog-max-len", 4_096)
        client.slowlog_reset()
    tenants = stage.tenants[MUCH]
    # Of a day ago, so that the clock jumps over all of them when the end of the input is reached.
    begin = int((time.time() - 86_400) * 1_000)
    for number in range(count):
        tenant = tenants[number % len(tenants)]
        value = f'{{"tenant":"{tenant}","decision_id":"{NUMBERED}{number}","group":"A","predictions":{{"m":"true"}}}}'
        stage.sender.produce(
            stage.sender.topics[0], tenant.encode(), value.encode(), timestamp=begin + number * SLOTS * 1_000 // count
        )
    stage.sender.flush()
    stage.run()
    stage.load(partitions=[1, 2, 3])
    most = 0

    def over() -> bool:
        nonlocal most
        pending = _pending(stage)
        most = max(most, pending)
        return pending == 0 and bool((stage.reader.numbered > 0).all())

    since = time.monotonic()
    done = stage.wait(over, stage.settle)
    stage.see(f"{most:,} pending at most, {_pending(stage):,} after {time.monotonic() - since:.0f} s")
    stage.check(most > count // 2, f"only {most} of {count} were pending at a time: this shows nothing")
    stage.check(done, f"{_pending(stage)} decisions are still pending after {stage.settle:.0f} s")
    stage.loads[-1].stop()
    expired = 0
    with opened(load_config(stage.config, {})) as place:
        for tenant in tenants:
            expired += tenant_state(place, tenant).tally.get("decisions_expired", 0)
    stage.check(expired == count, f"{expired} of {count} decisions have expired by their tenants' counters")
    longest, name, calls = _slowest(stage)
    stage.see(f"longest call to Redis {longest:.0f} ms ({name}), {calls} over 20 ms")
    stage.check(longest <= LONGEST_MS, f"a call kept Redis busy for {longest:.0f} ms; {LONGEST_MS:.0f} are allowed")


def _pending(stage: Stage) -> int:
    found = 0
    for processor in stage.processors:
        for partition in processor.get("/status").json.get("partitions", ()):
            if partition["number"] == MUCH:
                found += partition["pending"]
    return found


def _slowest(stage: Stage) -> tuple[float, str, int]:
    """The longest of our calls in milliseconds, its script, and how many are in the slow log."""
    with stage.servers.redis.client() as client:
        entries = client.slowlog_get(4_096)
        client.config_set("slowlog-log-slower-than", 10_000)
    ours = [entry for entry in entries if stage.deployment.name.encode() in entry["command"]]
    longest = max(ours, key=lambda entry: entry["duration"], default={"duration": 0, "command": b"- -"})
    sha = longest["command"].split()[1].decode()
    name = next((name for name in ("look_up", "apply", "page") if script(name).sha == sha), "another command")
    return longest["duration"] / 1_000, name, len(ours)


@scenario
def tenant_at_the_limits(stage: Stage) -> None:
    """A backlog of 20 000 requests of one tenant with 32 groups and 64 experts: the others are decided meanwhile."""
    stage.numbered = BACKLOG
    stage.settle = 120.0
    stage.quiet = 5.0
    stage.open()
    stage.unhealthy = {MUCH}
    stage.run()
    stage.stop_processors()
    tenant = stage.tenants[MUCH][0]
    for request, label in _at_the_limits(tenant):
        stage.sender.produce(stage.sender.topics[0], tenant.encode(), request)
        if label:
            stage.sender.produce(stage.sender.topics[1], tenant.encode(), label)
    stage.sender.flush()
    stage.start_again()
    stage.wait(lambda: len(stage.ready()) == stage.partitions, 30)
    load = stage.load(partitions=[1, 2, 3])
    since = time.monotonic()
    done = stage.wait(lambda: bool((stage.reader.numbered > 0).all()), stage.settle)
    took = time.monotonic() - since
    time.sleep(3)
    load.stop()
    stage.settle = 20.0
    made = int((stage.reader.numbered > 0).sum())
    totals = stage.processors[0].get("/status").json.get("totals", {})
    aborted, recoveries = totals.get("transactions_aborted", 0), totals.get("recoveries", 0)
    stage.see(f"{made:,} of the backlog decided in {took:.0f} s; {aborted} aborted, {recoveries} recoveries")
    stage.check(done, f"{BACKLOG - made} of the backlog of {BACKLOG} are not decided after {took:.0f} s")
    stage.check(aborted == 0, f"{aborted} transactions were aborted")


def _at_the_limits(tenant: str) -> Iterator[tuple[bytes, bytes]]:
    """Requests, and the labels of the first ones: a tenant with few labels has its rule worked out most often.

    Every expert is right more or less often in every group, so that the rule has something to weigh.
    """
    random = Random(1)
    right = [[random.uniform(0.5, 0.95) for _ in range(MOST_EXPERTS)] for _ in range(MOST_GROUPS)]
    for number in range(BACKLOG):
        group, label = number % MOST_GROUPS, random.choice(LABELS)
        other = LABELS[label == LABELS[0]]
        said = {f"expert-{i:02}": label if random.random() < right[group][i] else other for i in range(MOST_EXPERTS)}
        named = {"tenant": tenant, "decision_id": f"{NUMBERED}{number}"}
        request = {**named, "group": f"group-{group:02}", "predictions": said}
        late = json.dumps({**named, "label": label}).encode() if number < FEW_LABELS else b""
        yield json.dumps(request).encode(), late
