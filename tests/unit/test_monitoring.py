"""The rules, their tests, the runbooks and the dashboard agree with each other and with what is exported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from processor.telemetry.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "monitoring"
DASHBOARD = MONITORING / "grafana/dashboards/gforce.json"
RUNBOOKS = "docs/runbooks.md"
SEVERITIES = {"critical", "warning", "info"}

Yaml = dict[str, Any]


def parsed(path: Path) -> Yaml:
    found = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


ALERTING, RECORDING = parsed(MONITORING / "rules/alerting.yml"), parsed(MONITORING / "rules/recording.yml")
ALERTS: dict[str, Yaml] = {rule["alert"]: rule for group in ALERTING["groups"] for rule in group["rules"]}
RECORDED: dict[str, Yaml] = {rule["record"]: rule for group in RECORDING["groups"] for rule in group["rules"]}
TESTS = {path.name: parsed(path) for path in sorted((MONITORING / "tests").glob("*.yml"))}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no promtool: install prometheus")
    return found


def run(promtool: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)


# The rules


def test_prometheus_accepts_the_configuration_and_the_rules(promtool: str) -> None:
    checked = run(promtool, "check", "config", MONITORING / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_the_rules_do_what_their_tests_say(promtool: str) -> None:
    checked = run(promtool, "test", "rules", *(MONITORING / "tests" / name for name in TESTS))
    assert checked.returncode == 0, checked.stderr + checked.stdout


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_severity_a_sentence_and_a_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["summary"].rstrip().endswith(".")
    where = rule["annotations"]["runbook_url"].removeprefix("{{ $externalLabels.gforce_docs }}")
    assert where == f"{RUNBOOKS}#{alert.lower()}"
    assert alert.lower() in anchors((ROOT / RUNBOOKS).read_text("utf-8")), f"{RUNBOOKS} has no section {alert}"


def test_there_is_no_runbook_without_its_alert() -> None:
    headings = re.findall(r"^### (Gforce\w+)$", (ROOT / RUNBOOKS).read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


def anchors(markdown: str) -> set[str]:
    """The anchors GitHub and GitLab give to headings: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Their tests: a threshold that is changed must not go unnoticed


class Mutant(NamedTuple):
    """A rule with one number changed."""

    what: str
    rule: Yaml


def mutants(rule: Yaml) -> Iterator[Mutant]:
    expr, wait = rule["expr"], rule.get("for", "0s")
    for number in re.finditer(r"(?:[=><!]=|[<>])\s*(\d+(?:\.\d+)?)", expr):
        for other in changed_number(float(number[1])):
            yield Mutant(f"{number[0]} → {other:g}", {**rule, "expr": replaced(expr, number, f"{other:g}")})
    for duration in re.finditer(r"(?:\[|offset )(\d+[smhdw])\b", expr):
        for other in changed_duration(duration[1]):
            yield Mutant(f"{duration[0]} → {other}", {**rule, "expr": replaced(expr, duration, other)})
    for other in changed_duration(wait):
        yield Mutant(f"for {wait} → {other}", {**rule, "for": other})


def replaced(expr: str, match: re.Match[str], by: str) -> str:
    return expr[: match.start(1)] + by + expr[match.end(1) :]


def changed_number(number: float) -> tuple[float, ...]:
    """A tenth to both sides; for what is either so or not, the other way round."""
    if number == 0:
        return (-1.0, 1.0)
    return (number * 0.9, number * 1.1, *((0.0, 2.0) if number == 1 else ()))


def changed_duration(duration: str) -> tuple[str, ...]:
    seconds = int(duration[:-1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}[duration[-1]]
    return (f"{seconds // 2}s", f"{seconds * 2}s") if seconds else ("30s",)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_changed_threshold_or_patience_fails_the_alerts_tests(alert: str, promtool: str, tmp_path: Path) -> None:
    assert passes(promtool, tmp_path, ALERTS[alert]), "unchanged, alone with its own tests"
    tried = list(mutants(ALERTS[alert]))
    assert len(tried) >= 3
    unnoticed = [mutant.what for mutant in tried if passes(promtool, tmp_path, mutant.rule)]
    assert not unnoticed, f"{alert}: monitoring/tests do not notice {unnoticed}"


def passes(promtool: str, folder: Path, rule: Yaml) -> bool:
    """Whether the rule passes its tests, the first failure ends it; a mistake in a rule is not a test that failed."""
    groups = [*RECORDING["groups"], {"name": "mutant", "rules": [rule]}]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}), "utf-8")
    for test in own_tests(rule["alert"], folder):
        ran = run(promtool, "test", "rules", test)
        assert ran.returncode == 0 or "got:" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
        if ran.returncode:
            return False
    return True


