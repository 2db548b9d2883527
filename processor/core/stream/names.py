"""Two ways to number a tenant's names, and the tables between them.

What is stored numbers names in the order they were met, because such a number never changes. Counters are indexed by
sorted names, because then the same names give the same arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec
import numpy as np
from msgspec import Raw

from processor.core.exact import Ints
from processor.core.learner.axes import Axes
from processor.core.learner.counters import ABSENT

_encode = msgspec.msgpack.Encoder().encode


class NameTable(tuple[str, ...]):
    """Names in the order they were met: a number, once given, never changes.

    >>> NameTable(["rule"]).and_("model").known
    {'rule': 0, 'model': 1}
    """

    known: dict[str, int]
    """every name with its number"""

    def __new__(cls, names: Iterable[str] = ()) -> NameTable:
        self = super().__new__(cls, names)
        self.known = {name: number for number, name in enumerate(self)}
        return self

    def and_(self, *more: str) -> NameTable:
        """The same and these, where they are new."""
        return self if all(name in self.known for name in more) else NameTable(dict.fromkeys((*self, *more)))


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a tenant."""

    groups: NameTable = field(default_factory=NameTable)
    experts: NameTable = field(default_factory=NameTable)
    labels: NameTable = field(default_factory=NameTable)
    policies: NameTable = field(default_factory=NameTable)

    @property
    def parts(self) -> tuple[NameTable, NameTable, NameTable, NameTable]:
        return self.groups, self.experts, self.labels, self.policies

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.parts))


class Tables:
    """From numbers to indices and back, for one set of names and one set of axes.

    A label is stored as its number plus one, 0 meaning nobody said anything; as an index that is ``ABSENT``, −1.
    """

    def __init__(self, names: Names, axes: Axes) -> None:
        sizes = (*names.sizes, len(axes.groups), len(axes.experts))
        self.shape = _encode((sizes, axes.labels, axes.policies, tuple(names.policies)))
        """tables of the same shape can be stacked; as bytes, because those are quick to look up"""
        self.stored = Raw(_encode([tuple(part) for part in names.parts])), Raw(_encode([list(p) for p in axes.parts]))
        """names and axes as they are stored"""
        self.group_index: Ints = np.array([axes.group_index.get(name, ABSENT) for name in names.groups], dtype=np.int64)
        """[group number]"""
        self.group_number: Ints = np.array([names.groups.known.get(name, 0) for name in axes.groups], dtype=np.int64)
        """[group index]"""
        self.expert_index: Ints = np.array([axes.expert_index[name] for name in names.experts], dtype=np.int64)
        """[expert number]"""
        labels = [axes.label_index.get(name, ABSENT) for name in names.labels]
        self.label_index: Ints = np.array([ABSENT, *labels], dtype=np.int64)
        """[label number + 1]"""
        numbers = [names.labels.known.get(name, ABSENT) + 1 for name in axes.labels]
        self.label_number: Ints = np.array([*numbers, 0], dtype=np.int64)
        """[label index], plus one; the last is for ``ABSENT``"""


@lru_cache(maxsize=10_000)
def tables_of(names: Names, axes: Axes) -> Tables:
    """Their tables, as the same object for all tenants of the same names."""
    return Tables(names, axes)


@lru_cache(maxsize=10_000)
def shared_names(names: Names) -> Names:
    """These names, as the same object for all tenants that met the same names in the same order."""
    return names


@lru_cache(maxsize=10_000)
def with_panel(names: Names, group: str, experts: tuple[str, ...]) -> Names:
    """The same names and these."""
    return shared_names(replace(names, groups=names.groups.and_(group), experts=names.experts.and_(*experts)))
