"""``python -m tests.chaos.soak``: a steady load for a long time. Does anything grow?

One processor, one of its tenants at the limits of groups and experts. Every minute: what was sent and decided,
memory of the processor and of Redis, file descriptors, latency from the producer to a ``read_committed`` reader.
Expiry and duplicate horizon are a minute, so that the state has its full size from the third minute on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console

from tests.servers.broker import Broker
from tests.servers.processor_process import Deployment, ProcessorProcess
from tests.servers.redis_server import RedisServer

from .soak_ends import DONE, MINUTE, Made, Plan, Sent, produce, read

PARTITIONS = 4
SHORTEST = 8
"""minutes below which nothing can be said about growth"""
MEBIBYTE = 1 << 20
LIMITS = {"processor_mib": 1.10, "redis_mib": 1.10, "descriptors": 1.10, "p99_ms": 2.0}
"""How many times its median of the second quarter a figure's median of the last quarter may be."""
RULE = "flat: median of the last quarter of the minutes against that of the second quarter, at most " + ", ".join(
    f"{name} × {factor}" for name, factor in LIMITS.items()
)
STRAGGLERS = 60
"""seconds after the last label in which everything must be decided"""


@dataclass(frozen=True)
class Minute:
    """What was seen in one minute."""

    minute: int
    sent: int
    decided: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    processor_mib: float
    redis_mib: float
    """used_memory"""
    redis_rss_mib: float
    descriptors: int
    cpu: float
    """of one core, the processor's"""
    recoveries: int
    aborted: int
    pending: int


