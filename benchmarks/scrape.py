"""What a scrape costs with very many tenants: time and size, with the cap and without.

``python -m benchmarks.scrape`` makes partitions of 10 000 tenants in memory, as a processor holds them.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console
from rich.table import Table

from processor.core.alerts.alerts import MonitorSettings
from processor.core.learner.batch import Labels, learn_batch
from processor.core.settings import Policy, Settings
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.partition import Partition
from processor.core.stream.tenant import Tenant, TenantSettings
from processor.telemetry.metrics import StatusCollector
from processor.telemetry.observer import Observer
from processor.telemetry.status import Status

DAY = 86_400_000
NOW = 20_000 * DAY
GROUPS, LABELS, EXPERTS = ("A", "B"), ("deny", "grant"), ("e0", "e1", "e2", "e3", "e4")
SETTINGS = Settings(
    labels=LABELS,
    positive="grant",
    groups=GROUPS,
    experts=EXPERTS,
    shadows=(Policy(policy="groupaware"), Policy(policy="mw")),
)


def rules(digest: str = "bench") -> TenantSettings:
    return TenantSettings(
        settings=SETTINGS,
        seed=b"a seed of 16 byt",
        digest=digest,
        canonical="{}",
        expiry=90 * DAY,
        on_expiry=None,
        parking=7 * DAY,
        horizon=7 * DAY,
        watch=MonitorSettings(),
    )


def tenant(number: int, rng: np.random.Generator, labels: int) -> Tenant:
    """One with some thousand labels of the last eight days, and a pair of groups that is watched."""
    made = Tenant.new(number, f"tenant-{number:05}", rules())
    made.names = replace(made.names, groups=made.names.groups.and_(*GROUPS))
    group_of, truth = rng.integers(0, 2, labels), rng.integers(0, 2, labels)
    right = rng.random((labels, len(EXPERTS))) < 0.8
    predictions = np.where(right, truth[:, None], 1 - truth[:, None])
    decided = np.where(rng.random((labels, 3)) < 0.85, truth[:, None], 1 - truth[:, None])
    at = NOW - rng.integers(0, 8 * DAY, labels)
    learn_batch([made.learner], Labels(np.zeros_like(truth), at, group_of, truth, predictions, decided))
    some = zip(truth[:300].tolist(), group_of[:300].tolist(), (decided[:300, 1] != truth[:300]).tolist(), strict=True)
    made.observe([(y, g, wrong, NOW) for y, g, wrong in some])
    made.tally.update({"decisions": labels + 100, "labels_joined": labels, "labels_duplicate": 7})
    made.waits.asked([NOW // 1_000 - 3_600] * 100)
    return made


def partitions(tenants: int, labels: int, count: int = 4) -> tuple[Partition, ...]:
    rng = np.random.default_rng(1)
    made = tuple(Partition(p, count, Identity("bench", 1, GENESIS), clock=NOW) for p in range(count))
    for i in range(tenants):
        one = tenant(i // count, rng, labels)
        one.name = f"tenant-{i:05}"
        made[i % count].tenants[one.name] = one
    return made


def scrape(
    tenants: Annotated[int, typer.Option(help="owned by the process")] = 10_000,
    labels: Annotated[int, typer.Option(help="joined, of each tenant")] = 3_000,
    cap: int = 500,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """The first scrape works everything out; the next ones only what has changed."""
    held = partitions(tenants, labels)
    status = Status(ready=True, held=held)
    found = [_measure(status, limit, tenants) for limit in (cap, tenants)]
    table = Table("cap", "listed", "series", "MB", "first scrape, CPU s", "nothing new", "a tenth changed")
    for one in found:
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in one.values()))
    Console().print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


def _measure(status: Status, cap: int, tenants: int) -> dict[str, Any]:
    observer = Observer(lambda: status, cap)
    registry = CollectorRegistry()
    registry.register(StatusCollector(observer))
    first, text = _timed(registry)
    again, _ = _timed(registry)
    for partition in status.held:
        for name in list(partition.tenants)[::10]:
            partition.tenants[name] = partition.tenants[name].clone()
    changed, _ = _timed(registry)
    return {
        "cap": cap,
        "listed": len(observer.figures()),
        "series": sum(1 for line in text.splitlines() if not line.startswith(b"#")),
        "megabytes": len(text) / 1e6,
        "first": first,
        "unchanged": again,
        "changed": changed,
    }


def _timed(registry: CollectorRegistry) -> tuple[float, bytes]:
    """In seconds of this process, whatever else the machine is doing."""
    began = time.process_time()
    text = generate_latest(registry)
    return time.process_time() - began, text


if __name__ == "__main__":
    typer.run(scrape)
