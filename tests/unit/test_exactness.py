"""The path to a decision gives the same bytes whatever the CPU offers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from processor.core import Policy, rule_of
from processor.core.learner.draws import draws
from processor.core.learner.rule import RequestColumns
from processor.core.settings import OBJECTIVES

from .strategies import axes, random_counters

DISPATCH = {
    "as it is": {},
    "no vector units": {
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
    },
    "old kernels": {"OPENBLAS_CORETYPE": "Prescott"},
    "other kernels": {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1"},
}


def decisions_digest() -> str:
    """A digest of every byte between counters and decisions, for all policies and several shapes."""
    digest = hashlib.blake2b(digest_size=16)
    for groups, labels, experts in ((2, 2, 5), (3, 3, 4), (4, 2, 7)):
        rng = np.random.default_rng([groups, labels, experts])
        of = axes(groups, labels, experts)
        counters = random_counters(rng, of, batch=40)
        predictions = rng.integers(-1, labels, size=(400, experts))
        predictions[:, 0] = np.maximum(predictions[:, 0], 0)
        learner, group = rng.integers(0, 40, size=400), rng.integers(0, groups, size=400)
        uniforms = draws(b"sixteen bytes ok", (str(i) for i in range(400)))
        policies = [Policy(policy=p, eta=eta) for p in ("groupaware", "mw") for eta in (0.35, "auto")]
        for objective in OBJECTIVES:
            if (groups, labels) == (2, 2) or objective in ("gap", "mixture"):
                policies += [Policy(objective=objective), Policy(objective=objective, eta="auto")]
        for policy in policies:
            rule = rule_of(policy, counters, of.labels)
            made = rule.decide(RequestColumns(learner, group, predictions, uniforms), labels)
            for array in (rule.selection, rule.expert_parts, made.label, made.expert, made.probabilities):
                digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", DISPATCH)
def test_decisions_are_the_same_bytes_under_any_cpu_dispatch(name: str) -> None:
    environment = {**os.environ, **DISPATCH[name], "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.test_exactness"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == decisions_digest()


def test_decisions_are_those_of_the_first_version() -> None:
    assert decisions_digest() == "473fa5f536452d5a606285c8bd37a473"


if __name__ == "__main__":
    print(decisions_digest())