class Watch:
    """Looks at the processor and at Redis."""

    def __init__(self, processor: ProcessorProcess, redis: RedisServer) -> None:
        self._processor, self._redis = processor, redis
        self._cpu, self._at = self._seconds(), time.monotonic()

    def _seconds(self) -> float:
        """Of the processor's CPU time."""
        words = Path(f"/proc/{self._processor.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def look(self) -> dict[str, Any]:
        cpu, at = self._seconds(), time.monotonic()
        share = (cpu - self._cpu) / max(at - self._at, 1e-9)
        self._cpu, self._at = cpu, at
        status = self._processor.get("/status").json
        totals = status.get("totals", {})
        with self._redis.client() as client:
            memory: dict[str, Any] = client.info("memory")
        return {
            "processor_mib": round(self._processor.resident_bytes / MEBIBYTE, 1),
            "redis_mib": round(memory["used_memory"] / MEBIBYTE, 1),
            "redis_rss_mib": round(memory["used_memory_rss"] / MEBIBYTE, 1),
            "descriptors": len(os.listdir(f"/proc/{self._processor.pid}/fd")),
            "cpu": round(share, 2),
            "recoveries": totals.get("recoveries", 0),
            "aborted": totals.get("transactions_aborted", 0),
            "pending": sum(one["pending"] for one in status.get("partitions", ())),
        }


def soak(
    seconds: Annotated[int, typer.Option(help="of load")] = 1_200,
    rate: Annotated[int, typer.Option(help="requests per second")] = 3_000,
    tenants: int = 200,
    large_share: Annotated[float, typer.Option(help="of the requests, of the tenant at the limits")] = 0.01,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """A steady load with labels on real Kafka and Redis, looked at every minute."""
    console = Console(width=150)
    folder = Path(tempfile.mkdtemp(prefix="gforce-soak-"))
    with Broker() as broker, RedisServer(own=True) as redis:
        deployment = Deployment(broker.bootstrap, redis.url, folder, PARTITIONS)
        try:
            report = _run(deployment, redis, seconds, rate, tenants, large_share, console)
        finally:
            deployment.close()
    for problem in report["problems"]:
        console.print(f"  {problem}", style="red", markup=False, highlight=False)
    console.print(f"{report['books']}\n{report['verdict']}", highlight=False, markup=False)
    console.print(f"logs: {folder}", style="dim")
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n")
    raise typer.Exit(1 if report["problems"] else 0)


def _run(
    deployment: Deployment,
    redis: RedisServer,
    seconds: int,
    rate: int,
    tenants: int,
    large_share: float,
    console: Console,
) -> dict[str, Any]:
    horizons = {"expiry": "60s", "duplicate_horizon": "60s", "parking": "60s"}
    processor = deployment.processor("soak", {"processing": {"slot_ms": 1_000}, "tenants.default": horizons})
    processor.start_ready()
    requests, feedback, decisions = (deployment.topic(role) for role in ("requests", "feedback", "decisions"))
    plan = Plan(
        bootstrap=deployment.bootstrap,
        requests=requests,
        feedback=feedback,
        decisions=decisions,
        partitions=PARTITIONS,
        began=time.time() + 5,
        seconds=seconds,
        rate=rate,
        tenants=tenants,
        large_share=large_share,
    )
    context = multiprocessing.get_context("spawn")
    sent: multiprocessing.Queue[Sent] = context.Queue()
    made: multiprocessing.Queue[Made] = context.Queue()
    enough: multiprocessing.Queue[int] = context.Queue()
    ends = [
        context.Process(target=produce, args=(plan, sent), daemon=True),
        context.Process(target=read, args=(plan, made, enough), daemon=True),
    ]
    for end in ends:
        end.start()
    try:
        minutes = _watch(plan, Watch(processor, redis), sent, made, console)
        all_sent = _until_done(sent)
        enough.put(STRAGGLERS)
        all_made = _until_done(made)
    finally:
        for end in ends:
            end.terminate()
            end.join(10)
    return _report(plan, minutes, all_sent, all_made, processor)


def _watch(plan: Plan, watch: Watch, sent: Any, made: Any, console: Console) -> list[Minute]:
    console.print(
        f"{'minute':>6} {'sent':>9} {'decided':>9} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'RSS MiB':>8} "
        f"{'Redis MiB':>10} {'its RSS':>8} {'fds':>5} {'cpu':>5} {'recov.':>6} {'aborted':>7} {'pending':>9}"
    )
    minutes: list[Minute] = []
    before = 0
    for number in range(int(plan.seconds / MINUTE)):
        time.sleep(max(plan.began + (number + 1) * MINUTE - time.time(), 0))
        looked = watch.look()
        told: Sent = sent.get(timeout=60)
        seen: Made = made.get(timeout=60)
        one = Minute(number + 1, told.requests - before, seen.decisions, seen.p50, seen.p99, seen.longest, **looked)
        before = told.requests
        minutes.append(one)
        console.print(
            f"{one.minute:>6} {one.sent:>9,} {one.decided:>9,} {one.p50_ms:>8.0f} {one.p99_ms:>8.0f} "
            f"{one.longest_ms:>8.0f} {one.processor_mib:>8.1f} {one.redis_mib:>10.1f} {one.redis_rss_mib:>8.1f} "
            f"{one.descriptors:>5} {one.cpu:>5.2f} {one.recoveries:>6} {one.aborted:>7} {one.pending:>9,}",
            highlight=False,
        )
    return minutes


def _until_done(told: Any) -> Any:
    """The last word of an end, which has the sums."""
    deadline = time.monotonic() + 3 * STRAGGLERS
    while time.monotonic() < deadline:
        try:
            word = told.get(timeout=5)
        except queue.Empty:
            continue
        if word.minute == DONE:
            return word
    raise RuntimeError("one of the two ends of the load did not finish")


def _report(plan: Plan, minutes: list[Minute], sent: Sent, made: Made, processor: ProcessorProcess) -> dict[str, Any]:
    lost = sent.requests - made.once - made.doubled
    problems = []
    if lost or made.doubled:
        problems.append(f"{lost} lost, {made.doubled} doubled of {sent.requests}")
    if sent.failed:
        problems.append(f"the broker did not take {sent.failed} records of the test's own producer")
    slow = [one.minute for one in minutes if one.sent < 0.97 * plan.rate * MINUTE]
    if slow:
        problems.append(f"the producer could not keep its pace in minutes {slow}: the load was not steady")
    if minutes and minutes[-1].recoveries > PARTITIONS:
        problems.append(f"{minutes[-1].recoveries - PARTITIONS} recoveries although nothing went wrong")
    if processor.exit_code is not None:
        problems.append(f"the processor ended with {processor.exit_code}")
    grown = _grown(minutes) if len(minutes) >= SHORTEST else []
    problems += grown
    flat = f"too short to say whether it is flat: {len(minutes)} of {SHORTEST} minutes"
    if len(minutes) >= SHORTEST:
        flat = f"NOT FLAT ({RULE})" if grown else f"FLAT ({RULE})"
    return {
        "plan": asdict(plan),
        "minutes": [asdict(one) for one in minutes],
        "books": f"sent {sent.requests:,} requests and {sent.labels:,} labels; decided once {made.once:,}, "
        f"doubled {made.doubled:,}, lost {lost:,}",
        "verdict": flat,
        "problems": problems,
    }


def _grown(minutes: list[Minute]) -> list[str]:
    """Figures that are not flat, in words."""
    quarter = len(minutes) // 4
    early, late = minutes[quarter : 2 * quarter], minutes[-quarter:]
    found = []
    for name, factor in LIMITS.items():
        before, after = (median(getattr(one, name) for one in part) for part in (early, late))
        if after > factor * before:
            found.append(f"{name} grew from {before:.1f} to {after:.1f}, more than {factor} times")
    return found


if __name__ == "__main__":
    typer.run(soak)
