"""What-if: the recorded setting reproduces the record, and every other one is what the learner alone would do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from processor.audit.replay.findings import NotAuditableError
from processor.audit.replay.recorded_settings import RecordedSettings, Secrets
from processor.audit.whatif.answer import WhatIf
from processor.audit.whatif.figures import gap_change, loss_change, standing_of
from processor.audit.whatif.outcomes import PairedCases
from processor.audit.whatif.settings import LabelDelay, SettingsChange, Sweep, expand_settings, with_change
from processor.audit.whatif.variation import LabelStore
from processor.audit.whatif.whatif import WhatIfTask, answer_whatif, run_task
from processor.cli import app
from processor.core.errors import InvalidInputError
from processor.core.stream.journal import JournalRecord
from processor.telemetry.figures import EQUALIZED_ODDS
from tests.recordings.stream import Event, MemorySource

from .whatif_streams import GROUPS, LABELS, SEED, TENANT, cases, config, direct, events, recorded, written

SETTINGS = config(WATCH="true", TOLERANCE="0.1")
SECRETS = Secrets.of_config(SETTINGS)


@pytest.fixture(scope="module")
def source() -> MemorySource:
    return recorded(events(cases(420, seed=1)), SETTINGS)


def ask(
    source: MemorySource, *sweeps: str, base: SettingsChange = SettingsChange(), tenants: tuple[str, ...] = ()
) -> WhatIf:
    return answer_whatif(source, SECRETS, base, [Sweep.read(text) for text in sweeps], tenants, processes=1)


def rules_of(source: MemorySource) -> RecordedSettings:
    book = RecordedSettings(SECRETS)
    for record in source.read("journal", 0):
        journal = JournalRecord.decode(record.value or b"")
        book.configs.update(journal.configs)
        book.assigned.update(journal.rules)
    return book


def check_equal(
    answer: WhatIf, source: MemorySource, setting: str, change: SettingsChange, without: str | None = None
) -> None:
    """Every figure of a setting is that of the learner used by itself."""
    rules = rules_of(source).settings_for(TENANT)
    assert rules is not None
    alone = direct(source, change.apply_to(TENANT, rules).settings, rules.seed, without)
    (tenant,) = answer.tenants
    figures = next(one for one in (tenant.recorded, *tenant.settings) if one.setting == setting)
    assert figures.labels == alone.drawn.total() > 300
    assert figures.loss.value == pytest.approx(alone.loss, abs=1e-12)
    assert figures.expected_loss == pytest.approx(alone.expected_loss, abs=1e-12)
    assert figures.gaps[EQUALIZED_ODDS].value == pytest.approx(alone.gap(GROUPS, LABELS), abs=1e-12)
    assert figures.gap == pytest.approx(alone.gap(GROUPS, LABELS, expected=True), abs=1e-12)
    for cell in figures.rates:
        assert cell.rate.value == pytest.approx(alone.rate(cell.group, cell.label), abs=1e-12)
        assert cell.expected == pytest.approx(alone.rate(cell.group, cell.label, expected=True), abs=1e-12)
    assert alone.learner is not None
    counters = alone.learner.counters()
    best = min((counters.losses[0].sum(axis=(1, 2)) / counters.trials[0].sum(axis=(1, 2))).tolist())
    assert figures.regret == pytest.approx(alone.loss - best, abs=1e-12)


def test_the_recorded_setting_reproduces_every_recorded_decision(source: MemorySource) -> None:
    answer = ask(source)
    assert answer.decisions == answer.reproduced == 420
    assert answer.tenants[0].settings == []
    check_equal(answer, source, "as recorded", SettingsChange())


def test_a_sweep_of_lambda_is_what_the_learner_alone_would_do(source: MemorySource) -> None:
    answer = ask(source, "lambda=0.01:100:3")
    assert [one.setting for one in answer.tenants[0].settings] == ["λ 0.01", "λ 1", "λ 100"]
    for weight in (0.01, 1.0, 100.0):
        check_equal(answer, source, f"λ {weight:.3g}", SettingsChange(fairness=weight))


def test_leaving_out_an_expert_is_what_the_learner_alone_would_do(source: MemorySource) -> None:
    answer = ask(source, "without")
    assert [one.setting for one in answer.tenants[0].settings] == ["without lr", "without svm", "without tree"]
    for expert in ("lr", "tree"):
        check_equal(answer, source, f"without {expert}", SettingsChange(without=(expert,)), without=expert)


@pytest.mark.parametrize(
    "change",
    [SettingsChange(policy="mw"), SettingsChange(objective="mixture", eta="auto"), SettingsChange(window=1)],
    ids=lambda c: c.name,
)
def test_other_policies_rates_and_windows_are_what_the_learner_alone_would_do(
    source: MemorySource, change: SettingsChange
) -> None:
    answer = ask(source, base=change)
    check_equal(answer, source, change.name, change)


def test_the_recorded_setting_asked_for_by_its_value_differs_in_nothing(source: MemorySource) -> None:
    answer = ask(source, "lambda=1,0.01")
    same, other = answer.tenants[0].settings
    assert same.difference is not None
    assert same.difference.loss.value == same.difference.gap.value == same.difference.expected_gap == 0.0
    assert same.standing == "neither"
    assert other.difference is not None
    assert other.difference.cases == 420
    recorded = answer.tenants[0].recorded
    assert other.difference.loss.value == pytest.approx(other.loss.value - recorded.loss.value, abs=1e-12)
    assert other.difference.expected_loss == pytest.approx(other.expected_loss - recorded.expected_loss, abs=1e-12)
    assert other.difference.expected_gap == pytest.approx(other.gap - recorded.gap, abs=1e-12)


def test_settings_shared_out_between_processes_give_the_same_answer(source: MemorySource) -> None:
    alone = answer_whatif(source, SECRETS, SettingsChange(), [Sweep.read("lambda=0.1,10")], processes=1)
    shared = answer_whatif(source, SECRETS, SettingsChange(), [Sweep.read("lambda=0.1,10")], processes=2)
    assert msgspec.json.encode(alone) == msgspec.json.encode(shared)


# Label delays


def test_labels_at_their_own_times_are_the_record(source: MemorySource) -> None:
    assert LabelDelay.read("original") is None
    answer = ask(source, "delay=x1")
    (same,) = answer.tenants[0].settings
    assert same.labels == answer.tenants[0].recorded.labels
    assert same.difference is not None
    assert same.difference.cases == same.labels


def test_labels_at_once_are_learnt_from_sooner_and_labels_a_day_later_never(source: MemorySource) -> None:
    answer = ask(source, "delay=none,+1d,+5s")
    at_once, day, later = answer.tenants[0].settings
    assert at_once.labels == 420
    assert answer.outstanding == {"delay none": 0, "delay +1d": 420, "delay +5s": 420 - later.labels}
    assert day.labels == 0
    assert 0 < later.labels < 420
    assert later.difference is not None
    assert later.difference.cases == later.labels
    (task,) = [WhatIfTask(source, 0, SECRETS, (SettingsChange(delay=LabelDelay.read("+5s")),))]
    base, moved = run_task(task).runs
    both = moved.pairs
    assert both.chance_there.total() == sum(n for (_, y, d), n in moved.chances.items() if y != d)
    assert both.chance.total() < sum(n for (_, y, d), n in base.chances.items() if y != d)
    expected = (both.chance_there.total() - both.chance.total()) / (1 << 32) / later.labels
    assert later.difference.expected_loss == pytest.approx(expected, abs=1e-15)


def test_a_label_moves_to_the_first_batch_whose_last_record_is_not_before_it(
    source: MemorySource, tmp_path: Path
) -> None:
    """Without any delay every label is in its request's own batch, so after each batch all requests are labelled."""
    store = LabelStore(tmp_path / "labels")
    store.fill(source, 0)
    delay = LabelDelay.read("none")
    assert delay is not None
    from processor.audit.replay.replay import Replay
    from processor.audit.whatif.variation import RetimedLabels

    retimed, replay = RetimedLabels(delay, store), Replay(source, 0, SECRETS)
    for batch in replay.batches():
        assert batch.decoded is not None
        moved = retimed(batch.journal, batch.decoded)
        assert {key for _, _, key in moved.feedback} == {key for _, _, key in batch.decoded.requests}
        assert retimed.outstanding == 0
    store.close()