def own_tests(alert: str, folder: Path) -> Iterator[Path]:
    """Every test of one alert as a file of its own, with nothing in it but its cases: others' only take time."""
    order = [RECORDING["groups"][0]["name"], "mutant"]
    for whole in TESTS.values():
        for test in whole["tests"]:
            own = [case for case in cases(test) if case["alertname"] == alert]
            alone = {name: value for name, value in test.items() if name != "promql_expr_test"}
            file = {**whole, "rule_files": ["rules.yml"], "group_eval_order": order}
            if own:
                content = {**file, "tests": [{**alone, "alert_rule_test": own}]}
                (folder / "test.yml").write_text(yaml.safe_dump(content), "utf-8")
                yield folder / "test.yml"


def cases(test: Yaml) -> list[Yaml]:
    found: list[Yaml] = test.get("alert_rule_test", [])
    return found


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_firing_and_not_firing(alert: str) -> None:
    outcomes = {
        bool(case.get("exp_alerts"))
        for whole in TESTS.values()
        for test in whole["tests"]
        for case in cases(test)
        if case["alertname"] == alert
    }
    assert outcomes == {True, False}


# Names


def queries() -> Iterator[tuple[str, str]]:
    """Every expression there is, with where it stands."""
    for name, rule in {**ALERTS, **RECORDED}.items():
        yield name, rule["expr"]
        for text in rule.get("annotations", {}).values():
            for inner in re.findall(r'printf "([^"]*%q[^"]*)"', text):
                yield f"{name}, annotation", inner.replace("%q", '"x"')
    yield from dashboard_queries()


def dashboard() -> Yaml:
    found: Yaml = json.loads(DASHBOARD.read_text("utf-8"))
    return found


def dashboard_queries() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield f"dashboard, {panel['title']}", target["expr"]
    for annotation in dashboard()["annotations"]["list"]:
        yield f"dashboard, annotation {annotation['name']}", annotation["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert inner, variable
            yield f"dashboard, variable {variable['name']}", f"count by ({inner[2]}) ({inner[1]})"


def exported() -> dict[str, set[str]]:
    """Every name a query may use, with its labels."""
    found = {}
    for entry in CATALOGUE.values():
        names = [entry.exported]
        if entry.kind == "histogram":
            names = [entry.exported + part for part in ("_bucket", "_sum", "_count")]
        found |= {name: {*entry.labels, "job", "instance", "le"} for name in names}
    return found


def test_every_metric_that_is_asked_for_is_exported_or_recorded() -> None:
    known = {*exported(), *RECORDED}
    for where, expr in queries():
        for name in re.findall(r"[a-z_:]*gforce_[a-zA-Z0-9_:]+", without_strings(expr)):
            assert name in known, f"{where}: {name}"


def test_every_label_that_is_asked_for_is_one_of_the_metric() -> None:
    labels = exported() | {name: recorded_labels(rule["expr"]) for name, rule in RECORDED.items()}
    for where, expr in queries():
        for name, inside in re.findall(r"([a-z_:]*gforce_[a-zA-Z0-9_:]+)\s*\{([^}]*)\}", expr):
            for label in re.findall(r"(\w+)\s*[=!]~?=?", without_strings(inside)):
                assert label in labels[name], f"{where}: {name} has no label {label}"


def recorded_labels(expr: str) -> set[str]:
    found = re.search(r"by \(([^)]*)\)", expr)
    assert found, expr
    return set(found[1].split(", "))


def without_strings(expr: str) -> str:
    return re.sub(r'"(\\.|[^"\\])*"|\'[^\']*\'', '""', expr)


# The dashboard


def test_every_query_of_the_dashboard_is_one(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"dashboard:query:{number}", "expr": filled_in(expr)}
        for number, (_, expr) in enumerate(dashboard_queries())
    ]
    assert len(rules) > 40
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    checked = run(promtool, "check", "rules", tmp_path / "rules.yml")
    assert checked.returncode == 0, checked.stderr + checked.stdout


def filled_in(expr: str) -> str:
    """As Grafana would send it."""
    values = {"__rate_interval": "1m", "tolerance": "0", "tenant": "t", "job": ".*", "window": "lifetime"}
    for name, value in {**values, "metric": "fpr"}.items():
        expr = expr.replace(f"${name}", value)
    assert "$" not in expr, expr
    return expr


def test_the_dashboard_can_be_asked_for_a_tenant_a_window_and_a_metric() -> None:
    names = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert names >= {"tenant", "window", "metric"}
    used = {name for _, expr in dashboard_queries() for name in re.findall(r"\$(\w+)", expr)}
    assert names <= used, "a variable nothing uses"
    assert used <= names | {"__rate_interval"}, "a variable nobody defines"


def test_the_dashboard_asks_the_provisioned_prometheus() -> None:
    (source,) = parsed(MONITORING / "grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert set(uids(dashboard())) == {source["uid"]}


def uids(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "datasource" in part:
            yield part["datasource"]["uid"]
        part = part.values()
    if isinstance(part, Iterable) and not isinstance(part, str):
        for each in part:
            yield from uids(each)


def test_no_panel_covers_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} and {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
