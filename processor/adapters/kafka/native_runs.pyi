from confluent_kafka import Message

from processor.ports.log import PartitionRecords, Sources, TopicPartition

def runs(
    messages: list[Message], positions: dict[TopicPartition, int], sources: Sources
) -> list[PartitionRecords | Message]: ...
