"""The three data sets of the paper, read from a folder the user names.

The files have the format their authors publish; the repository holds none of them. The protected attribute
decides the group and is never among the features.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from processor.core.errors import InvalidInputError, nearest, one_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Cases with their true label and group, both as indices into the names beside them.

    ``features[n, m]`` has one column of 0/1 per category, and numbers as they are in the file: scaling is the
    experts' job. ``rounds`` of the cases arrive online; the others are for training.
    """

    name: str
    features: Floats
    label: Ints
    group: Ints
    group_names: tuple[str, str]
    label_names: tuple[str, str]
    rounds: int


def load(name: str, data_dir: Path) -> Dataset:
    """Read one data set; every problem with the files is an ``InvalidInputError`` that names the place."""
    if name not in _READERS:
        raise InvalidInputError(f'unknown data set "{name}": use {one_of(DATASETS)}.{nearest(name, DATASETS)}')
    if not data_dir.is_dir():
        raise InvalidInputError(f'no data folder "{data_dir}": name the folder that holds the files of "{name}"')
    return _READERS[name](data_dir)


@dataclass(frozen=True)
class _Row:
    """One line of a file and, for messages, where it is."""

    place: str
    cells: Sequence[str]


@dataclass(frozen=True)
class _Table:
    """Named columns of text, turned into arrays with every cell checked."""

    columns: Sequence[str]
    rows: Sequence[_Row]

    def raw(self, column: str) -> list[str]:
        at = self.columns.index(column)
        return [row.cells[at] for row in self.rows]

    def text(self, column: str, allowed: Sequence[str] = ()) -> list[str]:
        if allowed:
            return self._checked(column, lambda cell: cell in allowed, one_of(allowed))
        return self._checked(column, bool, "a value")

    def numbers(self, column: str) -> Floats:
        cells = self._checked(column, _is_number, "a number")
        return np.array([float(cell) for cell in cells], dtype=np.float64)

    def flags(self, column: str, no: str, yes: str) -> Ints:
        """0 and 1 for the two values this column may take."""
        return np.array([cell == yes for cell in self.text(column, (no, yes))], dtype=np.int64)

    def where(self, keep: Iterable[bool]) -> _Table:
        return _Table(self.columns, [row for row, kept in zip(self.rows, keep, strict=True) if kept])

    def features(self, numeric: Sequence[str], categorical: Iterable[str]) -> Floats:
        blocks = [self.numbers(column)[:, np.newaxis] for column in numeric]
        return np.hstack(blocks + [_one_hot(self.text(column)) for column in categorical])

    def _checked(self, column: str, accept: Callable[[str], bool], expected: str) -> list[str]:
        cells = self.raw(column)
        for row, cell in zip(self.rows, cells, strict=True):
            if not accept(cell):
                raise InvalidInputError(
                    f'{row.place}: {column} is "{cell}", expected {expected}. '
                    "Correct the line or download the file again."
                )
        return cells


def _is_number(cell: str) -> bool:
    try:
        return isfinite(float(cell))
    except ValueError:
        return False


def _one_hot(values: Sequence[str]) -> Floats:
    names, index = np.unique(np.array(values), return_inverse=True)
    return np.eye(len(names), dtype=np.float64)[index]


