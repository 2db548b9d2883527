"""Parts of the state deleted in Redis: by a slip, by another program, by an eviction policy."""

from __future__ import annotations

import time
from typing import Any

from .registry import scenario
from .stage import TENANTS_EACH, Stage

BURST = 250
"""requests on each partition that wait for their label when it happens"""
EXPIRY_SECONDS = 30


@scenario
def state_deleted(stage: Stage) -> None:
    """Entries (all, some), fields or a slab are deleted in Redis: noticed, and reconstructed from the changelog."""
    stage.open({"processing": {"slot_ms": 1_000}, "tenants.default": {"expiry": f"{EXPIRY_SECONDS}s", "parking": "1h"}})
    stage.parts = {0: "entries-deleted", 1: "some-entries-deleted", 2: "fields-deleted", 3: "slab-deleted"}
    stage.quiet = 15.0
    stage.run()
    quiet = [stage.deployment.tenants_on(p, TENANTS_EACH + 1)[-1] for p in range(stage.partitions)]
    stage.sender.label(stage.sender.ask(quiet, 60 * stage.partitions))  # whose fields no later batch writes again
    burst = {p: stage.sender.ask(stage.tenants[p], BURST) for p in range(stage.partitions)}
    asked_at = time.monotonic()
    stage.sender.flush()
    stage.check(stage.wait(stage.decided, 20), "the first requests were not decided")
    load = stage.load()
    time.sleep(1.5)
    with stage.servers.redis.client() as client:
        _delete(stage, client)
    time.sleep(1.5)
    for keys in burst.values():
        stage.sender.repeat(keys)
        stage.sender.label(keys[::2])
    time.sleep(4)
    stage.see(f"recoveries {stage.processors[0].get('/status').json.get('totals', {}).get('recoveries')} of 4 at start")
    stage.stop_processors(kill=True)  # what is loaded now is what Redis has
    stage.start_again()
    stage.wait(lambda: len(stage.ready()) == stage.partitions, 30)
    time.sleep(2)
    load.stop()
    left = asked_at + EXPIRY_SECONDS + 15 - time.monotonic()
    stage.wait(lambda: not any(_pending(stage).values()), max(left, 1.0))
    for number, pending in _pending(stage).items():
        stage.check(pending == 0, f"{pending} decisions are pending after their expiry", number)
    stage.see(f"pending {sum(_pending(stage).values())} at the end")
    stage.audit()


def _delete(stage: Stage, client: Any) -> None:
    client.delete(stage.key(0, "entries"))
    ids = client.hkeys(stage.key(1, "entries"))
    client.hdel(stage.key(1, "entries"), *ids[::2])
    client.delete(stage.key(2, "fields"))
    slabs = list(client.scan_iter(match=stage.key(3, "slab:*"), count=10_000))
    largest = max(slabs, key=lambda key: sum(map(len, client.hvals(key))))
    client.delete(largest)


def _pending(stage: Stage) -> dict[int, int]:
    """By partition; one that nobody has counts as one that waits."""
    found = dict.fromkeys(range(stage.partitions), 1)
    for processor in stage.processors:
        for partition in processor.get("/status").json.get("partitions", ()):
            found[partition["number"]] = partition["pending"]
    return found
