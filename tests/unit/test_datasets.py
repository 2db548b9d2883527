"""The loader reads the published formats, written here in miniature: the repository holds no data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from processor.core.errors import InvalidInputError
from producers.datasets import DATASETS, load

ADULT_DATA = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Tech, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
52, Private, 209642, HS-grad, 9, Divorced, Sales, Husband, Black, Male, 0, 0, 45, Cuba, >50K

"""
ADULT_TEST = """\
|1x3 Cross validator
25, ?, 226802, 11th, 7, Never-married, Sales, Own-child, Asian-Pac-Islander, Female, 0, 0, 40, ?, <=50K.
44, Private, 160323, HS-grad, 9, Divorced, Sales, Husband, White, Male, 7688, 0, 40, Cuba, >50K.

"""
COMPAS_HEADER = (
    "sex,age,age_cat,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,c_charge_degree,"
    "days_b_screening_arrest,is_recid,decile_score,score_text,two_year_recid\n"
)
COMPAS = COMPAS_HEADER + (
    "Male,34,25 - 45,African-American,0,0,1,4,F,-1.0,1,3,Low,1\n"
    "Female,41,25 - 45,Caucasian,0,0,0,14,M,30.0,1,6,Medium,0\n"
)
GERMAN = """\
A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 25 A143 A152 2 A173 1 A192 A201 1
A12 48 A32 A43 5951 A61 A73 2 A92 A101 2 A121 24 A143 A152 1 A173 1 A191 A201 2\x20
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "adult.data").write_text(ADULT_DATA)
    (tmp_path / "adult.test").write_text(ADULT_TEST)
    (tmp_path / "compas-two-years.csv").write_text(COMPAS)
    (tmp_path / "german.data").write_text(GERMAN)
    return tmp_path


def test_adult_is_both_files_without_the_header_and_the_full_stops(folder: Path) -> None:
    adult = load("adult", folder)
    assert adult.label.tolist() == [0, 1, 0, 1]
    assert adult.group.tolist() == [0, 1, 1, 0]
    assert (adult.group_names, adult.label_names) == (("White", "other"), ("<=50K", ">50K"))
    assert adult.rounds == 24_421


def test_adult_keeps_unknown_as_a_category_and_leaves_out_race_and_weight(folder: Path) -> None:
    features = load("adult", folder).features
    # 5 numbers; workclass with "?", education, marital, occupation, relationship, sex, country with "?"
    assert features.shape == (4, 5 + 3 + 3 + 2 + 2 + 3 + 2 + 2)
    assert features[:, 0].tolist() == [39, 52, 25, 44]
    assert features[:, 5:8].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 0]]
    assert 77516 not in features


def test_compas_groups_by_race_and_keeps_neither_score_nor_outcome(folder: Path) -> None:
    compas = load("compas", folder)
    assert compas.group.tolist() == [0, 1]
    assert compas.label.tolist() == [1, 0]
    # age, priors, three juvenile counts, then sex (Female, Male) and degree (F, M)
    assert compas.features.tolist() == [[34, 4, 0, 0, 1, 0, 1, 1, 0], [41, 14, 0, 0, 0, 1, 0, 0, 1]]
    assert (compas.group_names, compas.rounds) == (("African-American", "Caucasian"), 1_583)


@pytest.mark.parametrize(
    "dropped",
    [
        "Male,34,25 - 45,African-American,0,0,1,4,F,31.0,1,3,Low,1",
        "Male,34,25 - 45,African-American,0,0,1,4,F,-31.0,1,3,Low,1",
        "Male,34,25 - 45,African-American,0,0,1,4,F,,1,3,Low,1",
        "Male,34,25 - 45,African-American,0,0,1,4,F,0.0,-1,3,Low,1",
        "Male,34,25 - 45,African-American,0,0,1,4,O,0.0,1,3,Low,1",
        "Male,34,25 - 45,African-American,0,0,1,4,F,0.0,1,3,,1",
        "Male,34,25 - 45,African-American,0,0,1,4,F,0.0,1,3,N/A,1",
        "Male,34,25 - 45,Hispanic,0,0,1,4,F,0.0,1,3,Low,1",
    ],
)
def test_compas_leaves_out_what_propublica_leaves_out(folder: Path, dropped: str) -> None:
    (folder / "compas-two-years.csv").write_text(COMPAS + dropped + "\n")
    assert len(load("compas", folder).label) == 2


def test_german_is_split_at_25_and_good_credit_is_positive(folder: Path) -> None:
    german = load("german", folder)
    assert german.group.tolist() == [0, 1]
    assert german.label.tolist() == [1, 0]
    assert (german.group_names, german.label_names) == (("25-and-over", "under-25"), ("bad", "good"))
    assert german.features[:, :6].tolist() == [[6, 1169, 4, 4, 2, 1], [48, 5951, 2, 2, 1, 1]]
    assert not np.isin([24, 25], german.features).any()
    assert german.rounds == 300


@pytest.mark.parametrize("name", DATASETS)
def test_every_case_has_features_a_label_and_a_group_of_the_promised_types(name: str, folder: Path) -> None:
    dataset = load(name, folder)
    assert dataset.name == name
    assert len(dataset.features) == len(dataset.label) == len(dataset.group)
    assert dataset.features.dtype == np.float64
    assert dataset.label.dtype == dataset.group.dtype == np.int64


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r'unknown data set "adlut".*Did you mean "adult"'):
        load("adlut", tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no data folder .*nowhere"):
        load("german", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("adult", "adult.data"),
        ("adult", "adult.test"),
        ("compas", "compas-two-years.csv"),
        ("german", "german.data"),
    ],
)
def test_a_missing_or_empty_or_garbled_file_is_named(folder: Path, name: str, file: str) -> None:
    for damage, message in ((b"\n", "has no rows"), (b"\xff\xfe\n", "cannot read"), (None, "no file")):
        (folder / file).unlink() if damage is None else (folder / file).write_bytes(damage)
        with pytest.raises(InvalidInputError, match=message) as refused:
            load(name, folder)
        assert file in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" A201 2", "", r"german.data line 2: 19 fields, expected 21"),
        ("5951", "much", r'german.data line 2: amount is "much", expected a number'),
        ("5951", "nan", r'german.data line 2: amount is "nan", expected a number'),
        ("A201 2", "A201 3", r'german.data line 2: credit is "3", expected one of "2", "1"'),
    ],
)
def test_a_malformed_line_is_named_with_its_value(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "german.data").write_text(GERMAN.replace(old, new))
    with pytest.raises(InvalidInputError, match=message):
        load("german", folder)


def test_a_blank_cell_does_not_become_a_category_or_a_group(folder: Path) -> None:
    (folder / "adult.data").write_text(ADULT_DATA.replace("Black", ""))
    with pytest.raises(InvalidInputError, match=r'adult.data line 2: race is "", expected a value'):
        load("adult", folder)


def test_a_compas_file_without_a_needed_column_is_refused(folder: Path) -> None:
    (folder / "compas-two-years.csv").write_text(COMPAS.replace("priors_count", "priors"))
    with pytest.raises(InvalidInputError, match="has no column priors_count"):
        load("compas", folder)


def test_a_compas_file_that_the_filter_empties_is_refused(folder: Path) -> None:
    (folder / "compas-two-years.csv").write_text(COMPAS_HEADER)
    with pytest.raises(InvalidInputError, match="no usable row"):
        load("compas", folder)
