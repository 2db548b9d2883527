"""The names behind the indices of every counter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from processor.core.errors import InvalidInputError, nearest, one_of


@dataclass(frozen=True)
class Axes:
    """The groups, labels, experts and policies a tenant's counters are indexed by.

    Names are kept sorted: the same set of names gives the same arrays, whatever order they were met in, and so
    the same bytes and the same decisions.

    >>> axes = Axes.of(groups=["B", "A"], labels=["grant", "deny"], experts=["rule"])
    >>> axes.groups, axes.labels
    (('A', 'B'), ('deny', 'grant'))
    >>> axes.extended(experts=["model"]).experts
    ('model', 'rule')
    """

    groups: tuple[str, ...]
    labels: tuple[str, ...]
    experts: tuple[str, ...]
    policies: tuple[str, ...]

    @classmethod
    def of(
        cls,
        *,
        groups: Iterable[str] = (),
        labels: Iterable[str] = (),
        experts: Iterable[str] = (),
        policies: Iterable[str] = (),
    ) -> Axes:
        return shared_axes(cls(_sorted(groups), _sorted(labels), _sorted(experts), _sorted(policies)))

    def extended(
        self,
        *,
        groups: Iterable[str] = (),
        labels: Iterable[str] = (),
        experts: Iterable[str] = (),
        policies: Iterable[str] = (),
    ) -> Axes:
        """The same names and these."""
        return Axes.of(
            groups=(*self.groups, *groups),
            labels=(*self.labels, *labels),
            experts=(*self.experts, *experts),
            policies=(*self.policies, *policies),
        )

    @property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        return self.groups, self.labels, self.experts, self.policies

    def union(self, other: Axes) -> Axes:
        return _union(self, other)

    @cached_property
    def group_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.groups)}

    @cached_property
    def label_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.labels)}

    @cached_property
    def expert_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.experts)}

    @cached_property
    def policy_index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.policies)}

    def label(self, name: str) -> int:
        """The index of a label, or an error that names the known ones."""
        try:
            return self.label_index[name]
        except (KeyError, TypeError):
            if not isinstance(name, str):
                raise InvalidInputError(
                    f"{name!r} is not a label: labels are strings, and this learner knows {one_of(self.labels)}"
                ) from None
            raise InvalidInputError(
                f'unknown label "{name}": this learner knows {one_of(self.labels)}.{nearest(name, self.labels)} '
                "Send one of these, or add the label to the settings."
            ) from None


@lru_cache(maxsize=10_000)
def shared_axes(axes: Axes) -> Axes:
    """These axes, as the same object for all that have the same names: of many tenants most are alike."""
    return axes


@lru_cache(maxsize=10_000)
def _union(one: Axes, other: Axes) -> Axes:
    """Of many tenants most meet the same names."""
    return one.extended(groups=other.groups, labels=other.labels, experts=other.experts, policies=other.policies)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidInputError(f'"{names}" is one name where several are meant: use ["{names}"]')
    unique = set(names)
    for name in unique:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{name!r} is not a name: groups, labels and experts are strings. Use str({name!r})."
            )
    return tuple(sorted(unique))
