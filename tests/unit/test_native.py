"""The native tier gives what the reference gives, to the byte, whatever it is given."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from hashlib import blake2b
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.adapters.kafka.runs import reference_runs
from processor.core import native
from processor.core.advice import Advice, contents_of
from processor.core.events import FeedbackEvent, Limits, RequestEvent
from processor.core.native import reference
from processor.core.stream.decode import (
    FEEDBACK,
    REQUESTS,
    DeadLetter,
    DecodedBatch,
    EncodedDecision,
    InputRecord,
    StreamSettings,
    _OneByOne,
    decode,
    split_by_source,
)
from processor.core.stream.entries import Pending, Settled
from processor.ports.log import PartitionRecords, TopicPartition
from tests.fuzz_decoder import damaged

from .bad_events import BAD_EVENTS, VALID
from .test_kafka_runs import HERE, THERE, Fetched
from .tiers import in_tier
from .tiers import native_tier as native_tier

SOURCES = {"request": REQUESTS, "feedback": FEEDBACK}


pytestmark = pytest.mark.usefixtures("native_tier")


# Hashes

LENGTHS = [*range(10), *range(120, 140), *range(250, 262), 384, 385, 1_000, 70_000]


@pytest.mark.parametrize("size", [4, 8, 12, 16, 64])
@pytest.mark.parametrize("key", [b"", b"k", b"k" * 64])
def test_digests_are_those_of_hashlib_whatever_the_length(size: int, key: bytes) -> None:
    texts = ["é" * (length // 2) + "x" * (length % 2) for length in LENGTHS]
    found = native.digests([(key, texts[:7]), (key[::-1], texts[7:])], size)
    expected = [blake2b(text.encode(), key=key, digest_size=size).digest() for text in texts]
    assert found == b"".join(expected)


@given(
    st.lists(st.tuples(st.binary(min_size=16, max_size=64), st.lists(st.text(max_size=300), max_size=9)), max_size=5)
)
def test_draws_under_several_seeds_are_those_under_each(keyed: list[tuple[bytes, list[str]]]) -> None:
    keyed = [(seed, [text.encode("utf-8", "replace").decode() for text in texts]) for seed, texts in keyed]
    assert native.digests(list(keyed), 12) == reference.digests(list(keyed), 12)


RECORD_PARTS = st.none() | st.binary(max_size=600)
POWERS = [1 << n for n in range(63)]
EDGES = [*POWERS, *(n - 1 for n in POWERS), *(-n for n in POWERS), *(-n - 1 for n in POWERS), -(1 << 63)]


@given(
    st.lists(
        st.tuples(
            RECORD_PARTS,
            RECORD_PARTS,
            st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1),
        ),
        min_size=1,
        max_size=13,
    )
)
def test_hashes_of_records_are_those_of_the_reference(records: list[tuple[bytes | None, bytes | None, int]]) -> None:
    columns: list[list[Any]] = [list(column) for column in zip(*records, strict=True)]
    assert native.record_hashes(*columns) == reference.record_hashes(*columns)


@given(st.lists(st.tuples(RECORD_PARTS, RECORD_PARTS, RECORD_PARTS, st.integers(-1, 1 << 62)), max_size=9))
def test_records_are_hashed_as_they_were_received(records: list[tuple[Any, Any, Any, int]]) -> None:
    raws = [InputRecord(REQUESTS, 1, at, key, value, (), original) for key, value, original, at in records]
    assert native.hashes_as_received(raws) == reference.hashes_as_received(raws)


def test_a_key_of_any_length_is_hashed_as_by_the_reference() -> None:
    keys: list[bytes | None] = [b"k" * length for length in (0, 1, 255, 256, 65_535, 65_536)]
    values: list[bytes | None] = [b"v"] * len(keys)
    times = [1_700_000_000_000] * len(keys)
    assert native.record_hashes(keys, values, times) == reference.record_hashes(keys, values, times)


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=9), st.integers(1, 20))
def test_what_requests_say_is_hashed_as_by_the_reference(contexts: list[bytes], experts: int) -> None:
    advice = [Advice.of("A", {f"e{n}": "yes" for n in range(experts)})] * len(contexts)
    found = contents_of(advice, contexts)
    with in_tier("reference"):
        assert found == contents_of(advice, contexts)


# Writes


@given(
    st.dictionaries(st.binary(min_size=16, max_size=16), st.none() | st.binary(min_size=1, max_size=40), max_size=200)
)
def test_entries_are_packed_as_by_the_reference(entries: dict[bytes, bytes | None]) -> None:
    assert native.packed_entries(entries) == reference.packed_entries(entries)
    assert native.joined_ids(list(entries)) == reference.joined_ids(entries)


@pytest.mark.parametrize("alike", [0, 1, 2, 15])
@pytest.mark.parametrize("count", [1, 40, 41, 500, 5_000])
def test_ids_are_sorted_even_if_somebody_has_searched_for_alike_ones(alike: int, count: int) -> None:
    rng = random.Random(count)
    ids = list({b"\xab" * alike + rng.randbytes(16 - alike) for _ in range(count)})
    rng.shuffle(ids)
    assert native.joined_ids(ids) == b"".join(sorted(ids))


def test_what_cannot_be_written_is_refused_alike() -> None:
    for chosen in (native, reference):
        with pytest.raises(ValueError, match="an entry of 65536 bytes: at most 65535 can be written"):
            chosen.packed_entries({bytes(16): bytes(65_536)})
        with pytest.raises(ValueError, match="the id of an entry has 3 bytes, not 16"):
            chosen.packed_entries({b"abc": None})
        with pytest.raises(ValueError, match="the id of an entry has 3 bytes, not 16"):
            chosen.joined_ids([b"abc"])


# Decode


def outcome(raws: list[InputRecord], limits: Limits, partitions: int) -> tuple[object, ...]:
    asked = decode(
        *split_by_source(raws), 0, partitions, 2_000, StreamSettings(limits, lambda name: None, 1_000, 60_000), set()
    )
    return (
        [(raw.offset, _said(event), key) for raw, event, key in asked.requests],
        [(raw.offset, event, key) for raw, event, key in asked.feedback],
        [(letter.raw.offset, letter.reason, letter.detail) for letter in asked.refused],
        asked.garbage,
        asked.ids,
    )


def _said(event: RequestEvent) -> tuple[object, ...]:
    return event.tenant, event.decision_id, event.group, event.predictions, event.context, event.content


def decode_in_both_tiers(raws: list[InputRecord], limits: Limits = Limits(), partitions: int = 1) -> None:
    found = outcome(raws, limits, partitions)
    with in_tier("reference"):
        assert found == outcome(raws, limits, partitions)


def raws_of(values: list[tuple[str, bytes | None]], key: bytes | None = b"bank", at: int = 1_000) -> list[InputRecord]:
    return [InputRecord(SOURCES[kind], offset, at, key, value) for offset, (kind, value) in enumerate(values)]


def test_bad_events_are_refused_alike_also_between_good_ones() -> None:
    values = []
    for bad in BAD_EVENTS:
        values += [(bad.kind, VALID[bad.kind]), (bad.kind, bad.value)]
    decode_in_both_tiers(raws_of(values))


@given(st.integers(0, 2**32))
def test_damaged_events_are_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    raws = raws_of([(rng.choice(["request", "feedback"]), damaged(rng)) for _ in range(40)])
    decode_in_both_tiers(raws)
    tight = Limits(max_event_bytes=120, max_id_chars=6, max_name_chars=4, max_experts=2, max_depth=2)
    decode_in_both_tiers(raws, tight)


CONTEXTS = [
    b"null", b"true", b"false", b"0", b"-0", b"-1.50", b"123456789012345", b"1234567890123456", b"1e5", b"01", b"1.",
    b"-", b"[]", b"{}", b"[ 1 , [2,{ } ] ]", b'{"a":{"b":[null,"x"]}}', b'"a\\u00e9"', b"tru", b"truE", b"nul", b"[1,]",
    b'{"a"}', b'{"a":}', b"[", b'"', b'"open', b"", b"[" * 40 + b"]" * 40, b"[" * 31 + b"]" * 31,
]  # fmt: skip
LABELS = [b'"yes"', b"true", b"false", b"7", b"null", b'""', b'"%b"' % (b"x" * 128), b'"%b"' % (b"x" * 129), b"[]"]
ODD = [
    ("feedback", b'{"label":true,"decision_id":"1","extra":[1,{"label":2}],"tenant":"bank"}'),
    ("feedback", b'{"label":true,"decision_id":"1","label":false,"tenant":"bank"}'),
    ("request", b'{"tenant":"bank","decision_id":"1","group":1,"predictions":{"m":true}}'),
]


@pytest.mark.parametrize("space", [b"", b" ", b"\n\t\r "])
def test_events_that_are_written_plainly_are_read_alike(space: bytes) -> None:
    request = b'{"tenant":"bank","decision_id":"1","group":"A","predictions":{"m":true},"context":%b}'
    feedback = b'{"tenant":"bank","decision_id":"1","label":%b}'
    events = [("request", request % context) for context in CONTEXTS]
    events += [("feedback", feedback % label) for label in LABELS]
    spaced = [(kind, value.replace(b",", b"," + space).replace(b":", space + b":")) for kind, value in events + ODD]
    decode_in_both_tiers(raws_of([(kind, space + value + space) for kind, value in spaced]))


@pytest.mark.parametrize("key", [None, b"", b"ban", b"bank", b"bank\0", b"other"])
@pytest.mark.parametrize("at", [-1, 2_999, 3_000, 3_001])
@pytest.mark.parametrize("partitions", [1, 7])
def test_records_that_do_not_belong_here_are_refused_alike(key: bytes | None, at: int, partitions: int) -> None:
    decode_in_both_tiers(raws_of(list(VALID.items()) * 2, key, at), partitions=partitions)


def test_plain_events_are_decoded_without_the_reference() -> None:
    """Or nothing would be gained, and no other test would notice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("processor.core.stream.decode.decode_request", pytest.fail)
        patch.setattr("processor.core.stream.decode.decode_feedback", pytest.fail)
        asked: DecodedBatch = decode(*split_by_source(raws_of(list(VALID.items()))), 0, 1, 2_000, TERMS, set())
    assert [type(event) for _, event, _ in (*asked.requests, *asked.feedback)] == [RequestEvent, FeedbackEvent]


