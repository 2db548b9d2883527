"""The whole processor in a terminal: a synthetic stream, labels that come late, and the gap falling.

Requests and labels go through the in-memory log, the commit protocol and a real Valkey server, as they would through
Kafka and Redis. The status page is up meanwhile, with a second tenant to compare: the same cases, decided by MW.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from shutil import which

import msgspec
import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from processor.terminal import terminal
from producers.delays import Delay
from producers.synthetic import paper_population

from .config import Config, load
from .core import IN_FORCE, Axes, Counters, Fairness, fairness
from .core.events import decode_decision
from .core.stream.tenant import Tenant
from .embedded.embedded import Embedded, embedded
from .run.assembly import monotonic_ms
from .run.stopping import terminated_as_interrupted
from .telemetry.http import HttpServer
from .telemetry.status import Status, status_of

TENANT, RIVAL = "bank", "rival"
GROUPS = ("A", "B")
LABELS = ("deny", "grant")
EXPERTS = ("analyst", "bureau", "model", "rules")
SHADOW = "groupaware"
HOST, PORT = "127.0.0.1", 9464
BATCH = 20
SPARKS = " ▁▂▃▄▅▆▇█"
WIDTH = 48
LARGE = 0.1
"""A gap above this is not alike."""


@dataclass
class Progress:
    """What the screen shows."""

    rounds: int
    decided: int = 0
    labels: int = 0
    pending: int = 0
    transactions: int = 0
    gap: list[float] = field(default_factory=list)
    shadow_gap: list[float] = field(default_factory=list)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class DemoPage:
    """The status page, and the latest picture of the worker it is drawn from."""

    address: str
    stall_seconds: float
    status: Status = field(default_factory=Status)
    acknowledged: SimpleQueue[tuple[str, int]] = field(default_factory=SimpleQueue)

    def update(self, running: Embedded) -> None:
        while not self.acknowledged.empty():
            running.worker.acknowledge(*self.acknowledged.get())
        self.status = status_of(running.worker, monotonic_ms(), self.stall_seconds)


def run(rounds: int, pace: float, seed: int, keep: bool = False) -> None:
    """Decide ``rounds`` cases, at ``pace`` cases per second, and show how it goes until done, Ctrl-C or SIGTERM.

    With ``keep`` the status page stays up after that, until Ctrl-C.
    """
    console = terminal(piped_width=100)
    console.print(
        "\n[bold]Four experts advise on loans. Each knows one kind of case and guesses the rest.[/]\n"
        "G-FORCE picks whose advice to take, so that both groups suffer equal error rates.\n"
        "Labels come up to 500 cases late. GroupAware, the usual way, runs in shadow on the\n"
        "same cases. In-memory log, real Valkey; nothing outlives this process.\n",
        highlight=False,
    )
    progress, config = Progress(rounds), _config(seed)
    with terminated_as_interrupted(), embedded(config) as running, _page(config) as page:
        console.print(f"Status page: [bold]{page.address}[/]\n", highlight=False)
        try:
            with Live(_screen(progress), console=console, refresh_per_second=8) as live:
                for _ in _stream(running, progress, seed, pace):
                    page.update(running)
                    live.update(_screen(progress))
        except KeyboardInterrupt:
            console.print("stopped.")
            keep = False
        console.print()
        _conclude(console, running)
        if keep:
            _stay(console, running, page)


@contextmanager
def _page(config: Config) -> Iterator[DemoPage]:
    port = _free_port(PORT)
    page = DemoPage(f"http://{HOST}:{port}/", config.processing.stall_seconds)
    server = HttpServer(
        HOST,
        port,
        lambda: page.status,
        lambda number: None,
        acknowledge=lambda tenant, number: page.acknowledged.put((tenant, number)),
    )
    server.start()
    try:
        yield page
    finally:
        server.stop()


def _free_port(wanted: int) -> int:
    """The one wanted, or any: the demo also runs beside a processor."""
    for port in (wanted, 0):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: not held by the last demo
            try:
                tried.bind((HOST, port))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    return wanted


def _stay(console: Console, running: Embedded, page: DemoPage) -> None:
    console.print(f"The page stays up: [bold]{page.address}[/]  Ctrl-C ends it.", highlight=False)
    try:
        while True:
            running.run_until_idle()
            page.update(running)
            time.sleep(0.5)
    except KeyboardInterrupt:
        console.print("stopped.")


def _config(seed: int) -> Config:
    settings = {
        "PROCESSING__SEED": seed.to_bytes(32, "big").hex(),
        "PROCESSING__COMMIT_INTERVAL_MS": "1",
        "TENANTS__DEFAULT__LABELS": '["deny", "grant"]',
        "TENANTS__DEFAULT__POSITIVE": '"grant"',
        "TENANTS__DEFAULT__SHADOWS": f'["{SHADOW}", "mw"]',
        f"TENANTS__{RIVAL.upper()}__POLICY": '"mw"',
        f"TENANTS__{RIVAL.upper()}__SHADOWS": f'["{SHADOW}"]',
    }
    return load(None, {f"GFORCE_{name}": value for name, value in settings.items()})


def _stream(running: Embedded, progress: Progress, seed: int, pace: float) -> Iterator[None]:
    rng = np.random.default_rng(seed)
    cases = paper_population(mu_b=0.3).draw(rng, 1, progress.rounds)
    delays = Delay.parse("uniform:0-500").draw(rng, (progress.rounds,))
    due: dict[int, list[int]] = {}
    started = time.monotonic()
    for start in range(0, progress.rounds, BATCH):
        rows = range(start, min(start + BATCH, progress.rounds))
        for t in rows:
            advice = {name: LABELS[cases.predictions[0, t, f]] for f, name in enumerate(EXPERTS)}
            _produce(running, "requests", t, {"group": GROUPS[cases.group[0, t]], "predictions": advice})
            due.setdefault((t + int(delays[t])) // BATCH, []).append(t)
        for t in due.pop(start // BATCH, []):
            _produce(running, "feedback", t, {"label": LABELS[cases.label[0, t]]})
        running.run_until_idle()
        _observe(running, progress)
        if pace:
            time.sleep(max(0.0, started + progress.decided / pace - time.monotonic()))
        yield


def _produce(running: Embedded, topic: str, number: int, content: dict[str, object]) -> None:
    for tenant in (TENANT, RIVAL):
        event = {"tenant": tenant, "decision_id": f"loan-{number}", **content}
        running.produce(topic, tenant.encode(), msgspec.json.encode(event))


def _observe(running: Embedded, progress: Progress) -> None:
    for record in running.new_records("decisions"):
        if record.key != TENANT.encode():
            continue
        decision = decode_decision(record.value or b"")
        chance = decision.probabilities[decision.decision]
        asked = f"asked {decision.expert:<8}"
        line = f"{decision.decision_id:<10} group {decision.group}   {decision.decision:<5}  {asked} p = {chance:.2f}"
        progress.recent.append(line)
    tally = _tally(running)
    progress.decided, progress.labels = tally["decisions"], tally["labels_joined"]
    progress.transactions = running.worker.totals["transactions"]
    progress.pending = progress.decided - progress.labels
    if progress.decided % (progress.rounds // WIDTH or 1) < BATCH:
        progress.gap.append(_fairness(running, IN_FORCE).equalized_odds_difference)
        progress.shadow_gap.append(_fairness(running, SHADOW).equalized_odds_difference)


def _tenant(running: Embedded) -> Tenant | None:
    held = [owned.partition.tenants for owned in running.worker.owned.values() if owned.partition is not None]
    return next((tenants[TENANT] for tenants in held if TENANT in tenants), None)


def _tally(running: Embedded) -> Counter[str]:
    tenant = _tenant(running)
    return tenant.tally if tenant else Counter()


def _counters(running: Embedded) -> tuple[Counters, Axes]:
    if tenant := _tenant(running):
        return tenant.learner.counters(), tenant.learner.state.axes
    empty = Axes.of(groups=GROUPS, labels=LABELS, experts=EXPERTS, policies=[IN_FORCE, SHADOW])
    return Counters.zeros(empty), empty


def _fairness(running: Embedded, policy: str) -> Fairness:
    counters, axes = _counters(running)
    return fairness(counters, axes.policy_index[policy])


def _screen(progress: Progress) -> Panel:
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=progress.rounds, completed=progress.decided, width=16),
        f"[bold]{progress.decided:,}[/] decided",
        f"[bold]{progress.labels:,}[/] labels",
        f"[bold]{progress.pending:,}[/] pending",
        f"[dim]{progress.transactions:,} transactions[/]",
    )
    gaps = Table.grid(padding=(0, 2))
    for name, values, colour in (
        ("G-FORCE", progress.gap, "green"),
        ("GroupAware", progress.shadow_gap, "red"),
    ):
        latest = f"{values[-1]:.3f}" if values and not np.isnan(values[-1]) else "  –  "
        gaps.add_row(name, f"[bold {colour}]{latest}[/]", Text(_spark(values), style=colour))
    title = Text("gap so far: the groups' error rates differ by", style="dim")
    lines = Text("\n".join(progress.recent) or "waiting for the first case", style="dim")
    return Panel(Group(bar, Text(), title, gaps, Text(), lines), title="G-FORCE demo", width=84, padding=(1, 2))


def _spark(values: list[float]) -> str:
    """A line of bars, from 0 to a gap of one half."""
    levels = [0 if np.isnan(v) else min(int(v / 0.5 * 8 + 0.999), 8) for v in values]
    return "".join(SPARKS[level] for level in levels)


def _conclude(console: Console, running: Embedded) -> None:
    counters, axes = _counters(running)
    shown = Table(title="Error rates at the end", title_justify="left", title_style="bold", box=None)
    for column in ("", "wrongly granted: A", "B", "wrongly denied: A", "B", "worst gap", "loss"):
        shown.add_column(column, justify="left" if not column else "right")
    gaps: dict[str, float] = {}
    for name, policy in (("G-FORCE", IN_FORCE), ("GroupAware", SHADOW)):
        figures = _fairness(running, policy)
        gaps[name] = figures.equalized_odds_difference
        by_label = figures.error_rate_by_label
        rates = [
            f"{by_label[axes.group_index[group]][axes.label_index[label]]:.2f}"
            for label in ("deny", "grant")
            for group in GROUPS
            if group in axes.group_index
        ]
        outcomes = counters.outcomes[0, axes.policy_index[policy]]
        loss = 1.0 - np.trace(outcomes.sum(axis=0)) / max(outcomes.sum(), 1)
        shown.add_row(name, *rates, _figure(gaps[name]), _figure(loss))
    console.print(shown)
    command = _command()
    console.print(
        f"\n{_verdict(gaps['G-FORCE'], gaps['GroupAware'])}\n"
        f"Next: [bold]{command} experiment synthetic[/] reproduces the paper, [bold]{command} demo --keep[/]\n"
        f"leaves the status page up, [bold]{command} --help[/] shows the rest.\n",
        highlight=False,
    )


def _verdict(gap: float, rival: float) -> str:
    """What the table shows, in words.

    >>> _verdict(0.03, 0.47)
    'GroupAware treats the groups very differently. G-FORCE treats them nearly alike.'
    """
    if not gap < LARGE:  # also where there is none yet
        return "Too few labels have come to tell: a gap this early is noise. Decide more cases, with --rounds 6000."
    if rival < 3 * LARGE:
        return "G-FORCE treats the groups nearly alike."
    return "GroupAware treats the groups very differently. G-FORCE treats them nearly alike."


def _figure(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _command() -> str:
    """How this was called, so that it can be pasted: the command is not on the path before its environment is."""
    return "gforce" if which("gforce") else escape(sys.argv[0])