# What cannot be asked


def test_without_the_seed_nothing_is_answered(source: MemorySource) -> None:
    with pytest.raises(NotAuditableError, match="--seed-file"):
        answer_whatif(source, Secrets(), SettingsChange(), [], processes=1)


def test_a_record_with_a_changed_prediction_is_refused_with_a_remedy(source: MemorySource) -> None:
    records = dict(source.records)
    first, *rest = records["requests", 0]
    value = (first.value or b"").replace(b'"group":"', b'"group":"other-')
    records["requests", 0] = [msgspec.structs.replace(first, value=value), *rest]
    with pytest.raises(NotAuditableError, match="gforce audit"):
        answer_whatif(replace(source, records=records), SECRETS, SettingsChange(), [], processes=1)


def test_an_objective_for_declared_groups_only_is_refused_for_the_tenant_and_not_for_all(source: MemorySource) -> None:
    answer = ask(source, "objective=paper,mixture")
    paper, mixture = answer.tenants[0].settings
    assert "exactly two groups" in paper.refused
    assert not mixture.refused
    assert mixture.labels == 420


def test_hidden_labels_are_no_ground_for_a_what_if() -> None:
    settings = config(FEEDBACK='"positive-only"', EXPLORE="0.2")
    hidden = recorded(events(cases(60, seed=3)), settings)
    answer = answer_whatif(
        hidden, Secrets.of_config(settings), SettingsChange(), [Sweep.read("lambda=0.1,10")], processes=1
    )
    assert answer.decisions == answer.reproduced == 60
    assert all("positive decisions only" in one.refused for one in answer.tenants[0].settings)


