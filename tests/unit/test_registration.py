"""Of two processes under one name the newer one gives up, whoever comes when, and a dead one holds up nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from processor.adapters.memory.processes import MemoryProcesses
from processor.config import load
from processor.ports.log import OperatorActionRequiredError
from processor.ports.processes import EXPIRY_MS, Process
from processor.ports.store import StoreUnavailableError, StoreUnusableError
from processor.run import registration
from processor.run.registration import Registration, is_gone, this_process

CONFIG = load(None, {"GFORCE_PROCESSING__SEED": "ab" * 32, "GFORCE_KAFKA__INSTANCE": "one"})
ALIVE: Callable[[Process, Process], bool] = lambda other, ours: False  # noqa: E731
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="namespaces and /proc are Linux'")


class Told(threading.Event):
    """Time passes when somebody waits for it, and others do what they do meanwhile."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench

    def wait(self, timeout: float | None = None) -> bool:
        self._bench.now += int((timeout or 0) * 1_000)
        for do in self._bench.meanwhile:
            do()
        return self.is_set()


@dataclass
class Bench:
    now: int = 1_000_000
    meanwhile: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.processes = MemoryProcesses(lambda: self.now)

    def process(self, token: str, started: int = 0) -> Process:
        return msgspec.structs.replace(this_process(CONFIG), token=token, host=f"host-of-{token}", started=started)

    def registration(self, process: Process, gone: Callable[[Process, Process], bool] = ALIVE) -> Registration:
        clock = lambda: self.now  # noqa: E731
        return Registration(self.processes, process, Told(self), gone, clock, clock)

    @property
    def holder(self) -> str | None:
        found = self.processes.find("one")
        return msgspec.json.decode(found)["token"] if found else None


@pytest.fixture
def bench() -> Bench:
    return Bench()


# At the start


def test_a_free_name_is_taken_without_waiting(bench: Bench) -> None:
    bench.registration(bench.process("a")).enter()
    assert (bench.holder, bench.now) == ("a", 1_000_000)


def test_a_name_that_is_refreshed_is_given_up_and_the_message_says_who_has_it(bench: Bench) -> None:
    older = bench.registration(bench.process("a", started=1_700_000_000_000))
    older.enter()
    bench.meanwhile.append(older.refresh)
    with pytest.raises(OperatorActionRequiredError) as caught:
        bench.registration(bench.process("b")).enter()
    assert str(caught.value) == (
        f'another process runs as instance "one": host host-of-a, pid {os.getpid()}, since 2023-11-14 22:13:20Z, its '
        'pages at 127.0.0.1:9464. Remedy: give every process its own "instance"'
    )
    assert (bench.holder, older.trouble) == ("a", "")


def test_one_that_is_not_refreshed_is_waited_for_until_it_expires(bench: Bench) -> None:
    bench.registration(bench.process("a")).enter()
    bench.registration(bench.process("b")).enter()
    assert bench.holder == "b"
    assert EXPIRY_MS <= bench.now - 1_000_000 < EXPIRY_MS + 1_000


def test_one_that_is_certainly_gone_is_replaced_without_waiting(bench: Bench) -> None:
    bench.registration(bench.process("a")).enter()
    bench.registration(bench.process("b"), gone=lambda other, ours: other.token == "a").enter()
    assert (bench.holder, bench.now) == ("b", 1_000_000)


def test_of_two_that_wait_for_a_dead_one_one_gives_up(bench: Bench) -> None:
    bench.registration(bench.process("dead")).enter()

    def third() -> None:
        bench.processes.hold(bench.process("third"))

    bench.meanwhile.append(third)
    with pytest.raises(OperatorActionRequiredError, match="host-of-third"):
        bench.registration(bench.process("b")).enter()


@pytest.mark.parametrize("text", [b'{"form":2}', b"not a record"])
def test_a_stranger_is_respected_and_one_that_never_expires_is_named(bench: Bench, text: bytes) -> None:
    bench.processes.records["one"] = (text, 2**62)
    with pytest.raises(OperatorActionRequiredError, match="delete the key <redis.prefix>:process:one"):
        bench.registration(bench.process("b")).enter()
    assert bench.processes.find("one") == text


