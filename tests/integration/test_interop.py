"""Ordinary tools talk to the processor: kcat writes requests and labels and reads decisions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from processor.core.events import Reason
from processor.core.stream.partitioner import partition_of
from tests.servers.processor_process import DEADLINE, Deployment, Place, eventually

MURMUR2 = ("-X", "partitioner=murmur2_random")


@pytest.fixture(autouse=True)
def _kcat() -> None:
    if shutil.which("kcat") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no kcat: apt-get install kcat")


def kcat(deployment: Deployment, mode: str, role: str, *options: str, lines: Iterable[str] = ()) -> str:
    command = ["kcat", mode, "-b", deployment.bootstrap, "-t", deployment.topic(role), *options]
    done = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def keyed(records: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Lines for ``kcat -K '|'``."""
    return [f"{key.decode()}|{value.decode()}" for key, value in records]


def read_all(deployment: Deployment, role: str) -> list[dict[str, Any]]:
    """What ``kcat -C -J -e`` prints: an object for each record."""
    return [json.loads(line) for line in kcat(deployment, "-C", role, "-J", "-e", "-q").splitlines()]


def test_kcat_writes_requests_and_labels_and_reads_decisions(deployment: Deployment) -> None:
    processor = deployment.processor().start_ready()
    wanted = [(f"tenant-{n % 20}", f"loan-{n}") for n in range(100)]
    requests = keyed(deployment.request(*each, context={"n": each[1]}) for each in wanted)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    kcat(deployment, "-P", "requests", *MURMUR2, "-K", "|", "-H", f"traceparent={trace}", lines=requests)
    read = eventually(lambda: read_all(deployment, "decisions"), lambda found: len(found) >= 100, "100 decisions")
    events = [json.loads(record["payload"]) for record in read]
    assert Counter((event["tenant"], event["decision_id"]) for event in events) == Counter(wanted)
    assert all(event["context"] == {"n": event["decision_id"]} for event in events)
    assert {record["key"] for record in read} == {tenant for tenant, _ in wanted}
    assert all(record["headers"] == ["traceparent", trace] for record in read)

    labels = keyed(deployment.label(*each) for each in wanted)
    kcat(deployment, "-P", "feedback", *MURMUR2, "-K", "|", lines=labels)
    eventually(lambda: processor.metric("gforce_labels_joined_total"), lambda joined: joined == 100, "100 labels")
    assert read_all(deployment, "dead-letters") == []


def test_a_producer_without_murmur2_finds_its_strays_among_the_dead_letters(deployment: Deployment) -> None:
    deployment.processor().start_ready()
    wanted = [(f"tenant-{n}", f"loan-{n}") for n in range(60)]
    kcat(deployment, "-P", "requests", "-K", "|", lines=keyed(deployment.request(*each) for each in wanted))
    landed = {
        Place(record["topic"], record["partition"], record["offset"]): record["key"]
        for record in read_all(deployment, "requests")
    }
    assert len(landed) == len(wanted)
    strays = {
        place for place, key in landed.items() if partition_of(key.encode(), deployment.partitions) != place.partition
    }
    assert 0 < len(strays) < len(wanted), "CRC32 and murmur2 agree on about half of the keys"
    letters = eventually(deployment.dead_letters, lambda found: len(found) >= len(strays), "the strays")
    assert set(letters) == strays
    assert {letter.header("gforce.reason") for letter in letters.values()} == {Reason.WRONG_PARTITION}
    at_home = {landed[place] for place in landed if place not in strays}
    decided = eventually(deployment.decisions, lambda found: len(found) >= len(at_home))
    assert sorted(tenant for tenant, _ in decided) == sorted(at_home)


def test_headers_that_no_client_of_ours_can_read_stop_nobody(deployment: Deployment) -> None:
    """A name that is no text, and a record that is nearly all header: both are decided, without their headers."""
    processor = deployment.processor().start_ready()
    hostile = [b"-H", b"b\xff\xfead=1"], [b"-H", b"n" * 100_000 + b"=1"]
    for number, header in enumerate(hostile):
        [line] = keyed([deployment.request("t", f"hostile-{number}")])
        words = ["kcat", "-P", "-b", deployment.bootstrap, "-t", deployment.topic("requests"), *MURMUR2, "-K", "|"]
        subprocess.run([*map(str.encode, words), *header], input=line.encode(), timeout=DEADLINE, check=True)
    deployment.send(
        "feedback", [(b"t", deployment.label("t", "nobody")[1][:-1] + b', "note": "%s"}' % (b"x" * 70_000))]
    )
    deployment.send("requests", [deployment.request("t", "ordinary")])
    decisions = eventually(lambda: deployment.records("decisions"), lambda found: len(found) >= 3, "three decisions")
    assert sorted(found.json["decision_id"] for found in decisions) == ["hostile-0", "hostile-1", "ordinary"]
    assert all(not found.headers for found in decisions)
    letters = eventually(deployment.dead_letters, lambda found: len(found) >= 1, "the label")
    assert [letter.header("gforce.reason") for letter in letters.values()] == [str(Reason.LIMIT)]
    assert processor.metric("gforce_dead_letters_total", reason="internal") == 0.0
