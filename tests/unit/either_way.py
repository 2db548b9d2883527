"""Whatever module imports ``loops`` runs twice: with the inner loops native, and with their plain versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from processor.core import native

BUILT = native.BUILT


def need_native() -> None:
    if not BUILT and os.environ.get("CI"):
        pytest.fail(native.REMEDY)
    if not BUILT:
        pytest.skip("no native inner loops here")


@contextmanager
def plainly() -> Iterator[None]:
    with patch.object(native, "BUILT", False):
        yield


@pytest.fixture(scope="module", params=["native", "plain"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native":
        need_native()
        yield
    else:
        with plainly():
            yield