TERMS = StreamSettings(Limits(), lambda name: None, 1_000, 60_000)


# Join


@pytest.mark.parametrize("label", [0, 1, 127, 128, 255])
@pytest.mark.parametrize("before", [dict, MappingProxyType])
def test_a_label_of_any_number_settles_its_decision(label: int, before: Callable[..., Any]) -> None:
    pending = Pending(1, 2, 3, 4, 5, None, 0, 255, (1,), (1,)).encode()
    changed: dict[bytes, bytes | None] = {}
    joined: dict[str, Any] = {"t": SimpleNamespace(numbers={"y": label}, entries=[], labels=[], times=[])}
    raws = [InputRecord(FEEDBACK, 0, -1, b"t", b"{}"), InputRecord(FEEDBACK, 1, 7, b"t", b"{}")]
    labels = [(raw, FeedbackEvent("t", "1", "y"), key) for raw, key in zip(raws, (b"known", b"unknown"), strict=True)]
    left = native.match(labels, changed, before({b"known": pending}), 9, joined, pytest.fail)
    assert left == labels[1:]
    assert changed == {b"known": Settled.labelled(pending, label)}
    assert (joined["t"].entries, joined["t"].labels, joined["t"].times) == ([pending], [label], [9])


# Runs


@given(st.integers(0, 2**32))
def test_what_a_fetch_brings_is_taken_apart_as_by_the_reference(seed: int) -> None:
    from processor.adapters.kafka import native_runs

    rng = random.Random(seed)
    fetched: list[Any] = [
        Fetched(rng.choice([HERE, THERE, TopicPartition("requests", 1)]), rng.randrange(20), end=rng.random() < 0.1)
        for _ in range(rng.randrange(60))
    ]
    positions = {HERE: rng.randrange(10), THERE: 0}
    found = []
    for runs in (native_runs.runs, reference_runs):
        after = dict(positions)
        brought = runs(fetched, after, {"requests": REQUESTS, "feedback": FEEDBACK})
        found.append(([one if isinstance(one, PartitionRecords) else id(one) for one in brought], after))
    assert found[0] == found[1]


