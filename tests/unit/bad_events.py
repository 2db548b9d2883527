"""Bad events, each with the reason it must be refused for. Built by program, every one distinct."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from processor.core.events import Limits, Reason

REQUEST: dict[str, Any] = {"tenant": "bank", "decision_id": "loan-1", "group": "A", "predictions": {"m": "true"}}
FEEDBACK: dict[str, Any] = {"tenant": "bank", "decision_id": "loan-1", "label": "true"}
LIMITS = Limits()


class Bad(NamedTuple):
    """``kind`` is ``request`` or ``feedback``."""

    kind: str
    name: str
    value: bytes | None
    reason: Reason


VALID = {"request": json.dumps(REQUEST).encode(), "feedback": json.dumps(FEEDBACK).encode()}
BASES = {"request": REQUEST, "feedback": FEEDBACK}
WRONG_TYPES = {
    "null": "null", "array": "[]", "object": "{}", "float": "1.5", "whole-float": "1.0", "exponent": "1e0",
    "nested": '[["a"]]', "negative-float": "-0.0", "huge-float": "1e400",
}  # fmt: skip
NOT_TEXT = {**WRONG_TYPES, "integer": "1", "true": "true", "false": "false"}
NOT_JSON_VALUES = {
    "nan": "NaN", "infinity": "Infinity", "minus-infinity": "-Infinity", "undefined": "undefined", "plus": "+1",
    "leading-zero": "01", "hex": "0x1", "bare-point": ".5", "end-point": "1.", "bare-exponent": "1e",
    "single-quotes": "'a'", "bare-word": "grant", "capital-true": "True", "none": "None", "minus": "-",
    "comment": "1/*c*/", "raw-tab": '"a\tb"', "raw-newline": '"a\nb"', "raw-nul": '"a\x00b"',
    "bad-escape": '"\\x41"', "short-escape": '"\\u12"', "no-hex": '"\\uzzzz"', "trailing-comma": "[1,]",
    "unclosed": '"a', "unclosed-array": "[1",
}  # fmt: skip
SURROGATES = {
    "high": '"\\ud800"', "low": '"\\udc00"', "swapped": '"\\udc00\\ud800"', "high-then-letter": '"\\ud800a"',
    "high-then-escape": '"\\ud800\\u0041"', "two-highs": '"\\ud800\\ud800"', "last": '"\\udfff......"',
}  # fmt: skip
NOT_UTF8 = {
    "ff": b"\xff", "cut": b"\xc3", "overlong-nul": b"\xc0\x80", "surrogate": b"\xed\xa0\x80", "latin-1": b"caf\xe9 ",
    "beyond-unicode": b"\xf4\x90\x80\x80", "lone-continuation": b"\x80", "overlong-slash": b"\xe0\x80\xaf",
}  # fmt: skip
CONTROLS = ("\x00", "\x01", "\n", "\r", "\t", "\x1b", "\x1f", "\x7f", "\x80", "\x85", "\x9f")


def with_field(kind: str, field: str, literal: str) -> bytes:
    """A valid event but for the JSON of one field."""
    marked = json.dumps({**BASES[kind], field: "@@"}, ensure_ascii=False)
    return marked.replace('"@@"', literal).encode()


def with_prediction(expert: str, label: str) -> bytes:
    return with_field("request", "predictions", "{" + expert + ":" + label + "}")


def _whole(kind: str) -> Iterator[tuple[str, bytes | None, Reason]]:
    valid = VALID[kind]
    yield "tombstone", None, Reason.EMPTY
    yield "no-bytes", b"", Reason.EMPTY
    yield "padding-over-limit", valid + b" " * LIMITS.max_event_bytes, Reason.TOO_LARGE
    yield "huge-context", with_field(kind, "context", '"' + "x" * LIMITS.max_event_bytes + '"'), Reason.TOO_LARGE
    yield "huge-key", with_field(kind, "k" * LIMITS.max_event_bytes, "1"), Reason.TOO_LARGE
    yield "utf-16", valid.decode().encode("utf-16"), Reason.NOT_UTF8
    yield "utf-16-without-mark", valid.decode().encode("utf-16-le"), Reason.BAD_JSON
    yield "utf-32", valid.decode().encode("utf-32-be"), Reason.BAD_JSON
    yield "byte-order-mark", b"\xef\xbb\xbf" + valid, Reason.BAD_JSON
    yield "gzip", b"\x1f\x8b\x08\x00" + valid, Reason.NOT_UTF8
    yield "avro", b"\x00\x00\x00\x00\x01" + valid, Reason.BAD_JSON
    yield "space", b"  ", Reason.BAD_JSON
    yield "trailing-letter", valid + b"x", Reason.BAD_JSON
    yield "trailing-nul", valid + b"\0", Reason.BAD_JSON
    yield "two-events", valid + b"\n" + valid, Reason.BAD_JSON
    yield "trailing-comma", valid[:-1] + b",}", Reason.BAD_JSON
    yield "csv", b"bank,loan-1,A,true", Reason.BAD_JSON
    yield "xml", b"<request/>", Reason.BAD_JSON
    for cut in (1, 10, len(valid) // 2, len(valid) - 1):
        yield f"cut-at-{cut}", valid[:cut], Reason.BAD_JSON
    for name, literal in {"array": "[]", "number": "17", "text": '"a"', "null": "null", "true": "true"}.items():
        yield f"top-level-{name}", literal.encode(), Reason.SCHEMA
    yield "in-an-array", b"[" + valid + b"]", Reason.SCHEMA
    yield "no-fields", b"{}", Reason.SCHEMA
    yield "capital-fields", valid.upper(), Reason.SCHEMA
    yield "wrong-type-and-cut", with_field(kind, "tenant", "1")[:-1], Reason.BAD_JSON
    yield "duplicate-field-last-wrong", valid[:-1] + b',"tenant":1}', Reason.SCHEMA
    for levels in (65, 1_000, 100_000):
        deep = "[" * levels + "]" * levels
        yield f"deep-context-{levels}", with_field(kind, "context", deep), Reason.LIMIT
        yield f"deep-unknown-{levels}", with_field(kind, "extra", deep.replace("]", "")), Reason.LIMIT
    objects = '{"a":' * 5_000 + "1" + "}" * 5_000
    yield "deep-objects", with_field(kind, "context", objects), Reason.LIMIT
    for name, literal in (NOT_JSON_VALUES | SURROGATES).items():
        yield f"unknown-field-{name}", with_field(kind, "extra", literal), Reason.BAD_JSON
    for name, raw in NOT_UTF8.items():
        yield f"unknown-field-{name}", with_field(kind, "extra", '"@"').replace(b"@", raw), Reason.NOT_UTF8
    yield "unknown-key-not-utf8", with_field(kind, "@", "1").replace(b"@", b"\xff"), Reason.NOT_UTF8


def _fields(kind: str) -> Iterator[tuple[str, bytes | None, Reason]]:
    for field in BASES[kind]:
        without = {name: value for name, value in BASES[kind].items() if name != field}
        yield f"without-{field}", json.dumps(without).encode(), Reason.SCHEMA
        if field == "predictions":
            continue
        as_text = field in ("tenant", "decision_id")
        for name, literal in (NOT_TEXT if as_text else WRONG_TYPES).items():
            yield f"{field}-is-{name}", with_field(kind, field, literal), Reason.SCHEMA
        yield f"{field}-is-empty", with_field(kind, field, '""'), Reason.SCHEMA
        for digits in (20, 5_000, 800_000):
            yield f"{field}-has-{digits}-digits", with_field(kind, field, "9" * digits), Reason.SCHEMA
        for control in CONTROLS:
            text = json.dumps(f"a{control}b")
            yield f"{field}-with-{ord(control):02x}", with_field(kind, field, text), Reason.SCHEMA
        for control in ("\x7f", "\x85"):
            yield f"{field}-with-raw-{ord(control):02x}", with_field(kind, field, f'"{control}"'), Reason.SCHEMA
        for name, literal in (NOT_JSON_VALUES | SURROGATES).items():
            yield f"{field}-{name}", with_field(kind, field, literal), Reason.BAD_JSON
        for name, raw in NOT_UTF8.items():
            yield f"{field}-{name}", with_field(kind, field, '"@"').replace(b"@", raw), Reason.NOT_UTF8
        longest = LIMITS.max_id_chars if field == "decision_id" else LIMITS.max_name_chars
        for name, letter in {"ascii": "x", "two-bytes": "é", "four-bytes": "😀", "escaped": "\\u00e9"}.items():
            text = '"' + letter * (longest + 1) + '"'
            yield f"{field}-too-long-{name}", with_field(kind, field, text), Reason.LIMIT


def _predictions() -> Iterator[tuple[str, bytes | None, Reason]]:
    yield "no-predictions", with_field("request", "predictions", "{}"), Reason.NO_PREDICTIONS
    for name, literal in {"null": "null", "array": "[]", "text": '"m"', "integer": "1", "true": "true"}.items():
        yield f"predictions-is-{name}", with_field("request", "predictions", literal), Reason.SCHEMA
    pairs = '[["m","true"]]'
    yield "predictions-of-pairs", with_field("request", "predictions", pairs), Reason.SCHEMA
    for name, literal in WRONG_TYPES.items():
        yield f"prediction-is-{name}", with_prediction('"m"', literal), Reason.SCHEMA
    for control in CONTROLS:
        text = json.dumps(f"a{control}")
        yield f"expert-with-{ord(control):02x}", with_prediction(text, "1"), Reason.SCHEMA
        yield f"prediction-with-{ord(control):02x}", with_prediction('"m"', text), Reason.SCHEMA
    yield "expert-is-empty", with_prediction('""', "1"), Reason.SCHEMA
    yield "prediction-is-empty", with_prediction('"m"', '""'), Reason.SCHEMA
    for name, literal in SURROGATES.items():
        yield f"expert-surrogate-{name}", with_prediction(literal, "1"), Reason.BAD_JSON
        yield f"prediction-surrogate-{name}", with_prediction('"m"', literal), Reason.BAD_JSON
    yield "expert-is-a-number", with_prediction("1", "1"), Reason.BAD_JSON
    long = '"' + "x" * (LIMITS.max_name_chars + 1) + '"'
    yield "expert-too-long", with_prediction(long, "1"), Reason.LIMIT
    yield "prediction-too-long", with_prediction('"m"', long), Reason.LIMIT
    for count in (LIMITS.max_experts + 1, 50_000):
        crowd = json.dumps({f"m{i}": 1 for i in range(count)})
        yield f"{count}-experts", with_field("request", "predictions", crowd), Reason.LIMIT


def _all() -> Iterator[Bad]:
    for kind in BASES:
        for name, value, reason in (*_whole(kind), *_fields(kind)):
            yield Bad(kind, name, value, reason)
    for name, value, reason in _predictions():
        yield Bad("request", name, value, reason)


BAD_EVENTS = list(_all())
