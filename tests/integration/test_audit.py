"""Audits of what a real processor did on a real Kafka, killed in the middle; recorded by us, by kcat, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.servers import redis_server
from tests.servers.broker import Broker
from tests.servers.processor_process import ROOT, Deployment, ProcessorProcess, clean_environment, eventually
from tests.servers.redis_server import RedisServer

REQUESTS = 1_500
SECTIONS = {
    "processing": {"max_batch_records": 60, "commit_interval_ms": 20, "slot_ms": 1_000},
    "tenants.default": {"labels": ["false", "true"], "shadows": ["groupaware"], "tolerance": 0.02, "alpha": 0.5},
}
OTHER_MACHINE = {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512_SKX", "OPENBLAS_CORETYPE": "Nehalem"}


@dataclass
class Record:
    """A processor that has been killed and started again, and what it has left in Kafka."""

    deployment: Deployment
    processor: ProcessorProcess
    tenants: list[str]

    @property
    def config(self) -> Path:
        return self.processor.config


@pytest.fixture(scope="module")
def record(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    if reason := redis_server.available():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with RedisServer(own=redis_server.binary() is not None) as redis:
        deployment = Deployment(broker.bootstrap, redis.url, tmp_path_factory.mktemp("audit"))
        try:
            processor = deployment.processor(sections=SECTIONS).start_ready()
            tenants = [*deployment.tenants_on(0, 2), *deployment.tenants_on(1, 2)]
            _stream(deployment, processor, tenants)
            processor.stop()
            yield Record(deployment, processor, tenants)
        finally:
            deployment.close()


def _stream(deployment: Deployment, processor: ProcessorProcess, tenants: list[str]) -> None:
    """Requests with labels early, late, twice and never; the processor is killed twice on the way."""
    rng = Random(7)
    for part in range(3):
        requests, labels = [], []
        for i in range(REQUESTS // 3):
            tenant, name, truth = rng.choice(tenants), f"d{part}-{i}", rng.choice(["false", "true"])
            group = rng.choice("AB")
            wrong = 0.1 if group == "A" else 0.6
            said = {f"e{f}": truth if rng.random() > wrong else ("true", "false")[truth == "true"] for f in range(3)}
            requests.append(deployment.request(tenant, name, group=group, predictions=said))
            labels += [deployment.label(tenant, name, truth)] * rng.choice([0, 1, 1, 1, 1, 1, 1, 2])
        deployment.send("feedback", labels[:50])
        deployment.send("requests", requests)
        deployment.send("feedback", [*labels[50:], (b"x", b"not json")])
        if part < 2:
            eventually(deployment.decisions, lambda found, part=part: len(found) > part * REQUESTS // 3 + 100)  # type: ignore[misc]
            processor.kill()
            processor.start_ready()
    eventually(deployment.decisions, lambda found: len(found) == REQUESTS, f"{REQUESTS} decisions")
    eventually(lambda: _labels(processor, tenants), lambda count: count > REQUESTS * 0.8, "labels")


def _labels(processor: ProcessorProcess, tenants: list[str]) -> int:
    return sum(processor.tally(tenant).get("labels_joined", 0) for tenant in tenants)


def gforce(*words: str, env: dict[str, str] | None = None, expect: int = 0, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "processor.cli", *words],
        cwd=cwd,
        env={**clean_environment(), "COLUMNS": "200", "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == expect, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    return done.stdout


def document(*words: str, **more: Any) -> Any:
    return json.loads(gforce(*words, "--json", **more))


def test_what_is_in_kafka_audits_clean(record: Record) -> None:
    found = document("audit", "--config", str(record.config))
    assert (found["verdict"], found["draws"], found["end"]) == ("verified", "verified", "verified")
    assert found["decisions"] == REQUESTS
    assert sum(one["states"] for one in found["partitions"]) == found["batches"]


@pytest.fixture(scope="module")
def recording(record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording") / "r"
    gforce("record", "--config", str(record.config), "--with-state", "--out", str(folder))
    return folder


def test_a_recording_audits_clean_elsewhere(record: Record, recording: Path, tmp_path: Path) -> None:
    """No Kafka, no Redis, no configuration: only the recording and the seeds, and a processor that can do less."""
    seeds = tmp_path / "seeds"
    seeds.write_text(next(line for line in record.config.read_text().splitlines() if line.startswith("seed")))
    found = document("audit", str(recording), "--seed-file", str(seeds), env=OTHER_MACHINE, cwd=tmp_path)
    assert (found["verdict"], found["draws"], found["end"]) == ("verified", "verified", "verified")
    assert found["decisions"] == REQUESTS


def test_a_recording_audits_clean_without_the_seeds(recording: Path) -> None:
    found = document("audit", str(recording))
    assert (found["verdict"], found["draws"], found["end"]) == ("verified", "not verified", "verified")
    assert sum(one["states"] for one in found["partitions"]) == found["batches"]


def test_a_window_of_a_recording_audits_clean(record: Record, recording: Path) -> None:
    found = document("audit", str(recording), "--config", str(record.config), "--from-batch", "5")
    assert found["verdict"] == "verified"
    assert [one["from_batch"] for one in found["partitions"]] == [5, 5]
    assert 0 < found["decisions"] < REQUESTS


def test_a_record_made_with_kcat_audits_clean(record: Record, tmp_path: Path) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no kcat")
    assert kcat is not None
    paths = []
    for role in ("journal", "requests", "feedback", "decisions", "dead-letters", "alerts"):
        words = [kcat, "-b", record.deployment.bootstrap, "-C", "-J", "-e", "-q", "-t", record.deployment.topic(role)]
        path = tmp_path / f"{role}.jsonl"
        path.write_bytes(subprocess.run(words, check=True, capture_output=True, timeout=60).stdout)
        paths.append(str(path))
    found = document("audit", *paths, "--config", str(record.config))
    assert (found["verdict"], found["draws"], found["end"]) == ("verified", "verified", "not verified")
    assert found["decisions"] == REQUESTS


def test_a_decision_is_explained_from_kafka(record: Record) -> None:
    tenant, name = record.deployment.decisions()[700]
    found = document("explain", name, "--tenant", tenant, "--config", str(record.config))
    assert (found["tenant"], found["decision_id"]) == (tenant, name)
    published = next(
        event
        for event in (one.json for one in record.deployment.records("decisions"))
        if (event["tenant"], event["decision_id"]) == (tenant, name)
    )
    assert found["parts"] == published["parts"]
    assert found["decision"] == published["decision"]


def test_a_processor_that_is_running_can_be_audited(record: Record) -> None:
    """What it decides meanwhile is after the end; it is no difference."""
    record.processor.start_ready()
    try:
        more = [record.deployment.request(record.tenants[0], f"more-{i}") for i in range(300)]
        record.deployment.send("requests", more)
        found = document("audit", "--config", str(record.config))
    finally:
        record.processor.stop()
    assert found["verdict"] == "verified"