def test_requests_nobody_is_left_to_advise_on_are_counted_as_undecided() -> None:
    stream = [
        replace(case, said={"lr": case.label}) if i % 3 == 0 else case for i, case in enumerate(cases(90, seed=4))
    ]
    lonely = recorded(events(stream), SETTINGS)
    answer = ask(lonely, base=SettingsChange(without=("lr",)))
    (without,) = answer.tenants[0].settings
    assert (without.undecided, without.decided, without.labels) == (30, 60, 60)
    assert without.difference is not None
    assert without.difference.cases == 60


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lamda=1", "Did you mean"),
        ("lambda", "needs values"),
        ("lambda=3:1:5", "logarithmic"),
        ("lambda=a:b:c", "from:to:count"),
        ("colour=red", "cannot be swept"),
    ],
)
def test_a_sweep_that_cannot_be_read_says_how_to_write_it(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Sweep.read(text)


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("objective", "gab", 'Did you mean "gap"'),
        ("delay", "soon", "x2"),
        ("window", "0", "lifetime"),
        ("lambda", "-1", "0 to 10000"),
        ("eta", "fast", "no number"),
    ],
)
def test_a_setting_that_cannot_be_read_says_how_to_write_it(what: str, value: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        with_change(SettingsChange(), what, value)


def test_an_expert_nobody_knows_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match='Did you mean "tree"'):
        expand_settings(SettingsChange(without=("tre",)), [], ["tree", "svm"])


# Several tenants, odd events


def test_tenants_are_answered_for_one_by_one_and_only_those_asked_for() -> None:
    one, other = events(cases(60, seed=5), tenant="one"), events(cases(60, seed=6), tenant="other")
    both = recorded(sorted([*one, *other], key=lambda event: event.at), SETTINGS, partitions=2)
    assert [tenant.tenant for tenant in ask(both, "lambda=5,6").tenants] == ["one", "other"]
    (alone,) = ask(both, "lambda=5,6", tenants=("other",)).tenants
    assert alone.tenant == "other"
    assert alone.settings == ask(both, "lambda=5,6").tenants[1].settings
    with pytest.raises(InvalidInputError, match='no decision of tenant "third"'):
        ask(both, tenants=("third",))


@pytest.mark.parametrize(
    "times",
    [
        {"EXPIRY": '"1m"', "PARKING": '"30s"', "DUPLICATE_HORIZON": '"5m"', "ON_EXPIRY": '"label:no"'},
        {"EXPIRY": '"1m"', "PARKING": '"30s"', "DUPLICATE_HORIZON": '"20s"', "ON_EXPIRY": '"label:no"'},
        {"EXPIRY": '"10m"', "PARKING": '"30s"', "DUPLICATE_HORIZON": '"2s"'},
    ],
)
def test_early_double_and_expired_labels_are_paired_as_the_record_has_them(times: dict[str, str]) -> None:
    """Every kind of trouble is in this stream; the counts must still be those of the counters."""
    from tests.recordings.stream import Shape
    from tests.recordings.stream import events as troubled

    settings = config(**times)
    shape = Shape(LABELS, GROUPS, experts=3, late=(-2_000, 500, 4_000, 30_000, 90_000))
    stream: list[Event] = troubled({TENANT: shape}, 250, seed=9)
    source = recorded(stream, settings)
    task = WhatIfTask(
        source, 0, Secrets.of_config(settings), (SettingsChange(fairness=0.1), SettingsChange(policy="mw"))
    )
    from processor.audit.replay.replay import Replay

    replay = Replay(source, 0, Secrets.of_config(settings))
    for _ in replay.batches():
        pass
    assert replay.partition is not None
    tenant = replay.partition.tenants[TENANT]
    axes = tenant.learner.state.axes
    outcomes = tenant.learner.counters().outcomes[0, axes.policy_index["in-force"]]
    done = run_task(task)
    assert done.decisions == done.reproduced
    base, *others = done.runs
    for run in (base, *others):
        assert run.drawn.total() == int(outcomes.sum())
        assert run.decided == base.decided
    assert base.confusion().tolist() == outcomes[[axes.group_index[group] for group in base.groups]].tolist()
    assert all(run.pairs.cases.total() == base.drawn.total() for run in others)


