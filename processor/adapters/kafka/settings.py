"""The librdkafka properties of our clients: the user's, and what the protocol needs on top."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from processor.ports.log import OperatorActionRequiredError

Properties = Mapping[str, str | int | float | bool]
GroupProtocol = Literal["classic", "consumer"]

log = logging.getLogger("gforce.kafka")


class LastWords(logging.Handler):
    """What librdkafka complained of last: commands set up no log, and are told by its errors only that time is up."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """
        >>> LastWords().emit(logging.makeLogRecord({"msg": "FAIL [rdkafka#consumer-2] [thrd:a]: a:9: refused"}))
        >>> LastWords.text
        'a:9: refused'
        """
        LastWords.text = record.getMessage().rpartition("]: ")[2]


log.addHandler(LastWords(logging.WARNING))

# Ours to set, with the reason that is shown to who tries; a value equal to ours is let through.
CONSUMER: dict[str, tuple[str, str]] = {
    "enable.auto.commit": ("false", "positions are committed in the transaction that holds their results"),
    "enable.auto.offset.store": ("false", "positions are committed in the transaction that holds their results"),
    "auto.offset.reset": ("error", "to skip or repeat records when a position is lost would break exactly-once"),
    "isolation.level": ("read_committed", "records of aborted transactions must not be decided"),
}
PRODUCER: dict[str, tuple[str, str]] = {
    "enable.idempotence": ("true", "a transaction needs it"),
    "acks": ("all", "a committed decision must survive the loss of a broker"),
    "request.required.acks": ("all", "a committed decision must survive the loss of a broker"),
    "partitioner": ("murmur2_random", "Java's partitioner and ours must agree on a tenant's partition"),
}
CLASSIC = {
    "group.protocol": ("classic", 'choose the protocol by the setting "protocol"'),
    "partition.assignment.strategy": ("range", "one member must own the same partition of both inputs"),
}
CONSUMER_PROTOCOL = {
    "group.protocol": ("consumer", 'choose the protocol by the setting "protocol"'),
    "group.remote.assignor": ("range", "one member must own the same partition of both inputs"),
}
# The broker decides these under the consumer protocol, and librdkafka refuses to start with them.
BROKERS_OWN = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
NAMED_BY_US = {
    "group.id": 'set "group" instead',
    "group.instance.id": 'set "instance" instead',
    "transactional.id": 'set "instance" instead: it is made of the group and the instance',
    "transaction.timeout.ms": 'set "transaction_timeout_ms" instead',
}
CONSUMER_DEFAULTS: dict[str, Any] = {
    "fetch.queue.backoff.ms": 1,  # at the default of 1000 a fast consumer idles
    "fetch.wait.max.ms": 100,
    "fetch.message.max.bytes": 4 << 20,
    # Also how much librdkafka makes of a batch compressed with zstd, which it tries in steps of three times as much: a
    # third of this can always be read.
    "receive.message.max.bytes": 256 << 20,
    "queued.max.messages.kbytes": 64 << 10,
    "queued.min.messages": 20_000,
}
PRODUCER_DEFAULTS: dict[str, Any] = {
    "linger.ms": 5,  # commit flushes at once, so this never delays one; it makes fuller requests
    "compression.type": "lz4",
    "message.max.bytes": 4 << 20,  # of one request before compression; the broker's own limit is the topic's
    "queue.buffering.max.kbytes": 256 << 10,
}
# librdkafka gives up an unreachable broker slowly by default; a restart of the broker should cost us little more.
CLIENT_DEFAULTS: dict[str, Any] = {
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": "true",
    "log.connection.close": "false",
    "topic.metadata.refresh.interval.ms": 60_000,
}


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fixed(properties: Properties, required: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Refuse a user's value that differs from the one the protocol needs."""
    for name, (value, why) in required.items():
        if name in properties and not _same(name, _as_text(properties[name]), value):
            raise OperatorActionRequiredError(
                f'Kafka property "{name}" is "{properties[name]}" but must be "{value}": {why}. '
                "Remedy: remove it from the Kafka properties"
            )
    return {name: value for name, (value, _) in required.items()}


def _same(name: str, given: str, needed: str) -> bool:
    return given == needed or (name.endswith("acks") and given == "-1")


def _refuse(properties: Properties, names: Mapping[str, str]) -> None:
    for name, remedy in names.items():
        if name in properties:
            raise OperatorActionRequiredError(f'Kafka property "{name}" is ours to set. Remedy: remove it; {remedy}')


def _common(properties: Properties) -> dict[str, Any]:
    if not properties.get("bootstrap.servers"):
        raise OperatorActionRequiredError(
            'Kafka property "bootstrap.servers" is missing. Remedy: set it to the brokers, host:port,...'
        )
    return {**CLIENT_DEFAULTS, "logger": log, **properties}


def client_properties(properties: Properties) -> dict[str, Any]:
    """For administration."""
    return _common(properties)


def reader_properties(properties: Properties) -> dict[str, Any]:
    """Outside any group: librdkafka wants a group name all the same, and never uses it."""
    return {
        **CONSUMER_DEFAULTS,
        "fetch.wait.max.ms": 10,  # the end of a partition is known only from an empty fetch
        **_common(properties),
        **_fixed(properties, CONSUMER),
        "group.id": "gforce-reader",
        "enable.partition.eof": "true",
    }


def consumer_properties(
    properties: Properties, group: str, instance: str, protocol: GroupProtocol = "classic"
) -> dict[str, Any]:
    """For a member of the group."""
    _refuse(properties, NAMED_BY_US)
    if protocol == "consumer":
        _refuse(properties, dict.fromkeys(BROKERS_OWN, 'under protocol "consumer" the broker decides it'))
    return {
        **CONSUMER_DEFAULTS,
        "client.id": instance,
        **_common(properties),
        **_fixed(properties, CONSUMER),
        **_fixed(properties, CONSUMER_PROTOCOL if protocol == "consumer" else CLASSIC),
        "group.id": group,
        "group.instance.id": instance,
        "enable.partition.eof": "true",  # for `ended`
    }


def producer_properties(
    properties: Properties, group: str, instance: str, transaction_timeout_ms: int
) -> dict[str, Any]:
    """For the transactional producer of this instance."""
    _refuse(properties, NAMED_BY_US)
    return {
        **PRODUCER_DEFAULTS,
        "client.id": instance,
        **_common(properties),
        **{name: value for name, value in _fixed(properties, PRODUCER).items() if name != "request.required.acks"},
        "transactional.id": f"{group}-{instance}",
        "transaction.timeout.ms": transaction_timeout_ms,
    }
