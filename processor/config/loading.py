"""Read the configuration, check it as a whole, and show it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from processor.core.errors import GForceError, InvalidSettingsError

from .reading import Problems, Table, overlay, read_section, read_tenants
from .sections import Config
from .tenants import NO_SEED, check_seed, of_table
from .values import Duration, Properties, Secret

_STAND_IN = Secret("00" * 32)
"""Used to check a tenant's other settings where its seed is what is missing or wrong."""


class ConfigError(GForceError, ValueError):
    """Everything that is wrong with the configuration, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(path: Path | None, environment: Mapping[str, str]) -> Config:
    """Read the file, if any, and the environment. Raises ``ConfigError`` with all problems at once."""
    problems = Problems(str(path) if path else "the configuration")
    document = overlay(_parsed(path), environment, problems)
    sections = {field.name: field.type for field in msgspec.structs.fields(Config)}
    problems.check_known(document, sections, ())
    read: dict[str, Any] = {}
    for name, kind in sections.items():
        table = document.get(name, {})
        if not isinstance(table, dict):
            problems.add((name,), f"expected a table [{name}]")
        else:
            read[name] = read_tenants(table, problems) if name == "tenants" else _section(kind, table, name, problems)
    _check_seeds(read, problems)
    if problems.lines:
        raise ConfigError(problems.lines)
    return Config(**read)


def example_text() -> str:
    """The annotated example: every key with its default."""
    return files(__package__).joinpath("example.toml").read_text("utf-8")


def shown(config: Config) -> dict[str, Any]:
    """The configuration for people and logs: without secrets, durations as they are written."""
    found = _plain(config)
    assert isinstance(found, dict)
    tenants = found["tenants"]
    found["tenants"] = {key: tenants[key] for key in ("accept_unknown", "default")} | tenants["named"]
    return found


def _plain(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Properties):
        return value.shown()
    if isinstance(value, Secret | Duration):
        return repr(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _parsed(path: Path | None) -> Table:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        remedy = "write one from the example, or give another path"
        raise ConfigError([f"{path}: cannot be read ({error.strerror}): {remedy}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from None


def _section(kind: Any, table: Table, name: str, problems: Problems) -> Any:
    values = read_section(kind, table, (name,), problems)
    try:
        return kind(**values)
    except InvalidSettingsError as error:
        problems.add((name,), str(error))
        return kind()


def _check_seeds(read: Mapping[str, Any], problems: Problems) -> None:
    """Check each tenant as a whole, and that each can have a seed."""
    tenants, processing = read.get("tenants"), read.get("processing")
    if tenants is None or processing is None:
        return
    needs_master = tenants.accept_unknown or any(table.seed is None for table in tenants.named.values())
    if processing.seed is not None:
        problems.attempt(("processing", "seed"), partial(check_seed, processing.seed))
    elif needs_master and not problems.concerns(("processing", "seed")):
        problems.add((), NO_SEED)
    if tenants.default.seed is not None:
        remedy = "remove it; set processing.seed, from which every tenant gets its own"
        problems.add(("tenants", "default", "seed"), f"one seed for all tenants would repeat their draws: {remedy}")
    # What is wrong in the default is reported there once, and not again for all who inherit it.
    of_default = problems.attempt(("tenants", "default"), partial(of_table, tenants.default, _STAND_IN))
    for name, table in tenants.named.items():
        own = table.seed if table.seed != tenants.default.seed else None
        problems.attempt(("tenants", name), partial(of_table, table, own or _STAND_IN), unless=of_default)
