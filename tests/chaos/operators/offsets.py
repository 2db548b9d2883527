"""The group's offsets and the inputs themselves: lost, moved by hand, created anew."""

from __future__ import annotations

import time

from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from processor.adapters.kafka.admin import Topic, create_topics

from .registry import scenario
from .stage import Stage

MOVED = 40
FORWARD, BACKWARD = 1, 2
"""partitions"""


@scenario
def offsets_lost_their_tail(stage: Stage) -> None:
    """The group has older offsets with their metadata, Redis is empty: the journal says where to go on."""
    stage.open()
    stage.quiet = 30.0  # nothing runs while the offsets are put back
    stage.run()
    stage.load()
    time.sleep(4)
    older = stage.offsets.committed()
    time.sleep(4)
    stage.stop_processors()
    newer = stage.offsets.committed()
    stage.offsets.commit(older)
    stage.flush()
    stage.start_again()
    stage.wait(lambda: len(stage.ready()) == stage.partitions, 30)
    time.sleep(4)
    stage.loads[-1].stop()
    stage.wait(stage.decided, 20)
    back = sum(b.offset - a.offset for a, b in zip(older, newer, strict=True))
    warned = len(stage.logged("journal", level="warning"))
    stage.see(f"offsets {back} records back; {warned} warnings; {stage.states_shown()}")
    stage.audit()


@scenario
def offsets_moved(stage: Stage) -> None:
    """Offsets set forward and back by hand, metadata kept: refused, nothing skipped; put back, it goes on."""
    stage.open()
    stage.parts = dict.fromkeys((0, 3), "offsets-untouched")
    stage.parts |= {FORWARD: "offsets-moved-forward", BACKWARD: "offsets-moved-backward"}
    stage.unhealthy = {FORWARD, BACKWARD}
    stage.quiet = 15.0  # it is stopped and started
    stage.run()
    load = stage.load()
    time.sleep(3)
    load.stop()
    stage.wait(stage.decided, 20)
    stage.stop_processors()
    tenants = [tenant for some in stage.tenants.values() for tenant in some]
    stage.sender.ask(tenants, 2 * MOVED * stage.partitions)
    stage.sender.flush()
    before = stage.offsets.committed()
    moved = [_moved(at, FORWARD, MOVED) or _moved(at, BACKWARD, -MOVED) or at for at in before]
    stage.offsets.commit(moved)
    stage.start_again()
    stage.load()
    requests = {at.partition: at.offset for at in before if at.topic == stage.sender.topics[0]}
    for number, by in ((FORWARD, MOVED), (BACKWARD, -MOVED)):
        stage.quarantined(number, str(requests[number]), str(requests[number] + by), seconds=20)
        stage.reported(number)
    stage.offsets.commit_meanwhile([at for at in before if at.partition in (FORWARD, BACKWARD)])
    for number in (FORWARD, BACKWARD):
        answer = stage.resume(number)
        said = (answer.stdout + answer.stderr)[-200:]
        stage.check(answer.returncode == 0, f"gforce resume exits {answer.returncode}: {said}", number)
    stage.wait(lambda: len(stage.ready()) == stage.partitions, 20)
    for number in (FORWARD, BACKWARD):
        stage.check(number in stage.ready(), f"it does not go on after gforce resume: {stage.states_shown()}", number)
    time.sleep(3)
    stage.loads[-1].stop()
    stage.wait(stage.decided, 20)
    stage.audit()


def _moved(at: KafkaTopicPartition, partition: int, by: int) -> KafkaTopicPartition | None:
    """The offset of requests on this partition, moved; None for any other."""
    if at.partition != partition or not at.topic.endswith("requests"):
        return None
    return KafkaTopicPartition(at.topic, at.partition, at.offset + by, at.metadata)


@scenario
def inputs_created_anew(stage: Stage) -> None:
    """Both inputs are deleted and created again while nothing runs: refused with the remedy, which works."""
    stage.open()
    stage.unhealthy = set(range(stage.partitions))
    stage.run()
    load = stage.load(rate=200)
    time.sleep(3)
    load.stop()
    stage.wait(stage.decided, 20)
    before = set(stage.sender.books.requests)
    stage.stop_processors()
    _create_anew(stage)
    stage.sender.connect()
    tenants = [tenant for some in stage.tenants.values() for tenant in some]
    keys = stage.sender.ask(tenants, 2 * len(before))
    stage.sender.label(keys)  # both inputs are longer than before, so that every committed offset exists
    stage.sender.flush()
    stage.start_again()
    for number in range(stage.partitions):
        stage.quarantined(number, "gforce reset", seconds=15, others=False)
    decided = sum(key in stage.reader.decided for key in keys)
    stage.check(decided == 0, f"{decided} of {len(keys)} were decided on, the first ones skipped")
    stage.reported(0)
    stage.stop_processors()
    answer = stage.gforce("reset", "--from", "earliest", "--yes", "-c", str(stage.config))
    for _ in range(20):  # until the session of the stopped processor has ended
        if answer.returncode == 0:
            break
        time.sleep(1)
        answer = stage.gforce("reset", "--from", "earliest", "--yes", "-c", str(stage.config))
    stage.check(answer.returncode == 0, f"gforce reset exits {answer.returncode}: {answer.stderr[-300:]}")
    stage.sender.books.forgotten = before
    stage.start_again()
    stage.wait(lambda: len(stage.ready()) == stage.partitions, 30)


def _create_anew(stage: Stage) -> None:
    admin = AdminClient(stage.properties)
    names = list(stage.sender.topics)
    for answer in admin.delete_topics(names, operation_timeout=20).values():
        answer.result(30)
    for _ in range(100):
        if not set(names) & set(admin.list_topics(timeout=10).topics):
            break
        time.sleep(0.1)
    time.sleep(1)
    made = create_topics(
        {"bootstrap.servers": stage.servers.broker.bootstrap}, [Topic(name, stage.partitions) for name in names]
    )
    if sorted(made) != sorted(names):
        raise RuntimeError(f"only {made} of {names} were created again")
