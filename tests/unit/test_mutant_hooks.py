"""The methods that the simulation's mutants replace are marked in the service, and only those."""

from __future__ import annotations

import ast
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "processor" / "service"
MUTANTS = Path(__file__).parents[1] / "simulation" / "mutants.py"
MARK = "# A mutant of the simulation replaces this."


def methods(source: str) -> set[str]:
    """Names of all methods, without those of Python."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    found = {method.name for each in classes for method in each.body if isinstance(method, ast.FunctionDef)}
    return {name for name in found if not name.startswith("__")}


def marked(source: str) -> set[str]:
    lines = source.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip() == MARK]
    defined = [next(line for line in lines[i:] if line.strip().startswith("def ")) for i in starts]
    return {line.strip().removeprefix("def ").partition("(")[0] for line in defined}


def test_what_mutants_replace_is_marked() -> None:
    sources = [path.read_text() for path in sorted(SERVICE.glob("*.py"))]
    ours = set().union(*map(methods, sources))
    replaced = methods(MUTANTS.read_text()) & ours
    assert set().union(*map(marked, sources)) == replaced
