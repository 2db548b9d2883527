"""Counts what the redesign is measured by, and prints it as a table: ``python -m tests.figures_of_code [--json]``.

Everything is counted from the sources and nothing is imported, so it runs on any checkout: ``--root`` names one.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("processor", "producers")
SOURCES = ("py", "pyx", "lua", "js", "css", "html")
NATIVE = ("processor/core/native", "processor/core/compiled")
"""where the native tier is, now and in 0.2"""
WALK, WALK_SECTION = "docs/architecture.md", "## A late label"
OPERATIONS = b"EeSsDd"
"""the letters of packed writes"""
READS = 3
"""of those letters, that a function branches on if it reads packed writes"""
PLAIN = ("", "plain_", "reference_")
"""what the name of a reference may begin with"""


@dataclass(frozen=True)
class Figures:
    walk: list[str] | None
    """files of the walk; None where the page is not written"""
    versions: int
    """of the same work: the most definitions that one exported name of the native tier has"""
    without_reference: list[str]
    switches: list[str]
    class_names_twice: dict[str, list[str]]
    write_readers: list[str]
    lines: int
    audit_files: int
    single_importer: list[str]
    exceptions_without_error: list[str]


@dataclass(frozen=True)
class Module:
    name: str
    path: str
    text: str
    package: bool

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


class Checkout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = [self._module(path) for package in PACKAGES for path in self._files(package, "py")]

    def _files(self, folder: str, *kinds: str) -> list[Path]:
        found = (path for path in (self.root / folder).rglob("*") if path.suffix[1:] in kinds and path.is_file())
        return sorted(path for path in found if "__pycache__" not in path.parts)

    def _module(self, path: Path) -> Module:
        relative = path.relative_to(self.root)
        parts = relative.with_suffix("").parts
        package = parts[-1] == "__init__"
        return Module(".".join(parts[:-1] if package else parts), str(relative), path.read_text("utf-8"), package)

    def figures(self) -> Figures:
        versions, without = self.versions()
        return Figures(
            self.walk(),
            versions,
            without,
            self.switches(),
            self.class_names_twice(),
            self.write_readers(),
            sum(len(path.read_text("utf-8").splitlines()) for path in self._files("processor", *SOURCES)),
            len(self._files("processor/audit", "py")),
            self.single_importer(),
            self.exceptions_without_error(),
        )

    def walk(self) -> list[str] | None:
        """The files that the section of the walk names."""
        page = self.root / WALK
        text = page.read_text("utf-8") if page.exists() else ""
        if WALK_SECTION not in text:
            return None
        section = re.split(r"^## ", text.split(WALK_SECTION, 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        return sorted(set(re.findall(r"`((?:processor|producers)/[\w/]+\.\w+)", section)))

    # The two tiers

    @cached_property
    def _native(self) -> Module | None:
        return next((one for one in self.modules if one.package and str(Path(one.path).parent) in NATIVE), None)

    def versions(self) -> tuple[int, list[str]]:
        """The most definitions of one name that the native tier exports, and the names that have one only."""
        if self._native is None:
            return 1, []
        folder = str(Path(self._native.path).parent)
        compiled = re.findall(
            r"^(?:cp?def [^(\n]*?|def |cdef class |class )(\w+)[(:]",
            "\n".join(path.read_text("utf-8") for path in self._files(folder, "pyx")),
            re.MULTILINE,
        )
        exported = {name for name in _exported(self._native.tree) if name in compiled}
        definitions = Counter(compiled)
        for module in self.modules:
            if module.name.startswith("processor.core"):
                definitions.update(
                    node.name for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
                )
        count = {name: sum(definitions[before + name] for before in PLAIN) for name in exported}
        return max(count.values(), default=1), sorted(name for name, found in count.items() if found < 2)

    def switches(self) -> list[str]:
        """Where it is asked whether the native tier is built: its own ``__init__``, and whoever reads a flag of it."""
        if self._native is None:
            return []
        flags = {
            target.id
            for node in ast.walk(self._native.tree)
            if isinstance(node, ast.Assign) and not _is_text(node.value)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id.isupper()
        }
        package = self._native.name.rsplit(".", 1)[1]
        return [self._native.path] + [
            f"{module.path}:{node.lineno}"
            for module in self.modules
            if module is not self._native
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute) and node.attr in flags and ast.unparse(node.value).endswith(package)
        ]

    # Names

    def _classes(self) -> Iterator[tuple[Module, ast.ClassDef]]:
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    yield module, node

    def class_names_twice(self) -> dict[str, list[str]]:
        places = defaultdict(list)
        for module, node in self._classes():
            places[node.name].append(f"{module.path}:{node.lineno}")
        for package in PACKAGES:
            for path in self._files(package, "pyx"):
                for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text("utf-8"), re.MULTILINE):
                    places[name].append(str(path.relative_to(self.root)))
        return {name: where for name, where in sorted(places.items()) if len(where) > 1}

    def exceptions_without_error(self) -> list[str]:
        """Classes that are exceptions, through bases of ours too, and whose name does not end in Error."""
        bases = defaultdict(set)
        for _, node in self._classes():
            bases[node.name] |= {ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in node.bases}

        def is_exception(name: str, seen: frozenset[str] = frozenset()) -> bool:
            built_in = getattr(builtins, name, None)
            if isinstance(built_in, type) and issubclass(built_in, BaseException):
                return True
            return name not in seen and any(is_exception(base, seen | {name}) for base in bases.get(name, ()))

        return sorted(name for name in bases if not name.endswith("Error") and is_exception(name))

    # Packed writes

    def write_readers(self) -> list[str]:
        """Functions that branch on the letters of packed writes."""
        return [
            f"{module.path}:{node.name}"
            for module in self.modules
            for letters in [_letters(module.tree)]
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef) and len(_branches(node, letters)) >= READS
        ]

    # Imports

    def single_importer(self) -> list[str]:
        """Modules that one other module imports, and no more."""
        names = {module.name: module for module in self.modules}
        importers = defaultdict(set)
        for module in self.modules:
            for name in _imports(module, names):
                if name != module.name:
                    importers[name].add(module.name)
        return sorted(name for name, by in importers.items() if len(by) == 1 and not names[name].package)


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return list(ast.literal_eval(node.value))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    return [alias.asname or alias.name for node in imported for alias in node.names]


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _letters(tree: ast.Module) -> dict[str, int]:
    """Names that a module gives to operations, by ``A, B, … = b"Ee…"`` or ``A = b"E"``."""
    found: dict[str, int] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, bytes)
        ):
            target = node.targets[0]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            if len(names) == len(node.value.value) and set(node.value.value) <= set(OPERATIONS):
                found |= {ast.unparse(name): letter for name, letter in zip(names, node.value.value, strict=True)}
    return found


def _branches(function: ast.FunctionDef, letters: dict[str, int]) -> set[int]:
    """The letters with which something is compared or matched."""
    operands: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            operands += [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands.append(node.value)
    found = set()
    for operand in operands:
        if isinstance(operand, ast.Constant):
            value = operand.value
            if isinstance(value, bytes) and len(value) == 1:
                found.add(value[0])
            elif isinstance(value, int):
                found.add(value)
        elif isinstance(operand, ast.Name) and operand.id in letters:
            found.add(letters[operand.id])
    return found & set(OPERATIONS)


def _imports(module: Module, names: dict[str, Module]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            above = module.name.split(".")
            above = above[: len(above) + module.package - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                below = f"{base}.{alias.name}"
                if below in names:
                    yield below
                elif base in names:
                    yield base


def table(figures: Figures) -> str:
    """The table of the design, with what is counted here."""
    walk = "the page is not written yet"
    if figures.walk is not None:
        twins = sum(path.endswith(".pyx") for path in figures.walk)
        walk = f"{len(figures.walk) - twins} ({len(figures.walk)} with the Cython twins)"
    versions = f"{figures.versions}"
    if without := figures.without_reference:
        versions += f", but {len(without)} names have no reference of their own: {', '.join(without)}"
    rows = [
        ("files to open to understand how a late label is joined", "34 (40)", "", "≤ 14", walk),
        ("versions of the same work", "3", "3", "2", versions),
        ("places that ask whether the native tier is built", "15", "18", "1", len(figures.switches)),
        ("class names defined twice or more", "28", "33", "0", len(figures.class_names_twice)),
        ("readers of the packed writes in Python", "5", "4", "1", len(figures.write_readers)),
        (
            f"lines in processor/ ({' '.join(SOURCES)})",
            "36 700",
            "37 034",
            "≤ 29 000",
            f"{figures.lines:_}".replace("_", " "),
        ),
        ("files in processor/audit", "", "78", "≤ 50", figures.audit_files),
        ("modules with a single importer", "72", "70", "what reads better", len(figures.single_importer)),
        ("exceptions whose name does not end in Error", "", "23", "0", len(figures.exceptions_without_error)),
    ]
    head = ["| | 0.2.0, by a reader | 0.2.0, by this script | goal | now |", "| --- | --- | --- | --- | --- |"]
    return "\n".join(head + [f"| {' | '.join(map(str, row))} |" for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="with the names behind each number")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    arguments = parser.parse_args()
    figures = Checkout(arguments.root).figures()
    print(json.dumps(asdict(figures), indent=1) if arguments.json else table(figures))


if __name__ == "__main__":
    main()
