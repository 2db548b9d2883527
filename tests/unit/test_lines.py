"""JSON lines through the embedded processor."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.config import load
from processor.core.errors import InvalidInputError
from processor.core.events import RejectedEventError
from processor.embedded.line_records import SHAPES, LineRecord, read_line
from processor.embedded.lines import READ_BYTES, as_they_come, line_of, run_lines, summary
from processor.ports.log import Record
from processor.run.assembly import topics_of

SEED = {"GFORCE_PROCESSING__SEED": "ab" * 32}
REQUEST = (
    '{"topic": "requests", "key": "acme", "payload": '
    '{"tenant": "acme", "decision_id": "loan-%d", "group": "A", "predictions": {"model": true}}}\n'
)


def test_a_pipe_that_pauses_gets_its_decisions_before_it_ends() -> None:
    read, write = os.pipe()
    out: list[bytes] = []

    def lines() -> Iterator[bytes | None]:
        with os.fdopen(write, "w") as sender, os.fdopen(read, "rb") as receiver:
            sender.write(REQUEST % 1)
            sender.flush()
            for line in as_they_come(receiver):
                yield line
                if line is None and any(b"loan-1" in text for text in out):  # else it was the line that came late
                    sender.write(REQUEST % 2)
                    sender.close()

    totals = run_lines(load(None, SEED), lines(), out.append)
    assert totals["decisions"] == 2


def lines_of(content: bytes) -> list[bytes]:
    """What is made of these bytes when they come through a pipe."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    with os.fdopen(read, "rb") as receiver:
        return [line for line in as_they_come(receiver) if line is not None]


def test_lines_come_in_their_order_and_end_with_the_pipe() -> None:
    assert lines_of(b"a\nb\n") == [b"a", b"b"]
    assert lines_of(b"a\n\nb") == [b"a", b"", b"b"]
    assert lines_of(b"") == []


def test_a_line_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    long = b"x" * (3 * READ_BYTES + 1)
    file = tmp_path / "lines"
    file.write_bytes(long + b"\n" + long)
    with file.open("rb") as stream:
        assert list(as_they_come(stream)) == [long, long]


def test_who_is_told_to_stop_waits_for_nothing_more() -> None:
    read, write = os.pipe()
    stop = iter([False, False, True])
    with os.fdopen(write, "wb"), os.fdopen(read, "rb") as receiver:
        os.write(write, b"a\nb")
        assert list(as_they_come(receiver, lambda: next(stop))) == [b"a", None]


# What a line may hold

TOPICS = topics_of(load(None, SEED))
EVENT = b'{"tenant": "acme", "decision_id": "loan-1", "group": "A", "predictions": {"model": true}}'
LABEL = b'{"tenant": "acme", "decision_id": "loan-1", "label": true}'


def test_an_event_alone_goes_where_it_belongs_as_it_came() -> None:
    assert read_line(EVENT, TOPICS) == LineRecord("requests", b"acme", EVENT)
    assert read_line(LABEL, TOPICS) == LineRecord("feedback", b"acme", LABEL)
    assert read_line(b'{"tenant": 7, "label": true}', TOPICS).key is None


def test_a_record_is_taken_apart() -> None:
    wrapped = b'{"topic": "feedback", "key": "acme", "payload": %s, "ts": 1700000000000}' % LABEL
    assert read_line(wrapped, TOPICS) == LineRecord("feedback", b"acme", LABEL, 1_700_000_000_000)
    assert read_line(b'{"topic": "requests", "payload": "not {json"}', TOPICS).value == b"not {json"
    assert read_line(b'{"topic": "requests"}', TOPICS) == LineRecord("requests", None, None)


def test_the_inputs_may_be_called_as_in_the_configuration_or_as_everywhere() -> None:
    topics = topics_of(load(None, {**SEED, "GFORCE_TOPICS__PREFIX": "eu."}))
    for name in ("requests", "eu.requests"):
        assert read_line(b'{"topic": "%s"}' % name.encode(), topics).topic == "eu.requests"


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b"hello", "bad-json", "one JSON object"),
        (b'{"tenant": "acme"', "bad-json", "truncated"),
        (b"[1, 2]", "schema", "write {"),
        (b"{}", "schema", SHAPES),
        (b'{"topic": "decisions"}', "schema", 'one of "requests", "feedback"'),
        (b'{"topic": null}', "schema", "topic and key are strings"),
        (b'{"topic": "requests", "key": 7}', "schema", "topic and key are strings"),
        (b'{"topic": "requests", "ts": "soon"}', "schema", "milliseconds since 1970"),
        (b'{"topic": "requests", "ts": -1}', "schema", "milliseconds since 1970"),
        (b'{"topic": "requests", "ts": 1700000000000000000000000000}', "schema", "milliseconds since 1970"),
        (b'{"label": "caf\xe9"}', "not-utf8", "at byte 14: save the input as UTF-8"),
        (b'{"label": ' + b"[" * 100_000, "limit", "nested"),
    ],
)
def test_anything_else_is_refused_with_the_reason(line: bytes, reason: str, detail: str) -> None:
    with pytest.raises(RejectedEventError, match=reason) as refused:
        read_line(line, TOPICS)
    assert detail in refused.value.detail
    assert len(refused.value.detail) < 200


