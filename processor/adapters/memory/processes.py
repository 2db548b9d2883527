"""The registry of processes in memory, under a clock of the caller's: for tests."""

from __future__ import annotations

from collections.abc import Callable

from processor.ports.processes import EXPIRY_MS, Process, read


class MemoryProcesses:
    """See ``Processes`` for the contract."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """``clock`` in milliseconds."""
        self._clock = clock
        self.records: dict[str, tuple[bytes, int]] = {}
        """by instance: the record, and when it is gone"""

    def hold(self, process: Process, instead_of: str = "") -> bytes | None:
        found = self.find(process.instance)
        if found is not None:
            known = read(found)
            own = isinstance(known, Process) and known.token in (process.token, instead_of or process.token)
            if not own:
                return found
        self.records[process.instance] = (process.encode(), self._clock() + EXPIRY_MS)
        return None

    def release(self, process: Process) -> None:
        found = self.find(process.instance)
        known = read(found) if found is not None else None
        if isinstance(known, Process) and known.token == process.token:
            del self.records[process.instance]

    def find(self, instance: str) -> bytes | None:
        text, until = self.records.get(instance, (b"", 0))
        return text if self._clock() < until else None

    def close(self) -> None: ...
