"""The operators' commands on a real broker and a real store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from processor.adapters.kafka.admin import Topic, create_topics, delete_records
from processor.adapters.kafka.reader import KafkaReader
from processor.cli import app
from processor.core.errors import GForceError
from processor.core.stream.journal import JournalRecord
from processor.core.stream.partitioner import partition_of
from processor.ports.log import TopicPartition
from processor.run.assembly import worker_of
from processor.run.run_command import load
from processor.service.worker import Worker
from tests.servers.broker import Broker
from tests.servers.kafka_world import KafkaWorld
from tests.servers.processor_process import toml
from tests.servers.redis_server import RedisServer

PARTITIONS = 2


@dataclass
class Site:
    """A configuration with topics, a group and a prefix of its own."""

    config: Path
    name: str
    properties: dict[str, str]
    redis: RedisServer

    def gforce(self, *words: str, expect: int = 0, answer: str | None = None) -> str:
        """Run a command as ``gforce`` would; what it printed."""
        result = CliRunner().invoke(app, [*words, "--config", str(self.config)], input=answer, env={"COLUMNS": "200"})
        code = 2 if isinstance(result.exception, GForceError) else result.exit_code
        assert code == expect, f"{result.output}\n{result.exception!r}"
        return result.output

    def asked(self, *words: str, expect: int = 0) -> Any:
        return json.loads(self.gforce(*words, "--json", expect=expect))

    def topic(self, role: str) -> str:
        return f"{self.name}.{role}"

    def lineages(self) -> list[list[str]]:
        """Of each partition's journal, in order."""
        reader = KafkaReader(self.properties)
        try:
            records = [reader.read(TopicPartition(self.topic("journal"), number), 0) for number in range(PARTITIONS)]
            return [[JournalRecord.decode(one.value or b"").lineage for one in part] for part in records]
        finally:
            reader.close()

    def states(self) -> list[dict[bytes, bytes]]:
        """What the store holds of each partition, but for who has claimed it."""
        with self.redis.client() as client:
            keys = [f"{{{self.name}:{number}}}" for number in range(PARTITIONS)]
            found: Any = [
                client.hgetall(f"{key}:fields")
                | client.hgetall(f"{key}:entries")  # type: ignore[operator]
                | {b"identity": client.hget(f"{key}:meta", "identity")}
                for key in keys
            ]
            return found  # type: ignore[no-any-return]


