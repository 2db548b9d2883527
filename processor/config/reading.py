"""Tables to sections. Nothing stops at the first problem: a person wants to mend all of them at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

import msgspec

from processor.core.errors import InvalidSettingsError, one_of

from .sections import Config, Tenants, TenantTable
from .values import Duration, Properties, RedisUrl, Secret, kind

Table = dict[str, Any]
Keys = tuple[str, ...]

PREFIX, BETWEEN = "GFORCE_", "__"
_OPTIONS = ("accept_unknown", "default")
_PLAIN_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "object": "a table",
    "array": "an array",
}


class FromEnvironment(msgspec.Struct, frozen=True):
    """A value of a variable: as TOML reads it, and as it was written, for keys that want a string."""

    parsed: Any
    text: str


class Problems:
    """What is wrong so far, and where each value came from."""

    def __init__(self, source: str) -> None:
        self.lines: list[str] = []
        self.variables: dict[Keys, str] = {}
        self._source = source
        self._keys: set[Keys] = set()

    def add(self, keys: Keys, message: str) -> None:
        source = self._source
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.variables:
                source = self.variables[keys[:length]]
                break
        self._keys.add(keys)
        self.lines.append(": ".join(part for part in (source, dotted(keys), message) if part))

    def concerns(self, keys: Keys) -> bool:
        return keys in self._keys

    def attempt(self, keys: Keys, check: Callable[[], object], unless: str | None = None) -> str | None:
        """Run a check; note and return what it refuses, unless that is already known."""
        try:
            check()
        except InvalidSettingsError as error:
            if str(error) != unless:
                self.add(keys, str(error))
            return str(error)
        return None

    def check_known(self, table: Mapping[str, object], known: Iterable[str], above: Keys) -> None:
        names = list(known)
        for name in table:
            if name not in names:
                close = get_close_matches(name, names, n=1)
                hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"
                self.add((*above, name), f"unknown key: {hint}")


def dotted(keys: Keys) -> str:
    """A path as TOML writes it.

    >>> dotted(("tenants", "my bank", "eta"))
    'tenants."my bank".eta'
    """
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"' for key in keys)


def overlay(document: Table, environment: Mapping[str, str], problems: Problems) -> Table:
    """The document with the variables laid over it."""
    for variable in sorted(environment):
        if not variable.startswith(PREFIX):
            continue
        if BETWEEN in variable:
            keys = _keys_of(variable, document)
            problems.variables[keys] = variable
            if not _put(document, keys, environment[variable]):
                problems.add(keys, f"{dotted(keys[:-1])} is not a table, so it has no such key")
        elif (meant := _meant(variable)) and not environment[variable].startswith("tcp://"):
            # Kubernetes sets variables like GFORCE_HTTP_PORT=tcp://… for a service of that name.
            problems.lines.append(f"{variable}: did you mean {meant}? Levels are parted by two underscores")
    return document


def _keys_of(variable: str, document: Table) -> Keys:
    keys = [key.lower() for key in variable.removeprefix(PREFIX).split(BETWEEN)]
    if keys[0] in ("kafka", "avro") and keys[1].endswith("properties") and len(keys) > 2:
        # librdkafka's names have dots, which few shells allow in the name of a variable.
        return (*keys[:2], "__".join(keys[2:]).replace("_", "."))
    tenants = document.get("tenants")
    if keys[0] == "tenants" and isinstance(tenants, dict):
        # Variables are in capitals and tenants need not be: a tenant of the file is meant whatever its case.
        keys[1] = next((name for name in tenants if name.lower() == keys[1]), keys[1])
    return tuple(keys)


def _put(document: Table, keys: Keys, text: str) -> bool:
    table = document
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            return False
    is_property = keys[0] in ("kafka", "avro") and len(keys) == 3
    # A property is text to librdkafka: a password of digits must not become a number on the way.
    table[keys[-1]] = text if is_property else FromEnvironment(_toml(text), text)
    return True


def _toml(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text


def _meant(variable: str) -> str | None:
    for section in msgspec.structs.fields(Config):
        kinds = () if section.type is Tenants else msgspec.structs.fields(section.type)
        for field in kinds:
            if variable == f"{PREFIX}{section.name}_{field.encode_name}".upper():
                return f"{PREFIX}{section.name}{BETWEEN}{field.encode_name}".upper()
    return None


def read_section(section: Any, table: Table, keys: Keys, problems: Problems) -> Table:
    """The section's fields that the table sets and that are right, by their names in Python."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(section)}
    problems.check_known(table, fields, keys)
    values: Table = {}
    for name, field in fields.items():
        if name in table:
            try:
                values[field.name] = _read_value(table[name], field.type)
            except ValueError as error:
                problems.add((*keys, name), _in_words(error, field.type))
    return values


