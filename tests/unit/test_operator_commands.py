"""The operators' commands: what can be said without a broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from processor.adapters.kafka.admin import Topic
from processor.adapters.memory.broker import MemoryBroker
from processor.adapters.memory.log import MemoryReader
from processor.adapters.memory.store import MemoryStore
from processor.cli import app
from processor.config import Config, ConfigError, Kafka, Properties
from processor.core.errors import GForceError, InvalidInputError
from processor.core.events import Reason
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.writes import SetField, Writes
from processor.operations.dead_letters import Letter, Wanted, letter_of, letters, obstacle, parsed_place, summarised
from processor.operations.doctor import session
from processor.operations.group import forecast
from processor.operations.options import loaded, milliseconds
from processor.operations.resumption import resumed
from processor.operations.topic_plans import examined, partitioners, wanted
from processor.ports.log import Committed, Record, TopicPartition
from processor.ports.store import Applied
from processor.service.recovery import Recovery
from processor.service.topics import TopicNames
from processor.telemetry.http import HttpServer
from processor.telemetry.metrics import COUNTERS
from processor.telemetry.status import PartitionStatus, Status
from producers.delays import Delay
from producers.stream import Event, Traffic, play, population, scheduled, synthetic_cases
from tests.servers.redis_server import free_port

TOPICS = TopicNames("requests", "feedback", "decisions", "journal", "changelog", "dead-letters", "alerts")


def healthy() -> dict[str, Topic | None]:
    """All topics as `topics create` makes them, on three brokers."""
    return {topic.name: topic for topic in wanted(TOPICS, 4, 3, -1)}


def problems(found: dict[str, Topic | None]) -> list[str]:
    return [finding.what for finding in examined(TOPICS, found) if finding.level == "problem"]


def changed(name: str, partitions: int = 4, **configs: str) -> dict[str, Topic | None]:
    found = healthy()
    topic = found[name]
    assert topic is not None
    named = {key.replace("_", "."): value for key, value in configs.items()}
    found[name] = replace(topic, partitions=partitions, configs={**topic.configs, **named})
    return found


def test_topics_as_created_have_no_problems() -> None:
    assert [finding.level for finding in examined(TOPICS, healthy())] == ["ok"] * 8


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ({**healthy(), "journal": None}, "journal"),
        (changed("feedback", partitions=5), "partition counts"),
        (changed("requests", cleanup_policy="compact"), "requests"),
        (changed("journal", retention_ms="604800000"), "journal"),
        (changed("changelog", retention_bytes="1000"), "changelog"),
        (changed("requests", retention_ms="3600000"), "requests"),
        (changed("decisions", max_message_bytes="1000"), "decisions"),
        (changed("decisions", min_insync_replicas="1"), "decisions"),
        (changed("decisions", min_insync_replicas="4"), "decisions"),
        (changed("decisions", unclean_leader_election_enable="true"), "decisions"),
    ],
)
def test_what_would_break_the_contract_is_a_problem(found: dict[str, Topic | None], what: str) -> None:
    assert problems(found) == [what]


def test_inputs_kept_for_a_year_are_only_a_warning() -> None:
    found = changed("requests", retention_ms=str(365 * 86_400_000))
    assert [finding.level for finding in examined(TOPICS, found) if finding.what == "requests"] == ["warning"]


def test_records_that_sit_on_the_wrong_partition_are_counted() -> None:
    broker = MemoryBroker(lambda: 1_000)
    for name in TOPICS.inputs:
        broker.create_topic(name, 4)
    broker.produce(TopicPartition("requests", 2), b"foobar", b"{}")  # where murmur2 puts it
    broker.produce(TopicPartition("requests", 1), b"foobar", b"{}")
    broker.produce(TopicPartition("requests", 1), None, b"{}")
    requests, feedback = partitioners(TOPICS, MemoryReader(broker))
    assert requests.level == "problem"
    assert requests.found.startswith("1 of the last 3 records")
    assert feedback.level == "ok"


C7 = Identity("ab", 7, "c7")


@pytest.mark.parametrize(
    ("committed", "stored", "action"),
    [
        (None, None, "start"),
        (Identity("ab", 0, GENESIS), C7, "start"),
        (C7, C7, "load"),
        (C7, None, "restore"),
        (C7, Identity("cd", 7, "c7"), "restore"),
        (C7, Identity("ab", 7, "other"), "restore"),
        (C7, Identity("ab", 5, "c5"), "catch up"),
        (C7, Identity("ab", 8, "c8"), "refuse"),
    ],
)
def test_the_doctor_foresees_what_recovery_does(
    committed: Identity | None, stored: Identity | None, action: str
) -> None:
    assert forecast(0, committed, stored).action == action


@pytest.mark.parametrize(("timeout", "heartbeat", "count"), [(10_000, "", 0), (3_000, "", 1), (3_000, "1000", 0)])
def test_a_session_shorter_than_its_heartbeats_is_a_problem(timeout: int, heartbeat: str, count: int) -> None:
    properties = Properties({"heartbeat.interval.ms": heartbeat} if heartbeat else {})
    kafka = Kafka(session_timeout_ms=timeout, consumer_properties=properties)
    assert len(list(session(Config(kafka=kafka)))) == count


class Positions:
    """A group that has committed the same everywhere."""

    def __init__(self, committed: Committed) -> None:
        self._committed = committed

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return dict.fromkeys(partitions, self._committed)


def test_a_committed_beginning_is_a_new_lineage_whatever_journal_and_store_hold() -> None:
    broker = MemoryBroker(lambda: 1_000)
    for name in (*TOPICS.inputs, TOPICS.journal, TOPICS.changelog):
        broker.create_topic(name, 1)
    for name in TOPICS.inputs:
        for _ in range(5):
            broker.produce(TopicPartition(name, 0), b"k", b"{}")
    broker.produce(TopicPartition(TOPICS.journal, 0), b"0", b"a record of the lineage before")
    store, token = MemoryStore(), b"t"
    store.claim(0, token)
    writes = Writes()
    writes.add(SetField(b"p", b"old"))
    assert store.apply(0, token, Identity("old", 1, "d"), 0, writes.packed()) is Applied.DONE
    beginning = Identity("new", 0, GENESIS)
    positions = Positions(Committed(3, beginning.text()))
    recovery = Recovery(TOPICS, positions, MemoryReader(broker), store, lambda name: None, lambda: "never")
    recovered = recovery.recover(0, 1, token)
    assert recovered.partition.identity == beginning
    assert recovered.partition.tenants == {}
    assert recovered.positions == {"requests": 3, "feedback": 3}
    assert store.look_up(0, token, [], 0, 0).identity is None
    assert dict(store.fields(0, token)) == {}


# Dead letters


def letter(reason: str, key: bytes | None = b"acme", at: int = 1_000, **headers: str) -> Letter:
    said = {"gforce.reason": reason, "gforce.topic": "feedback", "gforce.offset": "7"} | {
        f"gforce.{name}": value for name, value in headers.items()
    }
    encoded = tuple((name, value.encode()) for name, value in said.items())
    return letter_of(Record("dead-letters", 2, 5, at, key, b"{}", encoded))


def test_a_letter_says_where_it_came_from() -> None:
    found = letter("schema", timestamp="-1", partition="2")
    assert (found.reason, found.topic, found.partition, found.offset, found.timestamp) == (
        "schema",
        "feedback",
        2,
        7,
        -1,
    )
    assert found.place == "2:5"
    assert found.whole
    assert not letter("schema", length="2000000").whole


def test_a_record_without_our_headers_is_still_listed() -> None:
    foreign = letter_of(Record("dead-letters", 0, 0, 1, None, b"", (("x", None),)))
    assert (foreign.reason, foreign.tenant, foreign.offset) == ("unknown", "", -1)


@pytest.mark.parametrize(
    ("chosen", "taken"),
    [
        (Wanted(), True),
        (Wanted(reason="schema"), True),
        (Wanted(reason="limit"), False),
        (Wanted(tenant="acme"), True),
        (Wanted(tenant="other"), False),
        (Wanted(since=1_000), True),
        (Wanted(since=1_001), False),
        (Wanted(places=frozenset({"2:5"})), True),
        (Wanted(places=frozenset({"2:6"})), False),
    ],
)
def test_letters_are_chosen_by_reason_tenant_time_and_place(chosen: Wanted, taken: bool) -> None:
    assert chosen.takes(letter("schema")) is taken


def test_letters_are_counted_by_reason_with_the_latest() -> None:
    found = [letter("schema", at=1), letter("limit", at=5), letter("schema", at=9), letter("schema", at=3)]
    assert [(one.reason, one.count, one.latest.record.timestamp) for one in summarised(found)] == [
        ("schema", 3, 9),
        ("limit", 1, 5),
    ]


def test_only_whole_letters_of_our_inputs_can_be_sent_back() -> None:
    assert obstacle(letter("schema"), TOPICS.inputs) is None
    assert "first bytes" in str(obstacle(letter("too-large", length="2000000"), TOPICS.inputs))
    assert "not one of our inputs" in str(obstacle(letter("schema", topic="payments"), TOPICS.inputs))


@pytest.mark.parametrize("text", ["", "3", "3:", ":7", "a:b", "-1:2", "3:7:9"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="partition:offset"):
        parsed_place(text)


def test_letters_are_found_by_their_place() -> None:
    broker = MemoryBroker(lambda: 1_000)
    broker.create_topic("dead-letters", 2)
    for number in range(6):
        broker.produce(TopicPartition("dead-letters", number % 2), b"k", b"%d" % number)
    wanted_places = Wanted(places=frozenset({"0:1", "1:2", "1:99"}))
    found = letters(MemoryReader(broker), "dead-letters", wanted_places)
    assert [one.record.value for one in found] == [b"2", b"5"]


# Configuration


def test_a_missing_seed_is_told_but_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    path = tmp_path / "gforce.toml"
    path.write_text('[kafka]\ngroup = "g"\n')
    config, missing = loaded(path)
    assert config.kafka.group == "g"
    assert "seed" in str(missing)
    path.write_text('[kafka]\ngruop = "g"\n')
    with pytest.raises(ConfigError):
        loaded(path)


def test_durations_are_read_as_people_write_them() -> None:
    assert [milliseconds(text) for text in ("2h", "90d", "250ms", "5000")] == [7_200_000, 7_776_000_000, 250, 5_000]
    with pytest.raises(typer.BadParameter):
        milliseconds("soon")


# The command line


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "create"],
        ["topics", "check"],
        ["doctor"],
        ["state"],
        ["reset"],
        ["rebuild"],
        ["resume"],
        ["skip"],
        ["dead-letters", "list"],
        ["dead-letters", "show"],
        ["dead-letters", "resubmit"],
        ["produce", "synthetic"],
        ["produce", "dataset"],
    ],
)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == 0
    assert "--config" in result.output
    assert "--json" in result.output
    assert "Exit codes: 0 fine" in result.output


def test_a_new_seed_is_fresh_and_long_enough() -> None:
    first, second = (CliRunner().invoke(app, ["doctor", "--new-seed"]).output.strip() for _ in range(2))
    assert len(bytes.fromhex(first)) == 32
    assert first != second


@pytest.mark.parametrize(
    "wrong",
    [
        ["dead-letters", "resubmit"],
        ["reset", "--from", "yesterday"],
        ["topics", "create", "--retention", "soon"],
        ["produce", "synthetic", "--lost", "2"],
        ["state"],
        ["skip", "0"],
        ["skip", "0", "--topic", "decisions", "--offset", "1"],
        ["skip", "0", "--topic", "requests", "--offset", "-1"],
    ],
)
def test_wrong_use_ends_with_2(wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert CliRunner().invoke(app, wrong).exit_code == 2


# Resuming


def partition(number: int, state: str) -> PartitionStatus:
    return PartitionStatus(number, state, "", 1, 1, 0, 0, 0, 0.0)


def test_a_broken_partition_is_resumed_and_others_are_not() -> None:
    asked: list[int] = []
    port = free_port()
    status = Status(True, (partition(0, "broken"), partition(1, "ready")))
    server = HttpServer("127.0.0.1", port, lambda: status, asked.append)
    server.start()
    try:
        answers = [resumed(f"http://127.0.0.1:{port}/", number) for number in (0, 1, 2)]
    finally:
        server.stop()
    assert asked == [0]
    assert [(answer.owned, answer.state) for answer in answers] == [(True, "broken"), (True, "ready"), (False, "")]


def test_a_processor_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(GForceError, match="--url"):
        resumed(f"http://127.0.0.1:{free_port()}", 0)


# Streams


def stream(count: int = 2_000, **traffic: Any) -> list[Event]:
    cases = synthetic_cases(population(groups=3, experts=4), 5, count, seed=3)
    return list(scheduled(cases, Traffic(run="r", **{"delay": Delay(), **traffic})))


def schema(name: str) -> Any:
    return json.loads(files("schemas").joinpath(f"{name}.v1.json").read_text())


def test_events_are_as_the_schemas_say() -> None:
    for event in stream(50, repeated=0.2, contradicting=0.2):
        name = "request" if event.input == "requests" else "feedback"
        content = json.loads(event.value)
        jsonschema.validate(content, schema(name))
        assert content["tenant"] == event.tenant
        assert {*content.get("predictions", {}).values(), content.get("label", "true")} <= {"false", "true"}


def test_the_shares_are_those_asked_for() -> None:
    kinds = Counter(event.kind for event in stream(4_000, delay=Delay(lost=0.25), repeated=0.1, contradicting=0.05))
    assert kinds["request"] == 4_000
    assert kinds["label"] == pytest.approx(3_000, rel=0.05)
    assert kinds["repeated"] == pytest.approx(700, rel=0.15)
    assert kinds["contradicting"] == pytest.approx(150, rel=0.3)


def test_events_come_in_the_order_of_time_and_labels_after_their_delay() -> None:
    events = stream(500, rate=100.0, delay=Delay.parse("fixed:35"))
    times = [event.at for event in events]
    assert times == sorted(times)
    decided = {json.loads(e.value)["decision_id"]: e.at for e in events if e.kind == "request"}
    assert {e.at - decided[json.loads(e.value)["decision_id"]] for e in events if e.kind == "label"} == {35.0}


def test_the_same_seed_gives_the_same_stream() -> None:
    delay = Delay.parse("geometric:50,lost:0.1")
    assert stream(300, delay=delay, repeated=0.1) == stream(300, delay=delay, repeated=0.1)


class Recorded:
    """A sender that keeps what it was given."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None]] = []
        self.flushed = False

    def send(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self.sent.append((topic, key))

    def poll(self, timeout: float) -> None: ...

    def flush(self) -> None:
        self.flushed = True


def test_playing_sends_everything_under_the_tenants_key() -> None:
    sender = Recorded()
    events = stream(20)
    counts = play(events, sender, {"requests": "eu.requests", "feedback": "eu.feedback"}, paced=False)
    assert counts == {"request": 20, "label": 20}
    assert sender.flushed
    assert sender.sent == [(f"eu.{event.input}", event.tenant.encode()) for event in events]


def test_a_stream_is_written_as_lines_with_neither_broker_nor_configuration(tmp_path: Path) -> None:
    command = ["produce", "synthetic", "--count", "20", "--run", "r", "--delay", "fixed:3000", "--json", "--out"]
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        result = CliRunner().invoke(app, [*command, str(path)])
        assert result.exit_code == 0
        assert result.stdout == ""
        assert json.loads(result.stderr) == {"run": "r", "request": 20, "label": 20}
    assert one.read_bytes() == other.read_bytes()
    records = [json.loads(line) for line in one.read_text().splitlines()]
    assert {record["topic"] for record in records} == {"requests", "feedback"}
    assert all(record["key"] == record["payload"]["tenant"] for record in records)
    decided = {r["payload"]["decision_id"]: r["ts"] for r in records if r["topic"] == "requests"}
    late = [r["ts"] - decided[r["payload"]["decision_id"]] for r in records if r["topic"] == "feedback"]
    assert late == [3_000] * 20


def test_a_stream_on_standard_output_is_nothing_but_lines() -> None:
    result = CliRunner().invoke(app, ["produce", "synthetic", "--count", "5", "--run", "r", "--out", "-"])
    assert result.exit_code == 0
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == 10
    assert result.stderr == "r: 5 request, 5 label\n"


def test_a_stream_goes_to_kafka_or_into_a_file(tmp_path: Path) -> None:
    config, out = tmp_path / "gforce.toml", tmp_path / "none" / "lines.jsonl"
    config.touch()
    both = CliRunner().invoke(app, ["produce", "synthetic", "--config", str(config), "--out", str(out)])
    assert both.exit_code == 2
    nowhere = CliRunner().invoke(app, ["produce", "synthetic", "--out", str(out)])
    assert "there is no folder" in str(nowhere.exception)


# The manual


def test_the_manual_names_every_reason_and_every_counter() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    missing = [name for name in (*Reason, *COUNTERS) if f"| `{name}` |" not in text]
    assert missing == []
