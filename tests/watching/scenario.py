"""Real Kafka, real Redis, a real processor and a real Prometheus; one tenant's world shifts and comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processor.adapters.kafka.sender import KafkaSender
from producers.delays import Delay
from producers.stream import Case, Event, Traffic, play, population, scheduled, synthetic_cases
from producers.synthetic import Shift
from tests.servers.processor_process import ROOT, Deployment, ProcessorProcess, clean_environment
from tests.servers.prometheus_server import PrometheusServer

from .timeline import Entry, Timeline

SHIFTING, STEADY = "shifting", "steady"
RULES = {"tolerance": "GforceToleranceExceeded", "drift": "GforceDrift"}
WINDOW = "10s"
LATEST = 1.0
"""Seconds: labels come up to half a second after their case, and we look about twice a second."""
# Everything as a user has it by default (tolerance .05, alpha .05, 5 000 pairs between false alarms) but for time: in
# this stream a minute is what a month is elsewhere. The learner forgets what is older than 30 buckets of 2 s, so it
# cannot repair a shift of 20 s while it lasts.
SECTIONS = {"tenants.default": {"bucket": "2s", "keep": 32, "window": 30, "windows": [WINDOW]}}


@dataclass(frozen=True)
class Plan:
    """How long each part takes, in seconds, and how many cases of each tenant come in one."""

    before: int = 40
    shifted: int = 20
    after: int = 50
    rate: int = 250
    seed: int = 1

    @property
    def shift(self) -> Shift:
        people = population(groups=2, experts=4)
        return Shift(self.before * self.rate, (self.before + self.shifted) * self.rate, people.worsened())

    @property
    def cases(self) -> int:
        return (self.before + self.shifted + self.after) * self.rate

    def stream(self) -> Iterator[Case]:
        """Two tenants in turn; only the first one's people and experts change."""
        people = population(groups=2, experts=4)
        moving = synthetic_cases(people, 1, self.cases, self.seed, self.shift)
        calm = synthetic_cases(people, 1, self.cases, self.seed + 1)
        for one, other in zip(moving, calm, strict=True):
            yield one._replace(tenant=SHIFTING)
            yield other._replace(tenant=STEADY)


class Player(threading.Thread):
    """Sends the stream at its pace and says how far it is."""

    def __init__(self, deployment: Deployment, plan: Plan) -> None:
        super().__init__(name="producer", daemon=True)
        self._plan, self._sender = plan, KafkaSender({"bootstrap.servers": deployment.bootstrap})
        self._topics = {role: deployment.topic(role) for role in ("requests", "feedback")}
        self.sent = 0
        """cases of one tenant"""

    def run(self) -> None:
        delay = Delay.parse("uniform:50-500")
        traffic = Traffic(run="w", rate=2.0 * self._plan.rate, delay=delay, seed=self._plan.seed)
        play(scheduled(self._plan.stream(), traffic), self._sender, self._topics, True, self._count)  # type: ignore[arg-type]

    def _count(self, event: Event) -> None:
        self.sent += event.kind == "request" and event.tenant == SHIFTING

    @property
    def phase(self) -> str:
        shift = self._plan.shift
        return "before" if self.sent < shift.start else "shifted" if self.sent < shift.end else "after"


