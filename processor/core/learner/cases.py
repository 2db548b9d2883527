"""What a caller hands to a learner and gets back: requests, decisions, labels, times. Checked before they count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from processor.core.errors import InvalidInputError
from processor.core.exact import ONE, Ints

LATEST = 1 << 53
"""No time is later than this, in whatever unit."""


@dataclass(frozen=True)
class Request:
    """A case to decide: who it is about and what every expert that was asked said."""

    decision_id: str
    group: str
    predictions: Mapping[str, str]


@dataclass(frozen=True)
class Decision:
    """What was decided, by whom, and how likely every label was.

    ``expert`` and ``instance`` are None where exploration decided, and ``instance`` where the policy has none.
    ``parts`` are the probabilities of the labels as the integers out of 2³² that an audit compares.
    ``shadows`` holds what each shadow policy would have decided with the same draws. ``at`` is the request's time.
    """

    decision_id: str
    group: str
    label: str
    expert: str | None
    instance: str | None
    parts: Mapping[str, int]
    predictions: Mapping[str, str]
    shadows: Mapping[str, str]
    at: int = 0

    @property
    def probabilities(self) -> dict[str, float]:
        return {label: part / ONE for label, part in self.parts.items()}


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn according to a record, for a replay that does not know the seed."""

    label: str
    expert: str | None
    instance: str | None


def checked_requests(requests: Iterable[Request]) -> list[Request]:
    """Requests of which every name is a string that can be written down; their labels are not looked at."""
    if isinstance(requests, Request) or not isinstance(requests, Iterable):
        raise InvalidInputError(
            f"{_shown(requests)} is not a list of requests: use decide for one, decide_batch for a list"
        )
    return [_checked_request(request) for request in requests]


def _checked_request(request: Request) -> Request:
    if not isinstance(request, Request):
        raise InvalidInputError(
            f'{_shown(request)} is not a request: use Request("loan-17", "A", {{"model": "grant"}})'
        )
    decision_id, group = _name("decision_id", request.decision_id), _name("group", request.group)
    predictions = request.predictions
    if not isinstance(predictions, Mapping):
        raise InvalidInputError(
            f'the predictions of "{decision_id}" are {_shown(predictions)}: use a dictionary of each expert\'s label, '
            'such as {"model": "grant"}'
        )
    if not predictions:
        raise InvalidInputError(f'request "{decision_id}" has no predictions: send at least one expert\'s advice')
    said = {_name("name of an expert", expert): _label(expert, label) for expert, label in predictions.items()}
    return replace(request, decision_id=decision_id, group=group, predictions=said)


def _name(what: str, name: str) -> str:
    if not isinstance(name, str):
        remedy = f'such as "{name}"' if type(name) is int else "and leave out what has none"
        raise InvalidInputError(f"the {what} is {_shown(name)}: use a string, {remedy}")
    if not name:
        raise InvalidInputError(f'the {what} is "": an empty name says nothing. Name it, or leave the case out.')
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(
                f"the {what} is {name!r}, which no bytes can say: remove the lone surrogate"
            ) from None
    return str(name)  # NumPy's strings become plain ones


def _label(expert: str, label: str) -> str:
    if label is None:
        raise InvalidInputError(f'the prediction of "{expert}" is None: leave out an expert that says nothing')
    if not isinstance(label, str):
        raise InvalidInputError(
            f'the prediction of "{expert}" is {_shown(label)}: labels are strings, those of the settings'
        )
    return str(label)


def checked_labels(labelled: Iterable[tuple[Decision, str]]) -> list[tuple[Decision, str]]:
    """Pairs of a decision and its label; whether the learner knows the label is not looked at."""
    if not isinstance(labelled, Iterable) or isinstance(labelled, str | Mapping):
        raise InvalidInputError(f"{_shown(labelled)} is not a list of pairs: use [(decision, label), …]")
    pairs = list(labelled)
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise InvalidInputError(
                f"{_shown(pair)} is not a pair of a decision and its label: use [(decision, label), …], "
                "or zip(decisions, labels)"
            )
        if not isinstance(pair[0], Decision):
            raise InvalidInputError(f"{_shown(pair[0])} is not a decision: a label is learnt with what decide gave")
    return [(decision, label) for decision, label in pairs]


def checked_times(at: Sequence[int] | None, otherwise: Sequence[int]) -> Ints:
    """When each event happened; if nothing is said, ``otherwise``."""
    if at is None:
        return np.array(otherwise, dtype=np.int64)
    if not isinstance(at, Sequence | np.ndarray) or isinstance(at, str):
        raise InvalidInputError(f"the times are {_shown(at)}: give a list with one for each event, or none at all")
    if len(at) != len(otherwise):
        raise InvalidInputError(
            f"{len(at)} times were given for {len(otherwise)} events: give one for each, or none at all"
        )
    for time in at:
        if isinstance(time, bool | np.bool_) or not isinstance(time, int | np.integer) or abs(time) > LATEST:
            raise InvalidInputError(
                f"the time {_shown(time)} is not a whole number from −2⁵³ to 2⁵³: use the unit of the settings' "
                "bucket, such as milliseconds"
            )
    return np.array(at, dtype=np.int64)


def _shown(value: object) -> str:
    """A value as it is written in Python, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