def test_a_later_version_that_refreshes_its_record_is_somebody(bench: Bench) -> None:
    texts = iter(range(1_000))

    def refresh() -> None:
        bench.processes.records["one"] = (b'{"form":2,"refreshed":%d}' % next(texts), 2**62)

    refresh()
    bench.meanwhile.append(refresh)
    with pytest.raises(OperatorActionRequiredError, match="somebody of a later version"):
        bench.registration(bench.process("b")).enter()


def test_who_is_told_to_stop_while_waiting_stops(bench: Bench) -> None:
    bench.registration(bench.process("a")).enter()
    waiting = bench.registration(bench.process("b"))
    bench.meanwhile.append(waiting._told.set)
    waiting.enter()
    assert bench.holder == "a"


# While running


def test_a_record_that_vanished_is_written_again(bench: Bench) -> None:
    running = bench.registration(bench.process("a"))
    running.enter()
    bench.processes.records.clear()
    running.refresh()
    assert (bench.holder, running.trouble) == ("a", "")


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_two_that_found_nothing_the_one_that_started_later_gives_up(bench: Bench, first: str) -> None:
    older = bench.registration(bench.process("a", started=1))
    newer = bench.registration(bench.process("b", started=2))
    for each in (older, newer):
        bench.processes.records.clear()
        each.enter()
    bench.processes.records.clear()
    turns = [older, newer] if first == "a" else [newer, older]
    for _ in range(4):
        for each in turns:
            bench.now += 1_000
            if not each.trouble:
                each.refresh()
    assert (older.trouble, bench.holder) == ("", "a")
    assert "host-of-a" in newer.trouble
    assert newer._told.is_set()
    assert not older._told.is_set()


def test_of_two_that_started_in_the_same_millisecond_exactly_one_gives_up(bench: Bench) -> None:
    both = [bench.registration(bench.process(token, started=1)) for token in ("a", "b")]
    for _ in range(4):
        for each in both:
            bench.now += 1_000
            if not each.trouble:
                each.refresh()
    assert [bool(each.trouble) for each in both] == [False, True]


def test_who_was_suspended_for_longer_than_its_record_lives_gives_way_to_its_successor(bench: Bench) -> None:
    hung = bench.registration(bench.process("a", started=1))
    hung.enter()
    bench.registration(bench.process("b", started=2)).enter()
    hung.refresh(suspended=True)
    assert "host-of-b" in hung.trouble
    assert bench.holder == "b"


def test_the_newer_one_goes_on_if_the_older_one_ends_after_it_took_its_name_back(bench: Bench) -> None:
    """The broker lets the newer one fence the older: both giving up would leave nobody."""
    older = bench.registration(bench.process("a", started=1))
    newer = bench.registration(bench.process("b", started=2))
    newer.enter()
    older.refresh()
    assert bench.holder == "a"
    newer.refresh()
    bench.processes.release(bench.process("a", started=1))
    newer.refresh()
    assert (newer.trouble, bench.holder) == ("", "b")


def test_who_finds_a_later_version_in_its_place_gives_up_when_that_refreshes_its_record(bench: Bench) -> None:
    running = bench.registration(bench.process("a"))
    running.enter()
    for number in range(2):
        assert not running.trouble
        bench.processes.records["one"] = (b'{"form":2,"refreshed":%d}' % number, 2**62)
        running.refresh()
    assert "later version" in running.trouble


# The thread


class Away(MemoryProcesses):
    """A registry that fails with ``error`` while there is one."""

    error: Exception | None = None
    asked = 0

    def hold(self, process: Process, instead_of: str = "") -> bytes | None:
        self.asked += 1
        if self.error:
            raise self.error
        return super().hold(process, instead_of)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(registration, "REFRESH_SECONDS", 0.01)
    return Away(lambda: 0)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_store_that_is_away_is_tried_again_and_ends_nothing(away: Away) -> None:
    told = threading.Event()
    running = Registration(away, this_process(CONFIG), told)
    running.start()
    away.error = StoreUnavailableError("away")
    before = away.asked
    until(lambda: away.asked > before + 3)
    away.records.clear()
    away.error = None
    until(lambda: away.find("one"))
    assert not told.is_set()
    running.stop()
    assert away.find("one") is None, "given back"


