"""What a Kafka error asks of the caller.

librdkafka says three things about an error of a transactional call: try again, abort, or this client is finished.
We say five (see ``log``), because who has been fenced, and whether a person must act, is in the code alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from processor.ports.log import (
    FencedError,
    LogError,
    OperatorActionRequiredError,
    RecordRefusedError,
    RetryableError,
    TransactionAbortedError,
)

# Somebody else has our transactional id, our group instance id or our partitions. From ``send_offsets`` the group
# codes mean that the batch was read under an assignment that is over: to process it again would be wrong too, since
# its partitions may be another's, so this is FencedError and not TransactionAbortedError.
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)

# What only a person can put right, and how.
REMEDY = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant this user READ and WRITE on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant this user READ on the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this user IDEMPOTENT_WRITE on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this user WRITE and DESCRIBE on the transactional id",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check sasl.username, sasl.password and sasl.mechanism",
    KafkaError._AUTHENTICATION: "check the sasl.* and ssl.* properties",
    KafkaError._SSL: "check the ssl.* properties and the broker's certificate",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct its name or partition count in the settings",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct its name in the settings",
    KafkaError._UNKNOWN_PARTITION: "give the topic as many partitions as the inputs have",
    KafkaError.TOPIC_EXCEPTION: "correct the topic's name in the settings",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic and message.max.bytes of the client",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic or lower batch.size of the client",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "raise offset.metadata.max.bytes of the broker",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower the transaction timeout",
    KafkaError.UNSUPPORTED_VERSION: "use an Apache Kafka broker of 2.5 or later",
    KafkaError._UNSUPPORTED_FEATURE: "use an Apache Kafka broker of 2.5 or later",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "use an Apache Kafka broker of 2.5 or later",
    KafkaError.UNSUPPORTED_ASSIGNOR: "allow the range assignor in group.consumer.assignors of the broker",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "stop the members of this group that use another assignor",
    KafkaError.POLICY_VIOLATION: "ask who set the broker's policy",
    KafkaError.INVALID_GROUP_ID: "choose another group name",
    KafkaError.GROUP_MAX_SIZE_REACHED: "raise group.max.size of the broker",
}

# What is wrong is in a record and not with the process: another batch may go through.
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

# The position we asked for is not in the log.
NOT_KEPT = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})

# What the client says of a batch that it cannot take: too large once it is decompressed, or damaged.
UNREADABLE = frozenset(
    {
        KafkaError._BAD_COMPRESSION,
        KafkaError._BAD_MSG,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.MSG_SIZE_TOO_LARGE,
    }
)

Client = TypeVar("Client")


def create_client(kind: Callable[[dict[str, Any]], Client], settings: dict[str, Any]) -> Client:
    """A client; librdkafka checks names and values of the properties when it is made."""
    try:
        return kind(settings)
    except KafkaException as problem:
        reason = error_of(problem).str()
        raise OperatorActionRequiredError(
            f"Kafka properties: {reason}. Remedy: correct it in the Kafka properties"
        ) from problem


def error_of(problem: KafkaException | KafkaError) -> KafkaError:
    """The error inside the exception."""
    if isinstance(problem, KafkaError):
        return problem
    error = problem.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


def has_code(error: KafkaError, code: int) -> bool:
    """Whether this is the reason: a fatal error of a consumer has code _FATAL and tells its reason in words only.

    >>> has_code(KafkaError(KafkaError._FATAL, "Fatal error: " + KafkaError(13).str()), 13)
    True
    """
    return error.code() == code or KafkaError(code).str() in error.str()


def translate_error(problem: KafkaException | KafkaError, doing: str) -> LogError:
    """What to raise for an error that is not worth another try here.

    A person's errors come first because librdkafka marks most of them abortable, and processing the batch again
    would fail again; then fencing, because the group's fencing codes are marked abortable too.

    >>> translate_error(KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True), "sending offsets")
    FencedError('sending offsets: ... (ILLEGAL_GENERATION)')
    """
    error = error_of(problem)
    text = f"{doing}: {error.str()} ({error.name()})"
    if error.code() in REMEDY:
        kind = RecordRefusedError if error.code() in TOO_LARGE else OperatorActionRequiredError
        return kind(f"{text}. Remedy: {REMEDY[error.code()]}")
    if error.code() in FENCED or error.fatal():
        return FencedError(text)
    if error.txn_requires_abort():
        return TransactionAbortedError(text)
    return RetryableError(text)
