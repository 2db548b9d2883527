"""Both tiers of ``core.native`` in one run: whatever module imports ``tier`` runs twice, once with each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from processor.core import native

NATIVE, REFERENCE = "native", "reference"


@contextmanager
def in_tier(chosen: native.Tier) -> Iterator[None]:
    """Fails where the native tier is wanted and not built; without ``CI`` such a test is skipped."""
    before = native.tier()
    try:
        native.use(chosen)
    except ModuleNotFoundError:
        if os.environ.get("CI"):
            pytest.fail(native.REMEDY)
        pytest.skip("no native modules here")
    try:
        yield
    finally:
        native.use(before)


@pytest.fixture(scope="module", params=[NATIVE, REFERENCE], autouse=True)
def tier(request: pytest.FixtureRequest) -> Iterator[native.Tier]:
    with in_tier(request.param):
        yield request.param


@pytest.fixture(scope="module")
def native_tier() -> Iterator[None]:
    with in_tier("native"):
        yield