def test_without_the_rights_it_runs_unregistered(away: Away) -> None:
    away.error = StoreUnusableError("lacks rights")
    running = Registration(away, this_process(CONFIG), threading.Event())
    running.start()
    assert not running._thread.is_alive()
    running.stop()


def test_without_a_store_nothing_starts(away: Away) -> None:
    away.error = StoreUnavailableError("away")
    running = Registration(away, this_process(CONFIG), threading.Event())
    with pytest.raises(StoreUnavailableError):
        running.start()
    running.stop()


def test_who_must_give_up_while_running_is_told_to_stop_and_keeps_the_others_record(away: Away) -> None:
    told = threading.Event()
    running = Registration(away, this_process(CONFIG), told)
    running.start()
    other, number = msgspec.structs.replace(this_process(CONFIG), token="other", started=1), 0
    while not told.wait(0.02):
        number += 1
        away.records["one"] = (msgspec.structs.replace(other, refreshed=number).encode(), 2**62)
        assert number < 1_000
    running.stop()
    assert "another process runs" in running.trouble
    found = away.find("one")
    assert found
    assert msgspec.json.decode(found, type=Process).token == "other"


# Who is certainly gone


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield started
    started.kill()
    started.wait()
    assert started.stdin
    started.stdin.close()


def of_pid(pid: int) -> Process:
    return msgspec.structs.replace(this_process(CONFIG), token="b", pid=pid, start=registration._stat(pid)[1])


@linux_only
def test_a_process_that_runs_is_not_gone_and_a_killed_one_is(other: subprocess.Popen[bytes]) -> None:
    ours, theirs = this_process(CONFIG), of_pid(other.pid)
    assert not is_gone(theirs, ours)
    other.send_signal(signal.SIGSTOP)
    assert not is_gone(theirs, ours), "it may go on"
    other.kill()
    until(lambda: registration._stat(other.pid)[0] == "Z")
    assert is_gone(theirs, ours), "nobody has waited for it yet"
    other.wait()
    assert is_gone(theirs, ours)


@linux_only
def test_a_pid_that_is_used_again_is_another_process() -> None:
    ours = this_process(CONFIG)
    assert is_gone(msgspec.structs.replace(ours, token="b", start="1"), ours), "our own pid was somebody's before us"
    assert is_gone(msgspec.structs.replace(ours, token="b", pid=os.getppid(), start="1"), ours)
    assert not is_gone(msgspec.structs.replace(ours, token="b"), ours), "two in this very process"


@linux_only
@pytest.mark.parametrize("elsewhere", [{"host": "other"}, {"kernel": "another boot pid:[4026531836]"}])
@pytest.mark.parametrize("pid", [1, 2**22 + 1])
def test_of_another_host_or_container_nothing_is_certain_not_even_where_the_pids_are_alike(
    elsewhere: dict[str, str], pid: int
) -> None:
    """Every container has a pid 1, and two can have one hostname; no pid is above 2²²."""
    ours = msgspec.structs.replace(this_process(CONFIG), pid=1)
    theirs = msgspec.structs.replace(ours, token="b", pid=pid, start="1")
    assert is_gone(theirs, ours)
    assert not is_gone(msgspec.structs.replace(theirs, **elsewhere), ours)


def test_where_nobody_can_say_what_a_pid_means_nothing_is_certain() -> None:
    ours = msgspec.structs.replace(this_process(CONFIG), kernel="")
    assert not is_gone(msgspec.structs.replace(ours, token="b", pid=2**22 + 1), ours)


@linux_only
def test_a_process_is_known_by_its_boot_its_namespace_and_its_start() -> None:
    ours = this_process(CONFIG)
    assert ours.kernel == (
        f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    )
    assert int(ours.start) > 0
