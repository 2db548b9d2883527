"""Nothing goes wrong: shows that a row can pass."""

from __future__ import annotations

import time

from .registry import scenario
from .stage import Stage


@scenario
def nothing_wrong(stage: Stage) -> None:
    """Ordinary load on two processors: everything is decided once, every counter is right."""
    stage.open()
    stage.run("one", "two")
    load = stage.load()
    time.sleep(5)
    load.stop()
    stage.wait(stage.decided, 20)
    stage.see(stage.states_shown())
    stage.audit()
