"""Recordings on disk: what is written is what is read, and what was changed is found."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from processor.audit.recording.plan import Limit, limit_for, trim_files
from processor.audit.recording.play import Play, parse_speed, play_records, target_topics
from processor.audit.recording.record import RangeFiles
from processor.audit.recording.record_commands import parse_size
from processor.audit.sources import manifest as manifests
from processor.audit.sources.file_sources import RecordedSource
from processor.audit.sources.line_files import (
    COMPRESSIONS,
    Compression,
    decode_records,
    encode_lines,
    read_file,
    record_line,
)
from processor.audit.sources.manifest import AnchorEntry, Manifest, RangeEntry, RecordingRequest, verify_manifest
from processor.audit.sources.source import RecordingError, Role, Source, open_source
from processor.ports.log import Headers, Record

texts = st.text(max_size=30).map(str.encode)
contents = st.one_of(st.none(), texts, st.binary(max_size=30))
headers = st.lists(st.tuples(st.text(min_size=1, max_size=5), contents), max_size=3).map(tuple)


def record(offset: int, value: bytes | None = b"{}", *, topic: str = "requests", partition: int = 0) -> Record:
    return Record(topic, partition, offset, 1_700_000_000_000 + offset, b"acme", value)


@given(contents, contents, headers, st.integers(0, 2**62), st.integers(-1, 2**52))
def test_a_record_is_read_as_it_was_written(
    key: bytes | None, value: bytes | None, headers: Headers, offset: int, timestamp: int
) -> None:
    written = Record("eu.requests", 3, offset, timestamp, key, value, headers)
    text = encode_lines([record_line(written)])
    assert [*decode_records(text)] == [written]
    line = json.loads(text)
    assert ("payload" in line) != ("payload_base64" in line)
    assert ("key" in line) != ("key_base64" in line)


def test_a_huge_payload_is_not_written_as_text() -> None:
    record = Record("requests", 0, 1, 2, b"bank", bytes(3 << 20))
    assert len(encode_lines([record_line(record)])) < 1.4 * (3 << 20)
    assert "payload_base64" in json.loads(encode_lines([record_line(record)]))


@given(contents, contents, headers)
def test_a_line_of_kcat_gives_back_its_raw_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> None:
    found = [*decode_records(kcat_line("requests", 1, 5, key, value, headers))]
    assert found == [Record("requests", 1, 5, 1_700_000_000_005, key, value, headers)]


def kcat_line(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """As kcat 1.7 writes it: bytes are copied as they are, but for quotes, backslashes and control characters."""

    def text(content: bytes | None) -> bytes:
        if content is None:
            return b"null"
        escapes = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t", 0x08: b"\\b", 0x0C: b"\\f"}
        parts = (escapes.get(c) or (b"\\u%04X" % c if c < 0x20 else bytes([c])) for c in content)
        return b'"' + b"".join(parts) + b'"'

    flat = [text(part) for name, content in headers for part in (name.encode(), content)]
    shown = b'"headers":[' + b",".join(flat) + b"]," if headers else b""
    head = b'{"topic":%s,"partition":%d,"offset":%d,"tstype":"create","ts":%d,"broker":1,'
    start = head % (text(topic.encode()), partition, offset, 1_700_000_000_000 + offset)
    return start + shown + b'"key":' + text(key) + b',"payload":' + text(value) + b"}\n"


# Recordings


def write_recording(
    folder: Path,
    content: dict[tuple[Role, int], Sequence[Record]],
    *,
    compression: Compression = "zstd",
    split_size: int = 10_000,
    anchors: dict[int, AnchorEntry] | None = None,
) -> Manifest:
    folder.mkdir(exist_ok=True)
    ranges = []
    for (role, partition), wanted in content.items():
        topic = f"eu.{role.replace('_', '-')}"
        end = wanted[-1].offset + 1 if wanted else 0
        entry = RangeEntry(role=role, topic=topic, partition=partition, start=0, end=0, target=end)
        series = RangeFiles(folder, entry, compression, split_size)
        for one in wanted:
            series.add(record_line(replace(one, topic=topic, partition=partition)), 600)
        series.close()
        entry.end = end
        ranges.append(entry)
    made = Manifest(
        version="1",
        created="2026-01-01T00:00:00Z",
        finished="2026-01-01T00:00:01Z",
        cluster="one",
        group="gforce",
        prefix="eu.",
        asked=RecordingRequest(roles=["requests"], partitions=None, since=[], until=[], compression=compression),
        anchors=anchors or {},
        ranges=ranges,
    )
    manifests.save(folder, made)
    return made


def stream(count: int, step: int = 1) -> list[Record]:
    """With gaps, as transaction markers make them."""
    return [record(n * step, b'{"n":%d,"text":"%032d"}' % (n, n * 7919)) for n in range(count)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_recording_split_into_many_files_is_read_in_order(tmp_path: Path, compression: Compression) -> None:
    content = {("requests", 0): stream(20_000, 2), ("requests", 1): stream(5_000), ("feedback", 0): []}
    made = write_recording(tmp_path, content, compression=compression)  # type: ignore[arg-type]
    source = RecordedSource(tmp_path)
    assert [len(one.files) > 2 for one in made.ranges] == [True, True, False]
    for (role, partition), wanted in content.items():
        found = [one.value for one in source.read(role, partition)]  # type: ignore[arg-type]
        assert found == [one.value for one in wanted]
    assert source.bounds("requests", 0) == (0, 39_999)
    assert (source.partitions("requests"), source.partitions("journal")) == ([0, 1], [])
    assert source.has("feedback")
    assert not source.has("alerts")
    assert source.topic("requests") == "eu.requests"
    assert [*source.read("alerts", 0)] == []
    assert verify_manifest(tmp_path) == []


def test_reading_may_start_in_the_middle(tmp_path: Path) -> None:
    write_recording(tmp_path, {("requests", 0): stream(20_000, 2)})
    source = pickle.loads(pickle.dumps(RecordedSource(tmp_path)))
    found = [one.offset for one in source.read("requests", 0, 30_001)]
    assert found == [*range(30_002, 40_000, 2)]


def test_the_anchor_is_what_was_committed_or_else_where_the_recording_stops(tmp_path: Path) -> None:
    anchors = {0: AnchorEntry(committed="1:ab:9:ff", head="1:ab:8:ee"), 1: AnchorEntry(head="1:ab:8:ee")}
    write_recording(tmp_path, {("journal", 0): stream(1), ("journal", 1): stream(1)}, anchors=anchors)
    source = RecordedSource(tmp_path)
    assert [source.anchor(number) for number in range(3)] == ["1:ab:9:ff", "1:ab:8:ee", None]


def test_what_was_written_after_the_last_saved_manifest_is_cut_off_and_written_again(tmp_path: Path) -> None:
    wanted = stream(10_000)
    write_recording(tmp_path, {("requests", 0): wanted[:7_000]}, split_size=40_000)
    killed = manifests.load(tmp_path).ranges[0]
    last = tmp_path / killed.files[-1].name
    with last.open("ab") as file:
        file.write(b"half a frame")
    stray = tmp_path / killed.topic / "partition-00000-00099.jsonl.zst"
    stray.write_bytes(b"begun and never finished")
    assert {problem.file for problem in verify_manifest(tmp_path)} == {
        killed.files[-1].name,
        stray.relative_to(tmp_path).as_posix(),
    }
    loaded = manifests.load(tmp_path)
    entry = loaded.ranges[0]
    trim_files(tmp_path, entry)
    series = RangeFiles(tmp_path, entry, "zstd", 40_000)
    for one in wanted[7_000:]:
        series.add(record_line(replace(one, topic=entry.topic)), 600)
    series.close()
    entry.target = entry.end
    manifests.save(tmp_path, loaded)
    assert verify_manifest(tmp_path) == []
    assert [one.offset for one in RecordedSource(tmp_path).read("requests", 0)] == [*range(10_000)]


def test_a_recording_whose_last_file_was_changed_does_not_go_on(tmp_path: Path) -> None:
    entry = write_recording(tmp_path, {("requests", 0): stream(100)}, split_size=10**9).ranges[0]
    path = tmp_path / entry.files[-1].name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    series = RangeFiles(tmp_path, entry, "zstd", 10**9)
    series.add(record_line(record(200)), 600)
    with pytest.raises(RecordingError, match="SHA-256 differs"):
        series.write()


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


TAMPERING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "changed": (_flipped, "SHA-256"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-10]), "bytes"),
    "extended": (lambda path: path.write_bytes(path.read_bytes() + b"{}"), "bytes"),
    "removed": (Path.unlink, "missing"),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_a_tampered_file_is_found_and_named(tmp_path: Path, how: str) -> None:
    made = write_recording(tmp_path, {("requests", 0): stream(20_000), ("feedback", 1): stream(100)})
    victim = made.ranges[0].files[1]
    tamper, word = TAMPERING[how]
    tamper(tmp_path / victim.name)
    (problem,) = verify_manifest(tmp_path)
    assert (problem.topic, problem.partition, problem.file) == ("eu.requests", 0, victim.name)
    assert problem.offsets == (victim.first, victim.last)
    assert word in problem.text
    with pytest.raises(RecordingError) as caught:
        list(RecordedSource(tmp_path).read("requests", 0))
    assert caught.value.topic == "eu.requests"
    assert len(list(RecordedSource(tmp_path).read("feedback", 1))) == 100


def test_an_unfinished_recording_says_so(tmp_path: Path) -> None:
    made = write_recording(tmp_path, {("requests", 0): stream(100)})
    made.ranges[0].target = 500
    manifests.save(tmp_path, made)
    (problem,) = verify_manifest(tmp_path)
    assert "stopped at offset 100" in problem.text


def test_lines_in_another_order_are_refused_with_their_place(tmp_path: Path) -> None:
    made = write_recording(tmp_path, {("requests", 0): stream(10)}, compression="none")
    path = tmp_path / made.ranges[0].files[0].name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[5], lines[4], *lines[6:]]))
    with pytest.raises(RecordingError, match="offset 4 is not where it belongs") as caught:
        list(RecordedSource(tmp_path).read("requests", 0))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("eu.requests", 0, 4)


def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    made = write_recording(tmp_path / "inside", {("requests", 0): stream(10)})
    made.ranges[0].files[0].name = "../outside.jsonl"
    manifests.save(tmp_path / "inside", made)
    with pytest.raises(RecordingError, match="outside of the recording"):
        RecordedSource(tmp_path / "inside")


# Plain files


def opened(*paths: Path, read: Callable[[Source], Any], topics: dict[Role, str] | None = None) -> Any:
    with open_source(paths, topics) as source:
        return read(source)


def mixture(partitions: int = 3, count: int = 200) -> bytes:
    lines = []
    for n in range(count):
        for partition in range(partitions):
            lines.append(kcat_line("eu.requests", partition, n * 2, b"acme", b'{"n":%d}' % n))
            lines.append(kcat_line("eu.feedback", partition, n, None, None if n % 7 == 0 else b"\xff\x00%d" % n))
    return b"".join(lines)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_a_plain_file_with_topics_and_partitions_in_any_mixture_is_taken_apart(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "all.json"
    path.write_bytes(compress(mixture()))

    def read(source: Source) -> None:
        assert source.partitions("requests") == source.partitions("feedback") == [0, 1, 2]
        assert (source.bounds("requests", 0), source.anchor(0)) == (None, None)
        assert source.topic("feedback") == "eu.feedback"
        for partition in range(3):
            found = [*source.read("requests", partition)]
            assert [(one.offset, one.value) for one in found] == [(n * 2, b'{"n":%d}' % n) for n in range(200)]
            values = [one.value for one in source.read("feedback", partition, 100)]
            assert values == [None if n % 7 == 0 else b"\xff\x00%d" % n for n in range(100, 200)]
            assert [one.offset for one in pickle.loads(pickle.dumps(source)).read("feedback", partition)] == [
                *range(200)
            ]

    opened(path, read=read)


def test_several_plain_files_may_overlap_and_come_in_any_order(tmp_path: Path) -> None:
    lines = [kcat_line("requests", 0, n, b"acme", b"%d" % n) for n in range(100)]
    pieces = {"c.jsonl": lines[60:], "a.jsonl": lines[:50], "b.jsonl": [*lines[55:70], *lines[40:60]]}
    for name, content in pieces.items():
        (tmp_path / name).write_bytes(b"".join(content))
    paths = [tmp_path / name for name in pieces]
    for chosen in (paths, [tmp_path]):
        assert opened(*chosen, read=lambda s: [one.offset for one in s.read("requests", 0)]) == [*range(100)]
    other = kcat_line("requests", 0, 45, b"acme", b"another")
    (tmp_path / "b.jsonl").write_bytes(b"".join([lines[44], other]))
    with pytest.raises(RecordingError, match="offset 45 is there twice with different content"):
        opened(tmp_path, read=lambda s: [*s.read("requests", 0)])


def test_topics_with_names_of_their_own_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "claims.jsonl"
    path.write_bytes(kcat_line("claims", 0, 7, b"acme", b"{}"))
    with pytest.raises(RecordingError, match="claims"):
        opened(path, read=lambda source: None)
    assert opened(path, read=lambda s: len([*s.read("requests", 0)]), topics={"requests": "claims"}) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (kcat_line("requests", 0, 1, b"k", b"v") + b'{"topic":"requests","partition":0,"off', "middle of a line"),
        (kcat_line("requests", 0, 1, b"k", b"v") + b"% Reached end of topic\n", "line 2 is no record"),
        (gzip.compress(mixture())[:-20], "cut off"),
        (zstandard.compress(mixture())[:-20], "cut off"),
        (b"", "they are empty"),
    ],
)
def test_a_plain_file_that_cannot_be_read_says_where(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=text):
        opened(path, read=lambda source: [*source.read("requests", 0)])


def test_a_bad_line_is_placed_after_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(kcat_line("requests", 0, 41, b"k", b"v") + b'{"topic":"requests","offset":42}\n')
    found = read_file(path)
    assert next(found).offset == 41
    with pytest.raises(RecordingError, match="after requests.0. offset 41"):
        next(found)


# Playing


class Sent:
    """A producer that remembers, and whose time passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.records: list[tuple[float, str, int, bytes | None, int]] = []

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int
    ) -> None:
        self.records.append((self.now, topic, partition, value, timestamp))

    def poll(self, timeout: float) -> None: ...

    def flush(self) -> None: ...

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_recording_is_played_in_the_order_of_time_at_the_pace_asked_for(tmp_path: Path) -> None:
    def at(offset: int, milliseconds: int) -> Record:
        return replace(record(offset, b"%d" % milliseconds), timestamp=1_700_000_000_000 + milliseconds)

    content: dict[tuple[Role, int], Sequence[Record]] = {
        ("requests", 0): [at(0, 0), at(1, 3_000), at(2, 2_000), at(3, 8_000)],
        ("requests", 1): [at(0, 1_000)],
        ("feedback", 0): [at(0, 4_000)],
    }
    write_recording(tmp_path, content)
    source, sent = RecordedSource(tmp_path), Sent()
    play = Play(topics={"requests": "r", "feedback": "f"}, speed=2.0, same_partitions=True)
    counts = play_records(source, play, sent, clock=lambda: sent.now, sleep=sent.sleep)
    assert counts == {"requests": 5, "feedback": 1}
    assert [value for _, _, _, value, _ in sent.records] == [b"0", b"1000", b"3000", b"2000", b"4000", b"8000"]
    assert [round(when - 100, 3) for when, *_ in sent.records] == [0, 0.5, 1.5, 1.5, 2.0, 4.0]
    assert [(topic, partition) for _, topic, partition, _, _ in sent.records[:2]] == [("r", 0), ("r", 1)]
    assert [stamp for *_, stamp in sent.records][3] == 1_700_000_002_000
    fast = Sent()
    play_records(source, Play(topics={"requests": "r"}, speed=0.0, keep_timestamps=False), fast, clock=lambda: fast.now)
    assert {(when, partition, stamp) for when, _, partition, _, stamp in fast.records} == {(100.0, -1, 0)}


