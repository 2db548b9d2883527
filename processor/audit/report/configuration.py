"""A tenant's configuration in words, and what changed between two of them."""

from __future__ import annotations

import json
from typing import Any

from processor.config.values import Duration

_MILLISECONDS = ("expiry", "parking", "duplicate_horizon", "bucket")
_SHOWN = {"seed_commitment": "seed (commitment)"}


def flattened(canonical: str) -> dict[str, str]:
    """Every setting by its name.

    >>> flattened('{"expiry": 86400000, "settings": {"labels": ["no", "yes"], "window": null}}')
    {'expiry': '1d', 'labels': 'no, yes', 'window': '–'}
    >>> flattened('{"shadows": [{"policy": "mw", "balance": {"regret": 1.0}}]}')
    {'shadows 1.balance.regret': '1.0', 'shadows 1.policy': 'mw'}
    """
    try:
        document = json.loads(canonical)
    except ValueError:
        return {}
    found: dict[str, str] = {}
    _flatten(document, "", found)
    return found


def _flatten(value: Any, name: str, found: dict[str, str]) -> None:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            _flatten(value[key], f"{name}.{key}" if name not in ("", "settings") else str(key), found)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value, start=1):
            _flatten(one, f"{name} {number}", found)
    elif name != "version":
        found[_SHOWN.get(name, name)] = _said(name, value)


def _said(name: str, value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "–"
    if name in _MILLISECONDS and isinstance(value, int) and value > 0:
        return str(Duration(value))
    if isinstance(value, list):
        return ", ".join(_said("", one) for one in value)
    if isinstance(value, dict):
        return " ".join(f"{key} {_said('', one)}" for key, one in sorted(value.items()))
    return str(value)


def changes(before: str, after: str) -> list[str]:
    """What is different, one line for each setting.

    >>> changes('{"expiry": 1000, "parking": 5}', '{"expiry": 2000, "parking": 5}')
    ['expiry: 1s → 2s']
    """
    one, other = flattened(before), flattened(after)
    return [
        f"{name}: {one.get(name, '–')} → {other.get(name, '–')}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]
