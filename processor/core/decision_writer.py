"""Many decisions as JSON: the bytes of ``encode_decision``, with what they share written once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from .events import RequestEvent
from .exact import ONE, Parts

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode

Chances = tuple[bytes, ...]
"""How likely each label was: as fractions, then as parts out of 2³²."""
Row = tuple[bytes, str, int, int, int, Chances, bytes]
"""Of one decision: its id, as JSON; group; label, expert and instance, by index; chances; and how the JSON ends."""


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

    def write(self, rows: Iterable[Row]) -> list[bytes]:
        """One JSON document for each row."""
        form, groups = self._form, self._groups
        labels, experts, instances = self._labels, self._experts, self._instances
        return [
            form % (key, groups.get(g) or self._group(g), labels[y], experts[f], instances[k], *likely, end)
            for key, g, y, f, k, likely, end in rows
        ]

    def _group(self, name: str) -> bytes:
        self._groups[name] = text = _encode(name)
        return text


def rows_of(
    events: Sequence[RequestEvent],
    label: Sequence[int],
    expert: Sequence[int],
    instance: Sequence[int],
    probabilities: Parts,
    batch: int,
) -> list[Row]:
    """Rows for the writers, of decisions of any tenants."""
    plain, more = b"%d}" % batch, b'%d,"context":' % batch
    ends = [plain if event.context is msgspec.UNSET else more + bytes(event.context) + b"}" for event in events]
    keys, groups = _lines([event.decision_id for event in events]), [event.advice.group for event in events]
    return list(zip(keys, groups, label, expert, instance, chances_of(probabilities), ends, strict=True))