@pytest.fixture
def site(broker: Broker, redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv("REDIS_URL", raising=False)  # to the configuration an unknown variable is a mistake
    name = f"ops-{uuid4().hex[:8]}"
    sections: dict[str, dict[str, object]] = {
        "kafka": {
            "bootstrap_servers": broker.bootstrap,
            "group": name,
            "instance": "worker-1",
            "session_timeout_ms": 2_000,
            "consumer_properties": {"heartbeat.interval.ms": 300},
        },
        "topics": {"prefix": f"{name}."},
        "redis": {"url": redis.url, "prefix": name},
        "processing": {"seed": "5e" * 32, "grace_ms": 100, "commit_interval_ms": 20},
    }
    config = tmp_path / "gforce.toml"
    config.write_text(toml(sections))
    return Site(config, name, {"bootstrap.servers": broker.bootstrap}, redis)


@pytest.fixture
def made(site: Site) -> Site:
    """With topics."""
    assert len(site.asked("topics", "create", "--partitions", str(PARTITIONS))["created"]) == 7
    return site


@contextmanager
def processor(site: Site) -> Iterator[Worker]:
    """A worker in this process."""
    worker = worker_of(load(site.config), lambda event, details: None)
    try:
        yield worker
    finally:
        worker.close()


def settle(worker: Worker) -> None:
    """Until everything there is has been processed."""
    deadline, quiet = time.monotonic() + 60, 0
    while quiet < 5:
        assert time.monotonic() < deadline, [owned.last_error for owned in worker.owned.values()]
        moved = worker.run_once()
        behind = not worker.ready or any(worker.buffers.has_lag(owned) for owned in worker.owned.values())
        quiet = 0 if moved or behind else quiet + 1


def run_all(site: Site) -> Worker:
    with processor(site) as worker:
        settle(worker)
        return worker


def once_alone(attempt: Callable[[], Any]) -> Any:
    """A stopped member is missed only when its session ends."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return attempt()
        except AssertionError:
            assert time.monotonic() < deadline
            time.sleep(0.3)


def produced(site: Site, *options: str) -> Any:
    return site.asked("produce", "synthetic", "--count", "400", "--delay", "geometric:20", *options)


def test_topics_are_created_once_and_found_fit(made: Site) -> None:
    again = made.asked("topics", "create", "--partitions", "7")
    assert (again["created"], len(again["existed"])) == ([], 7)
    findings = made.asked("topics", "check")["findings"]
    assert {finding["level"] for finding in findings} == {"ok", "warning"}  # one broker, so one replica
    table = made.gforce("topics", "check")
    assert "no problems" in table


def test_unfit_topics_and_misplaced_records_are_found(site: Site) -> None:
    configs = {"cleanup.policy": "compact"}
    bad = [Topic(site.topic("requests"), 2, configs), Topic(site.topic("journal"), 3, {"retention.ms": "1000"})]
    create_topics(site.properties, bad)
    site.gforce("topics", "create", "--partitions", "2")
    world = KafkaWorld(site.properties["bootstrap.servers"])
    wrong = 1 - partition_of(b"acme", 2)
    world.produce(TopicPartition(site.topic("requests"), wrong), b"acme", b"{}")
    findings = site.asked("topics", "check", expect=1)["findings"]
    problems = {finding["what"].removeprefix(f"{site.name}.") for finding in findings if finding["level"] == "problem"}
    assert problems == {"partition counts", "requests", "journal", f"partitioner of {site.topic('requests')}"}


def test_the_doctor_foresees_a_first_start_a_load_and_a_restore(made: Site) -> None:
    fresh = made.asked("doctor")
    assert {one["action"] for one in fresh["partitions"]} == {"start"}
    found = {finding["what"]: finding for finding in fresh["findings"]}
    assert found["transactions"]["level"] == found["broker's clock"]["level"] == found["seed"]["level"] == "ok"
    produced(made)
    run_all(made)
    assert {one["action"] for one in made.asked("doctor")["partitions"]} == {"load"}
    with made.redis.client() as client:
        client.flushall()
    after = made.asked("doctor")["partitions"]
    assert {one["action"] for one in after} == {"restore"}
    assert all(one["committed"]["sequence"] > 0 for one in after)
    assert "What a start would do" in made.gforce("doctor")


def test_the_doctor_says_what_is_missing_or_unreachable(site: Site) -> None:
    found = {finding["what"]: finding["level"] for finding in site.asked("doctor", expect=1)["findings"]}
    assert (found["topics"], found["Kafka"], found["Redis"]) == ("problem", "ok", "ok")
    text = site.config.read_text()
    site.config.write_text(text.replace(site.redis.url, "redis://127.0.0.1:1"))
    findings = site.asked("doctor", expect=2)["findings"]
    assert next(finding["what"] for finding in findings if finding["level"] == "problem") == "Redis"


def test_a_tenants_state_is_shown_without_disturbing_the_owner(made: Site) -> None:
    sent = produced(made, "--tenants", "1", "--duplicates", "0.1", "--contradicting", "0.05")
    with processor(made) as worker:
        settle(worker)
        shown = made.asked("state", "tenant-0")
        assert shown["tally"]["decisions"] == sent["request"]
        assert sum(map(sum, shown["seen"])) == shown["tally"]["labels_joined"] == sent["label"]
        assert set(shown["by_policy"]) == {"in-force", "groupaware", "mw"}
        assert "equalized odds difference" in made.gforce("state", "tenant-0")
        produced(made, "--tenants", "1")
        settle(worker)
        assert worker.totals["fenced_by_store"] == 0
        assert worker.totals["recoveries"] == PARTITIONS
    made.gforce("state", "nobody", expect=1)


def test_a_reset_begins_a_new_lineage_and_keeps_the_journal(made: Site) -> None:
    sent = produced(made)
    with processor(made) as worker:
        settle(worker)
        assert "worker-1" in made.gforce("reset", "--yes", expect=1)
    before = made.states()
    old = made.lineages()
    once_alone(lambda: made.gforce("reset", "--from", "earliest", "--dry-run"))
    once_alone(lambda: made.gforce("reset", "--from", "earliest", expect=1, answer="n\n"))
    assert made.states() == before
    done = once_alone(lambda: made.asked("reset", "--from", "earliest", "--yes"))
    assert made.states() == [{b"identity": None}] * PARTITIONS
    assert {one["action"] for one in made.asked("doctor")["partitions"]} == {"start"}
    again = run_all(made)
    assert again.totals["decisions"] == sent["request"]
    for number, lineages in enumerate(made.lineages()):
        new = done["partitions"][number]["lineage"]
        assert lineages[: len(old[number])] == old[number]
        assert set(lineages[len(old[number]) :]) == {new}
        assert new not in old[number]
    third = run_all(made)
    assert third.totals["decisions"] == 0


def test_a_reset_before_the_first_batch_is_remembered_by_the_next_start(made: Site) -> None:
    produced(made)
    run_all(made)
    done = once_alone(lambda: made.asked("reset", "--from", "latest", "--yes"))
    assert run_all(made).totals["records"] == 0
    with processor(made) as worker:
        settle(worker)
        found = {owned.number: owned.partition.identity for owned in worker.owned.values() if owned.partition}
    assert {number: identity.lineage for number, identity in found.items()} == {
        one["partition"]: one["lineage"] for one in done["partitions"]
    }
    assert {identity.sequence for identity in found.values()} == {0}


def test_a_rebuilt_store_is_what_it_was(made: Site) -> None:
    produced(made)
    run_all(made)
    before = made.states()
    with made.redis.client() as client:
        client.hset(f"{{{made.name}:0}}:fields", "c\0\0", "wrong")
    assert made.states() != before
    done = once_alone(lambda: made.asked("rebuild", "--yes"))
    assert all(one["replayed"] == one["sequence"] > 0 for one in done["partitions"])
    assert made.states() == before
    assert run_all(made).totals["batches_replayed"] == 0


def test_what_the_changelog_cannot_restore_is_not_wiped(made: Site) -> None:
    produced(made)
    run_all(made)
    before = made.states()
    delete_records(made.properties, TopicPartition(made.topic("changelog"), 1), -1)
    done = once_alone(lambda: made.asked("rebuild", "--partition", "1", "--yes", "--force", expect=1))
    assert "changelog" in done["partitions"][0]["trouble"]
    assert made.states() == before


def test_a_forced_rebuild_under_a_running_processor_does_no_harm(made: Site) -> None:
    produced(made)
    with processor(made) as worker:
        settle(worker)
        before = made.states()
        made.gforce("rebuild", "--yes", expect=1)
        made.gforce("rebuild", "--yes", "--force")
        sent = produced(made)
        settle(worker)
        assert worker.totals["decisions"] == 400 + sent["request"]
        assert made.states() != before


def test_dead_letters_are_listed_shown_and_sent_back(made: Site) -> None:
    world = KafkaWorld(made.properties["bootstrap.servers"])
    event = {"tenant": "acme", "decision_id": "1", "group": "A", "predictions": {"m": "true"}}
    value, right = json.dumps(event).encode(), partition_of(b"acme", PARTITIONS)
    requests = made.topic("requests")
    world.produce(TopicPartition(requests, 1 - right), b"acme", value, timestamp=1_700_000_000_000)
    world.produce(TopicPartition(requests, 0), b"other", b"not json")
    run_all(made)
    reasons = {one["reason"]: one for one in made.asked("dead-letters", "list")["reasons"]}
    assert {reason: one["count"] for reason, one in reasons.items()} == {"wrong-partition": 1, "bad-json": 1}
    assert made.asked("dead-letters", "list", "--tenant", "nobody")["reasons"] == []
    assert len(made.asked("dead-letters", "list", "--since", "1h", "--reason", "bad-json")["reasons"]) == 1
    place = reasons["wrong-partition"]["latest"]["place"]
    shown = made.asked("dead-letters", "show", place)
    assert shown["headers"]["gforce.topic"] == requests
    assert json.loads(shown["value"]) == event
    assert "wrong-partition" in made.gforce("dead-letters", "show", place)
    made.gforce("dead-letters", "show", "0:999999", expect=1)
    made.gforce("dead-letters", "resubmit", expect=2)
    assert made.asked("dead-letters", "resubmit", place, "--dry-run")["would_send"] == 1
    made.gforce("dead-letters", "resubmit", place, expect=1, answer="n\n")
    assert made.asked("dead-letters", "resubmit", "--reason", "wrong-partition", "--yes")["sent"] == 1
    assert run_all(made).totals["decisions"] == 1
    reader = KafkaReader(made.properties)
    (sent,) = (
        reader.read(TopicPartition(requests, right), 0)
        if right
        else [*reader.read(TopicPartition(requests, 0), 0)][-1:]
    )
    reader.close()
    assert (sent.key, sent.value, sent.timestamp) == (b"acme", value, 1_700_000_000_000)
    assert dict(sent.headers) == {"gforce.resubmitted": place.encode()}


def test_a_paced_stream_arrives_in_time_and_where_it_belongs(made: Site) -> None:
    started = time.monotonic()
    sent = made.asked("produce", "synthetic", "--count", "50", "--rate", "100", "--delay", "fixed:200")
    assert time.monotonic() - started > 0.6
    assert (sent["request"], sent["label"]) == (50, 50)
    levels = {one["level"] for one in made.asked("topics", "check")["findings"] if "partitioner" in one["what"]}
    assert levels == {"ok"}
