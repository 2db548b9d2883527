"""The experiment on the alerts: its arrays give the bits of the real streams, and what it shows can be seen small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from processor.cli import app
from processor.core.alerts.monitor import MonitorSettings
from processor.core.alerts.sequential_tests import SequentialTest
from processor.experiments import watch_figure
from processor.experiments.watch_streams import NEVER, Scenario, StreamTask, detection, work
from processor.experiments.wealth import Pairs, Streams, ZTest, draw_pairs

QUICK = MonitorSettings(tolerance=0.02, alpha=0.2, false_alarm_pairs=50, clear=40)


def take_pair(stream: SequentialTest, pairs: Pairs, row: int, column: int) -> None:
    """Show a real stream the labels of a drawn pair: first those of the group that has several."""
    n_a, err_a, n_b, err_b = (int(a[row, column]) for a in (pairs.n_a, pairs.err_a, pairs.n_b, pairs.err_b))
    groups = [(False, n_a, err_a), (True, n_b, err_b)]
    complete = [
        stream.take(of_b, i < errors, row)
        for of_b, labels, errors in sorted(groups, key=lambda group: -group[1])
        for i in range(labels)
    ]
    assert complete == [False] * (n_a + n_b - 1) + [True]


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_the_arrays_give_the_bits_of_the_real_streams(share: float) -> None:
    count, rng = 6, np.random.default_rng(4)
    arrays = Streams(QUICK, count)
    streams = [SequentialTest(0, (0, 1), QUICK, share=1.0 / QUICK.alpha) for _ in range(count)]
    happened = {"tolerance": 0, "drift": 0, "cleared": 0}
    for rate_a, rate_b in ((0.25, 0.2), (0.4, 0.1), (0.2, 0.2)):
        for pairs in draw_pairs(rng, count, 300, share, rate_a, rate_b):
            for row, x in enumerate(pairs.x):
                events = arrays.pair(x)
                for i, stream in enumerate(streams):
                    take_pair(stream, pairs, row, i)
                    assert events.tolerance[i] == stream.exceeds_tolerance
                    assert events.drift[i] == stream.has_drifted
                    assert events.cleared[i] == stream.has_recovered
                    if stream.exceeds_tolerance:
                        stream.raise_tolerance(1, 0)
                        happened["tolerance"] += 1
                    if stream.has_drifted:
                        stream.raise_drift(1, 0)
                        happened["drift"] += 1
                    elif stream.has_recovered:
                        stream.end_drift()
                        happened["cleared"] += 1
                    assert arrays.tolerance_wealth[i] == stream.tolerance_wealth
                    assert arrays.drift_wealth[i] == stream.drift_wealth
                    assert arrays.tolerance[:, :, i].ravel().tolist() == list(stream.tolerance)
                    assert arrays.drift[:, :, i].ravel().tolist() == list(stream.drift)
                    if stream.drift_raised:
                        assert arrays.recovery[:, :, i].ravel().tolist() == list(stream.recovery)
    assert min(happened.values()) >= count // 2, f"too little happened to compare: {happened}"


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_drawn_pairs_are_labels_in_random_order_cut_where_the_group_changes(share: float) -> None:
    rng = np.random.default_rng(5)
    pairs = next(iter(draw_pairs(rng, 2_000, 100, share, 0.3, 0.1)))
    assert np.all((pairs.n_a >= 1) & (pairs.n_b >= 1) & ((pairs.n_a == 1) | (pairs.n_b == 1)))
    assert pairs.err_a.sum() / pairs.n_a.sum() == pytest.approx(0.3, abs=0.01)
    assert pairs.err_b.sum() / pairs.n_b.sum() == pytest.approx(0.1, abs=0.01)
    labels = np.random.default_rng(6).random(300_000) < share
    n_a, n_b, found = 0, 0, []
    for of_a in labels.tolist():
        n_a, n_b = n_a + of_a, n_b + (not of_a)
        if n_a and n_b:
            found.append((n_a, n_b))
            n_a = n_b = 0
    assert pairs.n_a.mean() == pytest.approx(np.mean([a for a, _ in found]), rel=0.02)
    assert pairs.n_b.mean() == pytest.approx(np.mean([b for _, b in found]), rel=0.02)


def test_false_alarms_at_the_boundary_stay_below_alpha_while_a_z_test_raises_them_freely() -> None:
    scenario = Scenario("small", 0.5, ((1_500, 0.05),), restart=True, to_the_end=True)
    outcome = work(StreamTask(scenario, range(300), seed=1))
    assert (outcome.tolerance != NEVER).mean() <= 0.05
    assert outcome.z_test.mean() > 0.25
    assert 300 * 1_500 / outcome.alarms.sum() > scenario.settings.false_alarm_pairs


def test_a_large_gap_is_found_soon_by_both_tests() -> None:
    outcome = work(StreamTask(detection(0.5, 0.15, fair=0), range(60), seed=1))
    assert np.all(outcome.early == 0)
    assert 150 < np.median(outcome.tolerance) < 500
    assert 150 < np.median(outcome.drift) < 500


def test_a_z_test_needs_enough_labels_before_it_says_anything() -> None:
    test = ZTest(0.05, 1, enough=50)
    ones = np.ones((49, 1), dtype=np.int64)
    test.take(Pairs(ones, ones, ones, 0 * ones))
    assert not test.raised[0]
    test.take(Pairs(ones[:1], ones[:1], ones[:1], 0 * ones[:1]))
    assert test.raised[0]


def test_the_picture_shows_a_gap_that_comes_and_goes() -> None:
    figure = watch_figure.drift_and_recovery(seed=1)
    texts = {text.get_text() for axis in figure.axes for text in axis.texts}
    assert {"gap of .15", "drift raised", "drift cleared", "tolerance raised"} <= texts


def test_the_command_prints_tables_draws_a_picture_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, pairs in (("BOUNDARY_PAIRS", 300), ("FAIR_PAIRS", 300), ("DETECT_PAIRS", 1_500), ("CLEAR_PAIRS", 800)):
        monkeypatch.setattr(f"processor.experiments.watch_streams.{name}", pairs)
    monkeypatch.setattr("processor.experiments.watch.FAIR_PAIRS", 300)
    monkeypatch.setattr("processor.experiments.watch_streams.UNFAIR_PAIRS", 500)
    monkeypatch.setattr("processor.experiments.watch_learner.ROUNDS", 1_000)
    monkeypatch.setattr("processor.experiments.watch_learner.SETTLED", 500)
    file = tmp_path / "watch.json"
    arguments = ["experiment", "watch", "--runs", "40", "--learner-runs", "2"]
    done = CliRunner().invoke(app, [*arguments, "--figures", str(tmp_path), "--json", str(file)])
    assert done.exit_code == 0, done.output
    for title in ("False alarms", "Pairs to detect", "Pairs to clear", "Alarms of a fair learner"):
        assert title in done.output
    assert {"watch.png", "watch.svg"} <= {path.name for path in tmp_path.iterdir()}
    figures = json.loads(file.read_text())
    assert {row["groups"] for row in figures["false_alarms"]} == {"1:1", "9:1"}
    assert {(row["gap"], row["fair_pairs"]) for row in figures["detection"]} == {
        (gap, fair) for gap in (0.10, 0.15) for fair in (0, 300)
    }
    assert all(row["tolerance"] <= row["allowed"] for row in figures["false_alarms"])
    assert {row["learning"] for row in figures["learner"]} == {50, 0}
