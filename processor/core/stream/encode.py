"""A tenant's decisions as JSON: by ``encode_decision``, or natively from what they share, to the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from processor.core.events import DecisionEvent, encode_decision
from processor.core.exact import ONE

_encode = msgspec.json.Encoder().encode

MOST = 4_096
"""choices that are remembered"""

Choice = tuple[int, int, int, int]
"""Group, label, expert and instance, by index."""
_CHOSEN = ("group", "decision", "expert", "instance")


class DecisionWriter:
    """For one tenant. Names are given as indices; −1 is nobody."""

    def __init__(
        self,
        *,
        tenant: str,
        groups: Sequence[str],
        labels: Sequence[str],
        experts: Sequence[str],
        instances: Sequence[str],
        policy: str,
        objective: str | None,
        config: str,
    ) -> None:
        self._labels = labels
        self._same: dict[str, Any] = {"tenant": tenant, "policy": policy, "objective": objective, "config": config}
        self.choices = _choices(tuple(groups), tuple(labels), tuple(experts), tuple(instances))
        each = b",".join(b"%b:\0" % _encode(label) for label in labels)
        # A zero byte stands for what differs: JSON has none, and a name may hold a percent sign.
        form = (
            b'{"tenant":%b,"decision_id":\0,\0,"probabilities":{%b},"parts":{%b},"policy":%b,"objective":%b,"config":%b,'
            b'"batch":\0'
        ) % (_encode(tenant), each, each, _encode(policy), _encode(objective), _encode(config))
        self.between = form.split(b"\0")[:-1]

    def encode(self, decision_id: str, choice: Choice, parts: Sequence[int], context: bytes, batch: int) -> bytes:
        """One decision: the reference of ``native.written_decisions``. An empty context is none."""
        chosen: dict[str, Any] = dict(zip(_CHOSEN, self.choices.named(choice), strict=True))
        event = DecisionEvent(
            **self._same,
            **chosen,
            decision_id=decision_id,
            probabilities={label: part / ONE for label, part in zip(self._labels, parts, strict=True)},
            parts=dict(zip(self._labels, parts, strict=True)),
            batch=batch,
            context=Raw(context) if context else UNSET,
        )
        return encode_decision(event)


class _Choices(dict[Choice, bytes]):
    """How choices are written, each worked out when it is first made."""

    def __init__(self, *names: Sequence[str | None]) -> None:
        self._names = names

    def named(self, choice: Choice) -> list[str | None]:
        return [names[index] for names, index in zip(self._names, choice, strict=True)]

    def __missing__(self, choice: Choice) -> bytes:
        text = b'"group":%b,"decision":%b,"expert":%b,"instance":%b' % tuple(map(_encode, self.named(choice)))
        if len(self) < MOST:
            self[choice] = text
        return text


@lru_cache(maxsize=1_024)
def _choices(
    groups: tuple[str, ...], labels: tuple[str, ...], experts: tuple[str, ...], instances: tuple[str, ...]
) -> _Choices:
    """Shared by all tenants of the same names."""
    return _Choices(groups, labels, (*experts, None), (*(instances or [None] * len(labels)), None))
