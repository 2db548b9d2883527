"""How many bytes of Redis a decision costs, all structures included, and how long the calls take.

Pending decisions, and those that have their label and are kept for the duplicate horizon, are measured apart.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from redis import Redis
from rich.console import Console

from processor.adapters.redis.store import RedisStore
from processor.core.stream.entries import Pending, Settled, entry_id
from processor.core.stream.writes import SetEntry, SetSlot, Writes
from processor.ports.store import Identity
from tests.servers.redis_server import RedisServer

SLOTS = 64
BATCH = 1_000
AIM = 160
TOKEN = b"benchmark"

Make = Callable[[random.Random], bytes]


def pending(source: random.Random) -> bytes:
    """A decision of five experts with two shadow policies, waiting for its label."""
    said = tuple(source.randrange(1, 3) for _ in range(5))
    decided = tuple(source.randrange(1, 3) for _ in range(3))
    at = source.randrange(1_700_000_000, 1_800_000_000)
    return Pending(source.randrange(100), source.getrandbits(32), at, 10**6, 10**6, None, 1, 2, decided, said).encode()


def settled(source: random.Random) -> bytes:
    """What is kept of it once the label has come."""
    return Settled(source.randrange(100), source.getrandbits(32), 10**6, 1).encode()


def batch(source: random.Random, sequence: int, size: int, entry: Make) -> tuple[list[bytes], bytes]:
    """Ids of new decisions, spread over the slots, with the writes that store them."""
    ids = [entry_id("tenant", str(uuid.UUID(int=source.getrandbits(128)))) for _ in range(size)]
    writes, slabs = Writes(), dict[int, list[bytes]]()
    for id in ids:
        writes.add(SetEntry(id, entry(source)))
        slabs.setdefault(source.randrange(SLOTS), []).append(id)
    for slot, members in slabs.items():
        writes.add(SetSlot(slot, sequence, b"".join(members)))
    return ids, writes.packed()


def measure(url: str, count: int, kind: str, entry: Make) -> dict[str, Any]:
    source = random.Random(1)
    client = Redis.from_url(url, protocol=2)
    store = RedisStore(url, f"benchmark-{time.time_ns()}")
    store.claim(0, TOKEN)
    before = used(client)
    apply, look_up = list[float](), list[float]()
    for done in range(0, count, BATCH):
        sequence = done // BATCH + 1
        ids, writes = batch(source, sequence, min(BATCH, count - done), entry)
        start = time.perf_counter()
        store.apply(0, TOKEN, Identity("benchmark", sequence, ""), sequence - 1, writes)
        middle = time.perf_counter()
        store.look_up(0, TOKEN, ids, 0, 0)
        apply.append(middle - start)
        look_up.append(time.perf_counter() - middle)
    time.sleep(2)  # let the server finish growing its tables
    each = (used(client) - before) / count
    store.wipe(0, TOKEN)
    store.close()
    return {
        "kind": kind,
        "server": server_name(client),
        "count": count,
        "bytes_each": round(each, 1),
        "aim_bytes_each": AIM,
        "apply_ms_median": round(median(apply) * 1e3, 2),
        "look_up_ms_median": round(median(look_up) * 1e3, 2),
        "batch": BATCH,
    }


def used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])


def server_name(client: Redis) -> str:
    found: Any = client.info("server")
    valkey = found.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {found['redis_version']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="pending decisions (default 1000000)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    rows = []
    for kind, entry in (("pending", pending), ("kept for the duplicate horizon", settled)):
        with RedisServer() as server:
            found = measure(server.url, arguments.count, kind, entry)
        rows.append(found)
        Console().print(
            f"{found['server']}, {found['count']:,} decisions {kind}: {found['bytes_each']} bytes each (aim: {AIM}); "
            f"{BATCH} at a time: apply {found['apply_ms_median']} ms, look-up {found['look_up_ms_median']} ms",
            highlight=False,
            soft_wrap=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
