"""One batch after another, without any server: every order of events has one outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from processor.adapters.memory.store import MemoryStore
from processor.core import IN_FORCE
from processor.core.errors import IncompatibleStateError
from processor.core.events import Limits, Reason
from processor.core.settings import Policy, Settings
from processor.core.stream.entries import Parked, Pending, Settled, decode_entry, entry_id
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import ChangelogRecord, JournalRecord, Range, changelog_parts
from processor.core.stream.partition import Partition, partition_from_fields
from processor.core.stream.step import (
    FEEDBACK,
    REQUESTS,
    InputRecord,
    StepResult,
    StreamSettings,
    advanced,
    decode,
    due_slot,
    split_by_source,
    step,
)
from processor.core.stream.tenant import TenantSettings
from processor.core.stream.writes import SetEntry, unpack
from processor.service.poison import step_around_faults

from .tiers import tier as tier

TOKEN = b"test"
HOUR = 3_600_000


def rules(**change: object) -> TenantSettings:
    settings = Settings(labels=("no", "yes"), positive="yes", shadows=(Policy(policy="mw"),))
    defaults: dict[str, object] = {
        "settings": settings,
        "seed": b"sixteen bytes ok",
        "digest": "d1",
        "canonical": "{}",
        "expiry": 10 * HOUR,
        "on_expiry": None,
        "parking": 2 * HOUR,
        "horizon": 20 * HOUR,
    }
    return TenantSettings(**{**defaults, **change})  # type: ignore[arg-type]


class Bench:
    """A partition that is stepped by hand, its state in a store of its own."""

    def __init__(self, of: TenantSettings | None = None, limits: Limits | None = None) -> None:
        known = of or rules()
        self.terms = StreamSettings(
            limits or Limits(), lambda name: None if name == "stranger" else known, HOUR, slot=HOUR
        )
        self.store = MemoryStore()
        self.store.claim(0, TOKEN)
        self.partition = Partition(0, 1, Identity("l", 0, GENESIS))
        self.offsets: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()

    def request(self, decision_id: str = "1", group: str = "A", tenant: str = "t", **more: object) -> InputRecord:
        event = {"tenant": tenant, "decision_id": decision_id, "group": group, "predictions": {"e": "yes", "f": "no"}}
        return self._raw(REQUESTS, tenant, {**event, **more})

    def label(self, decision_id: str = "1", label: str = "yes", tenant: str = "t") -> InputRecord:
        return self._raw(FEEDBACK, tenant, {"tenant": tenant, "decision_id": decision_id, "label": label})

    def _raw(self, source: str, tenant: str, event: object) -> InputRecord:
        self.offsets[source] += 1
        return InputRecord(source, self.offsets[source], 1_000, tenant.encode(), json.dumps(event).encode())

    def batch(self, *raws: InputRecord, clock: int = 1_000, acknowledged: Sequence[tuple[str, int]] = ()) -> StepResult:
        ordered = sorted(raws, key=lambda raw: (raw.source != REQUESTS, raw.offset))
        asked = decode(*split_by_source(ordered), 0, 1, clock, self.terms, set())
        view = self.store.look_up(0, TOKEN, asked.ids, due_slot(clock, self.terms.slot), 16)
        entries = dict(zip(asked.ids, view.entries, strict=True))
        outcome = step(self.partition, asked, entries, view.due, clock, self.terms, acknowledged)
        after = Identity("l", self.partition.identity.sequence + 1, GENESIS)
        self.store.apply(0, TOKEN, after, after.sequence - 1, outcome.writes)
        self.partition = advanced(outcome.partition, after)
        self.fates.update(outcome.tally)
        return outcome

    def joined(self) -> int:
        return sum(int(t.learner.counters().joined[0]) for t in self.partition.tenants.values())

    def stored(self, decision_id: str, tenant: str = "t") -> bytes | None:
        return self.store.look_up(0, TOKEN, [entry_id(tenant, decision_id)], 0, 0).entries[0]


def reasons(outcome: StepResult) -> list[str]:
    return [str(letter.reason) for letter in outcome.dead_letters]


def test_a_request_is_decided_and_its_label_joined() -> None:
    bench = Bench()
    [made] = bench.batch(bench.request(context={"a": 1})).decisions
    event = json.loads(made.value)
    assert event["decision"] in ("yes", "no")
    assert event["context"] == {"a": 1}
    assert sum(event["parts"].values()) == 1 << 32
    bench.batch(bench.label())
    assert bench.joined() == 1
    assert bench.partition.pending == 0


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize("batches", ["one", "each"])
def test_request_label_duplicate_and_contradiction_end_alike_in_any_order(order: tuple[int, ...], batches: str) -> None:
    bench = Bench()
    makers = [bench.request, bench.request, bench.label, bench.label]
    raws = [makers[i]() for i in order]
    if batches == "one":
        bench.batch(*raws)
    else:
        for raw in raws:
            bench.batch(raw)
    bench.batch(bench.label(label="no"))
    assert bench.fates["decisions"] == 1
    assert bench.fates["requests_duplicate"] == 1
    assert bench.fates["labels_joined"] == 1
    assert bench.fates["labels_duplicate"] == 1
    assert bench.fates["dead_contradicting-label"] == 1
    assert bench.joined() == 1


@given(st.lists(st.sampled_from(["r1", "r2", "y1", "n1", "y2", "tick"]), max_size=14), st.integers(1, 5))
def test_every_label_has_exactly_one_fate(script: list[str], size: int) -> None:
    bench = Bench()
    labels = requests = 0
    clock = 1_000
    pending: list[InputRecord] = []
    for i, word in enumerate([*script, "end"]):
        if word == "tick":
            clock += 3 * HOUR
        elif word[0] == "r":
            pending.append(bench.request(word[1]))
            requests += 1
        elif word[0] in "yn":
            pending.append(bench.label(word[1], "yes" if word[0] == "y" else "no"))
            labels += 1
        if i % size == 0 or word == "end":
            bench.batch(*pending, clock=clock)
            pending = []
    dead = sum(n for fate, n in bench.fates.items() if fate.startswith("dead_"))
    assert bench.fates["labels_joined"] + bench.fates["labels_duplicate"] + bench.partition.parked + dead == labels
    assert bench.fates["decisions"] + bench.fates["requests_duplicate"] == requests
    assert bench.joined() == bench.fates["labels_joined"]
    fields = dict(bench.store.fields(0, TOKEN))
    again = partition_from_fields(0, 1, bench.partition.identity, fields, bench.terms.settings_for)
    assert again.pending == bench.partition.pending


def test_a_different_request_under_the_same_id_is_a_dead_letter() -> None:
    bench = Bench()
    bench.batch(bench.request(group="A"))
    assert reasons(bench.batch(bench.request(group="B"))) == ["conflicting-request"]


def test_a_decision_expires_and_a_later_label_is_a_dead_letter() -> None:
    bench = Bench()
    bench.batch(bench.request())
    bench.batch(clock=12 * HOUR)
    assert bench.fates["decisions_expired"] == 1
    assert bench.partition.pending == 0
    assert reasons(bench.batch(bench.label(), clock=13 * HOUR)) == ["expired-decision"]
    bench.batch(clock=30 * HOUR)
    assert bench.stored("1") is None


def test_an_expired_decision_may_count_as_a_label() -> None:
    bench = Bench(rules(on_expiry="no"))
    bench.batch(bench.request())
    bench.batch(clock=12 * HOUR)
    assert bench.joined() == 1


def test_a_label_without_a_request_is_parked_and_then_a_dead_letter() -> None:
    bench = Bench()
    bench.batch(bench.label())
    assert bench.partition.parked == 1
    late = bench.batch(clock=5 * HOUR)
    assert reasons(late) == ["unknown-decision"]
    assert json.loads(late.dead_letters[0].raw.value or b"")["decision_id"] == "1"
    assert bench.partition.parked == 0


def test_a_repetition_after_the_horizon_is_decided_again() -> None:
    bench = Bench(rules(expiry=HOUR, horizon=2 * HOUR))
    bench.batch(bench.request())
    bench.batch(clock=9 * HOUR)
    bench.batch(clock=10 * HOUR)
    bench.batch(bench.request(), clock=11 * HOUR)
    assert bench.fates["decisions"] == 2


def test_labels_of_negative_decisions_are_not_expected_where_only_positive_ones_get_them() -> None:
    settings = Settings(labels=("no", "yes"), positive="yes", feedback="positive-only", explore=0.05)
    bench = Bench(rules(settings=settings))
    outcome = bench.batch(*(bench.request(str(i)) for i in range(40)))
    decided = {json.loads(m.value)["decision_id"]: json.loads(m.value)["decision"] for m in outcome.decisions}
    bench.batch(*(bench.label(i) for i in decided))
    positive = sum(label == "yes" for label in decided.values())
    assert bench.joined() == positive
    assert bench.fates["dead_label-not-expected"] == 40 - positive


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (lambda b: b.request(tenant="stranger"), "unknown-tenant"),
        (lambda b: b.label(tenant="stranger"), "unknown-tenant"),
        (lambda b: b.label(label="maybe"), "unknown-label"),
        (lambda b: b.request(predictions={"e": "maybe"}), "unknown-label"),
        (lambda b: b.request(predictions={}), "no-predictions"),
        (lambda b: InputRecord(REQUESTS, 9, 1_000, b"t", b"nonsense"), "bad-json"),
        (lambda b: InputRecord(REQUESTS, 9, 1_000, b"x", b.request().value), "key-mismatch"),
        (lambda b: InputRecord(REQUESTS, 9, 9 * HOUR, b"t", b.request().value), "future-timestamp"),
    ],
)
def test_what_cannot_be_used_is_a_dead_letter_with_its_reason(raw: object, reason: str) -> None:
    bench = Bench()
    assert reasons(bench.batch(raw(bench))) == [reason]  # type: ignore[operator]


def test_an_unknown_label_is_told_which_there_are_and_is_not_quoted() -> None:
    bench = Bench()
    letters = bench.batch(bench.request(predictions={"e": "maybe"}), bench.label(label="maybe")).dead_letters
    assert [letter.detail for letter in letters] == [
        'a prediction is not one of "no", "yes"',
        'the label is not one of "no", "yes"',
    ]


def test_a_detail_is_short_however_long_the_labels_are() -> None:
    labels = ("n" * 128, "y" * 128)
    bench = Bench(rules(settings=Settings(labels=labels, positive=labels[1])))
    [letter] = bench.batch(bench.request(predictions={"e": "maybe"})).dead_letters
    assert len(letter.detail) < 200


def test_limits_hold() -> None:
    bench = Bench(rules(max_groups=1, max_experts=2), Limits(max_tenants=1))
    bench.batch(bench.request("1", group="A"))
    assert reasons(bench.batch(bench.request("2", group="B"))) == ["limit"]
    assert reasons(bench.batch(bench.request("3", predictions={"x": "no", "y": "no", "z": "no"}))) == ["limit"]
    assert reasons(bench.batch(bench.request("4", tenant="second"))) == ["unknown-tenant"]


@pytest.mark.parametrize("shadow", [True, False])
def test_a_mixture_has_no_more_choices_than_can_be_solved(shadow: bool) -> None:
    mixture = Policy(objective="mixture")
    settings = Settings(
        labels=("no", "yes"),
        positive="yes",
        policy=Policy() if shadow else mixture,
        shadows=(mixture,) if shadow else (),
    )
    bench = Bench(rules(settings=settings, max_choices=4))
    two = {"x": "no", "y": "no"}
    assert reasons(bench.batch(bench.request("1", group="A", predictions=two))) == []
    assert reasons(bench.batch(bench.request("2", group="B", predictions=two))) == []
    assert reasons(bench.batch(bench.request("3", group="C", predictions=two))) == ["limit"]
    assert reasons(bench.batch(bench.request("4", group="A", predictions={"z": "no"}))) == ["limit"]
    assert reasons(bench.batch(bench.request("5", group="B", predictions={"x": "no"}))) == []
    assert reasons(Bench(rules(max_choices=1)).batch(bench.request("1", predictions=two))) == []


def test_a_record_marked_as_poison_is_an_internal_dead_letter() -> None:
    bench = Bench()
    raw = bench.request()
    asked = decode(*split_by_source([raw]), 0, 1, 1_000, bench.terms, {(REQUESTS, raw.offset)})
    assert [letter.reason for letter in asked.refused] == [Reason.INTERNAL]


def test_stepping_changes_nothing_that_was_there() -> None:
    bench = Bench()
    bench.batch(*(bench.request(str(i)) for i in range(5)))
    before = bench.partition.tenants["t"].learner.encode()
    asked = decode(*split_by_source([bench.label("1"), bench.request("9")]), 0, 1, 1_000, bench.terms, set())
    view = bench.store.look_up(0, TOKEN, asked.ids, 0, 16)
    entries = dict(zip(asked.ids, view.entries, strict=True))
    first = step(bench.partition, asked, entries, {}, 1_000, bench.terms)
    second = step(bench.partition, asked, entries, {}, 1_000, bench.terms)
    assert bench.partition.tenants["t"].learner.encode() == before
    assert first.writes == second.writes


def test_rules_go_into_the_journal_once_and_when_they_change() -> None:
    bench = Bench()
    assert bench.batch(bench.request("1")).rules == {"t": "d1"}
    assert bench.batch(bench.request("2")).rules == {}


def test_the_learner_learns_what_the_entry_kept() -> None:
    bench = Bench()
    bench.batch(*(bench.request(str(i), group="AB"[i % 2]) for i in range(30)))
    bench.batch(*(bench.label(str(i), "yes") for i in range(30)))
    learner = bench.partition.tenants["t"].learner
    axes, counters = learner.state.axes, learner.counters()
    assert counters.losses[0, axes.expert_index["f"]].sum() == 30
    assert counters.losses[0, axes.expert_index["e"]].sum() == 0
    assert counters.outcomes[0, axes.policy_index[IN_FORCE]].sum() == 30


@given(
    kinds=st.integers(2, 10),
    propensity=st.none() | st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_entries_survive_their_bytes(kinds: int, propensity: int | None, data: st.DataObject) -> None:
    digit = st.integers(0, kinds)
    entry = Pending(
        tenant=data.draw(st.integers(0, 65_535)),
        content=data.draw(st.integers(0, 2**32 - 1)),
        at=data.draw(st.integers(0, 2**32 - 1)),
        due=data.draw(st.integers(0, 2**32 - 1)),
        remove=data.draw(st.integers(0, 2**32 - 1)),
        propensity=propensity,
        group=data.draw(st.integers(0, 255)),
        kinds=kinds,
        decided=tuple(data.draw(st.lists(digit, max_size=5))),
        predictions=tuple(data.draw(st.lists(digit, max_size=64))),
    )
    assert decode_entry(entry.encode()) == entry


def test_a_pending_decision_of_five_experts_takes_at_most_28_bytes() -> None:
    entry = Pending(1, 2, 3, 4, 5, None, 1, 2, decided=(1, 2, 1), predictions=(1, 2, 1, 2, 2))
    assert len(entry.encode()) <= 28


def test_other_entries_survive_their_bytes_and_unknown_ones_are_refused() -> None:
    for entry in (Settled(1, 2, 3, 1), Settled(1, 2, 3, None), Parked(1, 2, 3, 4, 1, b"{}")):
        assert decode_entry(entry.encode()) == entry
    with pytest.raises(IncompatibleStateError, match="kind 63"):
        decode_entry(b"c")


def test_large_writes_are_cut_into_parts_that_survive_their_bytes() -> None:
    writes = np.random.default_rng(1).bytes(2_000_000)
    parts = changelog_parts("l", 7, "d", "p", False, writes)
    assert len(parts) == 3
    assert b"".join(ChangelogRecord.decode(p.encode()).writes for p in parts) == writes


def test_journal_records_survive_their_bytes_and_strangers_are_refused() -> None:
    part = Range(0, 0, 0, "")
    record = JournalRecord(
        lineage="l", partition=0, partitions=1, sequence=1, clock=1, now=2, requests=part, feedback=part,
        decisions=0, decisions_digest="", state_digest="", previous=GENESIS, poison=[("requests", 3)],
    )  # fmt: skip
    assert JournalRecord.decode(record.encode()) == record
    for data in (b"{}", b"nonsense", record.encode().replace(b'"sequence"', b'"form":9,"sequence"')):
        with pytest.raises(IncompatibleStateError):
            JournalRecord.decode(data)
    with pytest.raises(IncompatibleStateError):
        ChangelogRecord.decode(b"\x90")


def test_a_decision_waits_from_its_own_time_on_even_if_the_clock_is_behind() -> None:
    bench = Bench()
    raw = bench.request()
    late = InputRecord(raw.source, raw.offset, 50 * HOUR, raw.key, raw.value)
    asked = decode(*split_by_source([late]), 0, 1, 50 * HOUR, bench.terms, set())
    outcome = step(bench.partition, asked, dict.fromkeys(asked.ids), {}, 1_000, bench.terms)
    entry = decode_entry(next(w.value for w in unpack(outcome.writes) if isinstance(w, SetEntry)))
    assert isinstance(entry, Pending)
    assert entry.due == 60


def test_a_record_that_breaks_the_step_is_found_and_the_others_go_on() -> None:
    bench = Bench()
    known = bench.terms.settings_for

    def settings_for(name: str) -> TenantSettings | None:
        if name == "boom":
            raise RuntimeError("a defect of ours")
        return known(name)

    terms = StreamSettings(Limits(), settings_for, HOUR, slot=HOUR)
    raws = [bench.request(str(i), tenant="boom" if i in (3, 7) else "t") for i in range(10)]
    asked = decode(*split_by_source(raws), 0, 1, 1_000, terms, set())
    reported: list[Exception] = []
    poison: set[tuple[str, int]] = set()
    outcome = step_around_faults(
        bench.partition,
        split_by_source(raws),
        asked,
        dict.fromkeys(asked.ids),
        {},
        1_000,
        1_000,
        terms,
        reported.append,
        poison,
    )
    assert poison == {(REQUESTS, 4), (REQUESTS, 8)}
    assert len(outcome.decisions) == 8
    assert reasons(outcome) == ["internal", "internal"]
    assert len(reported) == 1


def test_a_new_shadow_survives_two_restarts() -> None:
    """Time buckets that nobody has touched since are brought to the new names too."""
    bench = Bench(rules(settings=Settings(labels=("no", "yes"), positive="yes", bucket=HOUR, keep=9)))
    for hour in range(3):
        bench.batch(replace(bench.request(str(hour)), timestamp=hour * HOUR), clock=hour * HOUR)
    shadows = (Policy(policy="mw"),)
    more = rules(settings=Settings(labels=("no", "yes"), positive="yes", bucket=HOUR, keep=9, shadows=shadows))
    bench.terms = StreamSettings(Limits(), lambda name: more, HOUR, slot=HOUR)
    for restart in range(2):
        fields = dict(bench.store.fields(0, TOKEN))
        bench.partition = partition_from_fields(0, 1, bench.partition.identity, fields, bench.terms.settings_for)
        before = {n: c.copy() for n, c in bench.partition.tenants["t"].learner.state.buckets.items()}
        held = bench.partition.tenants["t"]
        bench.batch(replace(bench.request(f"again {restart}"), timestamp=2 * HOUR), clock=2 * HOUR)
        assert held.learner.state.buckets == before, "a step changes nothing in place"
    assert sum(int(c.decisions.sum()) for c in bench.partition.tenants["t"].learner.state.buckets.values()) == 5
