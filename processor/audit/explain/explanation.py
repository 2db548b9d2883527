"""What there is to say about one decision."""

from __future__ import annotations

import msgspec

from .label_history import LabelHistory


class ExpertShare(msgspec.Struct, kw_only=True):
    """How likely an expert was to be followed, in one instance."""

    expert: str
    said: str
    share: float
    """π: the chance that this expert is followed if its instance is chosen"""
    errors: int
    """how often it was wrong about cases like those its instance learns from"""
    trials: int


class InstanceShare(msgspec.Struct, kw_only=True):
    """One set of weights over the experts. ``name`` is the true label it specialises in, where there are several."""

    name: str | None
    chance: float
    """q: the chance that this set of weights decides"""
    experts: list[ExpertShare]


class Draw(msgspec.Struct, kw_only=True):
    """A number from 0 to below 1, made from the seed and the decision's id."""

    what: str
    value: float
    chose: str
    below: float
    """it chose the entry whose share of the unit interval begins at ``above`` and ends at ``below``"""
    above: float


class Explanation(msgspec.Struct, kw_only=True):
    tenant: str
    decision_id: str
    partition: int
    lineage: str
    batch: int
    clock: int
    """time of its batch"""
    requested: int
    """timestamp of the request"""
    request_offset: int
    group: str
    decision: str
    expert: str | None
    instance: str | None
    explored: bool
    predictions: dict[str, str]
    probabilities: dict[str, float]
    parts: dict[str, int]
    policy: str
    objective: str | None
    config: str
    configuration: dict[str, object]
    explore: float | None
    labels_learnt: int
    """that the rule rested on"""
    instances: list[InstanceShare]
    draws: list[Draw] | None
    """None where the seed is not known"""
    shadows: list[str]
    differences: list[str]
    """where the record of decisions says otherwise than what follows from the inputs, which is what is explained"""
    aftermath: LabelHistory
