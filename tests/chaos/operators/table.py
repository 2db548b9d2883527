"""One row for each scenario, or for each part of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

LONGEST = 320
"""characters of a problem that are printed"""


@dataclass
class Row:
    """What was sent, what came of it, and what an operator saw."""

    name: str
    sent: int = 0
    once: int = 0
    doubled: int = 0
    lost: int = 0
    held: int = 0
    """sent to a partition that is rightly quarantined: not decided, and not passed over"""
    counters_wrong: int = 0
    """tenants whose stored counters are not what was sent"""
    silence: float = 0.0
    """longest of a healthy partition, seconds"""
    sees: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems


def shown(console: Console, rows: list[Row]) -> None:
    table = Table(title="What operators and others do wrong", show_lines=True)
    for name in ("scenario", "sent", "once", "doubled", "lost", "held", "counters\nwrong", "silence\ns"):
        table.add_column(name, justify="left" if name == "scenario" else "right", no_wrap=name == "scenario")
    table.add_column("what the operator sees", overflow="fold")
    table.add_column("verdict")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    for row in rows:
        for problem in row.problems:
            text = " ".join(problem.split())[:LONGEST]
            console.print(f"  {row.name}: {text}", style="red", markup=False, highlight=False)
    failed = sum(not row.passed for row in rows)
    text = f"FAILED: {failed} of {len(rows)}" if failed else f"PASSED: {len(rows)} of {len(rows)}"
    console.print(text, style="bold red" if failed else "bold green")


def cells(row: Row) -> list[str]:
    counts = (row.sent, row.once, row.doubled, row.lost, row.held, row.counters_wrong)
    verdict = "[green]pass[/green]" if row.passed else "[red]FAIL[/red]"
    sees = "\n".join(row.sees).replace("[", r"\[")
    return [row.name, *(f"{count:,}" for count in counts), f"{row.silence:.1f}", sees, verdict]