def test_what_is_refused_is_let_go_with_its_batch() -> None:
    """Not when the collector of cycles comes by, which is seldom."""
    gc.collect()
    gc.disable()
    try:
        decode(*split_by_source(raws_of([(bad.kind, bad.value) for bad in BAD_EVENTS[:20]])), 0, 1, 2_000, TERMS, set())
        assert not [one for one in gc.get_objects() if isinstance(one, DeadLetter | _OneByOne)]
    finally:
        gc.enable()


# Requests in turn


@given(st.integers(0, 2**32))
def test_requests_are_sorted_as_by_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    read = [
        (
            InputRecord(REQUESTS, offset, 7, b"t", b"{}", (("trace", b"1"),) if rng.random() < 0.5 else ()),
            SimpleNamespace(tenant=rng.choice("abc")),
            bytes([rng.randrange(9)]),
        )
        for offset in rng.sample(range(1_000), rng.randrange(30))
    ]
    requests: Any = read[: len(read) // 2]
    labels: Any = read[len(read) // 2 :]
    assert list(native.by_tenant(read).items()) == list(reference.by_tenant(read).items())
    assert native.ids(requests, labels) == reference.ids(requests, labels)
    values = {raw.offset: b"%d" % raw.offset for raw, _, _ in read if rng.random() < 0.8}
    asked = requests, values, EncodedDecision
    assert native.decisions_in_order(*asked) == reference.decisions_in_order(*asked)
