"""How many bytes of Redis a pending decision costs, all structures included, and how long the calls take."""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

from redis import Redis
from rich.console import Console

from processor.adapters.redis_store import RedisStore
from processor.adapters.store import Identity
from processor.core.writes import SetEntry, SetSlab, Writes
from tests.servers.redis_server import RedisServer

SLOTS = 64
BATCH = 1_000
VALUE = 24
AIM = 160
TOKEN = b"benchmark"


def batch(source: random.Random, sequence: int, size: int) -> tuple[list[bytes], bytes]:
    """Ids of new pending decisions, spread over the slots, with the writes that store them."""
    ids = [source.randbytes(16) for _ in range(size)]
    writes, slabs = Writes(), dict[int, list[bytes]]()
    for id in ids:
        writes.add(SetEntry(id, source.randbytes(VALUE)))
        slabs.setdefault(source.randrange(SLOTS), []).append(id)
    for slot, members in slabs.items():
        writes.add(SetSlab(slot, sequence, b"".join(members)))
    return ids, writes.packed()


def measure(url: str, count: int) -> dict[str, Any]:
    source = random.Random(1)
    client = Redis.from_url(url, protocol=2)
    store = RedisStore(url, f"benchmark-{time.time_ns()}")
    store.claim(0, TOKEN)
    before = used(client)
    apply, look_up = list[float](), list[float]()
    for done in range(0, count, BATCH):
        sequence = done // BATCH + 1
        ids, writes = batch(source, sequence, min(BATCH, count - done))
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
        "server": server_name(client),
        "count": count,
        "bytes_each": round(each, 1),
        "aim_bytes_each": AIM,
        "apply_ms_median": round(median(apply) * 1e3, 2),
        "look_up_ms_median": round(median(look_up) * 1e3, 2),
        "batch": BATCH,
    }


def used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])  # type: ignore[index]


def server_name(client: Redis) -> str:
    found: Any = client.info("server")
    valkey = found.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {found['redis_version']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="pending decisions (default 1000000)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with RedisServer() as server:
        found = measure(server.url, arguments.count)
    Console().print(
        f"{found['server']}, {found['count']:,} pending decisions: {found['bytes_each']} bytes each (aim: {AIM}); "
        f"{BATCH} at a time: apply {found['apply_ms_median']} ms, look-up {found['look_up_ms_median']} ms",
        highlight=False,
        soft_wrap=True,
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
