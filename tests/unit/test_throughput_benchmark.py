"""The throughput benchmark's parts that need no server: what it times, what it compares, what it cannot run."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.pipeline import report
from benchmarks.pipeline.lines import Line, old_line
from benchmarks.pipeline.peers import kafka_streams
from benchmarks.pipeline.rounds import Collected
from benchmarks.pipeline.timing import Measured, Sample, Span, StuckError, Watch
from tests.servers.broker import kafka_version


def watched(looks: list[tuple[float, int]], before: int, total: int) -> Measured:
    """A run seen at these moments; its process uses half of a core, and its broker a tenth."""
    now = [0.0]
    watch = Watch(before, total, lambda seen: Sample(now[0], seen, now[0] / 2, {"broker": now[0] / 10}))
    for now[0], seen in looks:
        watch.look(seen)
    return watch.end(looks[-1][1])


def test_a_run_is_timed_from_its_first_progress_and_again_after_a_third() -> None:
    found = watched([(1, 100), (5, 130), (9, 220), (10, 250), (14, 400)], before=100, total=400)
    assert (found.records, found.seconds, found.cpu) == (270, 9, 4.5)
    assert found.server_cpu["broker"] == pytest.approx(0.9)
    assert found.steady is not None
    assert (found.steady.records, found.steady.seconds, found.steady.cpu) == (180, 5, 2.5)


def test_a_run_that_was_over_at_the_first_look_is_refused() -> None:
    with pytest.raises(StuckError, match="90 of 100 records were done at the first look: use more records"):
        watched([(1, 90), (2, 100)], before=0, total=100)


def test_a_run_whose_end_came_too_soon_has_no_steady_part() -> None:
    assert watched([(1, 10), (2, 90), (3, 100)], before=0, total=100).steady is None


def row(key: str, title: str, rates: list[int], cpu: float = 0.0, lacks: str = "") -> dict[str, Any]:
    """The figures of a line whose steady part is twice as fast as the whole."""
    runs = [
        Measured(
            rate,
            1.0,
            cpu * rate / 1e6,
            {"Redis": 1e-6 * rate, "broker": 2e-6 * rate},
            steady=Span(2 * rate, 1.0, cpu * rate / 1e6),
        )
        for rate in rates
    ]
    line = Line(key, title, "exactly once", lambda stage, inputs, name, told: runs[0], lacks)
    return report.row(line, Collected(runs), Collected([Measured(1_000, 1.0)] * len(runs)))


def test_what_is_said_compares_round_by_round_the_whole_and_the_steady_part() -> None:
    rows = [
        row("processor", "(c) gforce", [300, 400, 200], cpu=10.0),
        row("old-b947eec", "gforce 0.2.0 at b947eec", [150, 200, 200], cpu=14.0),
        row("kafka-streams-memory", "Kafka Streams, in memory", [200, 200, 200], cpu=20.0, lacks="a fair rule"),
    ]
    said = report.sentences(rows)
    assert "gforce, exactly once: 0.30 of the pass-through (aim 0.33, reach 0.45)" in said
    assert "1.50 (1.00–2.00) times Kafka Streams, in memory; steady part 1.50 (1.00–2.00) (aim 1.3)" in said
    assert "2.00 (1.00–2.00) times gforce 0.2.0 at b947eec; steady part 2.00 (1.00–2.00) (aim 1.4)" in said
    ours, theirs = (next(one for one in said if one.startswith("CPU") and name in one) for name in ("(c)", "Streams"))
    assert ours.endswith("10.0 of the process (steady part 5.0) + 1.0 of Redis + 2.0 of the broker = 13.0")
    assert theirs.endswith("20.0 of the process (steady part 10.0) + 2.0 of the broker = 22.0")
    assert "Kafka Streams, in memory – lacks: a fair rule" in said


def test_the_table_shows_lines_that_failed_too() -> None:
    rows = [row("processor", "(c) gforce", [300]), row("no-redis", "(d)", []) | {"failure": "it ended after 3 of 9"}]
    console = Console(width=220, record=True, file=StringIO())
    console.print(report.throughput_table(rows, "title"))
    assert "it ended after 3 of 9" in console.export_text()


def test_kafka_streams_without_java_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    console = Console(width=220, record=True, file=StringIO())
    assert kafka_streams.streams_lines(console) == []
    assert "java and javac and mvn not found" in (text := console.export_text())
    assert kafka_streams.REMEDY in text


def test_kafka_streams_that_nobody_asked_for_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_streams, "built", lambda console: pytest.fail("it was built"))
    assert kafka_streams.streams_lines(Console(quiet=True), only=["bytewax"]) == []


def test_kafka_streams_has_a_line_for_each_store_and_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_streams, "built", lambda console: Path("/nowhere"))
    one = [line.key for line in kafka_streams.streams_lines(Console(quiet=True))]
    assert one == ["kafka-streams-memory", "kafka-streams-rocksdb"]
    two = [line.title for line in kafka_streams.streams_lines(Console(quiet=True), two_threads=True)]
    assert two[2:] == ["Kafka Streams, in memory, 2 threads", "Kafka Streams, RocksDB, 2 threads"]


def test_kafka_streams_is_of_the_brokers_version() -> None:
    pom = (Path(kafka_streams.__file__).parent / "pom.xml").read_text()
    assert f"<kafka.version>{kafka_version()}</kafka.version>" in pom


def test_an_older_version_is_named_by_its_version_and_decides_beforehand(tmp_path: Path) -> None:
    (tmp_path / "processor").mkdir()
    (tmp_path / "processor" / "__init__.py").write_text('__version__ = "0.1.7"\n')
    line = old_line(tmp_path)
    assert line.title == f"gforce 0.1.7 at {tmp_path.name}"
    assert line.key == f"old-{tmp_path.name}"
    assert line.prepare is not None


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StuckError, match="is no checkout of gforce"):
        old_line(tmp_path)
