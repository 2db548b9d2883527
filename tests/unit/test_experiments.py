"""The experiments: small runs show what the large ones measure, and the commands speak clearly."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from processor.cli import app
from processor.core import ABSENT, InvalidInputError, Learner, Policy, Request, Settings, rule_of
from processor.experiments import figures, lineup
from processor.experiments.abstention import long_run, patterns, uniform_fallback
from processor.experiments.scores import score
from processor.experiments.simulate import PositiveOnly, blocks, run_draws, simulate
from processor.experiments.stress import abstaining, skewed_experts
from producers.delays import NEVER, Delay
from producers.synthetic import Cases, Population, one_cell_experts, paper_population

RUNS, ROUNDS = 20, 4_000


@pytest.fixture(scope="module")
def cases() -> Cases:
    return paper_population(mu_b=0.3).draw(np.random.default_rng(1), RUNS, ROUNDS)


@pytest.fixture(scope="module")
def uniforms() -> np.ndarray:
    return run_draws(1, range(RUNS), ROUNDS)


def gaps(cases: Cases, uniforms: np.ndarray, policy: Policy, **how: object) -> np.ndarray:
    return score(cases, simulate(cases, policy, uniforms, **how)).gap_by_label.mean(axis=0)  # type: ignore[arg-type]


def test_gforce_closes_the_gap_that_groupaware_leaves(cases: Cases, uniforms: np.ndarray) -> None:
    assert gaps(cases, uniforms, lineup.GROUPAWARE).min() > 0.45
    for policy in (lineup.GAP, lineup.BOUND, lineup.MIXTURE):
        assert gaps(cases, uniforms, policy).max() < 0.05


def test_the_printed_objective_stays_where_the_paper_is(cases: Cases, uniforms: np.ndarray) -> None:
    assert gaps(cases, uniforms, lineup.PAPER) == pytest.approx([0.19, 0.20], abs=0.04)


def test_late_labels_hardly_hurt(cases: Cases, uniforms: np.ndarray) -> None:
    delays = Delay.parse("uniform:0-800").draw(np.random.default_rng(2), cases.group.shape)
    assert gaps(cases, uniforms, lineup.GAP, delays=delays).max() < 0.06


def test_the_simulation_decides_what_the_learner_decides() -> None:
    cases = paper_population(mu_b=0.3).draw(np.random.default_rng(3), 1, 300)
    cases.predictions[0, ::3, 1] = ABSENT
    seed = 5
    run = simulate(cases, Policy(), run_draws(seed, range(1), 300))
    learner = Learner(
        Settings(labels=("0", "1"), groups=("0", "1"), experts=("0", "1", "2", "3")), seed.to_bytes(16, "big")
    )
    for start, stop in blocks(300):
        requests = [
            Request(
                f"0/{t}",
                str(cases.group[0, t]),
                {str(f): str(p) for f, p in enumerate(cases.predictions[0, t]) if p != ABSENT},
            )
            for t in range(start, stop)
        ]
        decisions = learner.decide_batch(requests)
        assert [int(d.label) for d in decisions] == run.decided[0, start:stop].tolist()
        learner.learn_batch([(d, str(cases.label[0, t])) for d, t in zip(decisions, range(start, stop), strict=True)])


def test_what_is_not_seen_biases_a_naive_learner() -> None:
    cases = skewed_experts().draw(np.random.default_rng(4), 12, 6_000)
    uniforms = run_draws(1, range(12), 6_000)
    naive = gaps(cases, uniforms, lineup.GAP, positive_only=PositiveOnly(None, weighted=False))
    weighted = gaps(cases, uniforms, lineup.GAP, positive_only=PositiveOnly(0.05))
    assert weighted.max() < naive.max()


def test_an_absent_expert_is_replaced_by_the_next_best_and_not_by_anybody(uniforms: np.ndarray) -> None:
    cases = abstaining().draw(np.random.default_rng(6), RUNS, ROUNDS)
    shipped, anybody = (
        score(cases, simulate(cases, lineup.MIXTURE, uniforms, make_rule=make)) for make in (rule_of, uniform_fallback)
    )
    assert shipped.loss.mean() == pytest.approx(0.21, abs=0.005)
    assert anybody.loss.mean() == pytest.approx(0.222, abs=0.005)
    in_a, in_b = anybody.rate.mean(axis=0)[:, 0] - shipped.rate.mean(axis=0)[:, 0]
    assert in_a > in_b + 0.015 > 0.015


def test_where_abstention_settles_is_what_one_works_out_by_hand() -> None:
    # Group A relies on the expert that is perfect on (A, +). That one is absent in a fifth of the cases; then (A, −) is
    # asked, wrong in half of the positive cases, or, in a 25th of all cases, one that tosses a coin on everything.
    negatives, positives = 0.8 * 0.5 + 0.16 * 0.0 + 0.04 * 0.5, 0.8 * 0.0 + 0.16 * 0.5 + 0.04 * 0.5
    by_weights = long_run(abstaining(), lineup.MIXTURE)
    assert by_weights.rates[0] == pytest.approx([negatives, positives], abs=5e-4)
    assert max(by_weights.gaps) < 0.01
    # Asking those present alike makes false positives of a third of these cases, whichever of the three are there. In
    # group B (B, −) has a small share and still stands in, so that only group A pays.
    alike = long_run(abstaining(), lineup.MIXTURE, uniform_fallback)
    assert alike.rates[0] == pytest.approx([0.8 * 0.5 + 0.2 / 3, positives], abs=5e-4)
    assert alike.rates[1] == by_weights.rates[1]
    assert alike.loss - by_weights.loss == pytest.approx(0.9 * 0.3 * (alike.rates[0][0] - by_weights.rates[0][0]))


def test_every_pattern_of_absence_is_counted_and_somebody_is_always_present() -> None:
    found = patterns(4, 0.2)
    assert sum(likely for _, likely in found) == pytest.approx(1)
    assert len(found) == 15
    assert all(who.any() for who, _ in found)


def test_blocks_cover_every_round_once_and_start_small() -> None:
    cut = list(blocks(1_234))
    assert [start for start, _ in cut[:3]] == [0, 1, 2]
    assert cut[-1][1] == 1_234
    assert all(a[1] == b[0] for a, b in pairwise(cut))


@pytest.mark.parametrize("text", ["soon", "uniform:5", "uniform:9-3", "fixed:x", "none,lost:2", "geometric:-1"])
def test_a_delay_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Delay.parse(text)


def test_lost_labels_never_come() -> None:
    drawn = Delay.parse("fixed:7,lost:0.5").draw(np.random.default_rng(1), (1_000,))
    assert set(drawn.tolist()) == {7, int(NEVER)}


def test_populations_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="are not probabilities"):
        Population(np.array([0.5, 0.6]), np.full((2, 2), 0.5), one_cell_experts(2, 2))
    with pytest.raises(InvalidInputError, match="make them agree"):
        Population(np.array([0.5, 0.5]), np.full((2, 2), 0.5), one_cell_experts(3, 2))


COMMANDS = [
    ["synthetic", "--runs", "2", "--rounds", "300", "--mu-b", "0.3"],
    ["pareto", "--runs", "1", "--rounds", "300"],
    ["delay", "--runs", "2", "--rounds", "300", "--distribution", "fixed:50"],
    ["stress", "--runs", "1", "--rounds", "5000"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_an_experiment_prints_a_table_and_writes_pictures_and_json(command: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["experiment", *command, "--figures", str(tmp_path), "--json", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    assert document["experiment"] == command[0]
    assert document["rows"]
    assert {p.suffix for p in tmp_path.glob(f"{command[0]}.*")} == {".png", ".svg"}


def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    written = []
    for name in ("one.json", "two.json"):
        arguments = [*COMMANDS[0], "--figures", str(tmp_path), "--json", str(tmp_path / name)]
        assert CliRunner().invoke(app, ["experiment", *arguments]).exit_code == 0
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_the_real_data_experiment_compares_policies_on_the_same_splits(tmp_path: Path, german: Path) -> None:
    out = tmp_path / "real.json"
    arguments = ["--data-dir", str(german), "--dataset", "german", "--splits", "2"]
    result = CliRunner().invoke(app, ["experiment", "real", *arguments, "--figures", str(tmp_path), "--json", str(out)])
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    assert {row["policy"] for row in document["rows"]} == {"gforce", "groupaware", "mw"}
    assert {row["expert"] for row in document["experts"]} == {"lr", "linear-svm", "rbf-svm", "tree", "mlp"}


@pytest.fixture
def german(tmp_path: Path) -> Path:
    """A file in the format of german.data with 1 000 made-up people."""
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(1_000):
        amount, age = int(rng.integers(500, 9_000)), int(rng.integers(19, 70))
        good = rng.random() < 0.9 - amount / 15_000
        lines.append(
            f"A11 {rng.integers(6, 48)} A34 A43 {amount} A65 A75 4 A93 A101 4 A121 {age} "
            f"A143 A152 2 A173 1 A192 A201 {1 if good else 2}"
        )
    (tmp_path / "german.data").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_json_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    from processor.experiments.report import write_json

    with pytest.raises(InvalidInputError, match="Name a file in a folder that exists"):
        write_json(tmp_path / "missing" / "x.json", "x", {}, {})


def test_every_policy_has_a_title_and_a_colour() -> None:
    for policy in lineup.ALL:
        assert policy.name in lineup.TITLES
        assert policy.name in lineup.COLOURS
        assert policy.name in lineup.SHORT
    assert set(figures.BAR_POLICIES) <= set(lineup.TITLES)


def test_the_demo_ends_with_both_policies_compared() -> None:
    result = CliRunner().invoke(app, ["demo", "--rounds", "600", "--pace", "0"])
    assert result.exit_code == 0, result.output
    assert "Error rates at the end" in result.output
    assert "GroupAware" in result.output


def test_the_version_is_printed() -> None:
    from processor import __version__

    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"gforce {__version__}"


def test_what_a_person_did_wrong_ends_in_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from processor import cli

    monkeypatch.setattr("sys.argv", ["gforce", "experiment", "delay", "--distribution", "soon"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert '"soon" is not a delay' in capsys.readouterr().err
