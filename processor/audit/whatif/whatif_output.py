"""What ``gforce whatif`` prints."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from processor.core.errors import InvalidInputError
from processor.operations.operator_output import say
from processor.telemetry.figures import EQUALIZED_ODDS
from processor.terminal import terminal, with_whole_words

from .answer import ROW_COLUMNS, WhatIf, conclusion, figure_rows, plottable, reproduction, save_front, short, shown
from .figures import UNKNOWN, SettingFigures, TenantAnswer
from .settings import RECORDED

COLUMNS = ("setting", "gap", "expected", "change of gap", "loss", "expected", "change of loss", "regret", "")
WIDE_TERMINAL_CHARS = 110
"""characters of a terminal from which on all columns fit"""


def print_answer(answer: WhatIf, pictures: list[Path]) -> None:
    """For a person."""
    for one in answer.tenants:
        _print_tenant(one)
        if one.not_valid:
            terminal().print(f"[bold red]these figures are not valid[/]: {escape(one.not_valid)}", highlight=False)
        if one.settings:
            say(conclusion(one))
        if one.settings and answer.front[one.tenant] and not one.not_valid:
            say(f"on the front (nobody beats them in both): {', '.join(answer.front[one.tenant])}")
    for setting, count in answer.outstanding.items():
        if count:
            say(f"{setting}: {count} labels would not have come by the end of the record, and are not counted")
    if answer.findings:
        differences = "1 difference" if answer.findings == 1 else f"{answer.findings} differences"
        say(
            f"the record does not audit clean ({differences}), so the figures are those of an altered "
            "record: run `gforce audit` to see what was changed"
        )
    for path in pictures:
        say(f"picture: {path}")
    say(reproduction(answer))


def _print_tenant(answer: TenantAnswer) -> None:
    """Gaps and losses side by side where the terminal is wide enough, else one below the other; then the rates."""
    title, every = f'Tenant "{answer.tenant}"', (answer.recorded, *answer.settings)
    rows = [_row(one) for one in every]
    if terminal().width >= WIDE_TERMINAL_CHARS:
        _print_table(title, COLUMNS, rows)
    else:
        _print_table(title, (*COLUMNS[:4], COLUMNS[8]), [(*row[:4], row[8]) for row in rows])
        _print_table("Losses", (COLUMNS[0], *COLUMNS[4:8]), [(row[0], *row[4:8]) for row in rows])
    rates = [row for one in every for row in _rates(one)]
    if rates:
        _print_table("Error rates, which the gaps are between", ("setting", "truly", "wrong, by group"), rates)
    for one in every:
        if one.refused:
            terminal().print(escape(f"{one.setting}: {one.refused}"), highlight=False)


def _print_table(title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """A table without a frame; the first row is that of what was recorded."""
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None)
    for column in columns:
        left = column in ("setting", "truly", "wrong, by group", "")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row, style="bold" if row[0].startswith(RECORDED) else None)
    console = terminal()
    console.print(with_whole_words(table, console), highlight=False)


def _row(one: SettingFigures) -> tuple[str, ...]:
    gap, difference = one.gaps.get(EQUALIZED_ODDS, UNKNOWN), one.difference
    words = {"dominates": "[green]better[/]", "dominated": "[red]worse[/]", "neither": "", "": ""}
    standing = words[one.standing] + (" beyond noise" if one.beyond_noise else "")
    return (
        _name(one),
        shown(gap),
        short(one.gap),
        shown(difference.gap) if difference else "",
        shown(one.loss),
        short(one.expected_loss),
        shown(difference.loss) if difference else "",
        short(one.regret),
        standing,
    )


def _name(one: SettingFigures) -> str:
    """The setting; of the recorded one its λ too, where that is one number."""
    known = one.change is None and one.fairness is not None
    return escape(f"{one.setting} (λ {one.fairness:.3g})" if known else one.setting)


def _rates(one: SettingFigures) -> Iterator[tuple[str, ...]]:
    """A row for each true label: how often each group was decided wrongly, and of how many."""
    for label in dict.fromkeys(cell.label for cell in one.rates):
        cells = [cell for cell in one.rates if cell.label == label]
        by_group = ", ".join(f"{cell.group} {short(cell.rate.value)} of {cell.n}" for cell in cells)
        yield _name(one), escape(label), escape(by_group)


def write_rows(answer: WhatIf, path: Path) -> None:
    """All figures as CSV."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(ROW_COLUMNS)
            writer.writerows(figure_rows(answer))
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}. Name a file in a folder that exists."
        ) from None


def save_pictures(answer: WhatIf, folder: Path) -> list[Path]:
    """A picture of the Pareto front of each tenant, as PNG and SVG."""
    return [
        path
        for number, one in enumerate(answer.tenants, start=1)
        if len(plottable(one)) > 1
        for path in save_front(one, folder, f"pareto-{number:03}")
    ]
