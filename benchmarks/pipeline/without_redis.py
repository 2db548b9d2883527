"""The processor with a store of plain dictionaries in Redis' place: what is left is what Redis does not cost.

``python -m benchmarks.pipeline.without_redis gforce.toml``. On the way out it writes the seconds spent in the store's
calls to ``store.json`` in the current folder, so that the stand-in's own cost can be told from the rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import unpack_from
from typing import ParamSpec, TypeVar

import msgspec

from processor.config import load
from processor.core.stream.writes import ID_BYTES
from processor.ports.store import Applied, Identity, LookupResult, SnapshotPage
from processor.run import assembly
from processor.run.process import Service
from processor.telemetry.logs import set_up

P = ParamSpec("P")
T = TypeVar("T")


class Spent:
    """Seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, call: Callable[P, T]) -> Callable[P, T]:
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return wrapped


class PlainStore:
    """Entries in a dictionary for each partition. Nothing expires during a benchmark, so slabs are not kept, and
    nothing is recovered from it, so a snapshot is empty."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[bytes, bytes]] = {}
        self._fields: dict[int, dict[bytes, bytes]] = {}
        self._identity: dict[int, Identity] = {}
        self.spent = Spent()
        self.look_up = self.spent.timed("look_up", self._look_up)
        self.apply = self.fill = self.spent.timed("apply", self._apply)

    def claim(self, partition: int, token: bytes) -> None: ...

    def _look_up(
        self, partition: int, token: bytes, ids: Sequence[bytes], due: int, most: int, sweep: int | None = None
    ) -> LookupResult:
        entries = self._entries.setdefault(partition, {})
        return LookupResult(self._identity.get(partition), list(map(entries.get, ids)), {})

    def _apply(self, partition: int, token: bytes, after: Identity, before: int, writes: bytes) -> Applied:
        entries = self._entries.setdefault(partition, {})
        fields = self._fields.setdefault(partition, {})
        at, end = 0, len(writes)
        while at < end:
            kind = writes[at]
            if kind == 0x45:  # E id16 u16 value
                start = at + 19
                size = (writes[at + 17] << 8) | writes[at + 18]
                entries[writes[at + 1 : at + 1 + ID_BYTES]] = writes[start : start + size]
                at = start + size
            elif kind == 0x65:  # e id16
                entries.pop(writes[at + 1 : at + 1 + ID_BYTES], None)
                at += 1 + ID_BYTES
            elif kind == 0x53:  # S u16 field u32 value
                start = at + 3 + (writes[at + 1] << 8 | writes[at + 2])
                (size,) = unpack_from(">I", writes, start)
                fields[writes[at + 3 : start]] = writes[start + 4 : start + 4 + size]
                at = start + 4 + size
            elif kind == 0x73:  # s u16 field
                start = at + 3 + (writes[at + 1] << 8 | writes[at + 2])
                fields.pop(writes[at + 3 : start], None)
                at = start
            elif kind == 0x44:  # D u32 slot u64 seq u32 ids
                at += 17 + unpack_from(">IQI", writes, at + 1)[2]
            elif kind == 0x64:  # d u32 slot
                at += 5
            else:
                raise ValueError(f"unknown operation {kind} at byte {at}: benchmarks/pipeline/without_redis.py is old")
        self._identity[partition] = after
        return Applied.DONE

    def fields(self, partition: int, token: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._fields.get(partition, {}).items())

    def page(self, partition: int, token: bytes, cursor: bytes, most: int) -> tuple[Identity | None, SnapshotPage]:
        return self._identity.get(partition), SnapshotPage(b"", b"")

    def wipe(self, partition: int, token: bytes) -> None:
        for held in (self._entries, self._fields, self._identity):
            held.pop(partition, None)

    def check(self) -> None: ...

    def close(self) -> None: ...


def main() -> None:
    config = load(Path(sys.argv[1]), {})
    set_up(config.log.format, config.log.level)
    store = PlainStore()
    assembly.store_of = lambda _: store  # type: ignore[assignment,return-value]
    Service(config, make_registration=None, make_store_watch=None).run()
    Path("store.json").write_bytes(msgspec.json.encode(store.spent.seconds))


if __name__ == "__main__":
    main()
