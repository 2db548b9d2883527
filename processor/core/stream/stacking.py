"""Tables of many tenants as one.

With a single index NumPy is much faster than with several, so tables that stand one after the other are looked up at
``which`` table · its size + place. ``which`` has one entry for each place, or a single one where all tables are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from processor.core.exact import Indices, Ints

from .names import Tables

_SAME = np.zeros(1, dtype=np.int64)


class Stacked:
    """Tables of one shape."""

    def __init__(self, tables: Sequence[Tables]) -> None:
        self._label_index: Ints = np.concatenate([table.label_index for table in tables])
        self._group_index: Ints = np.concatenate([table.group_index for table in tables])
        self._group_number: Ints = np.concatenate([table.group_number for table in tables])
        # The number for ``ABSENT``, −1, comes first here.
        self._label_number: Ints = np.concatenate([np.roll(table.label_number, 1) for table in tables])
        self._expert_index: Ints = np.stack([table.expert_index for table in tables], axis=1)
        sizes = (self._label_index, self._group_index, self._group_number, self._label_number)
        self._sizes = [len(each) // len(tables) for each in sizes]

    def label_index(self, which: Ints, number: Indices) -> Ints:
        """Of labels by number plus one; ``ABSENT`` of 0."""
        return self._label_index.take(which * self._sizes[0] + number)

    def group_index(self, which: Ints, number: Ints) -> Ints:
        return self._group_index.take(which * self._sizes[1] + number)

    def group_number(self, which: Ints, index: Ints) -> Ints:
        return self._group_number.take(which * self._sizes[2] + index)

    def label_number(self, which: Ints, index: Indices) -> Ints:
        """Plus one, of labels by index; 0 of ``ABSENT``."""
        return self._label_number.take(which * self._sizes[3] + (index + 1))

    def expert_index(self, which: Ints) -> Ints:
        """[expert number, which]"""
        return self._expert_index.take(which, axis=1)


def stacked(tables: Sequence[Tables], row: Ints) -> tuple[Stacked, Ints]:
    """The tables of tenants, and which of them is that of each row; ``row`` says which tenant it is."""
    different = tuple(dict.fromkeys(tables))
    if len(different) == 1:
        return _stacked(different), _SAME
    places = {table: place for place, table in enumerate(different)}
    return _stacked(different), np.array([places[table] for table in tables])[row]


@lru_cache(maxsize=256)
def _stacked(tables: tuple[Tables, ...]) -> Stacked:
    return Stacked(tables)
