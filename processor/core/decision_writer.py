"""Many decisions of one tenant as JSON: the bytes of ``encode_decision``, with what they share written once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .events import RequestEvent
from .exact import ONE

_encode = msgspec.json.Encoder().encode


class DecisionWriter:
    """For one tenant and one batch. Names are given as indices; −1 is nobody."""

    def __init__(
        self,
        *,
        tenant: str,
        labels: Sequence[str],
        experts: Sequence[str],
        instances: Sequence[str],
        policy: str,
        objective: str | None,
        config: str,
        batch: int,
    ) -> None:
        self._head = b'{"tenant":%b,"decision_id":' % _encode(tenant)
        self._labels = labels
        self._decisions = [b',"decision":%b,"expert":' % _encode(label) for label in labels]
        self._experts = [b'%b,"instance":' % _encode(expert) for expert in (*experts, None)]
        named: Sequence[str | None] = instances or [None] * len(labels)
        self._instances = [_encode(instance) for instance in (*named, None)]
        self._tail = b',"policy":%b,"objective":%b,"config":%b,"batch":%d' % (
            _encode(policy),
            _encode(objective),
            _encode(config),
            batch,
        )
        self._groups: dict[str, bytes] = {}
        self._chances: dict[tuple[int, ...], bytes] = {}

    def write(
        self,
        events: Sequence[RequestEvent],
        label: Sequence[int],
        expert: Sequence[int],
        instance: Sequence[int],
        parts: Sequence[Sequence[int]],
    ) -> list[bytes]:
        """One JSON document for each request."""
        head, tail, groups, chances = self._head, self._tail, self._groups, self._chances
        decisions, experts, instances = self._decisions, self._experts, self._instances
        found = []
        for event, y, f, k, share in zip(events, label, expert, instance, parts, strict=True):
            likely = chances.get(tuple(share)) or self._likely(tuple(share))
            context = b"}" if event.context is msgspec.UNSET else b',"context":%b}' % bytes(event.context)
            found.append(
                b"".join(
                    (
                        head,
                        _encode(event.decision_id),
                        groups.get(event.group) or self._group(event.group),
                        decisions[y],
                        experts[f],
                        instances[k],
                        likely,
                        tail,
                        context,
                    )
                )
            )
        return found

    def _group(self, name: str) -> bytes:
        self._groups[name] = text = b',"group":%b' % _encode(name)
        return text

    def _likely(self, parts: tuple[int, ...]) -> bytes:
        """Cases of the same group and the same advice are equally likely to be decided either way."""
        chances = _encode({label: part / ONE for label, part in zip(self._labels, parts, strict=True)})
        shares = _encode(dict(zip(self._labels, parts, strict=True)))
        self._chances[parts] = text = b',"probabilities":%b,"parts":%b' % (chances, shares)
        return text
