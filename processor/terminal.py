"""Where text for people goes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def terminal(*, stderr: bool = False, piped_width: int | None = None) -> Console:
    """A terminal that shows names and ids as they are: by default rich would make a picture of the ``:100:`` in one.

    ``piped_width`` is how wide tables are where there is no terminal.

    >>> terminal().print("loan:100:7")
    loan:100:7
    """
    from rich.console import Console  # here, because commands that print nothing start faster without it

    width = None if piped_width is None or sys.stdout.isatty() else piped_width
    return Console(stderr=stderr, width=width, emoji=False)
