"""Nothing that version 0.2 offered is gone: its commands and options, its configuration keys, its metrics.

``surface_0.2.json`` was written once, from the sources of that version. New things are allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import typer

from processor.cli import app
from processor.config import Config
from processor.telemetry.catalogue import CATALOGUE

KEPT = json.loads(Path(__file__).with_name("surface_0.2.json").read_text("utf-8"))


def commands(command: click.Command, path: str = "gforce") -> Iterator[tuple[str, list[str]]]:
    """Every command with its arguments, and its options in all their spellings."""
    names = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
    yield path, sorted(names)
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


def keys(found: msgspec.inspect.Type, path: str = "") -> Iterator[str]:
    """The keys of a section and of the sections in it; any name of a table is a star."""
    match found:
        case msgspec.inspect.StructType(fields=fields) | msgspec.inspect.DataclassType(fields=fields):
            for field in fields:
                below = f"{path}.{field.encode_name}".lstrip(".")
                yield below
                yield from keys(field.type, below)
        case msgspec.inspect.UnionType(types=types):
            for one in types:
                yield from keys(one, path)
        case msgspec.inspect.DictType(value_type=value):
            yield from keys(value, f"{path}.*")
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            yield from keys(item, f"{path}[]")


def test_every_command_and_option_is_there() -> None:
    now = dict(commands(typer.main.get_command(app)))
    gone = [command for command in KEPT["commands"] if command not in now]
    gone += [
        f"{command} {name}"
        for command, names in KEPT["commands"].items()
        for name in set(names) - set(now.get(command, names))
    ]
    assert gone == []


def test_every_configuration_key_is_there() -> None:
    assert set(KEPT["keys"]) - set(keys(msgspec.inspect.type_info(Config))) == set()


def test_every_metric_is_there_with_its_type_and_labels() -> None:
    now = {one.exported: [one.kind, sorted(one.labels)] for one in CATALOGUE.values()}
    assert {name: now.get(name) for name in KEPT["metrics"]} == KEPT["metrics"]


def test_the_kept_list_is_that_of_a_whole_version() -> None:
    """A list that was cut short would let things go unnoticed."""
    assert len(KEPT["commands"]) >= 30
    assert {"kafka.bootstrap_servers", "tenants.default.lambda", "processing.seed"} <= set(KEPT["keys"])
    assert "gforce_decisions_total" in KEPT["metrics"]
