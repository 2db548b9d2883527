"""Logs: lines for people on a terminal, one JSON object a line elsewhere. Never the content of an event."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal

LOGGER = logging.getLogger("gforce")


def set_up(form: Literal["auto", "text", "json"], level: str) -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Text() if as_text else _Json())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False


def log(level: int, event: str, **details: object) -> None:
    """One event with its details."""
    LOGGER.log(level, event, extra={"details": details})


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        details = " ".join(f"{name}={_on_a_line(value)}" for name, value in getattr(record, "details", {}).items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{clock} {record.levelname.lower():<7} {record.getMessage():<14} {details}".rstrip()


def _on_a_line(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else ascii(text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"ts": round(record.created, 3), "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps({**head, **getattr(record, "details", {})}, default=str)
