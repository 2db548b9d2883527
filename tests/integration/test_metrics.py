"""Metrics of a real processor on a real Kafka: they follow their partitions, and alerts can be acknowledged."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from processor.config.values import Secret
from processor.operations.acknowledgement import AcknowledgementAnswer, acknowledged
from processor.telemetry.catalogue import CATALOGUE
from tests.servers.processor_process import Deployment, ProcessorProcess, clean_environment, eventually

HOSTILE = '<script>alert(1)</script> "} gforce_ready 7'
QUICK = {"processing": {"commit_interval_ms": 20}}
TOKEN = "a token of the test"
GFORCE = Path(sys.executable).with_name("gforce")


def tenants_of(processor: ProcessorProcess) -> set[str]:
    return {dict(labels)["tenant"] for _, labels in processor.metrics() if "tenant" in dict(labels)}


def play(deployment: Deployment, tenant: str, count: int, start: int = 0) -> None:
    """Cases in which the one expert is always right for A and always wrong for B, with their labels."""
    ids = range(start, start + count)
    said = [("A", "true") if n % 2 else ("B", "false") for n in ids]
    requests = [
        deployment.request(tenant, f"{n}", group=group, predictions={"m": advice, "n": advice})
        for n, (group, advice) in zip(ids, said, strict=True)
    ]
    deployment.send("requests", requests)
    deployment.send("feedback", [deployment.label(tenant, f"{n}", "true") for n in ids])


def test_series_of_a_tenant_move_with_its_partition_and_leave_nothing_behind(deployment: Deployment) -> None:
    tenants = {number: deployment.tenants_on(number)[0] for number in range(2)}
    one = deployment.processor("one", QUICK).start_ready()
    for tenant in tenants.values():
        play(deployment, tenant, 40)
    eventually(lambda: one.metric("gforce_labels_joined_total"), lambda joined: joined == 80)
    cells = {number: rate_of(tenant) for number, tenant in tenants.items()}
    before = eventually(one.metrics, lambda found: set(cells.values()) <= found.keys())
    two = deployment.processor("two", QUICK).start_ready()
    eventually(lambda: sorted([one.partitions(), two.partitions()], key=str), lambda shares: shares == [{0}, {1}])
    one.wait_ready()
    for processor in (one, two):
        (number,) = processor.partitions()
        eventually(partial(tenants_of, processor), {tenants[number]}.__eq__, "the tenant of its partition alone")
        assert processor.metrics()[cells[number]] == before[cells[number]] == 1.0
        assert processor.metric("gforce_tenant_decisions_total", tenant=tenants[number]) == 40
        assert processor.metric("gforce_tenants") == 1


def rate_of(tenant: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The series of how often B is wrongly decided."""
    labels = {"tenant": tenant, "group": "B", "label": "true", "window": "lifetime"}
    return "gforce_error_rate", tuple(sorted(labels.items()))


def test_lag_is_told_and_goes_back_to_nothing(deployment: Deployment) -> None:
    processor = deployment.processor(sections=QUICK).start_ready()
    deployment.send("requests", [deployment.request("t", f"{n}") for n in range(3_000)])
    topic, number = deployment.topic("requests"), str(next(iter({0, 1} & processor.partitions())))
    eventually(lambda: processor.metric("gforce_decisions_total"), lambda decided: decided == 3_000)

    def behind() -> dict[str, float]:
        found = processor.metrics()
        return {
            dict(labels)["partition"]: lag
            for (name, labels), lag in found.items()
            if name == "gforce_partition_lag" and dict(labels)["topic"] == topic
        }

    eventually(behind, lambda lag: number in lag and set(lag.values()) == {0.0}, "no lag")
    assert processor.metric("gforce_decision_latency_seconds_count") == 3_000


def test_hostile_names_reach_the_metrics_as_text_and_all_metrics_are_in_the_catalogue(deployment: Deployment) -> None:
    processor = deployment.processor(sections=QUICK).start_ready()
    play(deployment, HOSTILE, 30)
    eventually(
        lambda: processor.metric("gforce_tenant_labels_total", tenant=HOSTILE, outcome="joined"), lambda n: n == 30
    )
    eventually(lambda: processor.metric("gforce_ready"), lambda ready: ready == 1)
    assert tenants_of(processor) == {HOSTILE}
    known = {entry.exported for entry in CATALOGUE.values()}
    found = {name for name, _ in processor.metrics()}
    histograms = ("gforce_decision_latency", "gforce_label_delay")
    assert {name for name in found if not name.startswith((*histograms, "process_"))} <= known
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total"} <= found


# Alerts


def posted(processor: ProcessorProcess, body: object, **headers: str) -> int:
    content = json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{processor.port}/tenants/acknowledge", content, headers, method="POST")
    try:
        with urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as refused:
        with refused:
            return refused.code


def test_a_tolerance_alert_stays_until_it_is_acknowledged(deployment: Deployment) -> None:
    processor = deployment.processor(sections=QUICK)
    processor.config.write_text(processor.config.read_text().replace("[http]", f'[http]\ntoken = "{TOKEN}"'))
    processor.start_ready()
    play(deployment, "bank", 400)
    alert = {"tenant": "bank", "label": "true", "groups": "B / A"}
    eventually(lambda: processor.metric("gforce_alert", kind="tolerance", **alert), lambda raised: raised == 1)
    events = eventually(lambda: [record.json for record in deployment.records("alerts")], lambda said: len(said) >= 2)
    number = next(event["number"] for event in events if event["kind"] == "tolerance")
    drift = next(event["number"] for event in events if event["kind"] == "drift")

    assert posted(processor, {"tenant": "bank", "number": number}, **{"Content-Type": "application/json"}) == 401
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    assert posted(processor, {"tenant": "bank", "number": number}, **allowed) == 403
    assert posted(processor, {"tenant": "bank"}, **allowed, **{"Content-Type": "application/json"}) == 400

    assert not acknowledge(processor, "nobody", number).done
    assert not acknowledge(processor, "bank", 99).done
    assert "clears by itself" in acknowledge(processor, "bank", drift).text
    assert acknowledge(processor, "bank", number).done
    eventually(lambda: processor.metric("gforce_alert", kind="tolerance", **alert), lambda raised: raised == 0)
    last = eventually(lambda: deployment.records("alerts")[-1].json, lambda event: event["state"] == "cleared")
    assert (last["kind"], last["number"]) == ("tolerance", number)


def acknowledge(processor: ProcessorProcess, tenant: str, number: int) -> AcknowledgementAnswer:
    return acknowledged(f"http://127.0.0.1:{processor.port}", tenant, number, Secret(TOKEN))


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_says_what_came_of_it(deployment: Deployment, as_json: bool) -> None:
    processor = deployment.processor(sections=QUICK).start_ready()
    command = [GFORCE, "acknowledge", "nobody", "1", "--url", f"http://127.0.0.1:{processor.port}"]
    done = subprocess.run(
        [*map(str, command), *(["--json"] if as_json else [])],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "does not have tenant" in (json.loads(done.stdout)["text"] if as_json else done.stdout)
