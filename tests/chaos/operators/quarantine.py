"""A partition that cannot be recovered."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_END
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from .registry import scenario
from .stage import RATE, Stage

EMPTIED, CUT = 1, 2
"""partitions: of one the changelog is empty, of the other only batches after the gap are in it"""


@scenario
def unrecoverable_partition(stage: Stage) -> None:
    """Two changelog partitions and Redis are lost, processes are supervised: quarantined, the others go on."""
    stage.open()
    stage.parts = dict.fromkeys((0, 3), "partitions-beside-it")
    stage.parts |= {EMPTIED: "changelog-emptied", CUT: "changelog-cut"}
    stage.held = {EMPTIED, CUT}
    stage.quiet = 15.0  # both processes are stopped and started
    stage.run("one", "two")
    stage.load(partitions=[0, CUT, 3])
    before = stage.load(RATE / stage.partitions, [EMPTIED])
    time.sleep(4)
    before.stop()
    stage.wait(lambda: stage.decided([EMPTIED]), 20)
    _delete_changelog(stage, CUT)
    time.sleep(1.5)  # a few batches more
    _delete_changelog(stage, EMPTIED)
    stage.flush()
    stage.load(RATE / stage.partitions, [EMPTIED])
    # All of it before anything is restarted: the last one may be seen only after the first was looked at.
    found = [stage.quarantined(number) for number in (EMPTIED, CUT)]
    for number in (EMPTIED, CUT):
        stage.reported(number)
    if all(found):
        for number in (EMPTIED, CUT):
            _resume(stage, number)
        stage.stop_processors()
        stage.start_again()
        for number in (EMPTIED, CUT):
            stage.quarantined(number)
    time.sleep(3)


def _delete_changelog(stage: Stage, partition: int) -> None:
    admin = AdminClient(stage.properties)
    place = KafkaTopicPartition(stage.deployment.topic("changelog"), partition, OFFSET_END)
    for deleted in admin.delete_records([place]).values():
        deleted.result(20)


def _resume(stage: Stage, number: int) -> None:
    """``gforce resume`` must try again, and find the same."""

    def attempts() -> int:
        return sum(line.get("partition") == number for line in stage.logged("quarantined", level="error"))

    before = attempts()
    answer = stage.resume(number)
    said = (answer.stdout + answer.stderr)[-200:]
    stage.check(answer.returncode == 0, f"gforce resume exits {answer.returncode}: {said}", number)
    tried = stage.wait(lambda: attempts() > before, 20)
    stage.check(tried, "gforce resume did not try again", number)
    stage.see(f"gforce resume exits {answer.returncode}, {'tried again' if tried else 'not tried again'}", number)