def test_targets_are_named_by_prefix_or_one_by_one(tmp_path: Path) -> None:
    write_recording(tmp_path, {("requests", 0): stream(1), ("dead_letters", 0): stream(1)})
    source = RecordedSource(tmp_path)
    assert target_topics(source, ["requests", "dead_letters"], ["copy.", "requests=mine"]) == {
        "requests": "mine",
        "dead_letters": "copy.dead-letters",
    }
    with pytest.raises(RecordingError, match="no feedback"):
        target_topics(source, ["feedback"], ["copy."])
    with pytest.raises(RecordingError, match="where are the requests to go"):
        target_topics(source, ["requests"], ["feedback=mine"])


@pytest.mark.parametrize("text", ["fast", "0x", "-1", "x"])
def test_a_pace_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RecordingError, match="no pace"):
        parse_speed(text)


def test_limits_are_offsets_or_times_of_all_or_of_one() -> None:
    limits = [Limit.parse(text) for text in ("2026-01-01T01:00:00+01:00", "dead-letters=7", "dead-letters/1=9")]
    assert limit_for(limits, "requests", 0) == Limit(None, None, time=1_767_225_600_000)
    assert [limit_for(limits, "dead_letters", n).offset for n in (0, 1)] == [7, 9]  # type: ignore[union-attr]
    for wrong in ("yesterday", "weather=5", "-3"):
        with pytest.raises(RecordingError):
            Limit.parse(wrong)


def test_sizes_are_read_as_people_write_them() -> None:
    assert [parse_size(text) for text in ("64kB", "1.5 GB", "2MiB", "10")] == [64_000, 1_500_000_000, 2 << 20, 10]
