"""``python -m tests.chaos.gauges``: after kills and rebalances, does every exported gauge equal a recomputation?

Every series of tenants and partitions, on all processors, is compared with what ``books`` counts from the topics; and
no series may be on two processors, or of a tenant that its processor does not have.
"""

from __future__ import annotations

import json
import math
import time
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from processor.run.assembly import tenant_settings_of, topics_of
from processor.service.topics import TopicNames

from .books import Books, keep_books
from .expected import Name, Series, partition_series, tenant_series
from .finish import Report, wait_consumed
from .fleet import Fleet
from .havoc import Amounts, Havoc, plan
from .topics import Contents, read_all
from .workload import Workload
from .world import PARTITIONS, Player, World

CLOSE = 1e-9
SETTLE = 25.0
"""Seconds until every attainable gap has been worked out again."""
WATCHED_CLOSELY = """
bucket = "20s"
keep = 120
windows = ["20s", "60s"]
tolerance = 0.01
alpha = 0.5
false_alarm_pairs = 30
"""
"""So that windows differ from the lifetime, and alerts are raised without anything being wrong."""
OF_THE_PROCESS = frozenset(
    {"gforce_build_info", "gforce_ready", "gforce_partition_still_seconds", "gforce_store_unsafe"}
)
"""Known to the process alone; so are counters without a tenant and the latencies."""


def compare(
    scrapes: dict[str, str], contents: Contents, topics: TopicNames, settings_for: object
) -> tuple[list[str], Counter[str]]:
    """Differences in words, and how many series of each metric were compared. ``scrapes`` is by processor."""
    return compare_with(keep_books(contents, topics, PARTITIONS, settings_for), scrapes, contents, topics)


def compare_with(
    books: Books, scrapes: dict[str, str], contents: Contents, topics: TopicNames
) -> tuple[list[str], Counter[str]]:
    found = {processor: parsed(text) for processor, text in scrapes.items()}
    differences = _shared(found) + _alerts(contents, topics, books)
    compared: Counter[str] = Counter()
    served: Counter[int] = Counter()
    for processor, series in found.items():
        numbers = sorted(int(dict(labels)["partition"]) for name, labels in series if name == "gforce_batch_sequence")
        served.update(numbers)
        wanted = _wanted(books, numbers, series, topics)
        shown = {key: value for key, value in series.items() if _is_compared(key)}
        for key in sorted(wanted.keys() | shown.keys(), key=str):
            compared[key[0]] += 1
            differences += _difference(processor, key, shown.get(key), wanted.get(key))
    if served != Counter(range(PARTITIONS)):
        differences.append(f"partitions are served {dict(served)} times, and each should be once")
    return differences, compared


