"""The alerts: when they are raised and cleared, that nothing but the order of the labels counts, and what is stored."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.core.alerts import monitor as module
from processor.core.alerts.monitor import Alert, AlertChange, Monitor, MonitorSettings
from processor.core.alerts.sequential_tests import RATES, START, SequentialTest, factors, grown, mean
from processor.core.errors import IncompatibleStateError, InvalidSettingsError

from .tiers import tier as tier

Label = tuple[int, int, bool, int]

QUICK = MonitorSettings(tolerance=0.02, alpha=0.3, false_alarm_pairs=20, clear=20, learning=2)
"""Raises and clears something every few dozens of labels."""


def stream_of(rates: dict[tuple[int, int], float], count: int, seed: int = 1, start: int = 0) -> list[Label]:
    """Labels in random order; ``rates`` gives the error rate of each (label, group)."""
    rng, cells = random.Random(seed), list(rates)
    found = []
    for at in range(start, start + count):
        label, group = rng.choice(cells)
        found.append((label, group, rng.random() < rates[label, group], at))
    return found


def two_groups(rate_a: float, rate_b: float) -> dict[tuple[int, int], float]:
    return {(0, 0): rate_a, (0, 1): rate_b}


def fresh(given: MonitorSettings = QUICK, labels: int = 2, declared: int = 2) -> Monitor:
    return Monitor.new(given, labels, declared)


def said(changes: list[AlertChange]) -> list[tuple[str, str]]:
    return [(change.kind, change.state) for change in changes]


labels_of_three_groups = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans(), st.integers(0, 2**41)), max_size=200
)


def test_every_rate_is_bet_on_both_sides() -> None:
    start = tuple(float(i) for i in range(len(START)))
    expected = [(w + 0.5) * (1.0 + rate * 0.3) for w, rate in zip(start[:5], RATES, strict=True)]
    expected += [(w + 0.5) * (1.0 + rate * -0.4) for w, rate in zip(start[5:], RATES, strict=True)]
    after, average = grown(start, 0.5, factors(0.3, -0.4))
    assert list(after) == expected
    assert average == mean(after)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80))
@settings(max_examples=50, deadline=None)
def test_the_wealth_is_that_of_the_textbook_formulas(labels: list[tuple[bool, bool]]) -> None:
    given = MonitorSettings(alpha=1e-6, false_alarm_pairs=10**9)
    stream = SequentialTest(0, (0, 1), given, share=1e9)
    outcomes, counts = [], [0, 0, 0, 0]
    for at, (of_b, wrong) in enumerate(labels):
        counts[2 * of_b] += 1
        counts[2 * of_b + 1] += wrong
        complete = counts[0] > 0 and counts[2] > 0
        assert stream.take(of_b, wrong, at) == complete
        if complete:
            outcomes.append(Fraction(counts[1], counts[0]) - Fraction(counts[3], counts[2]))
            counts = [0, 0, 0, 0]
    tolerance, drift = _textbook(outcomes, Fraction(given.tolerance))
    assert stream.tolerance_wealth == pytest.approx(float(tolerance), rel=1e-12)
    assert stream.drift_wealth == pytest.approx(float(drift), rel=1e-12)


def _textbook(outcomes: list[Fraction], gap: Fraction) -> tuple[Fraction, Fraction]:
    """E and the Shiryaev–Roberts statistic as sums over every pair at which a difference may have begun."""
    tolerance, drift, pairs = Fraction(0), Fraction(0), len(outcomes)
    for rate in map(Fraction, RATES):
        for side in (1, -1):
            product = Fraction(1)
            for begun in range(pairs, 0, -1):
                product *= 1 + rate * (side * outcomes[begun - 1] - gap) / (1 + gap)
                tolerance += product / (begun * (begun + 1))
                drift += product
    return tolerance / 10 + Fraction(1, pairs + 1), drift / 10


@given(labels_of_three_groups, st.lists(st.integers(0, 200), max_size=5))
@settings(max_examples=60, deadline=None)
def test_how_labels_are_split_into_batches_does_not_matter(labels: list[Label], cuts: list[int]) -> None:
    whole, parts = fresh(), fresh()
    expected = whole.observe(labels)
    got: list[AlertChange] = []
    bounds = [0, *sorted(min(cut, len(labels)) for cut in cuts), len(labels)]
    for start, stop in pairwise(bounds):
        before = parts.encode()
        copy = parts.clone()
        got += copy.observe(labels[start:stop])
        assert parts.encode() == before, "a clone changed its original"
        parts = Monitor.decode(QUICK, copy.encode())
    assert got == expected
    assert parts.encode() == whole.encode()
    assert parts.alerts == whole.alerts
    assert parts.streams == whole.streams


def observed_plainly(watch: Monitor, labels: list[Label]) -> list[AlertChange]:
    """``Monitor.observe`` without what makes it fast: every label looks for its streams, and every pair is judged."""
    changes: list[AlertChange] = []
    for label, group, wrong, at in labels:
        watch._labels[label, group] = count = watch._labels.get((label, group), 0) + 1
        if count == 1:
            watch._meet(label, group)
        for index, of_b in watch._touched.get((label, group), ()):
            stream = watch._own(index)
            if stream.testing:
                if stream.take(of_b, wrong, at):
                    watch._judge(stream, at, changes)
            elif watch._has_learnt(stream):
                stream.begin(at)
    return changes


@given(labels_of_three_groups)
@settings(max_examples=50, deadline=None)
def test_many_labels_at_once_are_watched_as_each_by_itself(labels: list[Label]) -> None:
    one, other = fresh(), fresh()
    assert one.observe(labels) == observed_plainly(other, labels)
    assert one.encode() == other.encode()


@given(labels_of_three_groups)
@settings(max_examples=30, deadline=None)
def test_an_original_and_its_clone_go_their_own_ways(labels: list[Label]) -> None:
    one = fresh()
    one.observe(labels)
    other = one.clone()
    expected = one.clone()
    more = stream_of({(0, 0): 0.9, (0, 1): 0.1, (1, 2): 0.5}, 40)
    changes = one.observe(more)
    assert expected.observe(more) == changes
    assert expected.encode() == one.encode()
    other.observe([(0, 1, True, 1)])
    assert expected.encode() == one.encode()


@given(labels_of_three_groups, st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_bytes_that_were_asked_for_before_do_not_come_again(labels: list[Label], every: int) -> None:
    """What is remembered of a stream as bytes must go when the stream changes, in a clone or in the watch itself."""
    asked, never = fresh(), fresh()
    never.observe(labels)
    for start in range(0, len(labels), every):
        asked.encode()
        asked = asked.clone() if start % 2 else asked
        asked.observe(labels[start : start + every])
    for watch in (asked, never):
        for alert in watch.alerts:
            watch.acknowledge(alert.number, 1)
    assert asked.encode() == never.encode()
    assert asked.under(MonitorSettings()).encode() == never.under(MonitorSettings()).encode()


@given(labels_of_three_groups)
@settings(max_examples=30, deadline=None)
def test_the_bytes_are_those_of_any_machine_and_hold_everything(labels: list[Label]) -> None:
    watch = fresh()
    watch.observe(labels)
    watch.one_sided((1,), 5)
    again = Monitor.decode(QUICK, watch.encode())
    assert again.encode() == watch.encode()
    assert again.alerts == watch.alerts


def test_the_same_labels_give_the_bytes_they_always_gave() -> None:
    """A digest from another day: a change of arithmetic or of the stored form must be on purpose."""
    watch, number = fresh(), 12_345
    labels: list[Label] = []
    for at in range(5_000):
        number = (number * 1_103_515_245 + 12_345) % 2**31
        draw = number >> 8
        labels.append((draw % 2, draw // 2 % 3, draw // 6 % 10 < 1 + draw // 2 % 3, at))
    changes = watch.observe(labels)
    assert len(changes) == 131
    assert blake2b(watch.encode(), digest_size=8).hexdigest() == "2e340523aef44490"


@pytest.mark.parametrize("declared", [0, 1, 2, 3, 7])
def test_all_streams_together_spend_alpha_however_many_come(declared: int) -> None:
    watch = Monitor.new(MonitorSettings(alpha=0.5), labels=2, declared_groups=declared)
    spent = sum(1 / Fraction(watch.share(j)) for j in range(1, 1_001))
    assert Fraction(1, 2) * Fraction(99, 100) < spent < Fraction(1, 2)


def test_declared_streams_have_equal_shares() -> None:
    watch = Monitor.new(MonitorSettings(alpha=0.05), labels=2, declared_groups=3)
    assert [watch.share(j) for j in (1, 6, 7)] == [7 / 0.05, 7 / 0.05, 56 / 0.05]


def test_nothing_is_tested_until_both_cells_have_learnt() -> None:
    watch = fresh(MonitorSettings(learning=50))
    labels = [(0, 0, True, at) for at in range(500)] + [(0, 1, False, at) for at in range(49)]
    assert watch.observe(labels) == []
    (stream,) = watch.streams
    assert (stream.state, stream.pairs) == ("learning", 0)
    watch.observe([(0, 1, False, 0)])
    assert watch.streams[0].state == "watching"
    watch.observe([(0, 1, False, 0), (0, 0, True, 0)])
    assert watch.streams[0].pairs == 1


def test_streams_are_met_in_the_order_of_the_labels() -> None:
    watch = fresh()
    watch.observe([(1, 2, False, 0), (0, 1, False, 0), (1, 0, False, 0), (0, 2, False, 0), (1, 1, False, 0)])
    assert [(s.label, s.groups) for s in watch.streams] == [(1, (0, 2)), (0, (1, 2)), (1, (1, 2)), (1, (0, 1))]


def test_a_fair_policy_raises_nothing() -> None:
    watch = fresh(MonitorSettings())
    assert watch.observe(stream_of(two_groups(0.2, 0.2), 20_000)) == []


def test_a_gap_raises_both_alerts_with_their_evidence() -> None:
    watch = fresh(MonitorSettings())
    changes = watch.observe(stream_of(two_groups(0.4, 0.1), 3_000))
    assert sorted(said(changes)) == [("drift", "raised"), ("tolerance", "raised")]
    for number, change in enumerate(changes, start=1):
        evidence = change.evidence
        assert evidence is not None
        assert (change.number, change.label, change.groups, change.since) == (number, 0, (0, 1), change.at)
        assert evidence.wealth >= evidence.threshold
        assert 0 < evidence.pairs < 1_000
        assert evidence.counts.err_a / evidence.counts.n_a > 0.3 > 0.2 > evidence.counts.err_b / evidence.counts.n_b
    assert [(a.kind, a.number, a.evidence) for a in watch.alerts] == [(c.kind, c.number, c.evidence) for c in changes]
    assert watch.streams[0].state == "raised"


def test_the_tolerance_threshold_is_the_streams_share_of_alpha() -> None:
    (change,) = (
        c for c in fresh(MonitorSettings()).observe(stream_of(two_groups(0.5, 0.1), 3_000)) if c.kind == "tolerance"
    )
    assert change.evidence is not None
    assert change.evidence.threshold == 3 / 0.05


def test_a_drift_says_about_when_it_began() -> None:
    watch = fresh(MonitorSettings())
    began = 9_000
    watch.observe(stream_of(two_groups(0.2, 0.2), began))
    changes = watch.observe(stream_of(two_groups(0.35, 0.1), 3_000, seed=2, start=began))
    evidence = next(c.evidence for c in changes if c.kind == "drift")
    assert evidence is not None
    assert abs(evidence.onset - began) < 300
    assert evidence.recent.err_a / evidence.recent.n_a > 0.28
    assert evidence.counts.n_a > 4_000
    assert evidence.recent.n_a < 1_000


def test_which_group_has_the_smaller_number_does_not_matter() -> None:
    labels = stream_of(two_groups(0.4, 0.1), 3_000)
    one = fresh(MonitorSettings()).observe(labels)
    other = fresh(MonitorSettings()).observe([(y, 1 - g, w, at) for y, g, w, at in labels])
    assert one
    assert [(c.kind, c.at) for c in one] == [(c.kind, c.at) for c in other]


def test_only_the_streams_of_the_group_that_differs_are_raised() -> None:
    watch = fresh(MonitorSettings(), declared=3)
    rates = {(0, 0): 0.2, (0, 1): 0.2, (0, 2): 0.5, (1, 0): 0.3, (1, 1): 0.3, (1, 2): 0.3}
    changes = watch.observe(stream_of(rates, 20_000))
    assert {(c.label, c.groups) for c in changes if c.kind == "tolerance"} == {(0, (0, 2)), (0, (1, 2))}


def test_drift_clears_by_itself_and_tolerance_does_not() -> None:
    watch = fresh(MonitorSettings())
    watch.observe(stream_of(two_groups(0.4, 0.1), 6_000))
    changes = watch.observe(stream_of(two_groups(0.2, 0.2), 9_000, seed=2, start=6_000))
    assert said(changes) == [("drift", "cleared")]
    (change,) = changes
    assert change.since < 6_000 < change.at
    assert change.evidence is not None
    assert change.evidence.wealth >= change.evidence.threshold == 5_000
    assert [alert.kind for alert in watch.alerts] == ["tolerance"]
    again = watch.observe(stream_of(two_groups(0.4, 0.1), 3_000, seed=3, start=15_000))
    assert said(again) == [("drift", "raised")]
    assert again[0].number == 3


def test_an_acknowledged_tolerance_alert_starts_a_new_test() -> None:
    watch = fresh(MonitorSettings())
    first = next(c for c in watch.observe(stream_of(two_groups(0.4, 0.1), 3_000)) if c.kind == "tolerance")
    (cleared,) = watch.acknowledge(first.number, at=7)
    assert (cleared.state, cleared.number, cleared.at, cleared.since) == ("cleared", first.number, 7, first.at)
    assert cleared.evidence == first.evidence
    assert "tolerance" not in [alert.kind for alert in watch.alerts]
    assert watch.streams[0].tolerance == pytest.approx(1 / 60)
    second = next(c for c in watch.observe(stream_of(two_groups(0.4, 0.1), 3_000, seed=2)) if c.kind == "tolerance")
    assert second.number == 3
    assert second.evidence is not None
    assert second.evidence.pairs < 1_000


def test_only_an_open_tolerance_alert_can_be_acknowledged() -> None:
    watch = fresh(MonitorSettings())
    drift = next(c for c in watch.observe(stream_of(two_groups(0.4, 0.1), 3_000)) if c.kind == "drift")
    before = watch.encode()
    assert watch.acknowledge(drift.number, at=1) == []
    assert watch.acknowledge(99, at=1) == []
    assert watch.encode() == before


def test_acknowledging_in_a_clone_leaves_the_original_alone() -> None:
    watch = fresh(MonitorSettings())
    watch.observe(stream_of(two_groups(0.4, 0.1), 3_000))
    before = watch.encode()
    copy = watch.clone()
    assert copy.acknowledge(1, at=1) or copy.acknowledge(2, at=1)
    assert watch.encode() == before != copy.encode()


def test_one_sided_labels_are_raised_and_cleared() -> None:
    watch = fresh()
    assert watch.one_sided((), at=1) == []
    (raised,) = watch.one_sided((1,), at=2)
    assert (raised.kind, raised.state, raised.number, raised.decisions, raised.evidence) == (
        "one-sided",
        "raised",
        1,
        (1,),
        None,
    )
    assert watch.one_sided((0, 1), at=3) == []
    assert watch.alerts == [Alert(kind="one-sided", number=1, since=2, decisions=(0, 1))]
    (cleared,) = watch.one_sided((), at=4)
    assert (cleared.state, cleared.number, cleared.since, cleared.at) == ("cleared", 1, 2, 4)
    assert watch.alerts == []
    assert watch.one_sided((0,), at=5)[0].number == 2


def test_the_most_lopsided_labels_leave_finite_figures() -> None:
    watch = fresh(MonitorSettings(learning=0))
    changes = watch.observe([(0, at % 2, at % 2 == 0, at) for at in range(40_000)])
    assert len(changes) == 2
    (fields,) = msgspec.msgpack.decode(watch.encode())[-1]
    (stream,) = watch._streams
    figures = [*stream.tolerance, *stream.drift, *stream.recovery, stream.tolerance_wealth, *stream._onset[:2]]
    assert all(math.isfinite(figure) for figure in figures)
    assert fields
    recovered = watch.observe([(0, at % 2, False, at) for at in range(40_000)])
    assert said(recovered) == [("drift", "cleared")]


def test_a_producer_of_endless_groups_cannot_grow_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 5)
    watch = fresh(declared=0)
    watch.observe([(0, group, False, 0) for group in range(5)])
    assert [s.groups for s in watch.streams] == [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
    assert watch.unwatched == 5
    assert Monitor.decode(QUICK, watch.encode()).unwatched == 5
    watch.observe([(0, 4, False, 0), (0, 2, False, 0)])
    assert len(watch.streams) == 5


def test_other_settings_begin_the_tests_anew_and_keep_what_is_raised() -> None:
    watch = fresh(MonitorSettings())
    watch.observe(stream_of(two_groups(0.4, 0.1), 3_000))
    assert watch.under(MonitorSettings()).encode() == watch.encode()
    before, stricter = watch.encode(), MonitorSettings(tolerance=0.01, alpha=0.01)
    other = watch.under(stricter)
    assert watch.encode() == before
    assert other.alerts == watch.alerts
    assert other.acknowledge(next(a.number for a in other.alerts if a.kind == "tolerance"), at=1)
    assert other.streams[0].tolerance == pytest.approx(0.01 / 3)
    cleared = other.observe(stream_of(two_groups(0.2, 0.2), 60_000, seed=2))
    assert said(cleared) == [("drift", "cleared")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tolerance": 1.0}, "tolerance is 1.0: .* Use 0.05"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"alpha": 0.0}, "alpha is 0.0: .* Use 0.05"),
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"false_alarm_pairs": 1}, "false_alarm_pairs is 1: use a whole number from 2"),
        ({"clear": 0}, "clear is 0"),
        ({"learning": -1}, "learning is -1: use a whole number from 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_a_remedy(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        MonitorSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "damage", [b"", b"\x93\x01\x02\x03", b"\xc1", msgspec.msgpack.encode([1, 0, 0, 0, 0, 0, [[1]]])]
)
def test_damaged_bytes_are_refused(damage: bytes) -> None:
    with pytest.raises(IncompatibleStateError, match="this watch is damaged: .* Rebuild it by replay"):
        Monitor.decode(QUICK, damage)


def test_bytes_of_another_format_are_refused_with_a_remedy() -> None:
    other = msgspec.msgpack.encode([2, *msgspec.msgpack.decode(fresh().encode())[1:]])
    with pytest.raises(IncompatibleStateError, match="of format 2 and this version reads 1"):
        Monitor.decode(QUICK, other)
