"""Values with a meaning of their own in the configuration: secrets, durations, librdkafka properties."""

from __future__ import annotations

import re
from collections.abc import Mapping

from processor.core.events import canonical_label

MASK = "********"

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,16})\s*(ms|s|m|h|d)")
_SECRET_NAME = re.compile(r"password|passphrase|secret|token|jaas|key\.pem|oauthbearer\.config|user\.info")

OWNED: Mapping[str, str] = {
    "bootstrap.servers": "set kafka.bootstrap_servers",
    "group.id": "set kafka.group",
    "group.instance.id": "set kafka.instance",
    "transactional.id": "set kafka.instance",
    "group.protocol": "set kafka.protocol",
    "transaction.timeout.ms": "set kafka.transaction_timeout_ms",
    "session.timeout.ms": "set kafka.session_timeout_ms",
    "isolation.level": "remove it: exactly-once needs read_committed",
    "enable.auto.commit": "remove it: offsets are committed in the transaction",
    "enable.auto.offset.store": "remove it: offsets are committed in the transaction",
    "auto.offset.reset": "remove it: a lost offset must stop the partition",
    "enable.idempotence": "remove it: exactly-once needs it on",
    "partition.assignment.strategy": "remove it: only range keeps the two inputs together",
    "group.remote.assignor": "remove it: only range keeps the two inputs together",
    "partitioner": "remove it: records are keyed by murmur2",
}
"""Properties that are ours to set, because another value would break the contract, and what to do instead."""


class Secret:
    """A text that never prints.

    >>> Secret("hunter2"), f"{Secret('hunter2')}", Secret("hunter2").reveal()
    (********, '********', 'hunter2')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def read(cls, value: object) -> Secret:
        if not isinstance(value, str):
            raise ValueError(f"expected a string, got {kind(value)}")
        return cls(value)

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class RedisUrl(Secret):
    """A Redis URL that prints without its password.

    >>> RedisUrl("redis://me:hunter2@cache:6379/0")
    redis://me:********@cache:6379/0
    >>> RedisUrl("redis+sentinel://me:hunter2@one,two/mymaster/0?sentinel_password=hunter3")
    redis+sentinel://me:********@one,two/mymaster/0?sentinel_password=********
    """

    __slots__ = ()

    SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")

    @classmethod
    def read(cls, value: object) -> RedisUrl:
        if not isinstance(value, str):
            raise ValueError(f"expected a string, got {kind(value)}")
        if not value.startswith(tuple(f"{scheme}://" for scheme in cls.SCHEMES)):
            raise ValueError(f"expected a URL that starts with {', '.join(f'{scheme}://' for scheme in cls.SCHEMES)}")
        return cls(value)

    def __repr__(self) -> str:
        # Not by a URL parser: a password with an unescaped "/", "?" or "#" is none to it, and would be printed.
        scheme, between, rest = self.reveal().partition("://")
        user, at, host = rest.rpartition("@")
        if re.search(r"(?i)[?&][^=&]*password[^=&]*=", user):
            return f"{scheme}{between}{MASK}"  # the "@" is part of a password behind the host
        name, colon, _ = user.partition(":")
        hidden = f"{name}:{MASK}" if colon else MASK
        # redis-py also takes the password as a parameter.
        host = re.sub(r"(?i)([?&][^=&]*password[^=&]*=)[^&]*", rf"\g<1>{MASK}", host)
        return f"{scheme}{between}{hidden}{at}{host}" if at else f"{scheme}{between}{host}"


class Duration(int):
    """Milliseconds, written as a whole number of them or with a unit.

    >>> Duration.read("90d") == 90 * 24 * 3600 * 1000, Duration.read("250ms"), Duration(5_400_000)
    (True, 250ms, 90m)
    """

    @classmethod
    def read(cls, value: object) -> Duration:
        if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
            return cls._positive(int(match[1]) * _UNITS[match[2]])
        if isinstance(value, int) and not isinstance(value, bool):
            return cls._positive(value)
        got = "a string that is none" if isinstance(value, str) else kind(value)
        raise ValueError(
            f'expected a duration like "90d", "12h", "5m", "30s", "250ms", or milliseconds as an integer, got {got}'
        )

    @classmethod
    def _positive(cls, milliseconds: int) -> Duration:
        if not 0 < milliseconds < 2**53:
            raise ValueError(f"expected a duration above zero, got {milliseconds} ms")
        return cls(milliseconds)

    def __repr__(self) -> str:
        unit = next(unit for unit in reversed(_UNITS) if self % _UNITS[unit] == 0)
        return f"{self // _UNITS[unit]}{unit}"

    __str__ = __repr__


class Properties:
    """librdkafka properties, passed through as text; those with a secret's name never print.

    >>> Properties({"client.id": "a", "sasl.password": "hunter2"})
    {'client.id': 'a', 'sasl.password': '********'}
    """

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})

    @classmethod
    def read(cls, value: object) -> Properties:
        if not isinstance(value, dict):
            raise ValueError(f"expected a table of librdkafka properties, got {kind(value)}")
        texts: dict[str, str] = {}
        for name, item in flat(value).items():
            if name in OWNED:
                raise ValueError(f"{name} is not yours to set: {OWNED[name]}")
            if not isinstance(item, str | int | float):
                raise ValueError(f"{name}: expected a string, a number or a boolean, got {kind(item)}")
            texts[name] = canonical_label(item) if isinstance(item, str | int) else repr(item)
        return cls(texts)

    def reveal(self) -> dict[str, str]:
        return dict(self._texts)

    def shown(self) -> dict[str, str]:
        return {name: MASK if is_secret(name) else text for name, text in self._texts.items()}

    def __repr__(self) -> str:
        return repr(self.shown())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and other._texts == self._texts

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._texts.items())))


def is_secret(name: str) -> bool:
    """Whether a librdkafka property holds a secret.

    >>> is_secret("ssl.keystore.password"), is_secret("sasl.oauthbearer.token.endpoint.url")
    (True, False)
    """
    return bool(_SECRET_NAME.search(name.lower())) and not name.endswith((".url", ".location"))


def flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Names with dots: in TOML an unquoted ``sasl.password`` is a table in a table.

    >>> flat({"sasl": {"password": "x"}, "client.id": "a"})
    {'sasl.password': 'x', 'client.id': 'a'}
    """
    found: dict[str, object] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def kind(value: object) -> str:
    """The type of a value, as TOML calls it.

    >>> kind(True), kind(3), kind([])
    ('a boolean', 'an integer', 'an array')
    """
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a float",
        str: "a string",
        list: "an array",
        dict: "a table",
    }
    return names.get(type(value), "a date or time")
