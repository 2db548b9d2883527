"""What happened when, from three sources: the producer, the topic ``alerts``, and Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. Figures are those of the evidence, or for a sample those of the gauges."""

    seconds: float
    """since the first case was sent"""
    source: str
    what: str
    tenant: str = ""
    kind: str = ""
    label: str = ""
    groups: str = ""
    number: int | None = None
    """of the alert"""
    at: float | None = None
    """time of the label that did it; a processor that lags sees it later"""
    pairs: int | None = None
    """pairs of labels since the difference most likely began"""
    gap: float | None = None
    lower: float | None = None
    upper: float | None = None
    wealth: float | None = None
    """as a share of what raises the alert"""
    lag: int | None = None
    """records that wait"""


class Check(msgspec.Struct, frozen=True):
    claim: str
    holds: bool
    seen: str = ""


class Timeline:
    """Entries in the order they were seen; the clock starts with the first case."""

    def __init__(self, console: Console) -> None:
        self.entries: list[Entry] = []
        self.checks: list[Check] = []
        self._console = console
        self.begin()

    def begin(self) -> None:
        self._began, self._wall = time.monotonic(), time.time()

    def seconds_of(self, timestamp: int) -> float:
        """A record's time (milliseconds) on this clock."""
        return round(timestamp / 1_000 - self._wall, 1)

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def add(self, source: str, what: str, **figures: Any) -> Entry:
        entry = Entry(seconds=round(self.now, 1), source=source, what=what, **figures)
        self.entries.append(entry)
        self._console.print(_line(entry), highlight=False, soft_wrap=True, style=_STYLES.get(source, ""))
        return entry

    def found(self, source: str, what: str, tenant: str = "", kind: str = "") -> Iterator[Entry]:
        """Those of a source that say this, in their order."""
        for entry in self.entries:
            same = (entry.source, entry.what) == (source, what)
            if same and tenant in ("", entry.tenant) and kind in ("", entry.kind):
                yield entry

    def check(self, claim: str, holds: bool, seen: str = "") -> None:
        self.checks.append(Check(claim, holds, seen))

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(check.holds for check in self.checks)

    def print_checks(self) -> None:
        table = Table(show_header=False, box=None)
        for check in self.checks:
            table.add_row("[green]yes[/]" if check.holds else "[red]NO[/]", check.claim, check.seen, style="")
        self._console.print(table)

    def encode(self, figures: dict[str, float | None]) -> bytes:
        content = {"passed": self.passed, "figures": figures, "checks": self.checks, "timeline": self.entries}
        return msgspec.json.format(msgspec.json.encode(content), indent=1)


_STYLES = {"operator": "bold", "producer": "bold", "gauges": "dim", "alerts": "yellow", "Prometheus": "magenta"}


def _line(entry: Entry) -> str:
    whose = " ".join(part for part in (entry.tenant, entry.kind, entry.label, entry.groups) if part)
    figures = []
    if entry.at is not None:
        figures.append(f"by the label of {entry.at:.1f} s")
    if entry.pairs is not None:
        figures.append(f"{entry.pairs} pairs")
    if entry.gap is not None:
        band = "" if entry.lower is None or entry.upper is None else f" ({entry.lower:.3f} to {entry.upper:.3f})"
        figures.append(f"gap {entry.gap:.3f}{band}")
    if entry.wealth is not None:
        figures.append(f"wealth {entry.wealth:.3g} of the threshold")
    if entry.lag is not None:
        figures.append(f"lag {entry.lag}")
    return f"{entry.seconds:7.1f} s  {entry.source:<10}  {entry.what:<11}  {whose:<37} {', '.join(figures)}".rstrip()
