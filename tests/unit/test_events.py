"""What a producer may send, and what happens to everything else."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from processor.core.events import (
    DecisionEvent,
    FeedbackEvent,
    Limits,
    Reason,
    RejectedEventError,
    RequestEvent,
    canonical_label,
    decode_decision,
    decode_feedback,
    decode_request,
    encode_decision,
    is_garbage,
    key_of,
)
from processor.core.stream import remembering
from tests.fuzz_decoder import DECODERS, content, damaged, in_a_batch, try_one

from .bad_events import BAD_EVENTS, FEEDBACK, REQUEST, VALID, Bad, with_field

LIMITS = Limits()
FROZEN = sorted((Path(__file__).parent / "events_v1").glob("*.json"))


def _is_integer(_checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# To JSON Schema 1.0 is an integer; the schema's comment says that here it is not.
_TYPES = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
_Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=_TYPES)


def valid_by_schema(name: str, event: object) -> bool:
    return bool(_Validator(schemas.load(name)).is_valid(event))


def decision(**changes: Any) -> DecisionEvent:
    made = DecisionEvent(
        tenant="bank", decision_id="loan-1", group="A", decision="true", expert="m", instance=None,
        probabilities={"false": 0.25, "true": 0.75}, parts={"false": 2**30, "true": 3 * 2**30},
        policy="gforce", objective="gap", config="0123456789abcdef", batch=7,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


# Refusals


@pytest.mark.parametrize("bad", BAD_EVENTS, ids=lambda bad: f"{bad.kind}-{bad.name}")
def test_a_bad_event_is_refused_for_the_right_reason(bad: Bad) -> None:
    start = time.thread_time()
    with pytest.raises(RejectedEventError) as refused:
        DECODERS[bad.kind](bad.value, LIMITS)
    assert refused.value.reason is bad.reason
    assert 0 < len(refused.value.detail) < 200
    assert time.thread_time() - start < 2  # a hundredth of it is usual; quadratic work would take minutes


def test_the_corpus_is_large_and_has_no_event_twice() -> None:
    assert len(BAD_EVENTS) >= 200
    assert len({(bad.kind, bad.value) for bad in BAD_EVENTS}) == len(BAD_EVENTS)


@pytest.mark.parametrize("field", ["tenant", "decision_id", "group"])
def test_a_detail_never_quotes_the_event(field: str) -> None:
    private = "Jane-Doe-1970"
    for literal in (f'["{private}"]', f'"{private}\\n"', '"' + private * 100 + '"', f'"{private}'):
        with pytest.raises(RejectedEventError) as refused:
            decode_request(with_field("request", field, literal), LIMITS)
        assert private not in str(refused.value)


def test_only_what_cannot_be_read_is_garbage() -> None:
    garbage = {reason.value for reason in Reason if is_garbage(reason)}
    assert garbage == {"empty", "too-large", "not-utf8", "bad-json", "schema"}


@given(st.binary(max_size=300), st.sampled_from(["request", "feedback"]))
def test_random_bytes_raise_nothing_but_rejected(value: bytes, kind: str) -> None:
    try_one(value, LIMITS, kind)


@given(st.integers(0, 2**32), st.sampled_from(["request", "feedback"]))
def test_damaged_events_raise_nothing_but_rejected(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        try_one(damaged(rng), LIMITS, kind)


# What is accepted


def test_labels_and_groups_are_canonical() -> None:
    predictions = {"a": True, "b": False, "c": 1, "d": -0, "e": "True", "f": 2**63 - 1}
    event = decode_request(json.dumps({**REQUEST, "group": True, "predictions": predictions}).encode(), LIMITS)
    assert event.group == "true"
    assert list(event.predictions.values()) == ["true", "false", "1", "0", "True", "9223372036854775807"]


@pytest.mark.parametrize(("label", "inside"), [(True, "true"), (False, "false"), (1, "1"), (-3, "-3"), ("é", "é")])
def test_feedback_labels_are_canonical(label: object, inside: str) -> None:
    assert decode_feedback(json.dumps({**FEEDBACK, "label": label}).encode(), LIMITS).label == inside


def test_the_last_of_a_repeated_key_counts() -> None:
    value = b'{"tenant":"x","decision_id":"1","group":"A","predictions":{"m":1,"m":2},"tenant":"bank"}'
    event = decode_request(value, LIMITS)
    assert (event.tenant, event.decision_id, event.group, event.predictions) == ("bank", "1", "A", {"m": "2"})


@pytest.mark.parametrize(
    "value",
    [
        b'{"tenant":"t","decision_id":"1","group":"A","predictions":"A","predictions":{"m":"x"}}',
        b'{"tenant":"t","decision_id":"1","group":[],"group":"A","predictions":{"m":"x"}}',
    ],
)
def test_what_is_remembered_does_not_hide_a_field_that_comes_twice(value: bytes) -> None:
    good = b'{"tenant":"t","decision_id":"0","group":"A","predictions":{"m":"x"}}'
    with pytest.raises(RejectedEventError) as plainly:
        decode_request(value, LIMITS)
    before, event, after = in_a_batch([good, value, good], LIMITS)
    assert isinstance(event, RejectedEventError)
    assert str(event) == str(plainly.value)
    assert isinstance(before, RequestEvent)
    assert isinstance(after, RequestEvent)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.text('abc,:{}[] é\\"', min_size=1, max_size=3), st.sampled_from(["yes", "no", "a,b", True, False, 7])
            ),
            max_size=11,
        ),
        max_size=6,
    ),
    st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ": ")]),
)
def test_many_requests_are_read_as_one_by_one(said: list[list[tuple[str, Any]]], separators: tuple[str, str]) -> None:
    """Advice is put together of remembered pieces, whatever its names hold, and whoever is named twice."""
    comma, colon = separators
    values: list[bytes | None] = []
    for number, predictions in enumerate(said):
        body = comma.join(json.dumps(expert) + colon + json.dumps(label) for expert, label in predictions)
        values.append(f'{{"tenant":"bank","decision_id":"{number}","group":"A","predictions":{{{body}}}}}'.encode())
    for value, event in zip(values, in_a_batch(values, LIMITS), strict=True):
        assert judged(event) == judged(plainly(value))


_EXPERTS = [f"e{number}" for number in range(20)]


@given(
    st.lists(st.lists(st.sampled_from(_EXPERTS), min_size=9, max_size=20), min_size=1, max_size=3),
    st.integers(0, 2**32),
    st.sampled_from([8, 9, 12, 17, 64]),
    st.sampled_from([3, remembering.MOST]),
)
def test_advice_of_many_experts_is_read_as_by_itself(
    orders: list[list[str]], seed: int, most_experts: int, most: int
) -> None:
    """Whoever is asked in whichever order, is named twice or missing, and says what no label can be."""
    rng, limits = random.Random(seed), Limits(max_experts=most_experts)
    values: list[bytes | None] = []
    for number in range(60):
        experts = list(rng.choice([*orders, _EXPERTS[:16], _EXPERTS[:12]]))
        if rng.random() < 0.2:
            del experts[rng.randrange(len(experts))]
        labels = ['"yes"', '"no"', "true", "7", '"a,b"', *(["null"] if rng.random() < 0.02 else [])]
        colon = rng.choice([":", ":", ":", " :", ": "])
        body = ",".join(f'"{expert}"{colon}{rng.choice(labels[: rng.choice([2, 6])])}' for expert in experts)
        group = rng.choice(['"A"', '"1"', "1", "true", '"true"'])
        values.append(f'{{"tenant":"t","decision_id":"{number}","group":{group},"predictions":{{{body}}}}}'.encode())
    with patch.object(remembering, "MOST", most), patch.object(remembering, "MOST_CUT", most):
        remembering.memory_of.cache_clear()
        events = [event for value in values for event in in_a_batch([value], limits)]
    for value, event in zip(values, events, strict=True):
        assert judged(event) == judged(plainly(value, limits))


def plainly(value: bytes | None, limits: Limits = LIMITS) -> RequestEvent | RejectedEventError:
    try:
        return decode_request(value, limits)
    except RejectedEventError as refused:
        return refused


def judged(event: RequestEvent | RejectedEventError) -> tuple[object, ...]:
    if isinstance(event, RejectedEventError):
        return event.reason, event.detail
    return content(event), event.content, event.advice.labels


def test_names_as_long_as_their_limits_are_accepted() -> None:
    name, identity = "😀" * LIMITS.max_name_chars, "é" * LIMITS.max_id_chars
    experts = {f"{i}".ljust(LIMITS.max_name_chars, "x"): name for i in range(LIMITS.max_experts)}
    event = {"tenant": name, "decision_id": identity, "group": name, "predictions": experts}
    assert decode_request(json.dumps(event).encode(), LIMITS).predictions == experts


def test_an_event_of_exactly_the_largest_size_is_accepted() -> None:
    value = VALID["request"].ljust(LIMITS.max_event_bytes)
    assert decode_request(value, LIMITS).tenant == "bank"


def test_nesting_up_to_the_limit_is_accepted_however_many_brackets_there_are() -> None:
    deep = "[" * 63 + "]" * 63  # the event itself is the first level
    wide = "[" + ",".join(["[]"] * 1_000) + "]"
    text = json.dumps("[{" * 1_000 + '\\"')
    for context in (deep, wide, text):
        value = with_field("request", "context", context)
        assert decode_request(value, LIMITS).context == context.encode()


def test_other_limits_are_obeyed() -> None:
    tight = Limits(max_id_chars=3, max_experts=1, max_depth=2)
    short = json.dumps({**REQUEST, "decision_id": "123"}).encode()
    assert decode_request(short, tight).decision_id == "123"
    changes: list[dict[str, Any]] = [{"decision_id": "1234"}, {"predictions": {"a": 1, "b": 1}}, {"context": [[]]}]
    for changed in changes:
        with pytest.raises(RejectedEventError) as refused:
            decode_request(json.dumps({**REQUEST, "decision_id": "1", **changed}).encode(), tight)
        assert refused.value.reason is Reason.LIMIT


def test_control_characters_are_no_matter_in_the_context() -> None:
    value = with_field("request", "context", '{"note":"a\\n\\u0000\x7f"}')
    assert decode_request(value, LIMITS).tenant == "bank"


def test_the_key_is_the_tenant_in_utf8() -> None:
    assert key_of("银行") == "银行".encode()


# The schema and the decoder agree

_chars = st.characters(exclude_categories=["Cs"], exclude_characters="@")
_names = st.text(_chars, max_size=6)
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _names
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=2))
_good = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
_labels = _good | st.booleans() | st.integers(-(2**63), 2**63 - 1)


def _maybe(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 5).flatmap(lambda die: _values if die == 0 else good)


_requests = st.fixed_dictionaries(
    {"tenant": _maybe(_good), "decision_id": _maybe(_good), "group": _maybe(_labels)},
    optional={
        "predictions": _maybe(st.dictionaries(_maybe(_good).filter(lambda x: isinstance(x, str)), _labels, max_size=4)),
        "context": _values,
        "extra": _values,
    },
)
_feedbacks = st.fixed_dictionaries(
    {"tenant": _maybe(_good), "decision_id": _maybe(_good)}, optional={"label": _maybe(_labels), "extra": _values}
)


def _is_accepted(kind: str, value: bytes) -> bool:
    try:
        DECODERS[kind](value, LIMITS)
    except RejectedEventError:
        return False
    return True


@given(_requests, st.booleans())
def test_the_decoder_accepts_exactly_the_requests_the_schema_accepts(event: dict[str, Any], ascii_: bool) -> None:
    value = json.dumps(event, ensure_ascii=ascii_).encode()
    assert _is_accepted("request", value) == valid_by_schema("request.v1", event)


@given(_feedbacks, st.booleans())
def test_the_decoder_accepts_exactly_the_feedback_the_schema_accepts(event: dict[str, Any], ascii_: bool) -> None:
    value = json.dumps(event, ensure_ascii=ascii_).encode()
    assert _is_accepted("feedback", value) == valid_by_schema("feedback.v1", event)


@pytest.mark.parametrize("bad", [b for b in BAD_EVENTS if b.reason in (Reason.SCHEMA, Reason.NO_PREDICTIONS)])
def test_the_schema_refuses_the_corpus_too(bad: Bad) -> None:
    assert bad.value is not None
    event = json.loads(bad.value, parse_int=lambda digits: int(digits[:100]))  # Python reads no 5 000 digits
    assert not valid_by_schema(f"{bad.kind}.v1", event)


@pytest.mark.parametrize("name", schemas.names())
def test_every_schema_is_valid_versioned_and_describes_every_property(name: str) -> None:
    schema = schemas.load(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f"/{name}.json")
    assert all(field.get("description") for field in schema["properties"].values())


def test_the_schema_of_dead_letters_lists_every_reason() -> None:
    assert schemas.load("dead-letter.v1")["properties"]["gforce.reason"]["enum"] == [reason.value for reason in Reason]


def test_an_unknown_schema_is_named_with_those_there_are() -> None:
    with pytest.raises(LookupError, match="request.v1"):
        schemas.load("../secrets")


# There and back


@given(_requests.filter(lambda event: valid_by_schema("request.v1", event)))
def test_a_request_comes_back_as_it_went(event: dict[str, Any]) -> None:
    read = decode_request(json.dumps(event).encode(), LIMITS)
    assert read.group == canonical_label(event["group"])
    assert read.predictions == {expert: canonical_label(said) for expert, said in event["predictions"].items()}
    again = decode_request(msgspec.json.encode(content(read)), LIMITS)
    assert content(again) == content(read)


CONTEXTS = [
    b"null", b"1.0", b"1e5", b"-0.0", b"[1 ,  2]", b'{"b":1, "a" : 2,"b":3}', b'"\\u00e9\\/"', '"é😀"'.encode(),
    b"12345678901234567890123456789012345678901234567890.10", b"1e999", b'{ "x" :\n\t[ ] }', b'"\\ud83d\\ude00"',
]  # fmt: skip


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_context_is_passed_on_byte_for_byte(context: bytes) -> None:
    request = decode_request(VALID["request"][:-1] + b', "context" : ' + context + b" }", LIMITS)
    assert encode_decision(decision(context=msgspec.Raw(request.context))).endswith(b',"context":' + context + b"}")


def test_a_decision_is_compact_in_a_fixed_order_and_without_a_context_it_had_not() -> None:
    assert encode_decision(decision()) == (
        b'{"tenant":"bank","decision_id":"loan-1","group":"A","decision":"true","expert":"m","instance":null,'
        b'"probabilities":{"false":0.25,"true":0.75},"parts":{"false":1073741824,"true":3221225472},'
        b'"policy":"gforce","objective":"gap","config":"0123456789abcdef","batch":7}'
    )


@given(_good, _good, _good, st.none() | _good, st.integers(0, 2**32), st.integers(0, 2**62))
def test_a_decision_matches_its_schema_and_comes_back(
    tenant: str, identity: str, group: str, expert: str | None, part: int, batch: int
) -> None:
    parts = {"false": part, "true": 2**32 - part}
    shares = {label: value / 2**32 for label, value in parts.items()}
    made = decision(
        tenant=tenant, decision_id=identity, group=group, expert=expert, parts=parts, probabilities=shares, batch=batch
    )
    value = encode_decision(made)
    assert decode_decision(value) == made
    assert valid_by_schema("decision.v1", json.loads(value))


def test_the_fields_of_a_decision_are_those_of_its_schema() -> None:
    assert list(schemas.load("decision.v1")["properties"]) == list(DecisionEvent.__struct_fields__)


# Old events


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.stem)
def test_old_events_still_parse(path: Path) -> None:
    value, kind = path.read_bytes(), path.stem.partition("_")[0]
    assert valid_by_schema(f"{kind}.v1", json.loads(value))
    if kind == "decision":
        assert encode_decision(decode_decision(value)) == value
    else:
        assert DECODERS[kind](value, LIMITS)


def test_old_events_still_mean_the_same() -> None:
    folder = Path(__file__).parent / "events_v1"
    typed = decode_request((folder / "request_typed_labels.json").read_bytes(), LIMITS)
    assert (typed.tenant, typed.decision_id) == ("bank", "loan-3")
    assert (typed.group, typed.predictions) == ("1", {"model": "true", "rule": "0"})
    assert decode_feedback((folder / "feedback_boolean.json").read_bytes(), LIMITS) == FeedbackEvent(
        "bank", "loan-3", "false"
    )