# Differences


def pairs(counts: dict[tuple[str, str], tuple[int, int, int, int]]) -> PairedCases:
    made = PairedCases()
    for cell, (n, wrong, other, recorded_only) in counts.items():
        made.cases[cell], made.wrong[cell] = n, wrong
        made.only_other[cell], made.only_recorded[cell] = other, recorded_only
    return made


def test_a_difference_of_losses_counts_only_cases_that_differ() -> None:
    change = loss_change(pairs({("A", "no"): (1_000, 300, 10, 90), ("B", "no"): (1_000, 100, 10, 10)}))
    assert change.value == pytest.approx(-0.04)
    assert change.lower < change.value < change.upper < 0.0


def test_a_gap_that_closes_is_seen_and_one_that_stays_is_not() -> None:
    closing = gap_change(pairs({("A", "no"): (4_000, 1_600, 0, 800), ("B", "no"): (4_000, 800, 0, 0)}))
    assert closing.value == pytest.approx(-0.2)
    assert closing.lower < -0.2 < closing.upper < 0.0
    staying = gap_change(pairs({("A", "no"): (400, 120, 10, 10), ("B", "no"): (400, 60, 5, 5)}))
    assert staying.lower < 0.0 < staying.upper
    nobody = gap_change(pairs({("A", "no"): (400, 120, 10, 10)}))
    assert nobody.value != nobody.value


def test_the_band_of_a_difference_covers_the_truth() -> None:
    """Two settings err independently in 20 % and 30 % of the cases of A, and in 10 % of B: Δ gap .1, Δ loss .05."""
    from random import Random

    missed = 0
    for seed in range(60):
        rng = Random(seed)
        made = PairedCases()
        for i in range(600):
            group = "A" if i % 2 else "B"
            wrong = rng.random() < (0.2 if group == "A" else 0.1)
            there = rng.random() < (0.3 if group == "A" else 0.1)
            cell = (group, "no")
            made.cases[cell] += 1
            made.wrong[cell] += wrong
            made.only_other[cell] += there and not wrong
            made.only_recorded[cell] += wrong and not there
        gap, loss = gap_change(made), loss_change(made)
        missed += not (gap.lower <= 0.1 <= gap.upper and loss.lower <= 0.05 <= loss.upper)
    assert missed <= 3


def test_a_setting_dominates_only_if_it_is_no_worse_in_both() -> None:
    assert standing_of(-0.01, -0.01) == "dominates"
    assert standing_of(-0.01, 1e-12) == "neither"
    assert standing_of(0.0, 0.01) == "dominated"


# The command


def test_the_command_prints_a_table_and_says_that_the_record_is_reproduced(
    source: MemorySource, tmp_path: Path
) -> None:
    folder = written(source, tmp_path / "recording")
    (tmp_path / "seed").write_text(SEED)
    run = CliRunner().invoke(
        app,
        [
            *("whatif", str(folder), "--seed-file", str(tmp_path / "seed"), "--processes", "1"),
            *("--sweep", "lambda=0.1,10", "--out", str(tmp_path / "pictures"), "--csv", str(tmp_path / "figures.csv")),
        ],
    )
    assert run.exit_code == 0, run.output
    assert "the recorded setting reproduces 420 of 420 decisions" in run.output
    assert "λ 0.1" in run.output
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["pareto-001.png", "pareto-001.svg"]
    lines = (tmp_path / "figures.csv").read_text().splitlines()
    assert lines[0].startswith("tenant,setting,figure")
    assert sum(line.startswith(f"{TENANT},λ 10,") for line in lines) > 10


def test_the_command_gives_one_document(source: MemorySource, tmp_path: Path) -> None:
    folder = written(source, tmp_path / "recording")
    (tmp_path / "seed").write_text(SEED)
    arguments = ["whatif", str(folder), "--seed-file", str(tmp_path / "seed"), "--processes", "1", "--json"]
    run = CliRunner().invoke(app, [*arguments, "--lambda", "0.1"])
    assert run.exit_code == 0, run.output
    document = msgspec.json.decode(run.stdout)
    assert (document["decisions"], document["reproduced"]) == (420, 420)
    assert document["tenants"][0]["settings"][0]["setting"] == "λ 0.1"
    refused = CliRunner().invoke(app, ["whatif", str(folder), "--processes", "1"])
    assert refused.exit_code == 2
    assert "--seed-file" in refused.output
