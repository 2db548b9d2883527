"""Recording a real cluster, going on after a kill, reading what kcat recorded, and playing it all again."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace
from typer.testing import CliRunner

from processor.adapters.kafka.admin import Topic, create_topics, delete_records
from processor.adapters.kafka.group import KafkaGroup
from processor.adapters.kafka.reader import KafkaReader
from processor.audit.sources import manifest as manifests
from processor.audit.sources.cluster import KafkaSource
from processor.audit.sources.file_sources import RecordedSource
from processor.audit.sources.manifest import verify_manifest
from processor.audit.sources.source import ROLES, Role, open_source
from processor.cli import app
from processor.core.errors import GForceError
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JournalRecord, Range, digest
from processor.ports.log import Committed, Record, TopicPartition
from tests.servers.broker import Broker
from tests.servers.processor_process import DEADLINE, Deployment, clean_environment, eventually, toml

PARTITIONS = 2
START = 1_700_000_000_000


@dataclass
class Site:
    """Topics, a group and a configuration of their own; nothing processes them."""

    config: Path
    name: str
    properties: dict[str, str]

    @classmethod
    def made(cls, bootstrap: str, folder: Path) -> Site:
        name = f"rec-{uuid4().hex[:8]}"
        config = folder / "gforce.toml"
        kafka = {"bootstrap_servers": bootstrap, "group": name}
        config.write_text(toml({"kafka": kafka, "topics": {"prefix": f"{name}."}}))
        site = cls(config, name, {"bootstrap.servers": bootstrap})
        kept = {"retention.ms": "-1"}  # the records' times are long past
        create_topics(site.properties, [Topic(site.topic(role), PARTITIONS, kept) for role in ROLES])
        return site

    def topic(self, role: str) -> str:
        return f"{self.name}.{role.replace('_', '-')}"

    @property
    def topics(self) -> dict[Role, str]:
        return {role: self.topic(role) for role in ROLES}

    def gforce(self, *words: str, expect: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, "--config", str(self.config)], env={"COLUMNS": "200"})
        code = 2 if isinstance(result.exception, GForceError) else result.exit_code
        assert code == expect, f"{result.output}\n{result.exception!r}"
        return result.output or str(result.exception)

    def record(self, folder: Path, *words: str) -> Any:
        text = self.gforce("record", "--out", str(folder), "--json", *words)
        return json.loads(text[text.index("{") :])

    def send(self, role: str, records: list[Record]) -> None:
        producer = Producer({**self.properties, "linger.ms": 5})
        for one in records:
            headers: Any = list(one.headers) or None
            while True:
                try:
                    producer.produce(
                        self.topic(role), one.value, one.key, one.partition, timestamp=one.timestamp, headers=headers
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(DEADLINE) == 0

    def there(self, role: str) -> list[list[Record]]:
        """Everything committed to a topic, by partition."""
        reader = KafkaReader(self.properties)
        try:
            places = [TopicPartition(self.topic(role), number) for number in range(PARTITIONS)]
            return [[*reader.read(at, reader.bounds(at)[0])] for at in places]
        finally:
            reader.close()


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site.made(broker.bootstrap, tmp_path)


def simple(count: int, partition: int = 0, start: int = 0) -> list[Record]:
    numbers = range(start, start + count)
    return [Record("", partition, 0, START + n, b"acme", b'{"n":%d,"x":"%064d"}' % (n, n * 7919)) for n in numbers]


ODD = [
    Record("", 0, 0, START, b"acme", b'{"text":"\xc3\xa4 \\" \\\\ \\u00e9"}', (("trace", b"1"), ("trace", None))),
    Record("", 0, 0, START + 1, None, None),
    Record("", 1, 0, START + 2, b"\xff\xfe", b"\x00\x01\xff\x80\n\t\x7f"),
    Record("", 1, 0, START + 3, b"", b""),
    Record("", 0, 0, START + 4, b"acme", "☃\u2028\U0001f600".encode()),
    Record("", 0, 0, START + 5, b"acme", b"{}", (("bin", b"\xff\x00"), ("text", b"plain"))),
    Record("", 1, 0, START + 6, b"acme", b"\xed\xa0\x80 half a surrogate"),
]


def same(found: Iterator[Record], wanted: list[Record]) -> bool:
    return [*found] == wanted


def test_a_recording_holds_what_the_topics_hold_and_is_gone_on_with(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    site.send("requests", ODD)
    site.send("dead-letters", ODD)
    first = site.record(out)
    assert (first["records"], first["added"]) == (2 * len(ODD), 2 * len(ODD))
    assert {one["topic"] for one in first["ranges"]} == set(site.topics.values()) - {site.topic("changelog")}
    source = RecordedSource(out)
    for role in ("requests", "dead_letters", "alerts"):
        for number, wanted in enumerate(site.there(role)):
            assert same(source.read(role, number), wanted)
    assert site.record(out)["added"] == 0
    site.send("requests", simple(1_000, 1))
    site.send("feedback", simple(10))
    assert site.record(out)["added"] == 1_010
    source = RecordedSource(out)
    assert same(source.read("requests", 1), site.there("requests")[1])
    assert verify_manifest(out) == []
    assert manifests.load(out).finished


def test_only_committed_records_are_recorded_and_open_transactions_are_waited_for(site: Site, tmp_path: Path) -> None:
    producer = Producer({**site.properties, "transactional.id": f"{site.name}-writer"})
    producer.init_transactions(DEADLINE)

    def begun(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(site.topic("decisions"), value, b"acme", 0)
        assert producer.flush(DEADLINE) == 0

    for n, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        begun(b"%d" % n)
        end(DEADLINE)
    begun(b"late")
    recording = subprocess.Popen(
        [sys.executable, "-m", "processor.cli", "record", "-o", str(tmp_path / "out"), "-c", str(site.config)],
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
    )
    time.sleep(3)
    assert recording.poll() is None  # it waits
    producer.commit_transaction(DEADLINE)
    assert recording.wait(DEADLINE) == 0
    source = RecordedSource(tmp_path / "out")
    assert [one.value for one in source.read("decisions", 0)] == [b"0", b"2", b"late"]
    assert source.bounds("decisions", 0) == (0, 8)
    live = KafkaSource(site.properties, site.topics, site.name)
    assert [*live.read("decisions", 0)] == [*source.read("decisions", 0)]


def test_a_recording_killed_again_and_again_ends_up_whole(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for partition in range(PARTITIONS):
        site.send("requests", simple(60_000, partition))
    command = [sys.executable, "-m", "processor.cli", "record", "--split-size", "50kB"]
    command += ["--out", str(out), "--config", str(site.config)]
    saved = [0]
    for _ in range(2):
        process = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + DEADLINE
        while process.poll() is None and _saved(out) == saved[-1] and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(0.01)  # something is being written after what the manifest knows
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            saved.append(_saved(out))
    assert 0 < saved[1] < 120_000  # one kill at least hit it in the middle
    assert sorted(saved) == saved
    assert manifests.load(out).finished is None
    assert verify_manifest(out) != []
    done = site.record(out, "--split-size", "50kB")
    assert done["records"] == 120_000
    assert verify_manifest(out) == []
    source = RecordedSource(out)
    assert all(len(one.files) > 1 for one in source.manifest.ranges if one.role == "requests")
    for number, wanted in enumerate(site.there("requests")):
        assert same(source.read("requests", number), wanted)


def _saved(folder: Path) -> int:
    return manifests.load(folder).records if (folder / "manifest.json").exists() else 0


def test_what_kcat_recorded_is_read_to_the_byte(site: Site, tmp_path: Path) -> None:
    if shutil.which("kcat") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no kcat: apt-get install kcat")
    site.send("requests", [*ODD, *simple(300), *simple(300, 1)])
    site.send("feedback", simple(50, 1))
    path = tmp_path / "kcat.jsonl"
    with path.open("wb") as file:
        for role in ("requests", "feedback"):
            command = ["kcat", "-C", "-J", "-e", "-q", "-b", site.properties["bootstrap.servers"]]
            subprocess.run([*command, "-t", site.topic(role)], stdout=file, timeout=DEADLINE, check=True)
    with open_source([path]) as source:
        assert source.topic("requests") == site.topic("requests")
        inputs: tuple[Role, ...] = ("requests", "feedback")
        for role in inputs:
            for number, wanted in enumerate(site.there(role)):
                assert same(source.read(role, number), wanted)
    out = tmp_path / "ours"
    site.record(out, "--topics", "requests,feedback", "--compress", "none")
    ours, theirs = (_text_lines(one) for one in ([*out.rglob("*.jsonl")], [path]))
    assert len(theirs) > 600
    assert all(ours[place] == line for place, line in theirs.items())


def _text_lines(paths: list[Path]) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Lines that are JSON to everybody, but for the broker's number, which only kcat is told."""
    found = {}
    for path in paths:
        for raw in path.read_bytes().splitlines():
            try:
                line = json.loads(raw.decode())
            except UnicodeDecodeError:
                continue
            if not any(name.endswith("_base64") for name in line):
                found[line["topic"], line["partition"], line["offset"]] = {**line, "broker": 0}
    return found


