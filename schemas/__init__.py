"""One JSON Schema (draft 2020-12) for each type of record; the version is in the name."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, cast


def names() -> list[str]:
    """What can be loaded.

    >>> names()
    ['alert.v1', 'dead-letter.v1', 'decision.v1', 'feedback.v1', 'request.v1']
    """
    found = (entry.name for entry in files(__name__).iterdir())
    return sorted(name.removesuffix(".json") for name in found if name.endswith(".json"))


def load(name: str) -> dict[str, Any]:
    """The schema of this name.

    >>> load("request.v1")["title"]
    'Request'
    """
    if name not in names():
        raise LookupError(f'there is no schema "{name}": use one of {", ".join(names())}')
    return cast(dict[str, Any], json.loads(files(__name__).joinpath(f"{name}.json").read_text("utf-8")))
