"""Whatever module imports ``loops`` runs twice: with the inner loops compiled, and with their plain versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from processor.core import compiled

BUILT = compiled.BUILT


def need_compiled() -> None:
    if not BUILT and os.environ.get("CI"):
        pytest.fail(compiled.REMEDY)
    if not BUILT:
        pytest.skip("no compiled inner loops here")


@contextmanager
def plainly() -> Iterator[None]:
    with patch.object(compiled, "BUILT", False):
        yield


@pytest.fixture(scope="module", params=["compiled", "plain"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled":
        need_compiled()
        yield
    else:
        with plainly():
            yield
