"""The learner at work in a terminal: a synthetic stream, labels that come late, and the gap falling."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from producers.delays import Delay
from producers.synthetic import paper_population

from .core import IN_FORCE, Decision, Learner, Policy, Request, Settings, fairness
from .core.metrics import Fairness

GROUPS = ("A", "B")
LABELS = ("deny", "grant")
EXPERTS = ("analyst", "bureau", "model", "rules")
SHADOW = Policy(policy="groupaware")
BATCH = 20
SPARKS = " ▁▂▃▄▅▆▇█"
WIDTH = 48


@dataclass
class Progress:
    """What the screen shows."""

    rounds: int
    decided: int = 0
    labels: int = 0
    pending: int = 0
    gap: list[float] = field(default_factory=list)
    shadow_gap: list[float] = field(default_factory=list)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=5))


def run(rounds: int, pace: float, seed: int) -> None:
    """Decide ``rounds`` cases, at ``pace`` cases per second, and show how it goes until done or Ctrl-C."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(
        "\n[bold]Four experts advise on loans. Each knows one kind of case and guesses the rest.[/]\n"
        "G-FORCE picks whose advice to take, so that both groups suffer equal error rates.\n"
        "Labels come up to 500 cases late. GroupAware, the usual way, runs in shadow on the\n"
        "same cases. Nothing is stored.\n",
        highlight=False,
    )
    learner = Learner(
        Settings(labels=LABELS, positive="grant", groups=GROUPS, experts=EXPERTS, shadows=(SHADOW,)),
        seed=seed.to_bytes(16, "big"),
    )
    progress = Progress(rounds)
    try:
        with Live(_screen(progress, learner), console=console, refresh_per_second=8) as live:
            for _ in _stream(learner, progress, seed, pace):
                live.update(_screen(progress, learner))
    except KeyboardInterrupt:
        console.print("stopped.")
    _conclude(console, learner)


def _stream(learner: Learner, progress: Progress, seed: int, pace: float) -> Iterator[None]:
    rng = np.random.default_rng(seed)
    cases = paper_population(mu_b=0.3).draw(rng, 1, progress.rounds)
    delays = Delay.parse("uniform:0-500").draw(rng, (progress.rounds,))
    due: dict[int, list[tuple[Decision, str]]] = {}
    started = time.monotonic()
    for start in range(0, progress.rounds, BATCH):
        rows = range(start, min(start + BATCH, progress.rounds))
        requests = [
            Request(
                f"loan-{t}",
                GROUPS[cases.group[0, t]],
                {name: LABELS[cases.predictions[0, t, f]] for f, name in enumerate(EXPERTS)},
            )
            for t in rows
        ]
        for t, decision in zip(rows, learner.decide_batch(requests), strict=True):
            due.setdefault((t + int(delays[t])) // BATCH, []).append((decision, LABELS[cases.label[0, t]]))
            progress.recent.append(_line(decision))
        arrived = due.pop(start // BATCH, [])
        learner.learn_batch(arrived)
        progress.decided += len(rows)
        progress.labels += len(arrived)
        progress.pending = progress.decided - progress.labels
        _measure(learner, progress)
        if pace:
            time.sleep(max(0.0, started + progress.decided / pace - time.monotonic()))
        yield


def _measure(learner: Learner, progress: Progress) -> None:
    if progress.decided % (progress.rounds // WIDTH or 1) < BATCH:
        progress.gap.append(_fairness(learner, IN_FORCE).equalized_odds_difference)
        progress.shadow_gap.append(_fairness(learner, SHADOW.name).equalized_odds_difference)


def _fairness(learner: Learner, policy: str) -> Fairness:
    return fairness(learner.counters(), learner.state.axes.policy_index[policy])


def _line(decision: Decision) -> str:
    chance = decision.probabilities[decision.label]
    asked = f"asked {decision.expert:<8}"
    return f"{decision.decision_id:<10} group {decision.group}   {decision.label:<5}  {asked} p = {chance:.2f}"


def _screen(progress: Progress, learner: Learner) -> Panel:
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=progress.rounds, completed=progress.decided, width=30),
        f"[bold]{progress.decided:,}[/] decided",
        f"[bold]{progress.labels:,}[/] labels",
        f"[bold]{progress.pending:,}[/] pending",
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


def _conclude(console: Console, learner: Learner) -> None:
    axes = learner.state.axes
    shown = Table(title="Error rates at the end", title_justify="left", title_style="bold", box=None)
    for column in ("", "wrongly granted: A", "B", "wrongly denied: A", "B", "worst gap", "loss"):
        shown.add_column(column, justify="left" if not column else "right")
    for name, policy in (("G-FORCE", IN_FORCE), ("GroupAware", SHADOW.name)):
        figures = _fairness(learner, policy)
        rates = [
            f"{figures.error_rate_by_label[axes.group_index[group]][axes.label_index[label]]:.2f}"
            for label in ("deny", "grant")
            for group in GROUPS
        ]
        outcomes = learner.counters().outcomes[0, axes.policy_index[policy]]
        loss = 1.0 - np.trace(outcomes.sum(axis=0)) / max(outcomes.sum(), 1)
        shown.add_row(name, *rates, f"{figures.equalized_odds_difference:.3f}", f"{loss:.3f}")
    console.print(shown)
    console.print(
        "\nGroupAware is a little more accurate and treats the groups very differently.\n"
        "G-FORCE treats them alike. Next: [bold]gforce experiment synthetic[/] reproduces the paper,\n"
        "[bold]gforce --help[/] shows the rest.\n",
        highlight=False,
    )
