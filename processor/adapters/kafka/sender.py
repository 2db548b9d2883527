"""A plain producer for those who feed the inputs: idempotent, acknowledged by all, partitioned as Java does."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from processor.adapters.kafka.errors import create_client, error_of, translate_error
from processor.adapters.kafka.settings import PRODUCER, PRODUCER_DEFAULTS, Properties, client_properties
from processor.ports.log import Headers, RetryableError

TIMEOUT_SECONDS = 30.0


class KafkaSender:
    """Sends records, each where murmur2 puts its key. What was not delivered is raised by the next call."""

    def __init__(self, properties: Properties) -> None:
        needed = {name: value for name, (value, _) in PRODUCER.items() if name != "request.required.acks"}
        settings = {**PRODUCER_DEFAULTS, "linger.ms": 20, **client_properties(properties), **needed}
        self._producer = create_client(Producer, settings)
        self._failed: KafkaError | None = None

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: Headers = (),
        partition: int = -1,
    ) -> None:
        """``timestamp`` 0 is now, ``partition`` −1 is where the key belongs."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            self._raise_failure()
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=timestamp,
                    headers=list(headers) or None,
                )
                self._producer.poll(0)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise RetryableError(
                        f"{topic} takes nothing: the queue did not drain in {TIMEOUT_SECONDS:.0f} s"
                    ) from None
                self._producer.poll(0.1)
            except KafkaException as problem:
                raise translate_error(error_of(problem), f"sending to {topic}") from problem

    def poll(self, timeout: float) -> None:
        """Deliver what is due; may be used to wait."""
        self._producer.poll(timeout)

    def flush(self) -> None:
        """Return when everything is acknowledged."""
        left = self._producer.flush(TIMEOUT_SECONDS)
        self._raise_failure()
        if left:
            raise RetryableError(f"{left} records were not acknowledged in {TIMEOUT_SECONDS:.0f} s")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise translate_error(failed, "delivering")
