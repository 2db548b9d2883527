"""The names of the topics a processor reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from processor.core.stream.decode import FEEDBACK, REQUESTS


@dataclass(frozen=True)
class TopicNames:
    """Full topic names."""

    requests: str
    feedback: str
    decisions: str
    journal: str
    changelog: str
    dead_letters: str
    alerts: str

    @property
    def inputs(self) -> tuple[str, str]:
        return (self.requests, self.feedback)

    @property
    def copartitioned(self) -> tuple[str, ...]:
        """Those that must have the same number of partitions."""
        return (self.requests, self.feedback, self.journal, self.changelog)

    @property
    def sources(self) -> dict[str, str]:
        """Which of the core's inputs each of them is."""
        return {self.requests: REQUESTS, self.feedback: FEEDBACK}
