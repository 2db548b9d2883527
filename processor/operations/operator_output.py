"""What operators' commands print: a table for people, or one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import isnan
from typing import Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from processor.core import IN_FORCE
from processor.core.stream.identity import Identity
from processor.terminal import terminal, with_whole_words

from .dead_letters import Letter, Summary
from .group import Forecast, Rebuilt, Reset
from .tenant_state import TenantState
from .topic_plans import CheckResult

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red", "refuse": "red", "load": "green"}


def document(content: Any, *, stderr: bool = False) -> None:
    """One JSON document on standard output; figures nothing is known about are null."""
    typer.echo(msgspec.json.format(msgspec.json.encode(content)), err=stderr)


def say(text: str, *, stderr: bool = False) -> None:
    seen = (sys.stderr if stderr else sys.stdout).isatty()
    terminal(stderr=stderr).print(escape(text), highlight=False, soft_wrap=not seen)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    shown = Table(title=title or None, title_justify="left", title_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")  # what is cut off cannot be pasted elsewhere
    for row in rows:
        shown.add_row(*row)
    console = terminal()
    console.print(with_whole_words(shown, console), highlight=False)


def _coloured(word: str) -> str:
    return f"[{COLOURS[word]}]{word}[/]" if word in COLOURS else word


def findings(title: str, found: Sequence[CheckResult]) -> None:
    rows = [(_coloured(one.level), *map(escape, (one.what, one.found, one.remedy))) for one in found]
    table(title, ("", "what", "found", "remedy"), rows)
    problems = sum(one.level == "problem" for one in found)
    say(f"{problems} problems" if problems else "no problems")


def forecasts(told: Sequence[Forecast]) -> None:
    rows = [
        (str(one.partition), _identity(one.committed), _identity(one.stored), _coloured(one.action), escape(one.detail))
        for one in told
    ]
    table("What a start would do", ("partition", "committed", "stored", "would", "why"), rows)


def _identity(identity: Identity | None) -> str:
    return f"{identity.lineage} #{identity.sequence}" if identity else "–"


def resets(plans: Sequence[Reset]) -> None:
    rows = [
        (str(plan.partition), _identity(plan.was), _identity(plan.identity), *map(str, plan.positions.values()))
        for plan in plans
    ]
    inputs = [f"{topic} from" for topic in (plans[0].positions if plans else ())]
    table("New lineages", ("partition", "was", "becomes", *inputs), rows)


def rebuilt(done: Sequence[Rebuilt]) -> None:
    rows = [(str(one.partition), str(one.sequence), str(one.replayed), escape(one.trouble)) for one in done]
    table("Rebuilt", ("partition", "at batch", "from the changelog", "trouble"), rows)


def tenant(state: TenantState) -> None:
    at = f"partition {state.partition} of {state.partitions}, state {_identity(state.identity)}, {when(state.clock)}"
    say(f"{state.name}: {at}")
    say(f"partition: {state.pending} decisions wait for a label, {state.parked} labels for a request")
    labels = [f'labels "{label}"' for label in state.labels]
    errors = [f'error on "{label}"' for label in state.labels]
    force = state.by_policy[IN_FORCE]
    rows = [
        (
            escape(group),
            *map(str, state.seen[i]),
            *map(_share, force.error_rate_by_label[i]),
            _share(force.error_rate[i]),
        )
        for i, group in enumerate(state.groups)
    ]
    table("By group, under the policy in force", ("group", *labels, *errors, "error rate"), rows)
    _policies(state)
    table("What has happened", ("event", "count"), [(name, str(count)) for name, count in state.tally.items()])


def _policies(state: TenantState) -> None:
    gaps = [f'gap on "{label}"' for label in state.labels]
    rows = [
        (
            policy,
            *map(_share, figures.differences_by_label),
            _share(figures.equalized_odds_difference),
            _share(figures.zero_one_loss_difference),
            _signed(figures.regret_per_round),
        )
        for policy, figures in state.by_policy.items()
    ]
    columns = ("policy", *gaps, "equalized odds difference", "error rate difference", "regret per round")
    table("Worst difference between two groups", columns, rows)


def _share(value: float) -> str:
    return "–" if isnan(value) else f"{value:.1%}".replace("%", " %")


def _signed(value: float) -> str:
    return "–" if isnan(value) else f"{value:+.4f}"


def when(milliseconds: int) -> str:
    """
    >>> when(1_700_000_000_000)
    '2023-11-14 22:13:20'
    """
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def summaries(found: Sequence[Summary]) -> None:
    rows = [
        (
            one.reason,
            str(one.count),
            one.latest.place,
            when(one.latest.record.timestamp),
            escape(one.latest.tenant[:40]),
            escape(one.latest.detail),
        )
        for one in found
    ]
    table("Dead letters", ("reason", "count", "latest", "at (UTC)", "key", "detail"), rows)


def letter(one: Letter) -> None:
    headers = [(name, escape((value or b"").decode(errors="replace"))) for name, value in one.record.headers]
    table(f"Dead letter {one.place}", ("header", "value"), [("key", escape(repr(one.record.key))), *headers])
    say(payload(one.record.value))


def payload(value: bytes | None) -> str:
    """Bytes for a terminal: control characters could do anything to it.

    >>> payload(b'caf\\xc3\\xa9 \\x1b[31m'), payload(None)
    ('café \\\\x1b[31m', '(no value)')
    """
    if value is None:
        return "(no value)"
    text = value.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def letter_document(one: Letter) -> dict[str, object]:
    record = one.record
    return {
        "place": one.place,
        "at": record.timestamp,
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "headers": {name: (value or b"").decode(errors="replace") for name, value in record.headers},
        "value": None if record.value is None else record.value.decode(errors="backslashreplace"),
    }
