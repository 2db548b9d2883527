"""A shift in the synthetic stream: who comes meanwhile, and that nothing else changes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from processor.core.errors import InvalidInputError
from producers.stream import Case, population, synthetic_cases
from producers.synthetic import Shift, paper_population

PEOPLE = population(groups=2, experts=4)
SHIFT = Shift(10_000, 20_000, PEOPLE.worsened())


def shifted(count: int = 30_000) -> list[Case]:
    return list(synthetic_cases(PEOPLE, 1, count, seed=5, shift=SHIFT))


def positive_share(cases: list[Case], group: str) -> float:
    return float(np.mean([case.label for case in cases if case.group == group]))


def errors(cases: list[Case], expert: str, group: str, label: str) -> float:
    asked = [case for case in cases if case.group == group and case.label == ("false", "true").index(label)]
    return float(np.mean([case.predictions[expert] != label for case in asked]))


def test_the_last_groups_base_rates_are_turned_round_and_come_back() -> None:
    cases = shifted()
    parts = [cases[:10_000], cases[10_000:20_000], cases[20_000:]]
    assert [positive_share(part, "B") for part in parts] == pytest.approx([0.3, 0.7, 0.3], abs=0.03)
    assert [positive_share(part, "A") for part in parts] == pytest.approx([0.7, 0.7, 0.7], abs=0.03)


def test_one_expert_errs_on_a_quarter_of_what_it_knew_and_no_other_changes() -> None:
    cases = shifted()
    parts = [cases[:10_000], cases[10_000:20_000], cases[20_000:]]
    assert [errors(part, "expert-3", "B", "true") for part in parts] == pytest.approx([0.0, 0.25, 0.0], abs=0.03)
    for expert, cell in (("expert-0", ("A", "false")), ("expert-1", ("A", "true")), ("expert-2", ("B", "false"))):
        assert [errors(part, expert, *cell) for part in parts] == [0.0, 0.0, 0.0]


def test_without_a_shift_the_stream_is_what_it_was_up_to_where_one_would_begin() -> None:
    plain = synthetic_cases(PEOPLE, 1, 30_000, seed=5)
    whole_chunks = 9 * 1_024
    assert list(islice(plain, whole_chunks)) == shifted()[:whole_chunks]


def test_a_shift_that_never_ends_and_one_beyond_the_end_are_allowed() -> None:
    assert len(list(synthetic_cases(PEOPLE, 1, 100, 1, Shift(50, 1_000, PEOPLE.worsened())))) == 100
    assert len(list(synthetic_cases(PEOPLE, 1, 100, 1, Shift(500, 1_000, PEOPLE.worsened())))) == 100


@pytest.mark.parametrize("text", ["", "7", "5-5", "9-3", "a-b", "-4", "1-", "1.5-3"])
def test_what_is_no_shift_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInputError, match="START-END"):
        Shift.parse(text, paper_population(0.3))
