"""What an operator should be told before believing the figures."""

from __future__ import annotations

import numpy as np

from processor.core.learner.axes import Axes
from processor.core.learner.counters import Counters

ENOUGH = 30
"""Labels of a kind before anything is said about it."""
NEARLY = 0.02
"""An expert that says something else this rarely does the harm of one that never does."""
OFTEN = 0.8
"""The share of cases on which an expert should advise."""


def constant_experts(counters: Counters, axes: Axes, learner: int = 0) -> list[tuple[str, str]]:
    """Experts that have said the same label in nearly every case, with that label.

    As far as the counters can tell: right on one label and on hardly any other. Of three labels or more, an expert
    could say the others in turn and be found too; it does the same harm.

    Such an expert is perfect on its own label and so takes over that label's instances, which wrecks the
    objectives gap, bound and paper; ``mixture`` uses it well.
    """
    trials = counters.trials[learner].sum(axis=1)
    losses = counters.losses[learner].sum(axis=1)
    enough = ENOUGH * counters.unit
    found = []
    for f, expert in enumerate(axes.experts):
        never_wrong = (losses[f] <= NEARLY * trials[f]) & (trials[f] >= enough)
        always_wrong = (losses[f] >= (1 - NEARLY) * trials[f]) & (trials[f] >= enough)
        if never_wrong.sum() == 1 and always_wrong.sum() == len(axes.labels) - 1:
            found.append((expert, axes.labels[int(np.argmax(never_wrong))]))
    return found


def absent_experts(counters: Counters, axes: Axes, learner: int = 0) -> list[str]:
    """Experts that have advised on too few of the cases of some group.

    The rule makes error rates equal as if every expert were there, and asks others where one is not. Hardly ever there,
    or gone for good, an expert keeps a share that nobody can give to it, and the groups' error rates drift apart.
    """
    labels = counters.labels[learner].sum(axis=1)
    trials = counters.trials[learner].sum(axis=2)
    enough = labels >= ENOUGH * counters.unit
    rare = (trials < OFTEN * labels) & enough
    return [expert for f, expert in enumerate(axes.experts) if rare[f].any()]


def unlabelled_decisions(counters: Counters, axes: Axes, policy: int, learner: int = 0) -> list[str]:
    """Decisions that never get a label although the others do: then every fairness figure is wrong.

    A decision is named if, were its labels to come as often as the others', at least ``ENOUGH`` would have come.
    """
    decided = counters.decisions[learner].sum(axis=0)
    outcomes = counters.outcomes[learner, policy].sum(axis=(0, 1)) // counters.unit
    silent = (outcomes == 0) & (decided > 0)
    heard = decided[~silent].sum()
    if heard == 0 or not silent.any():
        return []
    share = outcomes.sum() / heard
    return [axes.labels[i] for i in np.nonzero(silent & (decided * share >= ENOUGH))[0]]
