"""The inner functions of the core in two tiers, and the one place that chooses between them.

The native tier is Cython, a batch at a time. The reference tier (``reference``) is plain Python, one record at a time;
it is the specification, and the types. Both give the same bytes. Callers write ``native.record_hashes(…)`` and never
ask which one they get.

``GFORCE_NATIVE`` chooses when this module is imported: ``no`` takes the reference tier, ``required`` refuses to start
without the native one, and otherwise the native tier is taken if it was built. This is the only module of the core that
reads a variable of the environment, and it can: no result depends on the choice.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from os import environ
from typing import Any, Literal, TypeVar

from . import reference as reference
from .reference import (
    active_set,
    by_tenant,
    columns,
    contents,
    decisions_in_order,
    decode_plain,
    digests,
    first_look,
    hashes_as_received,
    ids,
    joined_ids,
    match,
    observe,
    packed_entries,
    put_together,
    record_hash,
    record_hashes,
    written_decisions,
)

Tier = Literal["native", "reference"]
Function = TypeVar("Function", bound=Callable[..., Any])

MODULES = {
    "decode": ("decode_plain", "put_together"),
    "encode": ("columns", "decisions_in_order", "joined_ids", "packed_entries", "written_decisions"),
    "hashes": ("contents", "digests", "hashes_as_received", "record_hashes"),
    "join": ("by_tenant", "first_look", "ids", "match"),
    "monitor": ("observe",),
    "solver": ("active_set",),
}
"""The extension modules, and which functions each has."""

REMEDY = (
    "The native modules are not in use, and the core takes about three times the CPU. "
    "Install a C compiler and Python's headers (Debian: gcc python3-dev), then install the package again; "
    "GFORCE_NATIVE must not be 'no'."
)

_tier: Tier = "reference"


def tier() -> Tier:
    """Which of the two is in use."""
    return _tier


def use(chosen: Tier) -> None:
    """Take the functions of this tier. Tests switch with it; ModuleNotFoundError if the tier is not built."""
    global _tier
    taken = {}
    for module, names in MODULES.items():
        for name in names:
            taken[name] = getattr(import_module(f"{__name__}.{module}") if chosen == "native" else reference, name)
    globals().update(taken)
    _tier = chosen


def native_or(function: Function, module: str, name: str) -> Function:
    """For an extension module outside the core: the function of this name in it, or this reference, by the tier."""
    if _tier == "reference":
        return function
    found: Function = getattr(import_module(module), name)
    return found


def _choose(wanted: str) -> None:
    if wanted not in ("", "no", "required"):
        raise ImportError(f"GFORCE_NATIVE is {wanted!r}: use 'no' or 'required', or leave it out")
    if wanted == "no":
        return
    try:
        use("native")
    except ModuleNotFoundError:
        if wanted == "required":
            raise ImportError(REMEDY) from None


_choose(environ.get("GFORCE_NATIVE", ""))

__all__ = [
    "REMEDY",
    "active_set",
    "by_tenant",
    "columns",
    "contents",
    "decisions_in_order",
    "decode_plain",
    "digests",
    "first_look",
    "hashes_as_received",
    "ids",
    "joined_ids",
    "match",
    "native_or",
    "observe",
    "packed_entries",
    "put_together",
    "record_hash",
    "record_hashes",
    "reference",
    "tier",
    "use",
    "written_decisions",
]