def test_offsets_that_are_gone_are_named(site: Site, tmp_path: Path) -> None:
    site.send("requests", simple(100))
    out = tmp_path / "early"
    site.record(out, "--topics", "requests")
    site.send("requests", simple(100))
    delete_records(site.properties, TopicPartition(site.topic("requests"), 0), 150)
    text = site.gforce("record", "--out", str(out), "--topics", "requests", expect=1)
    assert "offsets 100 to 149 are gone" in text
    text = site.gforce(
        "record", "--out", str(tmp_path / "a"), "--topics", "requests", "--from", "requests/0=20", expect=1
    )
    assert "offsets 20 to 149 are gone" in text
    late = site.record(tmp_path / "late", "--topics", "requests", "--to", "requests=180")
    assert late["gone"] == [{"topic": site.topic("requests"), "partition": 0, "since": 0, "until": 150, "why": ""}]
    assert [one.offset for one in RecordedSource(tmp_path / "late").read("requests", 0)] == [*range(150, 180)]


def test_a_folder_is_not_used_for_two_recordings(site: Site, tmp_path: Path) -> None:
    site.record(tmp_path / "out", "--topics", "requests")
    text = site.gforce("record", "--out", str(tmp_path / "out"), "--topics", "feedback", expect=1)
    assert "another topics" in text
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear")
    assert "not empty" in site.gforce("record", "--out", str(tmp_path / "letters"), expect=1)
    assert "no partition 7" in site.gforce("record", "--out", str(tmp_path / "b"), "--partitions", "7", expect=2)
    assert "neither an offset" in site.gforce("record", "--out", str(tmp_path / "c"), "--from", "soon", expect=2)


