"""A real Prometheus as a process of the tests, with the rules of ``monitoring/`` and a second between scrapes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from .redis_server import LOOPBACK, free_port

RULES = Path(__file__).parents[2] / "monitoring" / "rules"
MISSING = "no Prometheus: install prometheus"
START_SECONDS = 60.0
# Loopback needs no proxy, whatever the environment says.
_OPENER = build_opener(ProxyHandler({}))

CONFIG = """\
global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}
rule_files: ["{rules}/*.yml"]
scrape_configs:
  - job_name: gforce
    static_configs: [{{ targets: [{targets}] }}]
"""


def available() -> str | None:
    """Why no Prometheus can be had, or None if one can."""
    return None if shutil.which("prometheus") else MISSING


class PrometheusServer:
    """Scrapes the given ports of loopback every second and evaluates the rules as often."""

    def __init__(self, *ports: int) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="gforce-prometheus-"))
        self._log = self._folder / "prometheus.log"
        self._config = self._folder / "prometheus.yml"
        targets = ", ".join(f'"{LOOPBACK}:{port}"' for port in ports)
        self._config.write_text(CONFIG.format(rules=RULES, targets=targets))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> PrometheusServer:
        program = shutil.which("prometheus")
        if program is None:
            raise RuntimeError(MISSING)
        command = [program, f"--config.file={self._config}", f"--storage.tsdb.path={self._folder / 'data'}"]
        command += [f"--web.listen-address={LOOPBACK}:{self.port}", "--log.level=warn"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for whoever started us, who then stops it
            )
        self._wait()
        return self

    def stop(self) -> None:
        """End it and delete its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)  # its data is thrown away
            self._process.wait(30)
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> PrometheusServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series the expression has now."""
        found = self.ask("query", query=expr)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing ones, as /api/v1/alerts tells them."""
        found: list[dict[str, Any]] = self.ask("alerts")["alerts"]
        return found

    def firing(self) -> list[dict[str, Any]]:
        return [alert for alert in self.alerts() if alert["state"] == "firing"]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def ask(self, what: str, **parameters: str) -> Any:
        """``data`` of an answer of its HTTP API."""
        asked = f"http://{LOOPBACK}:{self.port}/api/v1/{what}?{urlencode(parameters)}"
        try:
            with _OPENER.open(asked, timeout=10) as answer:
                return json.load(answer)["data"]
        except HTTPError as refused:
            with refused:
                raise RuntimeError(f"Prometheus refuses {what} {parameters}: {refused.read().decode()}") from None

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                with _OPENER.open(f"http://{LOOPBACK}:{self.port}/-/ready", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.1)
        log = self._log.read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"Prometheus did not start: {log[-2000:]}")
