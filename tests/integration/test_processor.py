"""The contract from outside: the processor as a process, on a real Kafka and a real Redis."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from processor.core.events import Reason
from processor.core.stream.partitioner import partition_of
from tests.servers import redis_server
from tests.servers.broker import Broker
from tests.servers.processor_process import ROOT, Deployment, Place, ProcessorProcess, clean_environment, eventually
from tests.servers.redis_server import RedisServer

SMALL_BATCHES = {"processing": {"max_batch_records": 100, "commit_interval_ms": 20}}
HURRIED = {
    "processing": {"slot_ms": 1_000, "grace_ms": 100},
    "tenants.default": {"expiry": "2s", "on_expiry": "label:true", "parking": "2s", "duplicate_horizon": "1h"},
}

Running = tuple[Deployment, ProcessorProcess]


@pytest.fixture(scope="module")
def shared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A processor for the tests that only add a tenant of their own."""
    with _redis() as redis:
        deployment = Deployment(broker.bootstrap, redis.url, tmp_path_factory.mktemp("shared"))
        try:
            yield deployment, deployment.processor().start_ready()
        finally:
            deployment.close()


@pytest.fixture(scope="module")
def hurried(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The same with a patience of two seconds."""
    with _redis() as redis:
        deployment = Deployment(broker.bootstrap, redis.url, tmp_path_factory.mktemp("hurried"))
        try:
            yield deployment, deployment.processor(sections=HURRIED).start_ready()
        finally:
            deployment.close()


def _redis() -> RedisServer:
    if reason := redis_server.available():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return RedisServer(own=redis_server.binary() is not None)


def tally_becomes(processor: ProcessorProcess, tenant: str, **wanted: int) -> dict[str, int]:
    """The tenant's tally once it holds these; a name that is absent counts as zero."""
    return eventually(
        lambda: processor.tally(tenant),
        lambda found: {name: found.get(name, 0) for name in wanted} == wanted,
        f"{tenant}: {wanted}",
    )


def letter_for(deployment: Deployment, place: Place) -> str:
    """The reason this record is a dead letter for, once it is."""
    return eventually(deployment.dead_letters, lambda found: place in found)[place].header("gforce.reason")


def decided(deployment: Deployment, count: int) -> Counter[tuple[str, str]]:
    """How often each request was decided, once there are at least so many decisions."""
    return Counter(eventually(deployment.decisions, lambda found: len(found) >= count, f"{count} decisions"))


# Decisions


def test_a_request_gets_a_decision_with_its_context_and_its_headers(shared: Running) -> None:
    deployment, _ = shared
    trace = [("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("empty", None)]
    context = {"amount": 12.50, "tags": ["a", "é"], "nothing": None}
    request = deployment.request("ctx", "loan-1", context=context, predictions={"m": "true", "rules": "true"})
    deployment.send("requests", [request], headers=trace)
    decision = eventually(
        lambda: [found for found in deployment.records("decisions") if found.key == b"ctx"], what="the decision"
    )[0]
    event = decision.json
    assert event["context"] == context
    assert (event["tenant"], event["decision_id"], event["group"], event["decision"]) == ("ctx", "loan-1", "A", "true")
    assert event["expert"] in ("m", "rules")
    assert event["probabilities"] == {"false": 0.0, "true": 1.0}
    assert sum(event["parts"].values()) == 2**32
    assert decision.headers == dict(trace)
    assert decision.place.partition == partition_of(b"ctx", deployment.partitions)


def test_a_label_joins_its_decision_once(shared: Running) -> None:
    deployment, processor = shared
    deployment.send("requests", [deployment.request("join", f"loan-{n}") for n in range(3)])
    tally_becomes(processor, "join", decisions=3)
    deployment.send("feedback", [deployment.label("join", "loan-0"), deployment.label("join", "loan-0")])
    tally_becomes(processor, "join", labels_joined=1, labels_duplicate=1)


def test_a_label_that_contradicts_the_first_is_a_dead_letter(shared: Running) -> None:
    deployment, processor = shared
    deployment.send("requests", [deployment.request("contra", "loan-1")])
    _, second = deployment.send(
        "feedback", [deployment.label("contra", "loan-1"), deployment.label("contra", "loan-1", "false")]
    )
    assert letter_for(deployment, second) == Reason.CONTRADICTING_LABEL
    tally_becomes(processor, "contra", labels_joined=1)


def test_a_repeated_request_is_not_decided_again_and_a_conflicting_one_is_a_dead_letter(shared: Running) -> None:
    deployment, processor = shared
    request = deployment.request("again", "loan-1")
    deployment.send("requests", [request])
    tally_becomes(processor, "again", decisions=1)
    _, other = deployment.send("requests", [request, deployment.request("again", "loan-1", group="B")])
    assert letter_for(deployment, other) == Reason.CONFLICTING_REQUEST
    tally_becomes(processor, "again", decisions=1, requests_duplicate=1)
    found = eventually(deployment.decisions, lambda found: ("again", "loan-1") in found)
    assert Counter(found)["again", "loan-1"] == 1


def test_a_label_before_its_request_waits_and_then_joins(shared: Running) -> None:
    deployment, processor = shared
    deployment.send("feedback", [deployment.label("early", "loan-1")])
    number = str(partition_of(b"early", deployment.partitions))
    eventually(lambda: processor.metric("gforce_parked_labels", partition=number), lambda parked: parked == 1)
    deployment.send("requests", [deployment.request("early", "loan-1")])
    tally_becomes(processor, "early", labels_parked=1, decisions=1, labels_joined=1)


# Time


def test_a_parked_label_whose_request_never_comes_is_a_dead_letter(hurried: Running) -> None:
    deployment, _ = hurried
    (place,) = deployment.send("feedback", [deployment.label("orphan", "loan-1")])
    assert letter_for(deployment, place) == Reason.UNKNOWN_DECISION


def test_an_expired_decision_counts_as_the_label_of_on_expiry(hurried: Running) -> None:
    deployment, processor = hurried
    deployment.send("requests", [deployment.request("late", "loan-1", predictions={"m": "false"})])
    tally_becomes(processor, "late", decisions=1, decisions_expired=1)

    def rate(label: str) -> float:
        return processor.metric("gforce_error_rate", tenant="late", group="A", label=label, window="lifetime")

    # It was decided "false" and counts as "true": an error of that label, and nothing is known of the other.
    assert rate("true") == 1.0
    name, labels = "gforce_error_rate", {"tenant": "late", "group": "A", "label": "false", "window": "lifetime"}
    assert (name, tuple(sorted(labels.items()))) not in processor.metrics()
    (repeated, contradicting) = deployment.send(
        "feedback", [deployment.label("late", "loan-1", "true"), deployment.label("late", "loan-1", "false")]
    )
    assert letter_for(deployment, contradicting) == Reason.CONTRADICTING_LABEL
    assert repeated not in deployment.dead_letters()
    tally_becomes(processor, "late", labels_duplicate=1)


# Crashes


def test_killed_in_the_middle_and_restarted_every_request_has_exactly_one_decision(deployment: Deployment) -> None:
    wanted = [(f"tenant-{n % 7}", f"loan-{n}") for n in range(3_000)]
    processor = deployment.processor(sections=SMALL_BATCHES)
    processor.start_ready()
    for part, until in ((wanted[:1_200], 300), (wanted[1_200:2_400], 1_500)):
        deployment.send("requests", [deployment.request(*each) for each in part])
        deployment.send("feedback", [deployment.label(*each) for each in part])
        decided(deployment, until)
        processor.kill()
        processor.start()
    deployment.send("requests", [deployment.request(*each) for each in wanted[2_400:]])
    deployment.send("feedback", [deployment.label(*each) for each in wanted[2_400:]])
    decided(deployment, len(wanted))
    assert joined_once(deployment, processor, wanted)


def test_a_redis_that_loses_everything_is_restored_and_nothing_is_lost(
    deployment: Deployment, redis: RedisServer
) -> None:
    if redis.external:
        pytest.skip("no Redis of our own: the one of REDIS_URL is not ours to flush; install redis-server")
    wanted = [(f"tenant-{n % 5}", f"loan-{n}") for n in range(2_000)]
    processor = deployment.processor(sections=SMALL_BATCHES).start_ready()
    deployment.send("requests", [deployment.request(*each) for each in wanted])
    decided(deployment, 300)
    with redis.client() as client:
        client.flushall()
    decided(deployment, len(wanted))
    with redis.client() as client:
        client.flushall()
    # Their pending decisions come from Kafka, or these labels would be parked.
    deployment.send("feedback", [deployment.label(*each) for each in wanted])
    assert joined_once(deployment, processor, wanted)
    assert processor.metric("gforce_batches_replayed_total") > 0


def joined_once(deployment: Deployment, processor: ProcessorProcess, wanted: list[tuple[str, str]]) -> bool:
    """Every request decided once, every label joined once, no dead letter; waits until all labels are in."""
    per_tenant = Counter(tenant for tenant, _ in wanted)
    for tenant, count in per_tenant.items():
        found = tally_becomes(processor, tenant, decisions=count, labels_joined=count)
        assert not found.get("labels_duplicate")
        assert not found.get("requests_duplicate")
    assert Counter(deployment.decisions()) == Counter(wanted)
    assert deployment.dead_letters() == {}
    eventually(
        lambda: [processor.metric("gforce_partition_pending_decisions", partition=p) for p in "01"],
        lambda n: n == [0, 0],
    )
    return True


def test_sigterm_ends_it_in_order_and_the_next_one_goes_on(deployment: Deployment) -> None:
    processor = deployment.processor().start_ready()
    deployment.send("requests", [deployment.request("term", f"loan-{n}") for n in range(200)])
    decided(deployment, 1)
    assert processor.stop() == 0
    assert '"event": "stopped"' in processor.log
    assert "Traceback" not in processor.log
    processor.start_ready()
    deployment.send("requests", [deployment.request("term", "loan-200")])
    assert decided(deployment, 201) == Counter({("term", f"loan-{n}"): 1 for n in range(201)})


# Sharing


def test_two_processors_share_the_partitions_and_one_takes_over_from_a_dead_one(deployment: Deployment) -> None:
    one, two = deployment.processor("one").start_ready(), deployment.processor("two").start_ready()
    eventually(
        lambda: sorted([sorted(one.partitions()), sorted(two.partitions())]),
        lambda shares: shares == [[0], [1]],
        "a fair share",
    )
    one.wait_ready()
    wanted = [(f"tenant-{n % 8}", f"loan-{n}") for n in range(400)]
    deployment.send("requests", [deployment.request(*each) for each in wanted[:200]])
    assert decided(deployment, 200) == Counter(wanted[:200])
    eventually(lambda: [p.metric("gforce_decisions_total") for p in (one, two)], lambda counts: min(counts) > 0)
    two.kill()
    deployment.send("requests", [deployment.request(*each) for each in wanted[200:]])
    assert decided(deployment, 400) == Counter(wanted)
    eventually(one.partitions, lambda owned: owned == {0, 1})


# It says how it is


def test_it_is_healthy_but_not_ready_while_it_owns_nothing(broker: Broker, redis: RedisServer, tmp_path: Path) -> None:
    deployment = Deployment(broker.bootstrap, redis.url, tmp_path, partitions=1)
    try:
        first = deployment.processor("first").start_ready()
        spare = deployment.processor("spare").start()
        assert spare.wait_page("/healthz", 200).json["alive"] is True
        waiting = spare.get("/readyz")
        assert waiting.status == 503
        assert "no partition" in waiting.json["trouble"]["group"]
        assert spare.metric("gforce_ready") == 0
        first.kill()
        assert spare.wait_ready().json == {
            "ready": True,
            "partitions": {"0": "ready"},
            "trouble": {},
            "warnings": [],
        }
        eventually(lambda: spare.metric("gforce_ready"), lambda ready: ready == 1)
    finally:
        deployment.close()


def test_the_metrics_count_what_happened(deployment: Deployment) -> None:
    processor = deployment.processor().start_ready()
    first = deployment.request("t", "a")
    deployment.send("requests", [first, deployment.request("t", "b"), first, (b"t", b"{"), (b"t", b"[]")])
    eventually(lambda: processor.metric("gforce_decisions_total"), lambda found: found == 2)
    labels = [deployment.label("t", "a"), deployment.label("t", "a"), deployment.label("t", "c")]
    deployment.send("feedback", [*labels, deployment.label("t", "b", "maybe")])
    eventually(lambda: processor.metric("gforce_records_total"), lambda found: found == 9)
    found = {name: value for (name, labels), value in processor.metrics().items() if not labels}
    expected = {
        "decisions": 2, "requests_duplicate": 1, "labels_joined": 1, "labels_duplicate": 1, "labels_parked": 1,
        "decisions_expired": 0, "recoveries": 2, "breaker_trips": 0, "commits_unknown": 0, "fenced_by_store": 0,
    }  # fmt: skip
    assert {name: found[f"gforce_{name}_total"] for name in expected} == expected
    for reason in ("bad-json", "schema", "unknown-label"):
        assert processor.metric("gforce_dead_letters_total", reason=reason) == 1
    number = str(partition_of(b"t", deployment.partitions))
    assert processor.metric("gforce_partition_pending_decisions", partition=number) == 1
    assert processor.metric("gforce_parked_labels", partition=number) == 1
    assert processor.metric("gforce_partition_state", partition=number, state="ready") == 1


def test_the_wrong_stream_stops_its_partition_until_a_person_resumes_it(deployment: Deployment) -> None:
    processor = deployment.processor().start_ready()
    (garbled,), (fine,) = deployment.tenants_on(0), deployment.tenants_on(1)
    rubbish = deployment.send("requests", [(garbled.encode(), b"\x00\x01\x02 rubbish")] * 1_500)
    eventually(lambda: processor.get("/readyz").json.get("partitions", {}).get("0"), lambda state: state == "broken")
    assert processor.get("/readyz").status == 503
    assert '"event": "breaker"' in processor.log
    assert "gforce resume 0" in processor.log

    deployment.send("requests", [deployment.request(garbled, "waits"), deployment.request(fine, "goes on")])
    assert decided(deployment, 1) == Counter({(fine, "goes on"): 1})

    assert processor.post("/partitions/0/resume").status == 202
    assert decided(deployment, 2) == Counter({(fine, "goes on"): 1, (garbled, "waits"): 1})
    processor.wait_ready()
    letters = eventually(deployment.dead_letters, lambda found: len(found) >= len(rubbish))
    assert set(letters) == set(rubbish)
    assert {letter.header("gforce.reason") for letter in letters.values()} == {Reason.BAD_JSON}
    assert processor.metric("gforce_breaker_trips_total") == 1

    deployment.send("requests", [deployment.request(garbled, f"good-{n}") for n in range(1_100)])
    decided(deployment, 1_102)
    deployment.send("requests", [(garbled.encode(), b"rubbish")] * 1_500)
    eventually(lambda: processor.get("/readyz").json.get("partitions", {}).get("0"), lambda state: state == "broken")


# What a person did wrong


def run_with(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "processor.cli", "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        cwd=ROOT,
        check=False,
    )


def test_unknown_keys_end_it_with_a_message_that_names_them(tmp_path: Path) -> None:
    config = tmp_path / "gforce.toml"
    config.write_text(f'[kafka]\nbootstrap_server = "x:1"\n[procesing]\nseed = "{"ab" * 32}"\n')
    ended = run_with(config)
    assert ended.returncode == 2
    said = " ".join(ended.stderr.split())
    assert "kafka.bootstrap_server: unknown key: did you mean bootstrap_servers?" in said
    assert "procesing: unknown key: did you mean processing?" in said
    assert "Traceback" not in ended.stderr


def test_missing_topics_end_it_with_the_remedy(deployment: Deployment) -> None:
    processor = deployment.processor(sections={"topics": {"prefix": "nobody-made-these."}}).start()
    assert processor.wait() == 2
    said = " ".join(processor.log.split())
    assert "no such topic: nobody-made-these.requests" in said
    assert "Remedy: create it" in said
    assert "Traceback" not in said
