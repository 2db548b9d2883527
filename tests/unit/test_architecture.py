"""docs/architecture.md, docs/glossary.md and docs/protocol.md name what is really in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE, GLOSSARY, PROTOCOL = (ROOT / "docs" / f"{page}.md" for page in ("architecture", "glossary", "protocol"))
WORKER = ROOT / "processor/service/worker.py"
MAX_FILES_OF_THE_WALK = 24
"""Files to open to understand how a late label is joined; the goal is 14."""

FILE = re.compile(r"`((?:processor|producers|schemas|monitoring|tests|benchmarks)/[\w./-]*)`")
NAME = re.compile(r"`((?:processor|producers|tests)/[\w./-]*|[\w.]+\(\)|[A-Z]\w*[a-z]\w*)`")
STEP = re.compile(r"# (\d+)\. (.+)")


def section(page: Path, heading: str) -> str:
    """The text under a heading, up to the next one of the same level."""
    text = page.read_text("utf-8")
    found = re.search(rf"^## {re.escape(heading)}$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no section {heading}"
    return found[1]


def named(page: Path) -> Iterator[tuple[str, str]]:
    """Functions and classes with the file that is named before them in the same line."""
    for line in page.read_text("utf-8").splitlines():
        file = ""
        for name in NAME.findall(line):
            if "/" in name:
                file = name
            elif name.endswith("()") or page == GLOSSARY:
                yield file, name


@cache
def definitions(file: str) -> frozenset[str]:
    """Functions and classes of a module, methods as ``Class.method``, those a class inherits in the module included."""
    text = (ROOT / file).read_text("utf-8")
    if file.endswith(".pyx"):
        return frozenset(re.findall(r"^\s*(?:def|cpdef|cdef class|class) (\w+)", text, re.MULTILINE))
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    missing = [file for file in FILE.findall(page.read_text("utf-8")) if not (ROOT / file).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [ARCHITECTURE, GLOSSARY], ids=lambda page: page.name)
def test_every_function_and_class_is_in_the_file_named_before_it(page: Path) -> None:
    names = list(named(page))
    assert len(names) > 20
    wrong = [f"{name}: no file before it" for file, name in names if not file]
    wrong += [f"{file}: {name}" for file, name in names if file and name.removesuffix("()") not in definitions(file)]
    assert wrong == []


def test_the_walk_of_a_late_label_is_short() -> None:
    files = {file for file in FILE.findall(section(ARCHITECTURE, "A late label")) if file.endswith(".py")}
    assert len(files) <= MAX_FILES_OF_THE_WALK


def test_the_map_has_every_folder_of_the_processor() -> None:
    folders = {f"processor/{path.parent.name}/" for path in (ROOT / "processor").glob("*/__init__.py")}
    folders |= {f"processor/core/{path.parent.name}/" for path in (ROOT / "processor/core").glob("*/__init__.py")}
    named_there = set(FILE.findall(section(ARCHITECTURE, "Folders")))
    assert folders - {"processor/core/"} <= named_there


def test_the_diagrams_are_sequence_diagrams() -> None:
    for heading in ("A batch", "Recovery"):
        assert "```mermaid\nsequenceDiagram\n" in section(ARCHITECTURE, heading)


def test_the_steps_of_the_commit_are_the_numbered_comments_of_the_worker() -> None:
    steps = re.findall(r"^(\d+)\. \*\*(.+?)\*\*", section(PROTOCOL, "A batch"), re.MULTILINE)
    comments = [STEP.fullmatch(line.strip()) for line in WORKER.read_text("utf-8").splitlines()]
    numbered = sorted((found[1], found[2]) for found in comments if found)
    assert [number for number, _ in numbered] == [number for number, _ in steps]
    for (_, words), (_, comment) in zip(steps, numbered, strict=True):
        assert comment.lower().startswith(words.lower()), comment


def test_the_walk_of_a_request_has_the_steps_of_the_commit() -> None:
    steps = re.findall(r"^(\d+\. )\*\*(.+?)\*\*", section(PROTOCOL, "A batch"), re.MULTILINE)
    walked = re.findall(r"^\| (\d+\. [\w ]+?) \|", section(ARCHITECTURE, "A request"), re.MULTILINE)
    assert walked == [number + words.lower() for number, words in steps]
