"""The scenarios by name, in the order they are run."""

from __future__ import annotations

from collections.abc import Callable

from .stage import Stage

Scenario = Callable[[Stage], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    """Register under the function's name with dashes; its docstring's first line says what must happen."""
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play