def _batch(sequence: int, previous: str, requests: tuple[int, int], feedback: tuple[int, int]) -> bytes:
    ranges = [Range(first, after, after - first, "") for first, after in (requests, feedback)]
    return JournalRecord(
        lineage="ab12",
        partition=0,
        partitions=PARTITIONS,
        sequence=sequence,
        clock=START,
        now=START,
        requests=ranges[0],
        feedback=ranges[1],
        decisions=0,
        decisions_digest="",
        state_digest="",
        previous=previous,
    ).encode()


def _journalled(site: Site) -> list[Identity]:
    """Ten batches of ten requests and five labels, a minute apart; the identity after each."""
    site.send("requests", simple(100))
    site.send("feedback", simple(50))
    made, identities, previous = [], [], GENESIS
    for n in range(10):
        value = _batch(n + 1, previous, (n * 10, n * 10 + 10), (n * 5, n * 5 + 5))
        previous = digest(value)
        made.append(Record("", 0, 0, START + n * 60_000, b"0", value))
        identities.append(Identity("ab12", n + 1, previous))
    site.send("journal", made)
    positions = {
        TopicPartition(site.topic(role), 0): Committed(100, identities[-1].text()) for role in ("requests", "feedback")
    }
    KafkaGroup(site.properties, site.name).commit(positions)
    return identities


def test_the_committed_identity_goes_with_the_recording(site: Site, tmp_path: Path) -> None:
    identities = _journalled(site)
    site.record(tmp_path / "all")
    source = RecordedSource(tmp_path / "all")
    assert (source.anchor(0), source.anchor(1)) == (identities[-1].text(), None)
    assert source.manifest.anchors[0].head == identities[-1].text()
    assert KafkaSource(site.properties, site.topics, site.name).anchor(0) == identities[-1].text()
    site.record(tmp_path / "part", "--to", "journal=4")
    assert RecordedSource(tmp_path / "part").anchor(0) == identities[3].text()


