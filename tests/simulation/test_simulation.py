"""The contract under every fault, and proof that breaking the protocol is noticed."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .world import World, trial

SEEDS, PER_TEST = 500, 20
MOST = 400


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_the_contract_holds_whatever_dies(first: int) -> None:
    broken = {seed: what for seed in range(first, first + PER_TEST) if (what := trial(World(seed)))}
    assert not broken, f"replay with: python -m tests.simulation --seed {next(iter(broken))}"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_of_the_protocol_is_found(name: str, record_property: pytest.RecordProperty) -> None:
    for seed in range(MOST):
        if broken := trial(World(seed, MUTANTS[name])):
            record_property("seeds_needed", seed + 1)
            print(f"{name}: found by seed {seed}: {broken}")
            return
    pytest.fail(f"{MOST} seeds did not notice: {name}")


def test_one_seed_is_one_history() -> None:
    histories = []
    for _ in range(2):
        world = World(7)
        world.run()
        journal = [r.value for p in range(2) for r in world.records("journal", p)]
        histories.append(journal)
    assert histories[0] == histories[1]
    assert len(histories[0]) > 5
