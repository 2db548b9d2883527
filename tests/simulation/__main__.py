"""Run many seeds, and every mutant until it is found: ``python -m tests.simulation --seeds 5000 --mutants``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from .mutants import MUTANTS
from .world import World, trial

CHUNK = 20


def chunk(first: int) -> list[tuple[int, str]]:
    """The seeds of a chunk that broke the contract, with what they broke."""
    found = [(seed, trial(World(seed))) for seed in range(first, first + CHUNK)]
    return [(seed, broken) for seed, broken in found if broken]


def hunt(name: str, most: int) -> tuple[str, int | None, str]:
    """How many seeds it takes to find a mutant, and what gives it away."""
    for seed in range(most):
        broken = trial(World(seed, MUTANTS[name]))
        if broken:
            return name, seed + 1, broken
    return name, None, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="run this one seed only and show what it breaks")
    parser.add_argument("--mutants", action="store_true", help="also break the protocol on purpose, rule by rule")
    parser.add_argument("--most", type=int, default=1_000, help="seeds to try on a mutant (default 1000)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    if arguments.seed is not None:
        World(arguments.seed).run()
        console.print(f"seed {arguments.seed}: the contract holds")
        return 0
    started = time.monotonic()
    failures: list[tuple[int, str]] = []
    hunted: list[tuple[str, int | None, str]] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        starts = range(arguments.first, arguments.first + arguments.seeds, CHUNK)
        running = [pool.submit(chunk, first) for first in starts]
        for done in track(as_completed(running), "seeds", total=len(running), console=Console(stderr=True)):
            failures += done.result()
        if arguments.mutants:
            hunts = [pool.submit(hunt, name, arguments.most) for name in MUTANTS]
            hunted = [h.result() for h in track(hunts, "mutants", console=Console(stderr=True))]
    count = len(starts) * CHUNK
    console.print(f"{count} seeds, {len(failures)} violations, {time.monotonic() - started:.0f} s", highlight=False)
    for seed, broken in sorted(failures)[:20]:
        console.print(f"  seed {seed}: {broken}   (again: python -m tests.simulation --seed {seed})", highlight=False)
    if hunted:
        console.print(_table(hunted))
    if arguments.json:
        figures = {
            "seeds": count,
            "violations": [{"seed": s, "broken": b} for s, b in sorted(failures)],
            "mutants": [{"mutant": n, "seeds_needed": s, "broken": b} for n, s, b in hunted],
        }
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if failures or any(needed is None for _, needed, _ in hunted) else 0


def _table(hunted: list[tuple[str, int | None, str]]) -> Table:
    table = Table(title="The protocol broken on purpose", title_justify="left")
    table.add_column("broken rule")
    table.add_column("seeds needed", justify="right")
    table.add_column("given away by")
    for name, needed, broken in hunted:
        table.add_row(name, "not found" if needed is None else str(needed), broken[:60])
    return table


if __name__ == "__main__":
    sys.exit(main())
