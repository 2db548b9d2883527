from confluent_kafka import Message

from processor.adapters.log import At, Piece, Sources

def runs(messages: list[Message], positions: dict[At, int], sources: Sources) -> list[Piece | Message]: ...