def test_a_window_of_time_holds_the_inputs_of_its_batches(site: Site, tmp_path: Path) -> None:
    identities = _journalled(site)
    site.send("changelog", simple(20))
    window = ("--from", "2023-11-14T22:16:20Z", "--to", "2023-11-14T22:18:20Z")  # START is 22:13:20
    site.record(tmp_path / "window", "--with-state", *window)
    source = RecordedSource(tmp_path / "window")
    batches = [JournalRecord.decode(one.value or b"") for one in source.read("journal", 0)]
    assert [batch.sequence for batch in batches] == [4, 5]
    assert source.bounds("requests", 0) == (30, 100)  # all requests came in the first second
    assert source.bounds("feedback", 0) == (15, 50)
    assert source.bounds("changelog", 0) == (0, 20)
    assert source.anchor(0) == identities[4].text()


def test_a_recording_is_played_into_other_topics_as_it_was(site: Site, tmp_path: Path) -> None:
    site.send("requests", [*ODD, *simple(500), *simple(500, 1)])
    site.send("feedback", simple(100, 1))
    out = tmp_path / "out"
    site.record(out)
    assert "is what was recorded" in site.gforce("play", str(out), "--into", f"{site.name}.", expect=1)
    assert "there is no topic" in site.gforce("play", str(out), "--into", "nowhere.", expect=2)
    copy = Site.made(site.properties["bootstrap.servers"], tmp_path)
    sent = json.loads(copy.gforce("play", str(out), "--into", f"{copy.name}.", "--same-partitions", "--json"))
    assert sent["sent"] == {copy.topic("requests"): len(ODD) + 1_000, copy.topic("feedback"): 100}
    for role in ("requests", "feedback"):
        for wanted, found in zip(site.there(role), copy.there(role), strict=True):
            assert [_content(one) for one in found] == [_content(one) for one in wanted]
    by_key = Site.made(site.properties["bootstrap.servers"], tmp_path)
    into = [f"--into=requests={by_key.topic('requests')}", "--topics=requests", "--now"]
    by_key.gforce("play", str(out), *into)
    parts = by_key.there("requests")
    assert sorted(len(part) for part in parts)[-1] >= 1_000  # one tenant, one partition
    assert all(one.timestamp > START + 10**9 for part in parts for one in part)


def _content(record: Record) -> Record:
    return replace(record, topic="", offset=0)


def test_the_cluster_itself_is_read_like_a_recording_with_many_reads_at_once(site: Site) -> None:
    site.send("requests", [*simple(3_000), *simple(2_000, 1)])
    site.send("feedback", simple(1_000))
    source = pickle.loads(pickle.dumps(KafkaSource(site.properties, site.topics, site.name)))
    site.send("requests", simple(5))  # later than the source, which does not see them
    assert source.bounds("requests", 0) == (0, 3_000)
    wanted, labels = site.there("requests")[0][:3_000], site.there("feedback")[0]
    requests, feedback = source.read("requests", 0), source.read("feedback", 0)
    found = [(next(requests), next(requests), next(requests), next(feedback)) for _ in range(1_000)]
    assert [one for group in found for one in group[:3]] == wanted
    assert [group[3] for group in found] == labels
    assert [*requests, *feedback] == []
    assert [one.offset for one in source.read("requests", 1, 1_990)] == [*range(1_990, 2_000)]
    assert (source.partitions("decisions"), source.has("alerts")) == ([0, 1], True)


def test_a_processors_topics_are_recorded_with_its_committed_state(deployment: Deployment, tmp_path: Path) -> None:
    processor = deployment.processor().start_ready()
    wanted = [(f"tenant-{n % 20}", f"loan-{n}") for n in range(200)]
    deployment.send("requests", (deployment.request(*each) for each in wanted))
    eventually(deployment.decisions, lambda found: len(found) == 200, "200 decisions")
    site = Site(processor.config, deployment.name, {"bootstrap.servers": deployment.bootstrap})
    site.record(tmp_path / "out", "--with-state")
    assert verify_manifest(tmp_path / "out") == []
    source = RecordedSource(tmp_path / "out")
    for number in range(PARTITIONS):
        values = [one.value or b"" for one in source.read("journal", number)]
        committed = Identity.parse(source.anchor(number) or "")
        assert committed is not None
        assert committed.digest in {digest(value) for value in values}
        decided = sum(JournalRecord.decode(value).decisions for value in values)
        assert decided == len([*source.read("decisions", number)])
        assert [*source.read("changelog", number)]
