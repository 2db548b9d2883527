"""What may be changed about a recorded stream, and how people write it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

import msgspec
import numpy as np

from processor.config.values import Duration
from processor.core.errors import InvalidInputError, InvalidSettingsError, nearest, one_of
from processor.core.settings import OBJECTIVES, POLICIES, Balance, ObjectiveName, PolicyName
from processor.core.stream.tenant import TenantSettings

LIFETIME = "lifetime"
SWEEPABLE = ("lambda", "lambda-regret", "eta", "window", "policy", "objective", "without", "delay")
MAX_SETTINGS = 200
RECORDED = "as recorded"

DelayKind = Literal["none", "fixed", "later", "times"]


class LabelDelay(msgspec.Struct, frozen=True):
    """Other times for the labels: at once, so long after the request, later than they came, or so many times as late.

    >>> LabelDelay.read("+1h")
    LabelDelay(kind='later', amount=3600000.0)
    >>> LabelDelay.read("none").label_time(5_000, 9_000), LabelDelay.read("x0.5").label_time(5_000, 9_000)
    (5000, 7000)
    """

    kind: DelayKind
    amount: float = 0.0
    """milliseconds, or how many times as late"""

    @classmethod
    def read(cls, text: str) -> LabelDelay | None:
        """None for ``original``."""
        said = text.strip()
        try:
            if said == "original":
                return None
            if said == "none":
                return cls("none")
            if said.startswith("x"):
                amount = float(said[1:])
                if not 0.0 <= amount <= 1_000.0:
                    raise ValueError("use a number from 0 to 1000")
                return cls("times", amount)
            kind: DelayKind = "later" if said.startswith("+") else "fixed"
            return cls(kind, float(Duration.read(said.removeprefix("+"))))
        except ValueError as error:
            raise InvalidInputError(
                f'a label delay of "{text}" cannot be read ({error}): use none, original, 1h (that long after the '
                "request), +1h (later than it came) or x2 (twice as late)"
            ) from None

    def label_time(self, asked: int, came: int) -> int:
        """When the label of a request comes now; all in milliseconds."""
        match self.kind:
            case "none":
                return asked
            case "fixed":
                return asked + int(self.amount)
            case "later":
                return came + int(self.amount)
            case "times":
                return asked + int(max(came - asked, 0) * self.amount)

    def __str__(self) -> str:
        match self.kind:
            case "none":
                return "none"
            case "times":
                return f"x{self.amount:g}"
            case _:
                return ("+" if self.kind == "later" else "") + str(Duration(int(self.amount)))


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One other setting; what is None stays as it was recorded."""

    policy: PolicyName | None = None
    objective: ObjectiveName | None = None
    fairness: float | None = None
    regret: float | None = None
    eta: float | Literal["auto"] | None = None
    window: int | Literal["lifetime"] | None = None
    without: tuple[str, ...] = ()
    delay: LabelDelay | None = None

    @property
    def name(self) -> str:
        """
        >>> SettingsChange(objective="mixture", fairness=0.1).name
        'mixture, λ 0.1'
        """
        said = [
            self.policy,
            self.objective,
            None if self.fairness is None else f"λ {self.fairness:.3g}",
            None if self.regret is None else f"λ regret {self.regret:.3g}",
            None if self.eta is None else f"η {self.eta}",
            None if self.window is None else f"window {self.window}",
            *(f"without {expert}" for expert in self.without),
            None if self.delay is None else f"delay {self.delay}",
        ]
        return ", ".join(part for part in said if part) or RECORDED

    def apply_to(self, tenant: str, rules: TenantSettings) -> TenantSettings:
        """The tenant's rules with this change. Raises InvalidSettingsError where they do not go together."""
        settings = rules.settings
        policy = settings.policy
        balance = policy.balance
        if self.fairness is not None or self.regret is not None:
            last = max(balance, key=lambda one: one.from_labels)
            balance = (
                Balance(
                    last.fairness if self.fairness is None else self.fairness,
                    last.regret if self.regret is None else self.regret,
                ),
            )
        window = settings.window if self.window is None else None if self.window == LIFETIME else self.window
        try:
            policy = msgspec.structs.replace(
                policy,
                policy=self.policy or policy.policy,
                objective=self.objective or policy.objective,
                eta=policy.eta if self.eta is None else self.eta,
                balance=balance,
            )
            settings = msgspec.structs.replace(
                settings,
                policy=policy,
                experts=tuple(expert for expert in settings.experts if expert not in self.without),
                window=window,
                keep=max(settings.keep, window or 0),
                shadows=(),
            )
        except InvalidSettingsError as error:
            raise InvalidSettingsError(f'"{self.name}" is not possible for tenant "{tenant}": {error}') from None
        return msgspec.structs.replace(rules, settings=settings)


