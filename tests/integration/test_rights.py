"""On a cluster with TLS, passwords and ACLs: the rights of the manual are enough, and each one that lacks is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from processor.adapters.kafka.admin import delete_records
from processor.ports.log import TopicPartition
from tests.servers import redis_server
from tests.servers.broker import available
from tests.servers.processor_process import ROLES, Deployment, ProcessorProcess, clean_environment, eventually
from tests.servers.redis_server import RedisServer
from tests.servers.secured import MANUAL, Right, SecuredBroker, rights_by_the_manual

PROCESSOR, PRODUCER, OPERATOR = "processor", "producer", "operator"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    reason = available() or (None if shutil.which("keytool") else "no keytool, which comes with Java")
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no Kafka broker: {reason}")
    secured = SecuredBroker(tmp_path_factory.mktemp("keys"), (PROCESSOR, PRODUCER, OPERATOR))
    with secured.broker:
        yield secured


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    if reason := redis_server.available():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with RedisServer(own=redis_server.binary() is not None) as running:
        yield running


@pytest.fixture
def deployment(kafka: SecuredBroker, redis: RedisServer, tmp_path: Path) -> Iterator[Deployment]:
    """Topics made by the super user, who also sends the requests and reads the decisions."""
    made = Deployment(kafka.broker.bootstrap, redis.url, tmp_path)
    yield made
    made.close()


def rights(deployment: Deployment, who: str) -> list[Right]:
    return rights_by_the_manual(who, f"{deployment.name}.", deployment.name, ROLES)


def as_user(kafka: SecuredBroker, deployment: Deployment, user: str, instance: str = "one") -> ProcessorProcess:
    """A processor, or the configuration of a command, that comes in by this name."""
    kafka_section = {"bootstrap_servers": kafka.bootstrap, "properties": kafka.properties(user)}
    return deployment.processor(instance, {"kafka": kafka_section})


def gforce(at: ProcessorProcess, *words: str, expect: int = 0) -> str:
    """Run a command with the configuration of a processor that need not run; what it printed."""
    command = [sys.executable, "-m", "processor.cli", *words, "--config", str(at.config)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)
    assert done.returncode == expect, f"{done.stdout}{done.stderr}"
    return done.stdout


def test_the_processor_needs_no_more_than_the_manual_says(
    kafka: SecuredBroker, redis: RedisServer, deployment: Deployment
) -> None:
    kafka.allow(PROCESSOR, rights(deployment, "processor"))
    processor = as_user(kafka, deployment, PROCESSOR).start_ready()
    deployment.send("requests", [deployment.request("acme", f"loan-{n}") for n in range(20)])
    deployment.send("feedback", [deployment.label("acme", f"loan-{n}") for n in range(20)])
    deployment.send("requests", [(b"acme", b"not JSON")])
    eventually(deployment.decisions, lambda found: len(found) == 20)
    eventually(deployment.dead_letters)
    eventually(lambda: processor.tally("acme"), lambda tally: tally.get("labels_joined") == 20)
    assert processor.stop() == 0
    with redis.client() as client:
        client.flushall()  # so that all comes from the changelog
    processor.start_ready()
    assert processor.tally("acme")["labels_joined"] == 20
    place = TopicPartition(deployment.topic("changelog"), 0)
    assert delete_records({"bootstrap.servers": kafka.bootstrap, **kafka.properties(PROCESSOR)}, place, 0) == 0


def test_redis_lets_the_processor_do_what_the_manual_says(
    kafka: SecuredBroker, redis: RedisServer, deployment: Deployment
) -> None:
    line = next(line for line in MANUAL.read_text("utf-8").splitlines() if "ACL SETUSER gforce" in line)
    words = line.replace("<prefix>", deployment.name).split()
    with redis.client() as client:
        client.execute_command(*words)
        client.execute_command("ACL", "LOG", "RESET")
        kafka.allow(PROCESSOR, rights(deployment, "processor"))
        named = {"url": redis.url.replace("://", "://gforce:password@")}
        secured = {"bootstrap_servers": kafka.bootstrap, "properties": kafka.properties(PROCESSOR)}
        processor = deployment.processor("one", {"kafka": secured, "redis": named}).start_ready()
        deployment.send("requests", [deployment.request("acme", f"loan-{n}") for n in range(20)])
        deployment.send("feedback", [deployment.label("acme", f"loan-{n}") for n in range(20)])
        eventually(lambda: processor.tally("acme"), lambda tally: tally.get("labels_joined") == 20)
        assert "acme" in gforce(processor, "state", "acme")
        assert processor.stop() == 0
        client.flushall()
        processor.start_ready()
        assert processor.tally("acme")["labels_joined"] == 20
        assert client.execute_command("ACL", "LOG") == []


@pytest.mark.parametrize(
    ("kind", "role", "operation", "says"),
    [
        ("TOPIC", "requests", "READ", "grant this user READ on it"),
        ("TOPIC", "decisions", "WRITE", "grant this user READ and WRITE on the topic"),
        ("TOPIC", "journal", "WRITE", "grant this user READ and WRITE on the topic"),
        ("GROUP", "", "READ", "grant this user READ on the consumer group"),
        ("TRANSACTIONAL_ID", "", "WRITE", "WRITE and DESCRIBE on the transactional id"),
    ],
)
def test_a_right_that_lacks_is_named(
    kafka: SecuredBroker, deployment: Deployment, kind: str, role: str, operation: str, says: str
) -> None:
    every = rights(deployment, "processor")
    lacking = [r for r in every if (r.kind, r.operation) == (kind, operation) and r.name.endswith(role)]
    assert lacking
    kafka.allow(PROCESSOR, [right for right in every if right not in lacking])
    processor = as_user(kafka, deployment, PROCESSOR).start()
    deployment.send("requests", [deployment.request("acme", "loan-1")])
    assert processor.wait() == 2
    assert says in " ".join(processor.log.split())


def test_who_may_not_come_in_is_told_so(kafka: SecuredBroker, deployment: Deployment) -> None:
    nobody = as_user(kafka, deployment, "nobody")
    said = " ".join(gforce(nobody, "doctor", expect=2).replace("│", "").split())
    assert kafka.bootstrap in said
    assert "Authentication failed" in said
    assert "kafka.properties" in said


def test_producing_needs_no_more_than_the_manual_says(kafka: SecuredBroker, deployment: Deployment) -> None:
    kafka.allow(PRODUCER, rights(deployment, "`gforce produce`"))
    producer = as_user(kafka, deployment, PRODUCER)
    gforce(producer, "produce", "synthetic", "--count", "30", "--rate", "1000", "--delay", "none")
    assert len(eventually(lambda: deployment.records("requests"), lambda found: len(found) == 30)) == 30


def test_an_operator_needs_no_more_than_the_manual_says(
    kafka: SecuredBroker, deployment: Deployment, tmp_path: Path
) -> None:
    operator = as_user(kafka, deployment, OPERATOR)
    inputs = (deployment.topic("requests"), deployment.topic("feedback"))
    check = rights(deployment, "operator: `topics check`")
    kafka.allow(OPERATOR, [right for right in check if right.operation != "READ" or right.name in inputs])
    checked = json.loads(gforce(operator, "topics", "check", "--json"))
    assert {one["what"].rsplit(".")[-1] for one in checked["findings"]} >= set(ROLES)
    kafka.allow(OPERATOR, [*rights(deployment, "processor"), *rights(deployment, "operator: `doctor`")])
    assert "no problems" in gforce(operator, "doctor")
    kafka.allow(OPERATOR, rights(deployment, "operator: `record`, `audit`, …"))
    gforce(operator, "record", "--out", str(tmp_path / "recording"))
    letters = rights(deployment, "operator: `dead-letters`")
    kafka.allow(OPERATOR, [right for right in letters if right.operation == "READ"])
    assert "no dead letters" in gforce(operator, "dead-letters", "list")
    kafka.allow(OPERATOR, rights(deployment, "operator: `reset`"))
    gforce(operator, "reset", "--yes")
    elsewhere = rights_by_the_manual("operator: `topics create`", f"{deployment.name}-new.", deployment.name, ROLES)
    kafka.allow(OPERATOR, elsewhere)
    operator.config.write_text(operator.config.read_text().replace(f"{deployment.name}.", f"{deployment.name}-new."))
    gforce(operator, "topics", "create", "--partitions", "2", "--replication", "1")
