"""Randomness without a generator: a keyed hash of the decision's id.

A generator has a position, and a position is state. A hash has none: any decision can be recomputed alone, and
nobody without the seed can foresee or steer a draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from processor.core import native
from processor.core.errors import InvalidInputError
from processor.core.exact import Parts

DRAWS = 3
"""Uniforms per decision, each out of 2³²: for the instance, the expert, and exploration."""

MIN_SEED, MAX_SEED = 16, 64


def draws(seed: bytes, decision_ids: Iterable[str]) -> Parts:
    """Three integers below 2³² for each decision id.

    >>> draws(b"sixteen bytes ok", ["loan-1", "loan-2"]).shape
    (2, 3)
    """
    return uniforms([(seed, list(decision_ids))])


def check_seed(seed: bytes) -> None:
    if not isinstance(seed, bytes):
        raise InvalidInputError(
            f"the seed is of type {type(seed).__name__}: use bytes, for example secrets.token_bytes(32)"
        )
    if not MIN_SEED <= len(seed) <= MAX_SEED:
        raise InvalidInputError(
            f"the seed has {len(seed)} bytes: use {MIN_SEED} to {MAX_SEED} random bytes, for example "
            "secrets.token_bytes(32)"
        )


def uniforms(keyed: Sequence[tuple[bytes, Sequence[str]]]) -> Parts:
    """The draws of decisions under several seeds, one after the other."""
    for seed, _ in keyed:
        check_seed(seed)
    found = native.digests(list(keyed), 4 * DRAWS)
    return np.frombuffer(found, dtype="<u4").reshape(-1, DRAWS).astype(np.uint64)
