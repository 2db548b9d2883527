"""The port of a processor: who may ask what, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection

import msgspec
import pytest

from processor.config.values import Secret
from processor.core.alerts.alerts import MonitorSettings
from processor.core.errors import GForceError
from processor.operations.acknowledgement import acknowledged
from processor.operations.skipping import SkipAnswer, Skipping, judged
from processor.telemetry.http import HttpServer
from processor.telemetry.status import PartitionStatus, Status
from tests.servers.redis_server import free_port

from .observed import NOW, binary, partition_of, settings_for, tenant_of

TOKEN = "known to operators"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON = {"Content-Type": "application/json"}


@dataclass
class Port:
    number: int
    resumed: list[int] = field(default_factory=list)
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    skipped: list[tuple[int, Skipping]] = field(default_factory=list)

    def skip(self, number: int, wanted: Skipping) -> tuple[SkipAnswer, int]:
        self.skipped.append((number, wanted))
        return judged(number, wanted, (1, 9))

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.number, timeout=20)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.number}"


@pytest.fixture(scope="module")
def port() -> Iterator[Port]:
    tenant = tenant_of("bank", settings_for(binary(), watch=MonitorSettings(learning=0)), count=40)
    assert tenant.watch is not None
    tenant.watch.observe([(1, i % 2, i % 2 == 0, NOW + i) for i in range(200)])
    partition = PartitionStatus(0, "ready", "", 1, 1, 0, 0, 0, 0.0)
    status = Status(ready=True, partitions=(partition,), held=(partition_of(tenant),))
    made = Port(free_port())
    server = HttpServer(
        "127.0.0.1",
        made.number,
        lambda: status,
        made.resumed.append,
        TOKEN,
        acknowledge=lambda name, number: made.acknowledged.append((name, number)),
        skip=made.skip,
    )
    server.start()
    yield made
    server.stop()


def alert_number(port: Port, kind: str) -> int:
    tenants = msgspec.json.decode(port.ask("/status", **BEARER)[1])["tenants"]
    return next(int(alert["number"]) for alert in tenants[0]["alerts"] if alert["kind"] == kind)


def test_health_and_metrics_are_for_everybody(port: Port) -> None:
    assert port.ask("/healthz")[0] == 200
    assert port.ask("/readyz")[0] == 200
    status, text = port.ask("/metrics")
    assert status == 200
    assert b',kind="tolerance",label="grant",tenant="bank"} 1.0' in text


def test_the_page_is_for_everybody_and_its_figures_are_not(port: Port) -> None:
    assert port.ask("/")[0] == 200
    assert port.ask("/api/overview")[0] == 401
    assert port.ask("/api/overview", **BEARER)[0] == 200
    assert port.ask("/api/history?name=bank", **BEARER)[0] == 200


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/status", "GET"),
        ("/partitions/0/resume", "POST"),
        ("/partitions/0/skip", "POST"),
        ("/tenants/acknowledge", "POST"),
    ],
)
def test_without_the_token_nothing_is_told_or_done(port: Port, path: str, method: str) -> None:
    for given in ({}, {"Authorization": "Bearer no"}, {"Authorization": TOKEN}, {"Authorization": "Bearer ü"}):
        assert port.ask(path, method, b'{"tenant": "bank", "number": 1}', **given, **JSON)[0] == 401
    assert (port.resumed, port.acknowledged, port.skipped) == ([], [], [])


def test_the_status_names_partitions_and_tenants(port: Port) -> None:
    found = msgspec.json.decode(port.ask("/status", **BEARER)[1])
    assert found["ready"] is True
    assert [(p["number"], p["state"], p["parked"], p["trouble"]) for p in found["partitions"]] == [(0, "ready", 0, "")]
    assert found["tenants"][0]["tally"]["decisions"] == 40


def test_a_tolerance_alert_is_acknowledged(port: Port) -> None:
    number = alert_number(port, "tolerance")
    answer = acknowledged(port.url, "bank", number, Secret(TOKEN))
    assert answer.done
    assert port.acknowledged.pop() == ("bank", number)


def test_what_cannot_be_acknowledged_is_said_and_not_done(port: Port) -> None:
    drift = alert_number(port, "drift")
    for tenant, number, why in (
        ("nobody", 1, "does not have tenant"),
        ("bank", 99, "no open alert 99; open are: "),
        ("bank", drift, "clears by itself"),
    ):
        answer = acknowledged(port.url, tenant, number, Secret(TOKEN))
        assert not answer.done
        assert why in answer.text
    assert port.acknowledged == []


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b'{"tenant": "bank", "number": 1}', 403),
        ({"Content-Type": "text/plain"}, b'{"tenant": "bank", "number": 1}', 403),
        ({**JSON, "Sec-Fetch-Site": "cross-site"}, b'{"tenant": "bank", "number": 1}', 403),
        (JSON, b"", 400),
        (JSON, b'{"tenant": "bank"}', 400),
        (JSON, b'{"tenant": "bank", "number": 0}', 400),
        (JSON, b'{"tenant": "bank", "number": 1, "more": 2}', 400),
        (JSON, b'{"tenant": "' + b"a" * 1_000_000 + b'", "number": 1}', 413),
    ],
)
def test_a_page_of_somebody_else_and_nonsense_are_refused(
    port: Port, headers: dict[str, str], body: bytes, status: int
) -> None:
    assert port.ask("/tenants/acknowledge", "POST", body, **BEARER, **headers)[0] == status
    assert port.acknowledged == []


def test_a_page_of_somebody_else_cannot_resume_a_partition(port: Port) -> None:
    assert port.ask("/partitions/0/resume", "POST", **BEARER, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert port.ask("/partitions/0/resume", "POST", **BEARER)[0] == 202
    assert port.resumed == [0]


def test_the_command_explains_a_wrong_token_and_a_wrong_address(port: Port) -> None:
    with pytest.raises(GForceError, match=r"401 a bearer token is needed.*http\.token"):
        acknowledged(port.url, "bank", 1)
    with pytest.raises(GForceError, match="--url"):
        acknowledged(f"http://127.0.0.1:{free_port()}", "bank", 1)


def test_a_store_that_may_evict_is_a_warning_and_the_process_stays_ready() -> None:
    partition = PartitionStatus(0, "ready", "", 1, 1, 0, 0, 0, 0.0)
    status = Status(ready=True, partitions=(partition,), store_unsafe="redis://r has maxmemory-policy allkeys-lru")
    made = Port(free_port())
    server = HttpServer("127.0.0.1", made.number, lambda: status, made.resumed.append)
    server.start()
    try:
        code, body = made.ask("/readyz")
    finally:
        server.stop()
    assert code == 200
    assert msgspec.json.decode(body)["warnings"] == ["redis://r has maxmemory-policy allkeys-lru"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"topic": "requests", "offset": 1}', {**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
        (b'{"topic": "requests", "offset": 1}', {"Content-Type": "text/plain"}, 403),
        (b'{"topic": "decisions", "offset": 1}', JSON, 400),
        (b'{"topic": "requests", "offset": -1}', JSON, 400),
        (b'{"topic": "requests", "offset": 1, "more": 1}', JSON, 400),
        (b'{"topic": "requests", "offset": 1' + b"0" * 400 + b"}", JSON, 400),
        (b"\xff", JSON, 400),
        (b"", JSON, 400),
    ],
)
def test_a_skip_that_is_malformed_or_from_elsewhere_is_refused(
    port: Port, body: bytes, headers: dict[str, str], status: int
) -> None:
    port.skipped.clear()
    assert port.ask("/partitions/0/skip", "POST", body, **BEARER, **headers)[0] == status
    assert port.skipped == []


def test_a_skip_is_passed_on_and_answered(port: Port) -> None:
    port.skipped.clear()
    status, answer = port.ask("/partitions/3/skip", "POST", b'{"topic": "feedback", "offset": 1}', **BEARER, **JSON)
    assert (status, msgspec.json.decode(answer)["to"]) == (202, 9)
    assert port.skipped == [(3, Skipping("feedback", 1))]
