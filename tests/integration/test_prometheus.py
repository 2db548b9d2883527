"""A real Prometheus with our rules on a real processor: what is asked for is there, and what must fire does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import prometheus_server
from tests.servers.processor_process import Deployment, ProcessorProcess, eventually
from tests.servers.prometheus_server import PrometheusServer
from tests.unit.test_monitoring import dashboard_queries, filled_in

Watched = tuple[Deployment, ProcessorProcess, PrometheusServer]
# What has no series while all is well, or needs more time than a test has.
EMPTY_AT_FIRST = {
    "Alerts that fire",
    "Alerts over time",
    "annotation Fairness alerts",
    "Dead letters by reason, per second",
    "Dead letters",
    "Partitions",
    "Tenants: $metric, $window",  # the column of open alerts
}


@pytest.fixture
def watched(deployment: Deployment) -> Iterator[Watched]:
    if reason := prometheus_server.available():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    processor = deployment.processor().start_ready()
    with PrometheusServer(processor.port) as prometheus:
        yield deployment, processor, prometheus


def firing(prometheus: PrometheusServer, name: str, state: str = "firing") -> list[dict[str, Any]]:
    return [a for a in prometheus.alerts() if a["labels"]["alertname"] == name and a["state"] == state]


def empty_panels(prometheus: PrometheusServer) -> set[str]:
    empty = {where for where, expr in dashboard_queries() if not prometheus.query(filled_in(expr))}
    return {where.removeprefix("dashboard, ") for where in empty}


def test_every_rule_is_healthy_and_every_panel_has_data(watched: Watched) -> None:
    deployment, _, prometheus = watched
    said = {"one": "true", "two": "false"}
    deployment.send("requests", [deployment.request("t", "waits", predictions=said)])
    # More in each round, so that rates are above 0 whenever they are looked at.
    for round_ in range(4):
        ids = [(f"{round_}-{n}", "AB"[n % 2], ("false", "true")[n // 2 % 2]) for n in range(200)]
        requests = [deployment.request("t", name, group=group, predictions=said) for name, group, _ in ids]
        deployment.send("requests", requests)
        deployment.send("feedback", [deployment.label("t", name, label) for name, _, label in ids])
        joined = 200.0 * (round_ + 1)
        asked = 'gforce_tenant_labels_total{tenant="t",outcome="joined"}'
        eventually(lambda: prometheus.query(asked), lambda found: [v for _, v in found] == [joined], asked)  # noqa: B023
    rules = eventually(prometheus.rules, lambda found: all(rule["health"] == "ok" for rule in found), "healthy rules")
    assert len(rules) > 20
    # Some figures are worked out every few seconds only.
    eventually(lambda: empty_panels(prometheus), lambda found: found <= EMPTY_AT_FIRST, "data in every panel")
    assert not prometheus.firing()


def test_a_tripped_breaker_fires_and_resolves_when_the_partition_is_resumed(watched: Watched) -> None:
    deployment, processor, prometheus = watched
    (garbled,) = deployment.tenants_on(1)
    deployment.send("requests", [(garbled.encode(), b"\x00 rubbish")] * 1_500)
    (alert,) = eventually(lambda: firing(prometheus, "GforceBreakerTripped"), what="GforceBreakerTripped")
    assert alert["labels"] == {
        "alertname": "GforceBreakerTripped",
        "job": "gforce",
        "partition": "1",
        "severity": "critical",
    }
    assert alert["annotations"]["runbook_url"] == "docs/runbooks.md#gforcebreakertripped"
    assert processor.post("/partitions/1/resume").status == 202
    eventually(lambda: not firing(prometheus, "GforceBreakerTripped"), what="resolved")


def test_a_processor_that_dies_is_missed(watched: Watched) -> None:
    _, processor, prometheus = watched
    eventually(lambda: prometheus.query("gforce_ready == 1"))
    processor.kill()
    for name in ("GforceProcessorDown", "GforceNoProcessor"):  # which call somebody after one or two minutes
        eventually(lambda: firing(prometheus, name, "pending"), what=f"{name} pending")  # noqa: B023
    assert not firing(prometheus, "GforcePartitionUnowned", "pending"), "one alert is enough where nobody is left"
