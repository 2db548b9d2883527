"""Many decisions as JSON: the bytes of ``encode_decision``, with what they share written once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from .events import RequestEvent
from .exact import ONE, Parts

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode

Chances = tuple[bytes, ...]
"""How likely each label was: as fractions, then as parts out of 2³²."""


def chances_of(probabilities: Parts) -> list[Chances]:
    """For each row of parts [n, label], as JSON."""
    fractions = _lines((probabilities.astype(np.float64) / ONE).ravel().tolist())
    parts = _lines(probabilities.ravel().tolist())
    kinds = probabilities.shape[1]
    columns = [texts[label::kinds] for texts in (fractions, parts) for label in range(kinds)]
    return list(zip(*columns, strict=True))


def _lines(values: Sequence[object]) -> list[bytes]:
    """Each value as JSON. JSON holds no line breaks of its own."""
    return _encoder.encode_lines(values).split(b"\n")[:-1]


class DecisionWriter:
    """For one tenant. Names are given as indices; −1 is nobody."""

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
    ) -> None:
        named: Sequence[str | None] = instances or [None] * len(labels)
        self._labels = [_encode(label) for label in labels]
        self._experts = [_encode(expert) for expert in (*experts, None)]
        self._instances = [_encode(instance) for instance in (*named, None)]
        each = b",".join(b"%b:\0" % label for label in self._labels)
        # A zero byte stands for what differs: JSON has none, and a name may hold a percent sign.
        form = (
            b'{"tenant":%b,"decision_id":\0,"group":\0,"decision":\0,"expert":\0,"instance":\0,"probabilities":{%b},'
            b'"parts":{%b},"policy":%b,"objective":%b,"config":%b,"batch":\0'
        ) % (_encode(tenant), each, each, _encode(policy), _encode(objective), _encode(config))
        self._form = form.replace(b"%", b"%%").replace(b"\0", b"%b")
        self._groups: dict[str, bytes] = {}

    def write(
        self,
        events: Sequence[RequestEvent],
        label: Sequence[int],
        expert: Sequence[int],
        instance: Sequence[int],
        chances: Sequence[Chances],
        batch: int,
    ) -> list[bytes]:
        """One JSON document for each request."""
        form, labels, experts, instances = self._form, self._labels, self._experts, self._instances
        rows = zip(
            _lines([event.decision_id for event in events]),
            self._group_texts(events),
            [labels[y] for y in label],
            [experts[f] for f in expert],
            [instances[k] for k in instance],
            chances,
            _ends(events, batch),
            strict=True,
        )
        return [form % (key, group, y, f, k, *likely, end) for key, group, y, f, k, likely, end in rows]

    def _group_texts(self, events: Sequence[RequestEvent]) -> list[bytes]:
        known = self._groups
        for name in {event.advice.group for event in events} - known.keys():
            known[name] = _encode(name)
        return [known[event.advice.group] for event in events]


def _ends(events: Sequence[RequestEvent], batch: int) -> list[bytes]:
    plain = b"%d}" % batch
    return [
        plain if event.context is msgspec.UNSET else b'%d,"context":%b}' % (batch, bytes(event.context))
        for event in events
    ]