class Sweep(msgspec.Struct, frozen=True):
    """One thing run through several values, on top of everything else that was asked for."""

    what: str
    values: tuple[str, ...]
    """none for ``without``: then every expert in turn"""

    @classmethod
    def read(cls, text: str) -> Sweep:
        """
        >>> Sweep.read("lambda=0.01:100:5").values
        ('0.01', '0.1', '1', '10', '100')
        >>> Sweep.read("delay=none,+1h")
        Sweep(what='delay', values=('none', '+1h'))
        """
        what, _, values = (part.strip() for part in text.partition("="))
        if what not in SWEEPABLE:
            raise InvalidInputError(f'"{what}" cannot be swept: use {one_of(SWEEPABLE)}.{nearest(what, SWEEPABLE)}')
        if not values:
            if what == "without":
                return cls(what, ())
            raise InvalidInputError(f"--sweep {what} needs values: for instance --sweep {what}={_EXAMPLES[what]}")
        return cls(what, tuple(_logarithmic_range(values) if ":" in values else (v.strip() for v in values.split(","))))

    def changes(self, change: SettingsChange, experts: Iterable[str]) -> list[SettingsChange]:
        values = self.values or tuple(sorted(set(experts) - set(change.without)))
        return [with_change(change, self.what, value) for value in values]


_EXAMPLES = {
    "lambda": "0.01:100:13",
    "lambda-regret": "0.1:10:5",
    "eta": "0.05,0.35,auto",
    "window": "1,7,30,lifetime",
    "policy": "gforce,groupaware,mw",
    "objective": "gap,mixture",
    "without": "model",
    "delay": "none,+1d",
}


def _logarithmic_range(text: str) -> list[str]:
    """From, to and how many: evenly on a logarithmic scale."""
    try:
        first, last, count = text.split(":")
        low, high, steps = float(first), float(last), int(count)
    except ValueError:
        raise InvalidInputError(f'"{text}" is no range: write from:to:count, for instance 0.01:100:13') from None
    if not (0.0 < low < high < float("inf")) or not 2 <= steps <= MAX_SETTINGS:
        raise InvalidInputError(
            f'"{text}" is no range on a logarithmic scale: it needs 0 < from < to, and 2 to {MAX_SETTINGS} steps'
        )
    return [f"{value:.6g}" for value in np.geomspace(low, high, steps)]


def with_change(change: SettingsChange, what: str, value: str) -> SettingsChange:
    """The same change with one more part of it, as people write it."""
    match what:
        case "lambda":
            return msgspec.structs.replace(change, fairness=_weight(what, value))
        case "lambda-regret":
            return msgspec.structs.replace(change, regret=_weight(what, value))
        case "eta":
            return msgspec.structs.replace(change, eta="auto" if value == "auto" else _number(what, value))
        case "window":
            return msgspec.structs.replace(change, window=_window(value))
        case "policy":
            return msgspec.structs.replace(change, policy=cast(PolicyName, _choice(what, value, POLICIES)))
        case "objective":
            return msgspec.structs.replace(change, objective=cast(ObjectiveName, _choice(what, value, OBJECTIVES)))
        case "without":
            return msgspec.structs.replace(change, without=(*change.without, value))
        case "delay":
            return msgspec.structs.replace(change, delay=LabelDelay.read(value))
    raise InvalidInputError(f'"{what}" cannot be changed: use {one_of(SWEEPABLE)}')


def _number(what: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidInputError(f'{what} is "{value}", which is no number: for instance {_EXAMPLES[what]}') from None


def _weight(what: str, value: str) -> float:
    number = _number(what, value)
    if not 0.0 <= number <= 1e6:
        raise InvalidInputError(f"{what} is {value}: use a number from 0 to 1000000")
    return number


def _window(value: str) -> int | Literal["lifetime"]:
    if value == "lifetime":
        return "lifetime"
    if not value.isdigit() or not 1 <= int(value) <= 10_000:
        raise InvalidInputError(f'window is "{value}": use a number of buckets from 1 up, or {LIFETIME}')
    return int(value)


def _choice(what: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidInputError(f'{what} is "{value}": use {one_of(choices)}.{nearest(value, choices)}')
    return value


def expand_settings(base: SettingsChange, sweeps: Sequence[Sweep], experts: Iterable[str]) -> list[SettingsChange]:
    """Every setting to try, each once and none that is the recorded one."""
    experts = sorted(set(experts))
    for expert in base.without:
        _check_expert(expert, experts)
    found = [change for sweep in sweeps for change in sweep.changes(base, experts)] if sweeps else [base]
    for change in found:
        for expert in change.without:
            _check_expert(expert, experts)
    found = [change for change in dict.fromkeys(found) if change != SettingsChange()]
    if len(found) > MAX_SETTINGS:
        raise InvalidInputError(f"{len(found)} settings were asked for: at most {MAX_SETTINGS} at once")
    return found


def _check_expert(expert: str, experts: Sequence[str]) -> None:
    if experts and expert not in experts:
        raise InvalidInputError(
            f'no request has a prediction of "{expert}": the experts are {one_of(experts)}.{nearest(expert, experts)}'
        )


def read_change(
    policy: str | None,
    objective: str | None,
    fairness: float | None,
    regret: float | None,
    eta: str | None,
    window: str | None,
    without: list[str] | None,
    delay: str | None,
) -> SettingsChange:
    """The options of the command as one change."""
    change = SettingsChange()
    given = {
        "policy": policy,
        "objective": objective,
        "lambda": None if fairness is None else str(fairness),
        "lambda-regret": None if regret is None else str(regret),
        "eta": eta,
        "window": window,
        "delay": delay,
    }
    for what, value in given.items():
        if value is not None:
            change = with_change(change, what, value)
    for expert in without or ():
        change = with_change(change, "without", expert)
    return change
