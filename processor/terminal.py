"""Where text for people goes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

LONG_WORD = 16
"""a longer one may be broken where there is no room: ids, digests"""


def terminal(*, stderr: bool = False, piped_width: int | None = None) -> Console:
    """A terminal that shows names and ids as they are: by default rich would make a picture of the ``:100:`` in one.

    ``piped_width`` is how wide tables are where there is no terminal.

    >>> terminal().print("loan:100:7")
    loan:100:7
    """
    from rich.console import Console  # here, because commands that print nothing start faster without it

    width = None if piped_width is None or sys.stdout.isatty() else piped_width
    return Console(stderr=stderr, width=width, emoji=False)


def with_whole_words(table: Table, console: Console) -> Table:
    """Give the columns widths at which they wrap at spaces, and leave out the frame where there is no room for it."""
    needs = [_needs(console, [column.header, *column.cells]) for column in table.columns]
    least, most = sum(need[0] for need in needs), sum(need[1] for need in needs)
    count = len(needs)
    frame = count + 1 if table.box else 0
    if most + 2 * count + frame <= console.width:
        return table
    room = console.width - 2 * count - frame
    if least > room:
        table.box, table.padding = None, (0, 1, 0, 0)
        room = console.width - count
    if least <= room:
        for column, width in zip(table.columns, _levelled(needs, room), strict=True):
            column.width = width
    return table


def _needs(console: Console, cells: list[RenderableType]) -> tuple[int, int]:
    """The longest word of a column, and its longest line."""
    from rich.measure import Measurement

    found = [Measurement.get(console, console.options.update(width=10_000), cell) for cell in cells]
    longest = max(one.maximum for one in found)
    return min(max(one.minimum for one in found), LONG_WORD), longest


def _levelled(needs: list[tuple[int, int]], room: int) -> list[int]:
    """Widths between the least and the most each needs: what is left goes to the narrowest that can use it.

    >>> _levelled([(3, 5), (2, 20)], 14)
    [5, 9]
    """
    widths = [least for least, _ in needs]
    for _ in range(room - sum(widths)):
        wanting = [i for i, (_, most) in enumerate(needs) if widths[i] < most]
        if not wanting:
            break
        widths[min(wanting, key=widths.__getitem__)] += 1
    return widths
