"""How a partition that the group has given to this member is read: one record for each, with a named state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from processor.ports.log import ReadFailure


class ReadState(Enum):
    """How an assigned partition is read."""

    ASSIGNED = auto()
    """not started: nothing is handed out"""
    STARTING = auto()
    """its position is set, and librdkafka has not taken the seek yet"""
    READING = auto()
    AT_END = auto()
    """everything up to ``end`` was handed out"""
    RESTING = auto()
    """a batch of it could not be read: it is tried again at ``retry_at``, from ``resume_from``"""


@dataclass
class AssignedInput:
    """One partition that the group has given to this member. ``KafkaInput`` has the offset to hand out next."""

    state: ReadState = ReadState.ASSIGNED
    placed: bool = False
    """librdkafka has been given it to read (classic protocol)"""
    end: int = -1
    """where the end was heard; while it rests, as last known"""
    failure: ReadFailure | None = None
    retry_at: float = 0.0
    resume_from: int = 0