def parsed(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _is_compared(key: Name) -> bool:
    name, labels = key
    of_tenant = any(label == "tenant" for label, _ in labels)
    if name.startswith("process_"):
        return False
    if name.endswith("_total") or name.startswith("gforce_decision_latency"):
        return of_tenant
    return name not in OF_THE_PROCESS


def _wanted(books: Books, numbers: list[int], shown: Series, topics: TopicNames) -> Series:
    ends = sorted(
        {dict(labels)["le"] for name, labels in shown if name == "gforce_label_delay_seconds_bucket"}, key=float
    )
    owned = [book for book in books.tenants.values() if book.partition in numbers]
    wanted: Series = {("gforce_tenants", frozenset()): len(owned), ("gforce_tenants_unlisted", frozenset()): 0}
    for number in numbers:
        wanted |= partition_series(books, number, topics.inputs)
    for book in owned:
        wanted |= tenant_series(books, book, ends)
    return wanted


def _difference(processor: str, key: Name, shown: float | None, wanted: float | None) -> list[str]:
    name = f"{processor}: {key[0]}{dict(sorted(key[1]))}"
    if shown is None:
        return [f"{name} is missing, and should be {wanted}"]
    if wanted is None:
        return [f"{name} is {shown}, and should not be there"]
    return (
        []
        if math.isclose(shown, wanted, rel_tol=CLOSE, abs_tol=CLOSE)
        else [f"{name} is {shown}, and should be {wanted}"]
    )


def _shared(found: dict[str, Series]) -> list[str]:
    """Series of a tenant or a partition that more than one processor shows."""
    owners: dict[Name, list[str]] = defaultdict(list)
    for processor, series in found.items():
        for key in series:
            if {label for label, _ in key[1]} & {"tenant", "partition"}:
                owners[key].append(processor)
    return [f"{key[0]}{dict(key[1])} is on {who}" for key, who in owners.items() if len(who) > 1]


def _alerts(contents: Contents, topics: TopicNames, books: Books) -> list[str]:
    """The topic and the recomputed streams must agree on what is raised now."""
    said: set[tuple[str, str, str, str]] = set()
    for _, seen in contents.all(topics.alerts):
        event = json.loads(seen.value)
        key = (event["tenant"], event["kind"], event.get("label", ""), " / ".join(event.get("groups", ())))
        (said.add if event["state"] == "raised" else said.discard)(key)
    wanted = {
        (book.name, kind, stream.label, " / ".join(stream.groups))
        for book in books.tenants.values()
        for stream in (book.watch.streams if book.watch else ())
        for kind, raised in (("tolerance", stream.tolerance_raised), ("drift", stream.drift_raised))
        if raised
    }
    return [f"open on the topic {sorted(said - wanted)}, recomputed {sorted(wanted - said)}"] if said != wanted else []


def gauges(
    requests: int = 24_000,
    rate: Annotated[float, typer.Option(help="requests per second")] = 200.0,
    kills: Annotated[int, typer.Option(help="of processors")] = 8,
    redis_kills: int = 1,
    processors: int = 3,
    seed: int = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Two minutes of load with kills and rebalances, then compare every gauge."""
    console = Console()
    load = Workload(seed, requests, requests / rate)
    report = Report(f"gauges after chaos, seed {seed}")
    with World() as world:
        with world.config_file.open("a") as config:  # its last table is [tenants.default]
            config.write(WATCHED_CLOSELY)
        _run(world, load, Amounts(kills, 0, redis_kills, 0, 0), processors, seed, report, console)
    report.print(console)
    console.print(f"logs: {world.folder}", style="dim")
    if json_file is not None:
        report.write(json_file)
    raise typer.Exit(0 if report.passed else 1)


def _run(
    world: World, load: Workload, amounts: Amounts, processors: int, seed: int, report: Report, console: Console
) -> None:
    rng = Random(seed)
    fleet, player = Fleet(world, processors), Player(world.broker.bootstrap, load.events)
    havoc = Havoc(world, fleet, rng, lambda what: console.print(what, style="dim", highlight=False))
    try:
        fleet.start_all()
        if not fleet.wait_ready(PARTITIONS):
            report.differences.append("the processors did not become ready")
            return
        player.start()
        havoc.run(plan(rng, amounts, load.span), time.monotonic() + load.span + 60)
        while player.is_alive():
            fleet.tend()
            player.join(1.0)
        if left := wait_consumed(world, fleet, timeout=120):
            report.differences.append(left)
        time.sleep(SETTLE)
        _compare(world, fleet, report)
    finally:
        player.stop()
        fleet.kill_all()
    report.done |= {**havoc.done, "processor starts": fleet.starts}
    report.differences += havoc.problems + player.failed[:3]


def _compare(world: World, fleet: Fleet, report: Report) -> None:
    scrapes = {member.name: _scrape(member.port) for member in fleet.members if member.alive}
    topics = topics_of(world.config)
    contents = read_all(world.broker.bootstrap, list(vars(topics).values()), PARTITIONS)
    began = time.monotonic()
    differences, compared = compare(scrapes, contents, topics, tenant_settings_of(world.config))
    report.differences += differences[:40]
    report.seen |= {
        "input records": {topic: len(contents.all(topic)) for topic in topics.inputs},
        "batches": len(contents.all(topics.journal)),
        "alerts on the topic": len(contents.all(topics.alerts)),
        "processors scraped": len(scrapes),
        "series compared": sum(compared.values()),
        "by metric": {name.removeprefix("gforce_"): count for name, count in sorted(compared.items())},
        "differences": len(differences),
        "recomputed in, s": round(time.monotonic() - began, 1),
    }


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


if __name__ == "__main__":
    typer.run(gauges)
