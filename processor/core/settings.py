"""What a person may choose about a learner. Checked when made, so a Settings object is always usable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from .errors import InvalidSettingsError, nearest, one_of

PolicyName = Literal["gforce", "groupaware", "mw"]
ObjectiveName = Literal["gap", "bound", "paper", "mixture"]

POLICIES: tuple[PolicyName, ...] = ("gforce", "groupaware", "mw")
OBJECTIVES: tuple[ObjectiveName, ...] = ("gap", "bound", "paper", "mixture")
BINARY_OBJECTIVES = ("bound", "paper")
MIN_EXPLORE = 0.05
LARGEST = 10_000.0
"""of λ: beyond it accuracy would be lost in the rounding of fairness"""


_MEANT = {
    "labels": 'a list or tuple of strings, such as ("deny", "grant")',
    "groups": 'a list or tuple of strings, such as ("A", "B")',
    "experts": 'a list or tuple of strings, such as ("model", "rules")',
    "positive": "one of the labels, a string",
    "policy": 'a Policy, such as Policy(policy="groupaware") or Policy(objective="mixture")',
    "shadows": 'a tuple of policies, such as (Policy(policy="groupaware"),)',
    "prior": "a Prior, such as Prior(error=1.0)",
    "balance": "a tuple of balances, such as (Balance(fairness=0.1),)",
    "fairness": 'a number, or one for each label, such as {"deny": 2.0, "grant": 1.0}',
    "eta": 'a number between 0 and 0.5, or "auto"',
    "explore": "a number, the least probability of a positive decision",
    "window": "a whole number of buckets, or None for the lifetime",
    "bucket": "a whole number, the width in the unit of the times",
    "keep": "a whole number of buckets",
    "from_labels": "a whole number of labels",
    "feedback": '"all" or "positive-only"',
    "objective": one_of(OBJECTIVES),
}
"""what was meant by a setting of the wrong type"""


def _check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidSettingsError(f'{field} is "{value}": use {one_of(choices)}.{nearest(value, choices)}')


def _check_types(settings: msgspec.Struct) -> None:
    """msgspec checks what it decodes, and not what is made in Python."""
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, str) and "Literal" in str(field.type):
            continue  # one of a few words, which are named by ``_check_choice``
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            meant = _MEANT.get(field.name, "a number")
            plain = "; of NumPy's values, what .item() or .tolist() gives" if hasattr(value, "tolist") else ""
            raise InvalidSettingsError(
                f"{field.name} is {value!r}, which is of the wrong type: use {meant}{plain}"
            ) from error
        if isinstance(value, list | set | frozenset):
            ordered = value if isinstance(value, list) else sorted(value)
            msgspec.structs.force_setattr(settings, field.name, tuple(ordered))


class Balance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """λ: how much equal error rates count against accuracy.

    ``fairness`` is one weight for all labels or one per label (binary: the negative label's is λ_FPR, the
    positive label's λ_FNR). The balance holds from ``from_labels`` joined labels on; of a learner with a window these
    are the labels in its window.
    """

    fairness: float | dict[str, float] = 1.0
    regret: float = 1.0
    from_labels: int = 0

    def __post_init__(self) -> None:
        _check_types(self)
        for name, weight in (("regret", self.regret), *_named(self.fairness)):
            if not 0.0 <= weight <= LARGEST:
                raise InvalidSettingsError(f"λ for {name} is {weight}: use a number from 0 to {LARGEST:.0f}")
        if self.from_labels < 0:
            raise InvalidSettingsError(f"from_labels is {self.from_labels}: use 0 or more")

    def of_label(self, label: str) -> float:
        return self.fairness.get(label, 1.0) if isinstance(self.fairness, dict) else self.fairness


def _named(fairness: float | Mapping[str, float]) -> list[tuple[str, float]]:
    if isinstance(fairness, Mapping):
        return [(f'fairness of label "{label}"', weight) for label, weight in fairness.items()]
    return [("fairness", fairness)]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to choose whose advice to take."""

    policy: PolicyName = "gforce"
    objective: ObjectiveName = "gap"
    eta: float | Literal["auto"] = 0.35
    balance: tuple[Balance, ...] = (Balance(),)

    def __post_init__(self) -> None:
        _check_types(self)
        _check_choice("policy", self.policy, POLICIES)
        _check_choice("objective", self.objective, OBJECTIVES)
        if isinstance(self.eta, str) and self.eta != "auto":
            raise InvalidSettingsError(f'eta is "{self.eta}": use {_MEANT["eta"]}.{nearest(self.eta, ("auto",))}')
        if not isinstance(self.eta, str) and not 0.0 < self.eta < 0.5:
            raise InvalidSettingsError(
                f"eta is {self.eta}: the learning rate lies strictly between 0 and 0.5. "
                'Use 0.35 (the default) or "auto".'
            )
        starts = [balance.from_labels for balance in self.balance]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise InvalidSettingsError(
                f"the balance schedule starts at {starts}: the first from_labels must be 0 and "
                "each later one larger than the one before"
            )

    @property
    def name(self) -> str:
        """A short name for tables and gauges: ``gforce/gap``, ``groupaware``, ``mw``."""
        return f"gforce/{self.objective}" if self.policy == "gforce" else self.policy

    @property
    def has_instances(self) -> bool:
        """Whether an instance is drawn before the expert."""
        return self.policy == "gforce" and self.objective != "mixture"

    @property
    def is_binary(self) -> bool:
        """Whether it is written for two groups and two labels only."""
        return self.policy == "gforce" and self.objective in BINARY_OBJECTIVES

    def balance_at(self, labels_seen: int) -> Balance:
        """The weights in force after this many labels.

        >>> Policy(balance=(Balance(fairness=0.1), Balance(from_labels=500))).balance_at(499).fairness
        0.1
        """
        return max((b for b in self.balance if b.from_labels <= labels_seen), key=lambda b: b.from_labels)


class Prior(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is believed before the first label."""

    group: float = 1.0
    """Dirichlet strength of the groups' shares."""
    label: float = 1.0
    """Dirichlet strength of each group's base rates."""
    error: float = 1.0
    """Strength s of e = (losses + s/2) / (trials + s)."""
    abstain: float = 10.0
    """How many labels' worth an expert that abstains is drawn to the mean of its cell."""

    def __post_init__(self) -> None:
        _check_types(self)
        for field in self.__struct_fields__:
            if not 0.0 < getattr(self, field) <= 1e6:
                raise InvalidSettingsError(
                    f"prior {field} is {getattr(self, field)}: use a positive number up to a million"
                )


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that, with the counters, the request and the seed, determines a decision.

    >>> Settings(labels=("deny", "grant"), positive="grant").policy.name
    'gforce/gap'
    >>> Settings(labels=("deny", "grant"), positive="grnat")
    Traceback (most recent call last):
    ...
    processor.core.errors.InvalidSettingsError: positive is "grnat", which is not a label: ... Did you mean "grant"?
    """

    labels: tuple[str, ...]
    positive: str | None = None
    groups: tuple[str, ...] = ()
    """Groups known from the start; others join when they appear."""
    experts: tuple[str, ...] = ()
    """Experts known from the start; others join when they appear."""
    policy: Policy = Policy()
    shadows: tuple[Policy, ...] = ()
    prior: Prior = Prior()
    feedback: Literal["all", "positive-only"] = "all"
    explore: float | None = None
    bucket: int = 86_400_000
    """Width of a time bucket, in the unit of the timestamps (milliseconds on a stream)."""
    keep: int = 32
    """How many of the newest buckets are kept apart; older labels count in the lifetime only."""
    window: int | None = None
    """Learn from this many of the newest buckets; None is the lifetime."""

    def __post_init__(self) -> None:
        _check_types(self)
        for what, given in (("groups", self.groups), ("experts", self.experts)):
            if len(set(given)) != len(given):
                raise InvalidSettingsError(f"{what} are {list(given)}: name each once")
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            raise InvalidSettingsError(f"labels are {list(self.labels)}: name at least two, each once")
        if self.positive is not None and self.positive not in self.labels:
            raise InvalidSettingsError(
                f'positive is "{self.positive}", which is not a label: use {one_of(self.labels)}.'
                + nearest(self.positive, self.labels)
            )
        for policy in (self.policy, *self.shadows):
            self._check_policy(policy)
        names = [policy.name for policy in self.shadows]
        if len(set(names)) != len(names):
            raise InvalidSettingsError(f"two shadow policies have the same name in {names}: keep one of each")
        self._check_feedback()
        self._check_buckets()

    def _check_policy(self, policy: Policy) -> None:
        if policy.is_binary and len(self.labels) != 2:
            raise InvalidSettingsError(
                f'objective "{policy.objective}" is for two labels and there are {len(self.labels)} '
                f'{list(self.labels)}: use "gap" or "mixture"'
            )
        if policy.is_binary and len(self.groups) != 2:
            raise InvalidSettingsError(
                f'objective "{policy.objective}" is for exactly two groups and settings name {len(self.groups)} '
                f'{list(self.groups)}: name both in groups, or use "gap" or "mixture"'
            )
        for balance in policy.balance:
            if isinstance(balance.fairness, dict):
                for label in balance.fairness:
                    if label not in self.labels:
                        raise InvalidSettingsError(
                            f'λ is set for "{label}", which is not a label: use {one_of(self.labels)}.'
                            + nearest(label, self.labels)
                        )

    def _check_feedback(self) -> None:
        _check_choice("feedback", self.feedback, ("all", "positive-only"))
        if self.feedback == "all":
            if self.explore is not None:
                raise InvalidSettingsError(
                    f'explore is {self.explore}, but only feedback = "positive-only" explores: '
                    "remove explore or change feedback"
                )
            return
        if len(self.labels) != 2 or self.positive is None:
            raise InvalidSettingsError(
                'feedback = "positive-only" needs two labels and positive = "…", the label whose '
                f"decisions get feedback; labels are {list(self.labels)}, positive is {self.positive!r}"
            )
        if self.explore is None or not MIN_EXPLORE <= self.explore < 1.0:
            raise InvalidSettingsError(
                f'feedback = "positive-only" needs explore, the least probability of a positive decision, '
                f"from {MIN_EXPLORE} to below 1; it is {self.explore}. There is no default because it is a "
                "business decision: without it, whoever is refused is never learnt about."
            )

    def _check_buckets(self) -> None:
        for field in ("bucket", "keep"):
            if not 1 <= getattr(self, field) <= 1 << 53:
                raise InvalidSettingsError(f"{field} is {getattr(self, field)}: use a whole number from 1 to 2⁵³")
        if self.window is not None and not 1 <= self.window <= self.keep:
            raise InvalidSettingsError(
                f"window is {self.window} buckets but {self.keep} are kept: use 1 to {self.keep}, or raise keep"
            )
