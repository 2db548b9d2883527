"""The figures of the code count what they say, and those that must be 0 stay 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.figures_of_code import ROOT, Checkout, table


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    files = {
        "processor/__init__.py": "",
        "processor/one.py": """
from processor.core import native
class Twice: ...
class Lost(ValueError): ...
class Gone(Lost): ...
class FoundError(Lost): ...
def scan(blob):
    if native.BUILT:
        return
    if blob[0] == 0x45 or blob[0] == 0x65 or blob[0] == 0x53:
        return
""",
        "processor/two.py": "from .one import scan\nclass Twice: ...\n",
        "processor/core/__init__.py": "",
        "processor/core/plain.py": "def plain_match(): ...\n",
        "processor/core/native/__init__.py": """
try:
    from .joining import ids, match
except ModuleNotFoundError:
    BUILT = False
else:
    BUILT = True
REMEDY = "install a compiler"
__all__ = ["BUILT", "REMEDY", "ids", "match"]
""",
        "processor/core/native/joining.pyx": "def match(a):\n    pass\ncpdef list ids(a):\n    pass\n",
        "processor/audit/__init__.py": "",
        "docs/architecture.md": """
## A request
`processor/zero.py`
## A late label
1. `processor/one.py`, `scan`; 2. `processor/core/native/joining.pyx`; again `processor/one.py`
## Recovery
`processor/two.py`
""",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Checkout(tmp_path)


def test_a_known_checkout_is_counted(checkout: Checkout) -> None:
    found = checkout.figures()
    assert found.walk == ["processor/core/native/joining.pyx", "processor/one.py"]
    assert (found.versions, found.without_reference) == (2, ["ids"])
    assert found.switches == ["processor/core/native/__init__.py", "processor/one.py:8"]
    assert list(found.class_names_twice) == ["Twice"]
    assert found.write_readers == ["processor/one.py:scan"]
    assert found.exceptions_without_error == ["Gone", "Lost"]
    assert found.single_importer == ["processor.one"]
    assert (found.lines, found.audit_files) == (27, 1)
    assert "| 1 (2 with the Cython twins) |" in table(found)


def test_no_class_name_is_defined_twice() -> None:
    assert Checkout(ROOT).class_names_twice() == {}


def test_every_exception_ends_in_error() -> None:
    assert Checkout(ROOT).exceptions_without_error() == []
