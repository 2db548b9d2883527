"""Events as Avro in the Confluent wire format: a zero byte, four bytes of schema id, then the Avro data.

Needs ``pip install "gforce[avro]"``. The registry is asked once for every schema id. That it cannot be reached is
never the fault of a record: then the batch waits, and nothing becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any

import msgspec

from processor.core.errors import InvalidSettingsError
from processor.core.events import Reason, RejectedEventError, decode_decision
from processor.ports.log import RetryableError

_MAGIC, _HEAD = 0, 5
_UNKNOWN_SCHEMA = 40403
_AUTO_REGISTER = "auto.register.schemas"
# The worker tries again by itself, and must not be held up by a registry that never answers.
_DEFAULTS: Mapping[str, str] = {"timeout": "5", "max.retries": "0"}
_NUMBERS = {
    "timeout",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
    "cache.capacity",
    "cache.latest.ttl.sec",
}
_FIELDS = ("tenant", "decision_id", "group", "predictions", "label")
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True)
class AvroOptions:
    """The topics, by which a record's schema is known, and properties of confluent-kafka's ``SchemaRegistryClient``.

    One more property is for its serialiser: with ``auto.register.schemas`` false, the schema of decisions must be
    in the registry already.
    """

    requests: str
    feedback: str
    decisions: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


class AvroCodec:
    """Avro to the JSON of requests and feedback, the JSON of decisions to Avro."""

    def __init__(self, registry_url: str, options: AvroOptions) -> None:
        properties = {**_DEFAULTS, **options.properties, "url": registry_url}
        register = properties.pop(_AUTO_REGISTER, "true") != "false"
        self._open(properties, {options.requests: "request.v1", options.feedback: "feedback.v1"}, register)
        self._known: set[tuple[str, int]] = set()

    def _open(self, properties: Mapping[str, str], schemas: Mapping[str, str], register: bool) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
            from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
            from confluent_kafka.serialization import MessageField, SerializationContext
        except ImportError as missing:
            raise InvalidSettingsError(
                f'avro.registry is set, but {missing.name} is not installed: pip install "gforce[avro]"'
            ) from None
        try:
            self._client: Any = SchemaRegistryClient(_typed(properties))
        except (ValueError, TypeError, OSError) as error:
            raise InvalidSettingsError(f"avro.properties: {error}") from None
        subject = {"subject.name.strategy": topic_subject_name_strategy}
        self._readers: dict[str, Any] = {
            topic: AvroDeserializer(self._client, schema_text(name), conf=subject) for topic, name in schemas.items()
        }
        self._writer: Any = AvroSerializer(
            self._client, schema_text("decision.v1"), conf={**subject, _AUTO_REGISTER: register}
        )
        self._context: Any = partial(SerializationContext, field=MessageField.VALUE)

    def close(self) -> None:
        self._client.__exit__()

    def to_json(self, topic: str, value: bytes) -> bytes:
        if not value:
            raise RejectedEventError(Reason.EMPTY, "the record has no value")
        if len(value) <= _HEAD or value[0] != _MAGIC:
            raise RejectedEventError(
                Reason.SCHEMA, "not Avro in the Confluent wire format: a zero byte and a schema id first"
            )
        number = int.from_bytes(value[1:_HEAD], "big")
        self._fetch(topic, number)
        try:
            return _event_json(self._readers[topic](value, self._context(topic)))
        except UnicodeDecodeError:
            raise RejectedEventError(Reason.NOT_UTF8, "a string is not UTF-8") from None
        except RejectedEventError:
            raise
        except Exception as error:  # whatever fastavro says: no registry was asked, so it is the record
            # Its name only: the text may quote the event.
            detail = f"the data of schema {number} is not an event of this topic ({type(error).__name__})"
            raise RejectedEventError(Reason.SCHEMA, detail) from None

    def from_json(self, topic: str, value: bytes) -> bytes:
        event = msgspec.structs.asdict(decode_decision(value))
        event["context"] = bytes(event["context"]).decode() if event["context"] is not msgspec.UNSET else None
        try:
            written: bytes = self._writer(event, self._context(topic))
        except Exception as error:  # the decision is right: this is the registry
            raise RetryableError(_trouble(error)) from error
        return written

    def _fetch(self, topic: str, number: int) -> None:
        """Have the schema, and all it refers to, in the client's cache, so that reading asks nobody."""
        if (topic, number) in self._known:
            return
        try:
            self._fetch_references(self._whole(self._client.get_schema(number, f"{topic}-value")))
        except Exception as error:
            if getattr(error, "error_code", None) == _UNKNOWN_SCHEMA:
                raise RejectedEventError(Reason.SCHEMA, f"the schema registry knows no schema {number}") from None
            raise RetryableError(_trouble(error)) from error
        self._known.add((topic, number))

    def _fetch_references(self, schema: Any) -> None:
        for reference in schema.references or ():
            version = self._client.get_version(reference.subject, reference.version, True)
            self._fetch_references(self._whole(version.schema))

    def _whole(self, schema: Any) -> Any:
        """Whatever answers with 200 is remembered by the client, a login page in JSON too."""
        if schema.schema_str is None:
            self._client.clear_caches()
            raise ValueError("the answer holds no schema: is this the URL of a schema registry?")
        return schema


def schema_text(name: str) -> str:
    """The text of one of our Avro schemas.

    >>> import json
    >>> json.loads(schema_text("request.v1"))["name"]
    'Request'
    """
    return files("schemas").joinpath("avro", f"{name}.avsc").read_text("utf-8")


def _typed(properties: Mapping[str, str]) -> dict[str, str | float]:
    """The client wants numbers where it counts."""
    return {name: float(text) if name in _NUMBERS else text for name, text in properties.items()}


def _event_json(event: Any) -> bytes:
    """The event in the order of our fields, whatever the writer's, with its context as JSON unless that is null."""
    fields = {name: event[name] for name in _FIELDS if name in event}
    context = event.get("context")
    if context is not None:
        fields["context"] = _spliced(context)
    return msgspec.json.encode(fields)


def _spliced(context: str) -> msgspec.Raw:
    """Checked: text that closes the event and goes on must not become a field of it."""
    try:
        return _SYNTAX.decode(context)
    except msgspec.DecodeError as broken:
        raise RejectedEventError(Reason.BAD_JSON, f"context: {broken}") from None
    except RecursionError:
        raise RejectedEventError(Reason.LIMIT, "context: nested too deeply") from None


def _trouble(error: Exception) -> str:
    return f"schema registry: {type(error).__name__}: {error}"