@pytest.mark.parametrize("shape", [b"%s", b'{"topic": "requests", "payload": %s}', b'{"tenant": %s, "label": 1}'])
@given(st.binary(max_size=40) | st.sampled_from([b'"\\ud800"', b'"\\ud800\\u0041"', b'"\xe9"', b"1" * 400, b'"\\n"']))
def test_whatever_is_in_a_line_is_a_record_or_refused(shape: bytes, content: bytes) -> None:
    with suppress(RejectedEventError):
        read_line(shape % content, TOPICS)


@given(st.binary(max_size=40) | st.sampled_from([b'"\\ud800"', b"[" * 9_999, b"1" * 400, b'{"a":\n1}', b'"caf\xe9"']))
def test_whatever_is_in_a_record_is_one_line_of_json(value: bytes) -> None:
    line = line_of(Record("dead-letters", 0, 0, 0, b"\xff", value))
    assert line.count(b"\n") == 1
    assert json.loads(line)["topic"] == "dead-letters"


def ran(*lines: bytes | None, **settings: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What comes out, and the totals."""
    out: list[bytes] = []
    totals = run_lines(load(None, SEED | settings), lines, out.append)
    return [json.loads(line) for line in b"".join(out).splitlines()], totals


def test_a_line_that_cannot_be_read_is_a_dead_letter_and_the_run_goes_on() -> None:
    again = EVENT.replace(b"loan-1", b"loan-2")
    made, totals = ran(EVENT, b"", b"hello", again, LABEL, b'{"topic": "elsewhere"}', b'"caf\xe9"')
    decided = [line["payload"]["decision_id"] for line in made if line["topic"] == "decisions"]
    letters = [line for line in made if line["topic"] == "dead-letters"]
    assert decided == ["loan-1", "loan-2"]
    schema = json.loads(files("schemas").joinpath("dead-letter.v1.json").read_text())
    for letter in letters:
        jsonschema.validate(letter["headers"], schema)
    places = [(letter["headers"]["gforce.reason"], letter["headers"]["gforce.offset"]) for letter in letters]
    assert places == [("bad-json", "3"), ("schema", "6"), ("not-utf8", "7")]
    assert letters[0]["payload"] == "hello"
    assert (totals["records"], totals["decisions"], totals["labels_joined"]) == (6, 2, 1)
    assert (totals["dead_bad-json"], totals["dead_schema"], totals["dead_not-utf8"]) == (1, 1, 1)


def test_a_whole_stream_of_bad_records_is_read_to_its_end() -> None:
    wrong = b'{"topic": "requests", "key": "acme", "payload": {}}'
    made, totals = ran(*[wrong] * 50, EVENT, GFORCE_PROCESSING__BREAKER_RECORDS="10")
    assert (totals["dead_schema"], totals["decisions"]) == (50, 1)
    assert len(made) == 51


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    _, totals = ran(b"\xef\xbb\xbf" + EVENT)
    assert totals["decisions"] == 1
    with pytest.raises(InvalidInputError, match="UTF-16: save it as UTF-8"):
        ran("{}\n".encode("utf-16"))


# What is said at the end


def test_the_summary_hides_no_failure() -> None:
    empty = EVENT.replace(b'"model": true', b"")
    early = LABEL.replace(b"loan-1", b"loan-7")
    _, totals = ran(EVENT, EVENT, LABEL, LABEL, early, empty, b"hello", b"hello")
    assert summary(totals) == (
        "8 records, 1 decision, 1 label joined, 2 duplicates, 1 label still waiting for a request, "
        "3 dead letters (2 bad-json, 1 no-predictions)"
    )


def test_what_did_not_happen_is_not_told() -> None:
    _, totals = ran(EVENT)
    assert summary(totals) == "1 record, 1 decision, 0 labels joined"


def test_a_label_that_came_early_and_found_its_request_waits_no_more() -> None:
    _, totals = ran(LABEL, None, EVENT)
    assert summary(totals) == "2 records, 1 decision, 1 label joined"