def read_tenants(table: Table, problems: Problems) -> Tenants:
    """The section [tenants]: its option, the default, and the tenants that inherit from it field by field."""
    options = {name: table[name] for name in _OPTIONS[:1] if name in table}
    option = read_section(Tenants, options, ("tenants",), problems)
    default: Table = {}
    named: dict[str, Table] = {}
    for name, own in table.items():
        if name in options:
            continue
        if not isinstance(own, dict):
            close = get_close_matches(name, _OPTIONS, n=1)
            hint = f". Did you mean {close[0]}?" if close else ""
            problems.add(("tenants", name), f"expected a table [tenants.{dotted((name,))}]{hint}")
        elif name == "default":
            default = read_section(TenantTable, own, ("tenants", name), problems)
        else:
            named[name] = read_section(TenantTable, own, ("tenants", name), problems)
    complete = {name: TenantTable(**_inherited(default, own)) for name, own in named.items()}
    return Tenants(**option, default=TenantTable(**default), named=complete)


def _inherited(default: Table, own: Table) -> Table:
    merged = default | own
    if own.get("feedback") == "all" and "explore" not in own:
        # Who turns exploration off has no way to unset the rate that came with it.
        merged.pop("explore", None)
    return merged


def _read_value(value: Any, wanted: Any) -> Any:
    if not isinstance(value, FromEnvironment):
        return msgspec.convert(_without_variables(value), wanted, dec_hook=_read_own)
    try:
        return msgspec.convert(value.parsed, wanted, dec_hook=_read_own)
    except ValueError:
        if isinstance(value.parsed, str):
            raise
        try:
            return msgspec.convert(value.text, wanted, dec_hook=_read_own)
        except ValueError:
            pass
        raise


def _without_variables(value: Any) -> Any:
    if isinstance(value, FromEnvironment):
        return value.parsed
    if isinstance(value, dict):
        return {name: _without_variables(item) for name, item in value.items()}
    return value


def _read_own(wanted: type, value: object) -> object:
    if wanted in (Duration, Properties, RedisUrl, Secret):
        return wanted.read(value)
    raise NotImplementedError(f"{wanted} read from {kind(value)}")


def _in_words(error: ValueError, wanted: Any = None) -> str:
    """msgspec's messages with TOML's names of types, and with the choices where there are some.

    >>> _in_words(ValueError("Expected `int | null`, got `str`"))
    'expected an integer, got a string'
    """
    text = re.sub(r"`([^`]+)`", _plain_type, str(error).replace(" - at `$`", "")).replace("Expected", "expected")
    if not text.startswith("Invalid enum value"):
        return text
    return f"{text.replace('Invalid enum value', 'unknown value')}: use {one_of(_choices(wanted))}"


def _choices(wanted: Any) -> list[str]:
    found = [item for item in get_args(wanted) if isinstance(item, str)]
    return found + [choice for item in get_args(wanted) for choice in _choices(item)]


def _plain_type(match: re.Match[str]) -> str:
    names = [name for name in match[1].split(" | ") if name != "null"]
    if not all(name in _PLAIN_NAMES for name in names):
        return match[1].removeprefix("$").removeprefix(".")
    return " or ".join(_PLAIN_NAMES[name] for name in names)
