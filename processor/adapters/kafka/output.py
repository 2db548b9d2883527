"""The transactional producer, on confluent-kafka."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from processor.adapters.kafka.errors import REMEDY, create_client, error_of, translate_error
from processor.adapters.kafka.membership import written
from processor.adapters.kafka.settings import Properties, producer_properties
from processor.ports.log import (
    Committed,
    CommitUnknownError,
    FencedError,
    Headers,
    LogError,
    Membership,
    OperatorActionRequiredError,
    RetryableError,
    TopicPartition,
    TransactionAbortedError,
)

CALL_OVERDUE_SECONDS = 2.0
"""seconds that a call may take beyond its timeout before it is given up as lost"""
POLL_SECONDS = 0.1


class KafkaOutput:
    """See ``log.Output``.

    After a fatal error, a CommitUnknownError, an OperatorActionRequiredError of ``commit`` or a failed ``abort``,
    this producer cannot go on. It raises FencedError from all calls but ``abort``, which does nothing then. ``open``
    makes a new one under the same transactional id and settles what the old one left: a commit under way is
    completed, all else is aborted.
    Fenced by the group (from ``send_offsets``) is milder: after ``abort`` the same producer may go on.
    """

    def __init__(
        self,
        properties: Properties,
        group: str,
        instance: str,
        *,
        transaction_timeout_ms: int = 10_000,
        request_timeout: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = producer_properties(properties, group, instance, transaction_timeout_ms)
        self._group = group
        self._instance = instance
        self._timeout = request_timeout
        self._clock = clock
        self._producer: Producer | None = None
        self._usable = False
        self._begun = False
        self._sent: dict[TopicPartition, int] = {}
        self._failure: KafkaError | None = None

    def open(self) -> None:
        self._drop()
        producer = create_client(Producer, self._settings)
        self._insist("opening the producer", producer.init_transactions)
        self._producer, self._usable = producer, True

    def begin(self) -> None:
        producer = self._ready()
        self._sent, self._failure = {}, None
        try:
            producer.begin_transaction()
        except KafkaException as problem:
            raise self._meaning(error_of(problem), "beginning a transaction") from problem
        self._begun = True

    def send(
        self,
        at: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> None:
        producer = self._ready()
        deadline: float | None = None
        while True:
            try:
                producer.produce(
                    at.topic,
                    value,
                    key,
                    at.partition,
                    # A call for each decision would cost as much as making it. Where nobody asks for the offset, a
                    # record that cannot be delivered is learnt of from the commit, which then fails for that reason.
                    self._delivered if at.partition >= 0 else None,
                    timestamp=timestamp or 0,
                    headers=list(headers) if headers else None,
                )
                return
            except BufferError:
                deadline = deadline or self._clock() + self._timeout
                if self._clock() > deadline:
                    raise TransactionAbortedError(
                        f"sending to {at.topic}: the queue did not drain in {self._timeout} s"
                    ) from None
                self._deliver_some(producer, at)
            except KafkaException as problem:
                raise self._unsendable(error_of(problem), at) from problem

    def _deliver_some(self, producer: Producer, at: TopicPartition) -> None:
        """The queue is full."""
        try:
            producer.poll(0.1)
        except KafkaException as problem:
            raise self._unsendable(error_of(problem), at) from problem

    def send_all(self, topic: str, records: Iterable[tuple[bytes, bytes, Headers]]) -> None:
        produce, at = self._ready().produce, TopicPartition(topic, -1)
        for key, value, headers in records:
            if headers:
                self.send(at, key, value, headers)
                continue
            try:
                produce(topic, value, key)
            except (BufferError, KafkaException):
                self.send(at, key, value)  # which knows what to do

    def _unsendable(self, error: KafkaError, at: TopicPartition) -> LogError:
        if error.code() == KafkaError._STATE and self._begun:
            # The transaction has failed since; why is in the delivery reports, and abort puts it right.
            return self._undelivered() or TransactionAbortedError(f"sending to {at.topic}: the transaction has failed")
        return self._meaning(error, f"sending to {at.topic}[{at.partition}]")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        self._sent[TopicPartition(message.topic() or "", message.partition() or 0)] = message.offset() or 0

    def _undelivered(self) -> LogError | None:
        """What to raise if a record could not be delivered for a reason that the next attempt would meet again."""
        if self._failure is not None and self._failure.code() in REMEDY:
            return translate_error(self._failure, "delivering")
        return None

    def send_offsets(self, positions: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        producer = self._ready()
        member = written(membership, self._group, self._instance)
        places = [KafkaTopicPartition(at.topic, at.partition, to.offset, to.metadata) for at, to in positions.items()]
        try:
            self._insist(
                "sending offsets",
                lambda timeout: self._returning(
                    lambda: producer.send_offsets_to_transaction(places, member, timeout), timeout
                ),
            )
        except RetryableError as problem:
            # Whether the group has got them is unknown, and the transaction must not commit without them.
            raise TransactionAbortedError(str(problem)) from problem

    def _returning(self, call: Callable[[], None], timeout: float) -> None:
        """Call, in a thread that is left behind if the call does not return.

        librdkafka forgets the timeout of sending offsets while the group's coordinator is away and may then wait for
        ever, seen when a broker was killed (its issue 5456). The transaction it leaves open is aborted by ``open``.
        """
        answer: SimpleQueue[Exception | None] = SimpleQueue()

        def ask() -> None:
            try:
                call()
            except Exception as problem:
                answer.put(problem)
            else:
                answer.put(None)

        threading.Thread(target=ask, name="offsets", daemon=True).start()
        # Many short waits and not one long: a process that was stopped meanwhile has waited for one of them only.
        for _ in range(max(int((timeout + CALL_OVERDUE_SECONDS) / POLL_SECONDS), 1)):
            with contextlib.suppress(Empty):
                problem = answer.get(timeout=POLL_SECONDS)
                if problem is not None:
                    raise problem
                return
        self._usable = self._begun = False
        raise CommitUnknownError(f"sending offsets: no answer in {timeout + CALL_OVERDUE_SECONDS:.0f} s")

    def commit(self) -> dict[TopicPartition, int]:
        producer = self._ready()
        try:
            self._insist("committing", producer.commit_transaction)
        except RetryableError as problem:
            self._usable = self._begun = False
            raise CommitUnknownError(str(problem)) from problem
        except (TransactionAbortedError, OperatorActionRequiredError) as problem:
            raise self._undelivered() or problem from problem
        self._begun = False
        return self._sent

    def abort(self) -> None:
        if self._producer is None or not self._begun:
            return
        # EndTxn may overtake the first produce request of the transaction, and the broker then refuses to end what
        # has not begun, which is fatal (librdkafka issue 4849); a short flush lets that request through.
        with contextlib.suppress(KafkaException):
            self._producer.flush(0.2)
        try:
            self._insist("aborting", self._producer.abort_transaction)
        except LogError:
            self._usable = False
            raise
        finally:
            self._begun = False
        if self._undelivered() is not None:
            # librdkafka has counted the refused records and would leave a gap in the next transaction's sequence.
            self._usable = False

    def close(self) -> None:
        try:
            self.abort()
        except LogError:
            pass  # the broker aborts it when the transaction times out, or the next `open` does
        finally:
            self._drop()

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        self._usable = self._begun = False
        if producer is not None:
            # Not close(): it would abort once more, warn that it cannot, and wait. What has no name is destroyed.
            producer.purge()

    def _ready(self) -> Producer:
        if self._producer is None or not self._usable:
            raise FencedError("this producer is finished: open() it again")
        return self._producer

    def _meaning(self, error: KafkaError, doing: str) -> LogError:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._usable = self._begun = False
            return translate_error(KafkaError(error.code(), error.str(), fatal=True), doing)
        return translate_error(error, doing)

    def _insist(self, doing: str, call: Callable[[float], None]) -> None:
        """Call until it succeeds or fails for good; RetryableError when time is up.

        librdkafka's transactional calls that time out may be called again and then go on where they were. A call that
        returns long after its time was slept through: the process was stopped. Whether somebody took its place then
        is for the broker to say, so it is asked once more.
        """
        deadline = self._clock() + self._timeout
        slept = False
        while True:
            left = deadline - self._clock()
            try:
                return call(max(left, 0.001))
            except KafkaException as problem:
                error = error_of(problem)
                if error.retriable() and not slept and self._clock() > deadline + CALL_OVERDUE_SECONDS:
                    slept, deadline = True, self._clock() + self._timeout
                elif not error.retriable() or left <= 0:
                    raise self._meaning(error, doing) from problem
                time.sleep(min(0.05, max(left, 0)))
