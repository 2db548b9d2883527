from confluent_kafka import Message

from processor.adapters.log import At, Piece

def runs(messages: list[Message], positions: dict[At, int]) -> list[Piece | Message]: ...