def _lines(path: Path, delimiter: str) -> list[_Row]:
    """The lines that hold data: UCI's files also have "|" comments, empty lines and spaces at the end."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = (line.rstrip() for line in file)
            reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
            rows = [_Row(f"{path} line {reader.line_num}", cells) for cells in reader if any(cells)]
        rows = [row for row in rows if not row.cells[0].startswith("|")]
    except FileNotFoundError:
        raise InvalidInputError(f'no file "{path}": download it into "{path.parent}"') from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InvalidInputError(f'cannot read "{path}" ({problem}): download it again') from problem
    if not rows:
        raise InvalidInputError(f'"{path}" has no rows: download it again')
    return rows


def _table(columns: Sequence[str], rows: Sequence[_Row]) -> _Table:
    for row in rows:
        if len(row.cells) != len(columns):
            found = f"{row.place}: {len(row.cells)} fields, expected {len(columns)}."
            raise InvalidInputError(f"{found} Correct the line or download the file again.")
    return _Table(columns, rows)


def _adult(folder: Path) -> Dataset:
    columns = (
        "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
        "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
        "income",
    )  # fmt: skip
    numeric = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
    # fnlwgt is the census's sampling weight: it says nothing of the person.
    categorical = [name for name in columns if name not in {*numeric, "fnlwgt", "race", "income"}]
    rows = _lines(folder / "adult.data", ",")
    for row in _lines(folder / "adult.test", ","):  # there, and only there, labels end with a full stop
        rows.append(_Row(row.place, [*row.cells[:-1], row.cells[-1].removesuffix(".")]))
    table = _table(columns, rows)
    label = table.flags("income", "<=50K", ">50K")
    group = np.array([race != "White" for race in table.text("race")], dtype=np.int64)
    groups, labels = ("White", "other"), ("<=50K", ">50K")
    return Dataset("adult", table.features(numeric, categorical), label, group, groups, labels, 24_421)


def _compas(folder: Path) -> Dataset:
    path = folder / "compas-two-years.csv"
    header, *rows = _lines(path, ",")
    numeric = ("age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count")
    categorical = ("sex", "c_charge_degree")
    others = ("days_b_screening_arrest", "is_recid", "score_text", "race", "two_year_recid")
    missing = [name for name in (*numeric, *categorical, *others) if name not in header.cells]
    if missing:
        raise InvalidInputError(f'"{path}" has no column {", ".join(missing)}: download it again')
    groups, labels = ("African-American", "Caucasian"), ("no-recidivism", "recidivism")
    table = _propublica_filter(_table(header.cells, rows))
    table = table.where(race in groups for race in table.text("race"))
    if not table.rows:
        raise InvalidInputError(f'"{path}" has no usable row of {" or ".join(groups)}: download it again')
    label, group = table.flags("two_year_recid", "0", "1"), table.flags("race", *groups)
    return Dataset("compas", table.features(numeric, categorical), label, group, groups, labels, 1_583)


def _propublica_filter(table: _Table) -> _Table:
    """Drop the cases whose scored charge, outcome or score ProPublica could not establish."""
    table = table.where(days != "" for days in table.raw("days_b_screening_arrest"))
    table = table.where(np.abs(table.numbers("days_b_screening_arrest")) <= 30)
    table = table.where(recid != "-1" for recid in table.raw("is_recid"))
    table = table.where(degree != "O" for degree in table.raw("c_charge_degree"))
    return table.where(score not in ("", "N/A") for score in table.raw("score_text"))


def _german(folder: Path) -> Dataset:
    columns = (
        "account", "duration", "history", "purpose", "amount", "savings", "employment", "instalment-rate",
        "personal-status", "debtors", "residence-since", "property", "age", "other-plans", "housing",
        "existing-credits", "job", "dependants", "telephone", "foreign-worker", "credit",
    )  # fmt: skip
    numeric = ("duration", "amount", "instalment-rate", "residence-since", "existing-credits", "dependants")
    categorical = [name for name in columns if name not in {*numeric, "age", "credit"}]
    table = _table(columns, _lines(folder / "german.data", " "))
    label = table.flags("credit", "2", "1")
    group = (table.numbers("age") < 25).astype(np.int64)
    groups, labels = ("25-and-over", "under-25"), ("bad", "good")
    return Dataset("german", table.features(numeric, categorical), label, group, groups, labels, 300)


_READERS: dict[str, Callable[[Path], Dataset]] = {"adult": _adult, "compas": _compas, "german": _german}
DATASETS = tuple(_READERS)