@dataclass
class Scenario:
    """Watches the three sources until the stream is over and what it raised is cleared."""

    deployment: Deployment
    processor: ProcessorProcess
    prometheus: PrometheusServer
    plan: Plan
    timeline: Timeline
    _seen: int = 0
    _firing: set[tuple[str, str, str]] = field(default_factory=set)
    _open: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _acknowledging: dict[tuple[str, int], subprocess.Popen[str] | None] = field(default_factory=dict)

    def run(self) -> None:
        player, phase, sampled = Player(self.deployment, self.plan), "", -5.0
        self.timeline.begin()
        player.start()
        # Ten seconds more for what is under way; a machine that does not keep up is given twice the time.
        limit = 2.0 * (self.plan.before + self.plan.shifted + self.plan.after) + 10
        while (player.is_alive() or self._firing or self._open) and self.timeline.now < limit:
            if player.phase != phase:
                phase = player.phase
                self.timeline.add("producer", phase)
            self._look_at_topic()
            self._look_at_prometheus()
            if self.timeline.now - sampled >= 5.0:
                sampled = self.timeline.now
                self._sample()
            if phase == "after":
                self._acknowledge()
        player.join(10)

    # Sources

    def _look_at_topic(self) -> None:
        records = self.deployment.records("alerts")
        for record in records[self._seen :]:
            event = record.json
            key = (event["tenant"], event["number"])
            if event["state"] == "raised":
                self._open[key] = event
            else:
                self._open.pop(key, None)
            evidence = event.get("evidence") or {}
            recent = evidence.get("recent", {})
            self.timeline.add(
                "alerts",
                event["state"],
                tenant=event["tenant"],
                kind=event["kind"],
                label=event.get("label", ""),
                groups=" / ".join(event.get("groups", ())),
                number=event["number"],
                at=self.timeline.seconds_of(event["at"]),
                pairs=min(recent["labels"]) if recent else None,
                gap=abs(recent["gap"]) if recent else None,
                wealth=evidence["wealth"] / evidence["threshold"] if evidence else None,
            )
        self._seen = len(records)

    def _look_at_prometheus(self) -> None:
        now = {
            (alert["labels"].get("tenant", ""), alert["labels"]["alertname"], alert["labels"].get("label", ""))
            for alert in self.prometheus.firing()
        }
        for what, changed in (("firing", now - self._firing), ("resolved", self._firing - now)):
            for tenant, name, label in sorted(changed):
                self.timeline.add("Prometheus", what, tenant=tenant, kind=name, label=label)
        self._firing = now

    def _sample(self) -> None:
        metrics = self.processor.metrics()

        def largest(name: str, **labels: str) -> float | None:
            wanted = set(labels.items())
            found = [value for (metric, own), value in metrics.items() if metric == name and wanted <= set(own)]
            return max(found, default=None)

        lag = sum(value for (metric, _), value in metrics.items() if metric == "gforce_partition_lag")
        for tenant in (SHIFTING, STEADY):
            which = {"tenant": tenant, "metric": "equalized_odds", "window": WINDOW}
            self.timeline.add(
                "gauges",
                "sample",
                tenant=tenant,
                kind=f"window {WINDOW}",
                gap=largest("gforce_fairness_gap", **which),
                lower=largest("gforce_fairness_gap_lower", **which),
                upper=largest("gforce_fairness_gap_upper", **which),
                wealth=largest("gforce_alert_wealth", tenant=tenant, kind="drift"),
                lag=int(lag),
            )

    def _acknowledge(self) -> None:
        """What latches is acknowledged as an operator would, once drift is over: else its test would raise it again."""
        drifting = any(alert["kind"] == "drift" for alert in self._open.values())
        for (tenant, number), alert in self._open.items():
            if alert["kind"] == "tolerance" and not drifting and (tenant, number) not in self._acknowledging:
                words = ["acknowledge", tenant, str(number), "--config", str(self.processor.config)]
                self.timeline.add("operator", "acknowledge", tenant=tenant, kind="tolerance", number=number)
                self._acknowledging[tenant, number] = subprocess.Popen(
                    [sys.executable, "-m", "processor.cli", *words],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=clean_environment(),
                    cwd=ROOT,
                )
        for (tenant, number), command in self._acknowledging.items():
            if command is not None and command.poll() is not None:
                self._acknowledging[tenant, number] = None
                said = command.communicate()[1].strip()
                what = "accepted" if command.returncode == 0 else f"refused: {said[-200:]}"
                self.timeline.add("operator", what, tenant=tenant, kind="tolerance", number=number)

    # Verdict

    def judge(self) -> dict[str, float | None]:
        """Add the checks, and return the figures."""
        line, figures = self.timeline, dict[str, float | None]()
        shifted = _first(line.found("producer", "shifted"))
        after = _first(line.found("producer", "after"))
        line.check("the producer shifted and came back", shifted is not None and after is not None)
        for kind, rule in RULES.items():
            raised = _first(line.found("alerts", "raised", SHIFTING, kind))
            firing = _first(line.found("Prometheus", "firing", SHIFTING, rule))
            number = raised.number if raised else None
            cleared = _first(e for e in line.found("alerts", "cleared", SHIFTING, kind) if e.number == number)
            resolved = _first(line.found("Prometheus", "resolved", SHIFTING, rule))
            line.check(f"{kind}: raised on the topic by a label of the shift", _by(raised, shifted, after), _at(raised))
            line.check(f"{kind}: {rule} fired in Prometheus", _follows(firing, shifted), _at(firing))
            line.check(f"{kind}: cleared on the topic after the recovery", _by(cleared, after, None), _at(cleared))
            line.check(f"{kind}: {rule} resolved after that", _follows(resolved, cleared), _at(resolved))
            figures[f"{kind}_raised_after"] = _distance(shifted, raised)
            figures[f"{kind}_firing_after"] = _distance(shifted, firing)
            figures[f"{kind}_pairs"] = raised.pairs if raised else None
            figures[f"{kind}_cleared_after"] = _distance(after, cleared)
            figures[f"{kind}_resolved_after"] = _distance(after, resolved)
        self._check_calm(line)
        return figures

    def _check_calm(self, line: Timeline) -> None:
        tenants = {entry.tenant for entry in line.entries if entry.source in ("alerts", "Prometheus")}
        line.check("nothing was raised for the tenant that did not shift", STEADY not in tenants)
        line.check("nothing is open or fires in the end", not self._open and not self._firing, _shown(self._firing))


def _first(entries: Iterator[Entry]) -> Entry | None:
    return next(entries, None)


def _by(entry: Entry | None, start: Entry | None, end: Entry | None) -> bool:
    """Whether a label of this time did it: when the processor came to it does not matter."""
    if entry is None or entry.at is None or start is None:
        return False
    return entry.at >= start.seconds and (end is None or entry.at <= end.seconds + LATEST)


def _follows(entry: Entry | None, cause: Entry | None) -> bool:
    return entry is not None and cause is not None and entry.seconds >= cause.seconds - LATEST


def _distance(start: Entry | None, entry: Entry | None) -> float | None:
    return round(entry.seconds - start.seconds, 1) if start and entry else None


def _at(entry: Entry | None) -> str:
    return f"{entry.seconds} s" if entry else "never"


def _shown(firing: set[tuple[str, str, str]]) -> str:
    return ", ".join(" ".join(part for part in each if part) for each in sorted(firing))


def watched(
    bootstrap: str, redis_url: str, folder: Path, plan: Plan, timeline: Timeline, say: Callable[[str], None]
) -> dict[str, float | None]:
    """Run the scenario on these servers; the figures, with the checks in the timeline."""
    deployment = Deployment(bootstrap, redis_url, folder)
    try:
        processor = deployment.processor(sections=SECTIONS).start_ready()
        with PrometheusServer(processor.port) as prometheus:
            say(f"processor http://127.0.0.1:{processor.port}, Prometheus http://127.0.0.1:{prometheus.port}")
            scenario = Scenario(deployment, processor, prometheus, plan, timeline)
            scenario.run()
            return scenario.judge()
    finally:
        deployment.close()
