"""Copies of a partition's state on their way into the changelog, a slice with each batch."""

from __future__ import annotations

from dataclasses import dataclass

from processor.core.stream.journal import SNAPSHOT_UNKNOWN
from processor.ports.store import SnapshotPage


@dataclass
class SnapshotProgress:
    """One that is under way."""

    cursor: bytes = b""
    """where its next slice begins"""
    bytes: int = 0
    sequence: int = 0
    """the batch with its first slice, known once that is committed"""
    start: int | None = None
    """changelog offset of its first slice, known once that is committed"""


@dataclass
class SnapshotSchedule:
    """When to take one, and how far it is."""

    written: int = 0
    """bytes written to the changelog since the last whole one"""
    size: int = 0
    """how large that was"""
    whole: int = SNAPSHOT_UNKNOWN
    """the batch with which the last whole one began; 0 if there is none"""
    current: SnapshotProgress | None = None

    def cursor(self, least: int) -> bytes | None:
        """Where the next slice begins. One is due when more than ``least``, and more than the state, was written."""
        if self.current is None:
            if self.written <= max(least, self.size):
                return None
            self.current = SnapshotProgress()
        return self.current.cursor

    @property
    def begins(self) -> bool:
        """Whether the next slice is the first."""
        return self.current is not None and self.current.cursor == b""

    def whole_after(self, page: SnapshotPage | None, sequence: int) -> int:
        """What ``whole`` is after the batch of this sequence, which holds this slice."""
        if page is None or page.cursor != b"" or self.current is None:
            return self.whole
        return sequence if self.begins else self.current.sequence

    def advance(
        self, page: SnapshotPage | None, sequence: int, written: int, first: int | None
    ) -> SnapshotProgress | None:
        """A batch is committed, with this slice, so many bytes, and at this offset of the changelog if that is known.

        Returns the snapshot if it is whole now.
        """
        self.written += written
        snapshot = self.current
        if page is None or snapshot is None:
            return None
        self.whole = self.whole_after(page, sequence)
        if self.begins:
            snapshot.sequence, snapshot.start = sequence, first
        snapshot.bytes += len(page.writes)
        snapshot.cursor = page.cursor
        if page.cursor != b"":
            return None
        self.size, self.written, self.current = snapshot.bytes, 0, None
        return snapshot
