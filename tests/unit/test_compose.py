"""The container files are consistent with each other and with the code. No Docker engine runs here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from processor.cli import app
from processor.config import load
from tests.servers.broker import kafka_version

ROOT = Path(__file__).parents[2]
OURS = ("topics", "processor", "producer")
SERVICES = {"kafka", "redis", "prometheus", "grafana", *OURS}


def parsed(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no PyYAML: pip install pyyaml")
    found = yaml.safe_load((ROOT / path).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = parsed("docker-compose.yml")["services"]
    return found


def environment(service: dict[str, Any]) -> dict[str, str]:
    """As the container gets it: ``${NAME:-default}`` without NAME."""
    given: dict[str, str] = service["environment"]
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in given.items()}


def test_one_up_starts_the_whole_system(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == SERVICES


def test_every_service_that_stays_has_a_health_check(services: dict[str, dict[str, Any]]) -> None:
    for name in SERVICES - {"topics", "producer"}:
        assert services[name]["healthcheck"]["test"][0] == "CMD", name
    for name in ("topics", "producer"):  # the image's own asks for a port that these do not open
        assert services[name]["healthcheck"] == {"disable": True}


def test_every_service_waits_for_what_it_needs(services: dict[str, dict[str, Any]]) -> None:
    healthy, done = {"condition": "service_healthy"}, {"condition": "service_completed_successfully"}
    assert services["topics"]["depends_on"] == {"kafka": healthy}
    assert services["processor"]["depends_on"] == {"kafka": healthy, "redis": healthy, "topics": done}
    assert services["producer"]["depends_on"] == {"topics": done, "processor": healthy}
    assert services["prometheus"]["depends_on"] == {"processor": healthy}
    assert services["grafana"]["depends_on"] == {"prometheus": healthy}


def test_no_image_moves_by_itself(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        _, _, tag = service["image"].partition(":")
        assert tag, f"{name} has no tag"
        assert tag != "latest", name
    assert services["kafka"]["image"] == f"apache/kafka:{kafka_version()}", "the broker that the tests run on"


def test_ports_are_open_on_loopback_only(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name}: {port}"


def test_our_containers_run_without_rights(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        assert services[name]["user"] == "10001:10001", name
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"] is True


def test_redis_keeps_its_state_and_drops_none(services: dict[str, dict[str, Any]]) -> None:
    command = " ".join(services["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_the_environment_of_our_containers_is_a_valid_configuration(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        config = load(None, environment(services[name]))
        assert config.kafka.bootstrap_servers == "kafka:19092"
        assert config.redis.url.reveal() == "redis://redis:6379/0"
    config = load(None, environment(services["processor"]))
    assert (config.http.host, config.http.port, config.kafka.instance) == ("0.0.0.0", 9464, "gforce-0")
    assert config.http.allowed_hosts == ("processor",), "as monitoring/prometheus.yml calls it"
    assert f"127.0.0.1:{config.http.port}:{config.http.port}" in services["processor"]["ports"]


def test_the_commands_of_our_containers_exist(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        words = services[name]["command"]
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, f"{name}: gforce {' '.join(words)}: {shown.output}"


def test_prometheus_scrapes_the_processor() -> None:
    config = parsed("monitoring/prometheus.yml")
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["processor:9464"]}]


def test_prometheus_finds_the_rules_where_its_configuration_looks_for_them(services: dict[str, dict[str, Any]]) -> None:
    config = parsed("monitoring/prometheus.yml")
    assert config["rule_files"] == ["rules/*.yml"], "relative to the configuration"
    assert mounts(services["prometheus"])["/etc/prometheus/rules"] == ROOT / "monitoring/rules"
    assert mounts(services["prometheus"])["/etc/prometheus/prometheus.yml"] == ROOT / "monitoring/prometheus.yml"


def test_grafana_is_provisioned_with_the_dashboard_and_with_the_prometheus_beside_it(
    services: dict[str, dict[str, Any]],
) -> None:
    mounted = mounts(services["grafana"])
    assert mounted["/etc/grafana/provisioning"] == ROOT / "monitoring/grafana/provisioning"
    (source,) = parsed("monitoring/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = parsed("monitoring/grafana/provisioning/dashboards/gforce.yml")["providers"]
    assert (mounted[provider["options"]["path"]] / "gforce.json").is_file()
    home = Path(environment(services["grafana"])["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounted[str(home.parent)] / home.name).is_file()


def test_grafana_lets_nobody_in_without_a_password_and_calls_nobody_outside(
    services: dict[str, dict[str, Any]],
) -> None:
    given = services["grafana"]["environment"]
    assert given["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:-")
    assert given["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert given["GF_USERS_ALLOW_SIGN_UP"] == "false"
    outside = {name for name in given if name.startswith(("GF_ANALYTICS_", "GF_NEWS_"))}
    assert len(outside) == 4
    assert {given[name] for name in outside} == {"false"}


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Where the container sees which of our files, which it may only read."""
    found = {}
    for volume in service["volumes"]:
        source, target, *mode = volume.split(":")
        if source.startswith("./"):
            assert mode == ["ro"], volume
            assert (ROOT / source).exists(), volume
            found[target] = (ROOT / source).resolve()
    return found


def test_the_image_is_slim_and_not_root() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]
    assert len(stages) == 2
    assert all("-slim-" in stage for stage in stages)
    assert "USER 10001:10001" in lines[lines.index(stages[1]) :]
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert "/healthz" in "\n".join(lines)
    copied = {line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line}
    assert copied >= {"pyproject.toml", "processor", "producers", "schemas"}
