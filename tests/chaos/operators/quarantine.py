"""A partition that cannot be recovered."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from .registry import scenario
from .stage import Stage

LOST = 1


@scenario
def unrecoverable_partition(stage: Stage) -> None:
    """A changelog partition and Redis are lost, two processes, supervised: it is quarantined, the others go on."""
    stage.open()
    stage.held = {LOST}
    stage.run("one", "two")
    stage.load()
    time.sleep(4)
    admin = AdminClient(stage.properties)
    place = TopicPartition(stage.deployment.topic("changelog"), LOST, OFFSET_END)
    for deleted in admin.delete_records([place]).values():
        deleted.result(20)
    stage.flush()
    if stage.quarantined(LOST):
        attempts = len(stage.logged("quarantined", level="error"))
        answer = stage.resume(LOST)
        stage.check(answer.returncode == 0, f"gforce resume exits {answer.returncode}: {answer.stdout}{answer.stderr}")
        tried = stage.wait(lambda: len(stage.logged("quarantined", level="error")) > attempts, 20)
        stage.check(tried, "gforce resume did not try again")
        stage.see(f"gforce resume exits {answer.returncode} and it is tried again: {tried}")
        stage.stop_processors()
        stage.start_again()
        stage.quarantined(LOST)
    else:
        time.sleep(20)
    stage.reported(LOST)
    time.sleep(3)
