"""For what only the model can show: a broker in memory, its members and its producers, moved one step at a time."""

from __future__ import annotations

from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryInput, MemoryOutput, MemoryReader
from processor.ports.log import Committed, Membership, Record, TopicPartition
from tests.contract.worlds import Diary, flat, named

IN, LABELS, OUT, LOG = (
    TopicPartition("in", 0),
    TopicPartition("labels", 0),
    TopicPartition("out", 0),
    TopicPartition("log", 0),
)
GROUP = "group"
NOBODY = Membership(-1, "", GROUP)


def new_broker(manual_markers: bool = False) -> MemoryBroker:
    broker = MemoryBroker(clock=lambda: 7, manual_markers=manual_markers)
    for name, partitions in (("in", 4), ("labels", 4), ("out", 1), ("log", 1)):
        broker.create_topic(name, partitions)
    return broker


def member(broker: MemoryBroker, instance: str, polls: int = 0) -> tuple[MemoryInput, Diary]:
    diary = Diary()
    made = MemoryInput(broker, instance, GROUP, named(["in", "labels"]), diary)
    poll(made, times=polls)
    return made, diary


def poll(*members: MemoryInput, times: int = 1) -> list[Record]:
    return [record for _ in range(times) for each in members for record in flat(each.poll(100, 0.0))]


def producer(broker: MemoryBroker, name: str = "a") -> MemoryOutput:
    output = MemoryOutput(broker, name)
    output.open()
    return output


def values(broker: MemoryBroker, at: TopicPartition) -> list[bytes | None]:
    return [record.value for record in MemoryReader(broker).read(at, broker.partition(at).start)]


def send_batch(output: MemoryOutput, membership: Membership, offset: int = 1) -> None:
    output.begin()
    output.send(OUT, None, b"out")
    output.send(LOG, None, b"log")
    output.send_offsets({IN: Committed(offset, "said"), LABELS: Committed(0, "said")}, membership)
