"""Reading what was published: the records of an output topic that come from one partition of the inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from processor.audit.sources.source import Role, Source
from processor.core.stream.partitioner import partition_of
from processor.ports.log import Record

MAX_PARTITIONS = 4_096
SAMPLED_RECORDS = 200


class PartitionCursor:
    """One partition of an output topic, with records put back that were read too early."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self._back: deque[Record] = deque()

    def next(self) -> Record | None:
        return self._back.popleft() if self._back else next(self._records, None)

    def take(self, count: int) -> list[Record]:
        """The next ``count`` records, or fewer at the end."""
        found = [self._back.popleft() for _ in range(min(count, len(self._back)))]
        found += islice(self._records, max(count - len(found), 0))
        return found

    def put_back(self, record: Record) -> None:
        self._back.appendleft(record)

    def __iter__(self) -> Iterator[Record]:
        while (record := self.next()) is not None:
            yield record


class OutputReader:
    """An output topic. Outputs are partitioned by key and may have another number of partitions than the inputs."""

    def __init__(self, source: Source, role: Role, number: int, partitions: int) -> None:
        self.topic = source.topic(role)
        self._source, self._role, self._number, self._partitions = source, role, number, partitions
        there = source.partitions(role)
        self.count = infer_partition_count(source, role, there, partitions)
        self.same_partitions = self.count == partitions
        """the partitions are those of the inputs, so that one of them holds exactly what is wanted"""
        self.cursors = {j: PartitionCursor(self._of_mine(j)) for j in ([number] if self.same_partitions else there)}

    def cursor(self, key: bytes) -> PartitionCursor:
        """The cursor of the partition that holds records of this key."""
        where = self._number if self.same_partitions else partition_of(key, self.count)
        return self.cursors.setdefault(where, PartitionCursor(iter(())))

    def start(self, offset: int) -> None:
        """Read again, from this offset of the one partition."""
        self.cursors = {self._number: PartitionCursor(self._of_mine(self._number, offset))}

    def _of_mine(self, partition: int, start: int = 0) -> Iterator[Record]:
        records = self._source.read(self._role, partition, start)
        if self.same_partitions:
            return iter(records)
        number, partitions = self._number, self._partitions
        return (r for r in records if (partition_of(r.key, partitions) if r.key is not None else 0) == number)


def infer_partition_count(source: Source, role: Role, there: list[int], partitions: int) -> int:
    """The partition count of a topic, inferred from where its first records are: some may not be recorded."""
    first = {j: {record.key for record in islice(source.read(role, j), SAMPLED_RECORDS) if record.key} for j in there}
    places = [(j, key) for j, keys in first.items() for key in keys]
    least = max(there, default=0) + 1
    counts = [partitions, *range(least, min(4 * least + 8, MAX_PARTITIONS))]
    astray: dict[int, int] = {
        count: sum(partition_of(key, count) != j for j, key in places) for count in counts if count >= least
    }
    return min(astray, key=lambda count: astray[count])
