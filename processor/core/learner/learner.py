"""One learner for use from Python, without Kafka: decide now, learn later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec
import numpy as np

from processor.core.advice import Advice
from processor.core.errors import IncompatibleStateError, InvalidInputError, nearest, one_of
from processor.core.exact import Ints
from processor.core.metrics.rates import Fairness, Hidden, fairness
from processor.core.settings import Policy, Settings

from .axes import Axes
from .batch import IN_FORCE, BatchRequests, Labels, decide_batch, learn_batch
from .cases import Decision, Drawn, Request, checked_labels, checked_requests, checked_times
from .codec import encode_state
from .counters import ABSENT, WEIGHT_UNIT, Counters, label_weight
from .draws import check_seed
from .policies import rule_of
from .rule import DecisionColumns, Rule
from .state import State


class Learner:
    """Decides each case by one expert's advice, so that error rates become equal across groups.

    Experts and groups may appear at any time; labels are fixed by the settings. A decision is a pure function
    of (counters, request, settings, seed).

    >>> learner = Learner(Settings(labels=("deny", "grant"), positive="grant"), seed=b"a secret of 16 b")
    >>> decision = learner.decide(Request("loan-17", "A", {"model": "grant", "rule": "deny"}))
    >>> decision.probabilities
    {'deny': 0.5, 'grant': 0.5}
    >>> learner.learn(decision, "grant")
    """

    __slots__ = ("_binary", "kind", "labels", "policies", "seed", "settings", "state")

    def __init__(self, settings: Settings, seed: bytes, state: State | None = None) -> None:
        if not isinstance(settings, Settings):
            raise InvalidInputError(f'the settings are {settings!r}: make them with Settings(labels=("deny", "grant"))')
        if not isinstance(state, State | None):
            raise InvalidInputError(
                f"the state is of type {type(state).__name__}: use a State; decode_state makes one of the bytes that "
                "encode gave"
            )
        check_seed(seed)  # now and not at the first decision
        self.settings = settings
        self.seed = seed
        self.policies: dict[str, Policy] = {IN_FORCE: settings.policy}
        self.policies |= {shadow.name: shadow for shadow in settings.shadows}
        self.kind = msgspec.msgpack.encode(settings)
        """learners of the same kind and shape can decide together"""
        self.labels = frozenset(settings.labels)
        """those that may be predicted"""
        self._binary = any(policy.is_binary for policy in self.policies.values())
        axes = Axes.of(groups=settings.groups, labels=settings.labels, experts=settings.experts, policies=self.policies)
        unit = 1 if settings.feedback == "all" else WEIGHT_UNIT
        if state is None:
            self.state = State(axes, bucket=settings.bucket, keep=settings.keep, unit=unit)
        else:
            self.state = state
            self._check_state(axes, unit)
            state.extend(axes)

    def clone(self) -> Learner:
        """A copy to change; what is not changed stays shared."""
        other = Learner.__new__(Learner)
        other.settings, other.seed, other.policies, other.kind = self.settings, self.seed, self.policies, self.kind
        other.labels, other.state, other._binary = self.labels, self.state.clone(), self._binary
        return other

    def decide(self, request: Request, at: int = 0) -> Decision:
        """Decide one case. ``at`` is its time, in the unit of the settings' bucket."""
        return self.decide_batch([request], at=[at])[0]

    def decide_batch(
        self,
        requests: Iterable[Request],
        at: Sequence[int] | None = None,
        drawn: Mapping[str, Drawn] | None = None,
    ) -> list[Decision]:
        """Decide many cases by the same rule; nothing is learnt in between.

        Each is decided as it would be alone, by a learner that knows the groups and experts of all of them: what one
        request brings is known to the others (``ensure_axes``).

        ``drawn`` says by id what was drawn, where a record is to be followed instead of the seed. Shadows, of whose
        draws there is no record, then count as the policy in force.
        """
        requests = checked_requests(requests)
        times = checked_times(at, [0] * len(requests))
        if not requests:
            return []
        for request in requests:
            self._check(request)
        self.ensure_axes(
            {request.group for request in requests}, {e for request in requests for e in request.predictions}
        )
        cases = BatchRequests(
            [self],
            [len(requests)],
            [request.decision_id for request in requests],
            [Advice.of(request.group, request.predictions) for request in requests],
            times,
            {} if drawn is None else {0: drawn},
        )
        verdicts = decide_batch(cases)
        return [
            self._decision(i, request, verdicts.by_policy, int(time))
            for i, (request, time) in enumerate(zip(requests, times, strict=True))
        ]

    def learn(self, decision: Decision, label: str, at: int | None = None) -> None:
        """Join a true label to its decision. ``at`` is the label's time; if nothing is said, the decision's."""
        self.learn_batch([(decision, label)], at=None if at is None else [at])

    def learn_batch(self, labelled: Iterable[tuple[Decision, str]], at: Sequence[int] | None = None) -> None:
        """Join many labels; the order does not matter. Each counts: that none comes twice is up to the caller."""
        labelled = checked_labels(labelled)
        truth = np.array([self.state.axes.label(label) for _, label in labelled], dtype=np.int64)
        times = checked_times(at, [decision.at for decision, _ in labelled])
        if not labelled:
            return
        weight = self._weights([d for d, _ in labelled])
        self.ensure_axes({d.group for d, _ in labelled}, {expert for d, _ in labelled for expert in d.predictions})
        axes = self.state.axes
        group = np.array([axes.group_index[d.group] for d, _ in labelled], dtype=np.int64)
        predictions = self._prediction_indices([d.predictions for d, _ in labelled])
        decided = np.array([self._labels_decided(d) for d, _ in labelled], dtype=np.int64)
        row = np.zeros(len(labelled), dtype=np.int64)
        learn_batch([self], Labels(row, times, group, truth, predictions, decided, weight))

    def counters(self, window: int | None = None) -> Counters:
        """The counters of the newest buckets, or of the lifetime."""
        return self.state.window(window)

    @property
    def hidden(self) -> Hidden | None:
        """Whose decisions hide labels, and which; None if all labels come."""
        if self.settings.feedback == "all":
            return None
        axes, positive = self.state.axes, self.settings.positive
        assert positive is not None
        return Hidden(axes.policy_index[IN_FORCE], axes.label_index[positive])

    def fairness(self, policy: str = IN_FORCE, window: int | None = None) -> Fairness:
        """How a policy, in force or in shadow, has done in the newest buckets, or in the lifetime.

        Groups and labels are in the order of ``state.axes``. Where labels come for positive decisions only, shadows
        have no figures: they are NaN.
        """
        self._check_policy(policy)
        return fairness(self.counters(window), self.state.axes.policy_index[policy], hidden=self.hidden)

    def rule(self, policy: str = IN_FORCE) -> Rule:
        """What a policy would do now."""
        self._check_policy(policy)
        if not self.state.axes.groups or not self.state.axes.experts:
            raise InvalidInputError(
                "no group or no expert is known yet, so there is no rule: decide a request first, or name them in "
                "the settings"
            )
        counters = self.state.window(self.settings.window)
        return rule_of(self.policies[policy], counters, self.state.axes.labels, self.settings.prior)

    def merge(self, other: Learner) -> None:
        """Add what another learner has counted, from other cases, under settings with the same labels and buckets."""
        if not isinstance(other, Learner):
            raise InvalidInputError(
                f"{other!r} is not a learner: merge takes another one, or use state.merge for a state"
            )
        self._check_groups(other.state)
        self.state.merge(other.state)

    def encode(self) -> bytes:
        """The whole state as bytes, to be given to ``decode_state``."""
        return encode_state(self.state)

    def _decision(self, i: int, request: Request, decided: Mapping[str, DecisionColumns], at: int) -> Decision:
        axes, made = self.state.axes, decided[IN_FORCE]
        expert, instance = int(made.expert[i]), int(made.instance[i])
        has_instances = self.settings.policy.has_instances
        return Decision(
            decision_id=request.decision_id,
            group=request.group,
            label=axes.labels[int(made.label[i])],
            expert=None if expert == ABSENT else axes.experts[expert],
            instance=axes.labels[instance] if has_instances and instance != ABSENT else None,
            parts=dict(zip(axes.labels, made.probabilities[i].tolist(), strict=True)),
            predictions=dict(request.predictions),
            shadows={name: axes.labels[int(other.label[i])] for name, other in decided.items() if name != IN_FORCE},
            at=at,
        )

    def _prediction_indices(self, predictions: Sequence[Mapping[str, str]]) -> Ints:
        axes = self.state.axes
        indices = np.full((len(predictions), len(axes.experts)), ABSENT, dtype=np.int64)
        for i, said in enumerate(predictions):
            for expert, label in said.items():
                indices[i, axes.expert_index[expert]] = axes.label(label)
        return indices

    def _labels_decided(self, decision: Decision) -> list[int]:
        axes = self.state.axes
        by_policy = {**decision.shadows, IN_FORCE: decision.label}
        return [axes.label(by_policy.get(name, decision.label)) for name in axes.policies]

    def _weights(self, decisions: Sequence[Decision]) -> Ints | None:
        if self.settings.feedback == "all":
            return None
        positive = self.settings.positive
        assert positive is not None
        for decision in decisions:
            if decision.label != positive:
                raise InvalidInputError(
                    f'decision "{decision.decision_id}" was "{decision.label}", and with feedback = '
                    f'"positive-only" only the labels of "{positive}" decisions may count: drop this label'
                )
        return np.array([label_weight(d.parts.get(positive, 0)) for d in decisions], dtype=np.int64)

    def ensure_axes(self, groups: Set[str], experts: Set[str]) -> None:
        """Take on groups and experts that were not met before."""
        axes = self.state.axes
        if not (groups <= axes.group_index.keys() and experts <= axes.expert_index.keys()):
            self.state.extend(Axes.of(groups=groups, experts=experts))

    def accepts(self, group: str) -> bool:
        """Whether its objectives can take this group on: those for two groups know which two."""
        return not self._binary or group in self.settings.groups

    def _check(self, request: Request) -> None:
        for label in request.predictions.values():
            self.state.axes.label(label)
        if not self.accepts(request.group):
            raise InvalidInputError(
                f'request "{request.decision_id}" is of group "{request.group}", but objective '
                f'"{self.settings.policy.objective}" is for {one_of(self.settings.groups)} only: '
                'correct the group, or use objective "gap" or "mixture"'
            )

    def _check_policy(self, policy: str) -> None:
        if not isinstance(policy, str) or policy not in self.policies:
            raise InvalidInputError(
                f'there is no policy "{policy}": use {one_of(self.policies)}.{nearest(str(policy), self.policies)}'
            )

    def _check_state(self, axes: Axes, unit: int) -> None:
        state, settings = self.state, self.settings
        mine = (axes.labels, settings.bucket, settings.keep, unit)
        theirs = (state.axes.labels, state.bucket, state.keep, state.unit)
        for what, wanted, found in zip(("labels", "bucket", "keep", "unit"), mine, theirs, strict=True):
            if wanted != found:
                raise IncompatibleStateError(
                    f"the state was kept with {what} = {found} and the settings say {wanted}: use the "
                    "settings it was made with, or rebuild it by replay under the new ones"
                )
        self._check_groups(state)

    def _check_groups(self, state: State) -> None:
        groups = self.settings.groups
        if self._binary and not set(state.axes.groups) <= set(groups):
            raise IncompatibleStateError(
                f"the state has groups {list(state.axes.groups)} and one of the objectives is for "
                f'{one_of(groups)} only: use a state of these, or objective "gap" or "mixture"'
            )
