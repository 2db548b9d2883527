"""GFORCE_NATIVE chooses the tier when ``core.native`` is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from processor.core import native
from processor.core.native import reference

from .tiers import in_tier

NOT_BUILT = "import sys; sys.modules['processor.core.native.hashes'] = None; "
SAY = "from processor.core import native; from processor.adapters.kafka import runs; "
SAY += "print(native.tier(), runs.runs is runs.reference_runs)"


def started(variable: str | None, program: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GFORCE_NATIVE"}
    if variable is not None:
        environment["GFORCE_NATIVE"] = variable
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("variable", "program", "said"),
    [
        ("no", SAY, "reference True"),
        (None, NOT_BUILT + SAY, "reference True"),
        ("", NOT_BUILT + SAY, "reference True"),
    ],
)
def test_the_reference_is_used_where_it_is_asked_for_or_nothing_else_is_built(
    variable: str | None, program: str, said: str
) -> None:
    assert started(variable, program).stdout.strip() == said


@pytest.mark.parametrize("variable", [None, "required"])
def test_the_native_tier_is_used_where_it_is_built(variable: str | None) -> None:
    with in_tier("native"):
        assert started(variable, SAY).stdout.strip() == "native False"


def test_a_native_tier_that_is_required_and_not_built_is_an_error_with_the_remedy() -> None:
    ended = started("required", NOT_BUILT + SAY)
    assert ended.returncode == 1
    assert f"ImportError: {native.REMEDY}" in ended.stderr


def test_another_value_is_refused() -> None:
    assert "GFORCE_NATIVE is 'yes': use 'no' or 'required', or leave it out" in started("yes", SAY).stderr


def test_every_native_function_has_a_reference_and_is_switched_with_the_others() -> None:
    names = [name for names in native.MODULES.values() for name in names]
    with in_tier("reference"):
        assert all(getattr(native, name) is getattr(reference, name) for name in names)
    with in_tier("native"):
        assert not any(getattr(native, name) is getattr(reference, name) for name in names)
