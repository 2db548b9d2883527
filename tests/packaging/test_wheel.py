"""What is installed is complete: the wheel, in an empty environment, away from the checkout."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from processor import __version__

ROOT = Path(__file__).parents[2]
SECONDS = 600
LINES = [
    {"topic": "requests", "key": "acme", "payload": {"tenant": "acme", "decision_id": "1", "group": "A",
                                                     "predictions": {"m": True}, "context": {"n": 1}}},
    {"topic": "feedback", "key": "acme", "payload": {"tenant": "acme", "decision_id": "1", "label": True}},
    {"topic": "requests", "key": "acme", "payload": {"tenant": "acme"}},
]  # fmt: skip


def run(*command: object, cwd: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GFORCE_", "PYTHON", "COV_", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "120", "TERM": "dumb"},
        check=False,
    )


def done(*command: object, cwd: Path, text: str = "") -> str:
    """What the command printed; it must succeed."""
    ended = run(*command, cwd=cwd, text=text)
    assert ended.returncode == 0, f"{command}:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
    return ended.stdout


def once(folder: Path, make: list[object]) -> None:
    """Run a command once, however many workers of pytest ask for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "failed").exists():
            pytest.fail("another worker has already failed at this")
        if not (folder / "done").exists():
            (folder / "failed").touch()
            done(*make, cwd=folder)
            (folder / "failed").rename(folder / "done")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packaging"


@pytest.fixture(scope="session")
def wheel(place: Path) -> Path:
    folder = place / "wheel"
    once(folder, [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(place: Path, wheel: Path) -> Path:
    """The folder with the commands of an environment that holds the wheel and its dependencies; a minute at first."""
    folder = place / "environment"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "made").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "bin").exists():
                venv.create(folder, with_pip=True)
    once(folder, [folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel])
    return folder / "bin"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Not the checkout: what is imported here was installed."""
    return tmp_path


def test_the_wheel_holds_every_file_that_is_read_at_run_time(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    wanted = [
        path
        for package in ("processor", "producers", "schemas")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert {path.suffix for path in wanted} >= {
        ".py",
        ".json",
        ".avsc",
        ".lua",
        ".toml",
        ".html",
        ".css",
        ".js",
        ".svg",
    }
    missing = {path.relative_to(ROOT).as_posix() for path in wanted} - held
    assert not missing
    assert not [name for name in held if name.startswith("tests/")]


def test_the_command_says_its_version_and_what_it_can_do(installed: Path, elsewhere: Path) -> None:
    assert done(installed / "gforce", "--version", cwd=elsewhere).strip() == f"gforce {__version__}"
    shown = done(installed / "gforce", "--help", cwd=elsewhere)
    for command in ("run", "demo", "experiment"):
        assert command in shown
    where = done(installed / "python", "-c", "import processor; print(processor.__file__)", cwd=elsewhere)
    assert where.startswith(str(installed.parent))


def test_the_embedded_processor_decides_lines_of_json(installed: Path, elsewhere: Path) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in LINES)
    out = [
        json.loads(line)
        for line in done(installed / "gforce", "run", "--embedded", cwd=elsewhere, text=lines).splitlines()
    ]
    by_topic = {record["topic"]: record for record in out}
    assert len(out) == 2
    assert by_topic["decisions"]["payload"]["decision"] == "true"
    assert by_topic["decisions"]["payload"]["context"] == {"n": 1}
    assert by_topic["dead-letters"]["headers"]["gforce.reason"] == "schema"


def test_the_demo_runs_to_its_end(installed: Path, elsewhere: Path) -> None:
    shown = done(installed / "gforce", "demo", "--rounds", 300, "--pace", 0, cwd=elsewhere)
    assert "GroupAware" in shown
