"""What a fetch brings, made what the core reads. The reference is ``runs.reference_runs``."""

from libc.stdint cimport int64_t

from processor.adapters.kafka.headers import carried
from processor.ports.log import TopicPartition, PartitionRecords
from processor.core.stream.decode import InputRecord


def runs(list messages, dict positions, sources):
    """See ``runs.reference_runs``."""
    cdef list found = [], records = None
    cdef object topic = None, partition = None, at = None, source = None
    cdef int64_t offset, wanted = 0
    cdef bint started = False
    for message in messages:
        if message.error() is not None:
            found.append(message)
            at = None
            continue
        if at is None or message.partition() != partition or message.topic() != topic:
            topic, partition, records = message.topic(), message.partition(), []
            at = TopicPartition(topic, partition)
            found.append(PartitionRecords(at, records))
            started = at in positions
            if started:
                wanted, source = positions[at], sources[topic]
        offset = message.offset()
        if started and offset >= wanted:
            wanted = positions[at] = offset + 1
            try:
                headers = message.headers()
            except (SystemError, UnicodeDecodeError):  # a name that is no text: see ``headers.headers_of``
                headers = None
            records.append(
                InputRecord(
                    source,
                    offset,
                    (<tuple>message.timestamp())[1],
                    message.key(),
                    message.value(),
                    carried(headers) if headers else (),
                )
            )
    return found
