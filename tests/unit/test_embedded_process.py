"""The embedded processor as a process of its own: told to stop it has decided all it has read, and leaves no trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from processor.config import load
from processor.embedded.embedded import embedded
from tests.servers.processor_process import clean_environment, eventually

SECONDS = 60
COMMAND = [sys.executable, "-m", "processor.cli"]
SEED = {"GFORCE_PROCESSING__SEED": "ab" * 32}
EVENT = {"tenant": "acme", "decision_id": "loan-1", "group": "A", "predictions": {"model": True}}
REQUEST = json.dumps({"topic": "requests", "key": "acme", "payload": EVENT}).encode() + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the processes of a test put what is temporary."""
    made = tmp_path / "t"
    made.mkdir()
    return made


def heeds_hang_up() -> None:
    """The tests themselves may run under ``nohup``, whose children ignore SIGHUP, as does the processor then."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Reads a pipe that stays open, in a group of its own as a terminal would have it."""
    process = subprocess.Popen(
        [*COMMAND, "run", "--embedded"],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**clean_environment(), "TMPDIR": str(folder)},
        start_new_session=True,
        preexec_fn=heeds_hang_up,
    )
    with process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda how: how.name)
def test_an_open_pipe_is_left_at_once_and_nothing_is_left_behind(
    how: signal.Signals, running: subprocess.Popen[bytes], folder: Path
) -> None:
    assert running.stdin
    assert running.stdout
    assert running.stderr
    running.stdin.write(REQUEST)
    running.stdin.flush()
    assert json.loads(running.stdout.readline())["payload"]["decision_id"] == "loan-1"
    servers = children(running.pid)
    assert servers, "it has a Valkey server"
    os.killpg(running.pid, how)  # as Ctrl-C in a terminal does: the server gets it too
    assert running.wait(SECONDS) == 0
    assert gone(servers)
    assert list(folder.iterdir()) == []
    said = running.stderr.read().decode()
    assert "1 record, 1 decision," in said
    assert "Traceback" not in said


def test_the_server_does_not_go_before_what_was_read_is_decided() -> None:
    with embedded(load(None, SEED)) as processor:
        for server in children(os.getpid()):
            os.kill(server, signal.SIGINT)
            os.kill(server, signal.SIGTERM)
        processor.produce("requests", b"acme", json.dumps(EVENT).encode())
        processor.run_until_idle()
        assert len(list(processor.new_records("decisions"))) == 1


def test_the_demo_leaves_nothing_behind_when_it_is_terminated(folder: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "--rounds", "200", "--pace", "0", "--keep"],
        stdout=PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**clean_environment(), "TMPDIR": str(folder)},
    ) as demo:
        assert demo.stdout
        eventually(demo.stdout.readline, lambda line: "The page stays up" in line)
        servers = children(demo.pid)
        demo.terminate()
        shown, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0
    assert shown.strip().endswith("stopped.")
    assert gone(servers)
    assert list(folder.iterdir()) == []


def decided(lines: Path, seed: Mapping[str, str]) -> tuple[bytes, str]:
    """What a run writes and what it says."""
    done = subprocess.run(
        [*COMMAND, "run", "--embedded", "--input", str(lines)],
        capture_output=True,
        env=clean_environment() | seed,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout, done.stderr.decode()


def test_a_seed_that_was_made_up_is_said_to_be_and_the_same_seed_decides_the_same(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    split = {**EVENT, "predictions": {"model": True, "rules": False}}
    events = ({**split, "decision_id": str(number)} for number in range(100))
    records = ({"topic": "requests", "key": "acme", "payload": event, "ts": 1_700_000_000_000} for event in events)
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    (one, said), (other, _) = decided(lines, {}), decided(lines, {})
    assert "seed made up: set GFORCE_PROCESSING__SEED" in said
    assert one != other
    (one, said), (other, _) = decided(lines, SEED), decided(lines, SEED)
    assert "made up" not in said
    assert one == other


def test_a_stream_goes_through_pipes_until_nobody_reads_it(folder: Path) -> None:
    environment = {**clean_environment(), "TMPDIR": str(folder)}
    produce = [*COMMAND, "produce", "synthetic", "--count", "2000", "--out", "-"]
    with (
        subprocess.Popen(produce, stdout=PIPE, stderr=PIPE, env=environment) as producer,
        subprocess.Popen(
            [*COMMAND, "run", "--embedded"], stdin=producer.stdout, stdout=PIPE, stderr=PIPE, env=environment
        ) as processor,
    ):
        assert producer.stdout
        assert processor.stdout
        producer.stdout.close()  # the processor has it
        seen = [json.loads(processor.stdout.readline()) for _ in range(3)]  # as `head -3` does
        processor.stdout.close()
        said = [process.stderr.read().decode() for process in (producer, processor) if process.stderr]
    assert [line["topic"] for line in seen] == ["decisions"] * 3
    assert (producer.returncode, processor.returncode) == (0, 0)
    assert "2000 request, 2000 label" in said[0]
    assert not [text for text in said if "Traceback" in text or "rror" in text]
    assert list(folder.iterdir()) == []
