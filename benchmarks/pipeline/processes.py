"""The processes that are measured: our processor, with Redis and without, and the echo."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.request import ProxyHandler, build_opener

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.servers.processor_process import SEED, toml
from tests.servers.redis_server import free_port

from .children import Process
from .stage import OUTPUTS, Stage
from .timing import StuckError, tail
from .workload import FETCH, Shape

GFORCE = ("processor.cli", "run", "--config")
WITHOUT_REDIS = ("benchmarks.pipeline.without_redis",)
READY = 300.0
_OPENER = build_opener(ProxyHandler({}))  # loopback needs no proxy, whatever the environment says


@dataclass
class Deployment:
    """One group with its topics and keys, and the processors on them."""

    stage: Stage
    name: str
    inputs: tuple[str, str]
    partitions: int
    shape: Shape
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    module: Sequence[str] = GFORCE
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"{self.stage.run}.{self.name}"

    @property
    def outputs(self) -> list[str]:
        return [f"{self.group}.{role}" for role in OUTPUTS]

    def create(self) -> None:
        self.stage.create(self.outputs, self.partitions)

    def add(self) -> Process:
        """One more processor, not started."""
        number = len(self.processes)
        folder = self.stage.folder / f"{self.name}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "gforce.toml"
        self.ports.append(free_port())
        config.write_text(toml(self._configuration(f"gforce-{number}", self.ports[-1])))
        command = [self.python, "-m", *self.module, str(config)]
        self.processes.append(Process(command, folder / "log", self.environment))
        return self.processes[-1]

    def _configuration(self, instance: str, port: int) -> dict[str, dict[str, object]]:
        kafka = {"bootstrap_servers": self.stage.bootstrap, "group": self.group, "instance": instance}
        names = {role.replace("-", "_"): name for role, name in zip(OUTPUTS, self.outputs, strict=True)}
        made: dict[str, dict[str, object]] = {
            "kafka": {**kafka, "session_timeout_ms": 6_000, "consumer_properties": FETCH},
            "topics": {"requests": self.inputs[0], "feedback": self.inputs[1], **names},
            "redis": {"url": self.stage.redis.url, "prefix": self.group},
            "processing": {"seed": SEED},
            "http": {"port": port},
            "log": {"format": "json"},
        }
        if self.shape.labels != 2:
            labels = self.shape.label_names
            made["tenants.default"] = {"labels": labels, "positive": labels[1]}
        for section, keys in self.sections.items():
            made[section] = {**made.get(section, {}), **keys}
        return made

    def metric(self, name: str) -> float:
        """The sum of a metric over all its series and all processes."""
        return sum(
            sample.value
            for port in self.ports
            for family in text_string_to_metric_families(_page(port, "/metrics"))
            for sample in family.samples
            if sample.name == name
        )

    def wait_ready(self, owners: int = 1, seconds: float = READY) -> None:
        """Until so many processes own something, all of it is recovered, and nothing is without an owner."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            owned = [self._owned(port) for port in self.ports]
            if sum(map(len, owned)) == self.partitions and sum(map(bool, owned)) >= min(owners, self.partitions):
                return
            self._check_alive()
            time.sleep(0.05)
        raise StuckError(f"not ready within {seconds:.0f} s: {tail(self.processes[0].log)}")

    def _owned(self, port: int) -> set[int]:
        try:
            status = msgspec.json.decode(_page(port, "/status"))
        except (OSError, msgspec.MsgspecError):
            return set()
        found: list[dict[str, Any]] = status["partitions"]
        return {one["number"] for one in found if one["state"] == "ready"}

    def _check_alive(self) -> None:
        for process in self.processes:
            if process.running is not None and process.running.poll() is not None:
                raise StuckError(f"the processor ended with {process.running.returncode}: {tail(process.log)}")

    def stop(self) -> None:
        for process in self.processes:
            process.stop()

    def remove(self) -> None:
        """End the processes and delete what they wrote."""
        self.stop()
        self.stage.delete(self.outputs)
        self.stage.forget(self.group)


def _page(port: int, path: str) -> str:
    with _OPENER.open(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def echo(stage: Stage, name: str, inputs: Sequence[str], output: str, *options: str) -> Process:
    """A process that forwards, see ``echo.py``."""
    command = [sys.executable, "-m", "benchmarks.pipeline.echo", "--bootstrap", stage.bootstrap]
    command += ["--input", *inputs, "--output", output, "--group", f"{stage.run}.{name}", *options]
    return Process(command, stage.folder / f"{name}.log")
