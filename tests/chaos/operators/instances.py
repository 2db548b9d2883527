"""Two processes with the same ``instance``."""

from __future__ import annotations

import socket
import time

from .registry import scenario
from .stage import SESSION_MS, Stage

TIMES = 3
GIVE_UP = 30.0
"""seconds in which the newer one must have ended"""


@scenario
def same_instance_twice(stage: Stage) -> None:
    """A second process with the same instance: it exits with 2 and says who has it; the first is undisturbed."""
    stage.open()
    (older,) = stage.run()
    load = stage.load()
    time.sleep(2)
    pid = older.pid
    codes: list[int | None] = []
    for attempt in range(TIMES):
        named = {
            "kafka": {
                "instance": "one",
                "session_timeout_ms": SESSION_MS,
                "consumer_properties": {"heartbeat.interval.ms": 500},
            }
        }
        newer = stage.deployment.processor(f"newer-{attempt}", named)
        newer.start()
        ended = stage.wait(lambda newer=newer: newer.exit_code is not None, GIVE_UP)  # type: ignore[misc]
        codes.append(newer.exit_code)
        last = newer.log.strip().splitlines()[-1:]
        stage.check(ended and codes[-1] == 2, f"the newer one: exit code {codes[-1]} after {GIVE_UP:.0f} s")
        stage.check(
            ended and socket.gethostname() in "".join(last), f"its last line does not say which host has it: {last}"
        )
        if attempt == 0:
            stage.see((last or ["-"])[0][:160])
        newer.close()
        time.sleep(1)
    stage.see(f"the newer ones exit {codes}")
    undisturbed = not stage.supervisor.exits and older.pid == pid
    stage.check(undisturbed, "the older process was ended")
    lost = older.get("/status").json.get("totals", {})
    fenced = {name: lost.get(name, 0) for name in ("fenced_by_kafka", "fenced_by_store", "partitions_lost")}
    stage.check(not any(fenced.values()), f"the older process was disturbed: {fenced}")
    time.sleep(2)
    load.stop()
