"""Many decisions as JSON: the bytes of ``encode_decision``, with what they share written once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat

import msgspec
import numpy as np

from processor.core import native
from processor.core.exact import ONE, Ints, Parts

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode

MOST = 4_096
"""choices that are remembered"""

Choice = tuple[int, int, int, int]
"""Group, label, expert and instance, by index."""


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
        self.choices = _choices(tuple(groups), tuple(labels), tuple(experts), tuple(instances))
        each = b",".join(b"%b:\0" % _encode(label) for label in labels)
        # A zero byte stands for what differs: JSON has none, and a name may hold a percent sign.
        form = (
            b'{"tenant":%b,"decision_id":\0,\0,"probabilities":{%b},"parts":{%b},"policy":%b,"objective":%b,"config":%b,'
            b'"batch":\0'
        ) % (_encode(tenant), each, each, _encode(policy), _encode(objective), _encode(config))
        self.between = form.split(b"\0")[:-1]


def write_decisions(
    writers: Sequence[tuple[DecisionWriter, slice]],
    ids: list[str],
    choices: Sequence[Ints],
    probabilities: Parts,
    contexts: list[bytes],
    batches: Sequence[int],
) -> list[bytes]:
    """One JSON document for each id; each writer, of the same labels, has a part of them, one after the other.

    ``choices`` are the columns of ``Choice``; an empty context is none; ``batches`` are the batches decided in.
    """
    if not native.BUILT:
        return plain_write_decisions(writers, ids, choices, probabilities, contexts, batches)
    ends = {batch: b"%d" % batch for batch in set(batches)}
    return native.written_decisions(
        [(writer.between, writer.choices, part.start, part.stop) for writer, part in writers],
        ids,
        choices,
        _encoder.encode_lines(_fractions(probabilities)),
        probabilities,
        [ends[batch] for batch in batches],
        contexts,
        _encode,
    )


def plain_write_decisions(
    writers: Sequence[tuple[DecisionWriter, slice]],
    ids: list[str],
    choices: Sequence[Ints],
    probabilities: Parts,
    contexts: list[bytes],
    batches: Sequence[int],
) -> list[bytes]:
    sizes = [part.stop - part.start for _, part in writers]
    each = list(zip(*[column.tolist() for column in choices], strict=True))
    chosen = [map(writer.choices.__getitem__, each[part]) for writer, part in writers]
    ends = [
        b'%d,"context":%b}' % (batch, context) if context else b"%d}" % batch
        for batch, context in zip(batches, contexts, strict=True)
    ]
    # In turn what is the same in all of a tenant's and what is not: joining such rows takes half as long as a format.
    fixed = zip(*[writer.between for writer, _ in writers], strict=True)
    columns = [column for texts in fixed for column in (_spread(texts, sizes), ())]
    columns[1::2] = (_lines(ids), chain.from_iterable(chosen), *_chances(probabilities), ends)
    return list(map(b"".join, zip(*columns, strict=True)))


def _chances(probabilities: Parts) -> list[list[bytes]]:
    """How likely each label was, as JSON, in columns: fractions of each label, then parts out of 2³² of each."""
    fractions, parts = _lines(_fractions(probabilities)), _lines(probabilities.ravel().tolist())
    kinds = probabilities.shape[1]
    return [texts[label::kinds] for texts in (fractions, parts) for label in range(kinds)]


def _fractions(probabilities: Parts) -> list[float]:
    """One decision after the other."""
    fractions: list[float] = (probabilities.astype(np.float64) / ONE).ravel().tolist()
    return fractions


def _lines(values: Sequence[object]) -> list[bytes]:
    """Each value as JSON. JSON holds no line breaks of its own."""
    return _encoder.encode_lines(values).split(b"\n")[:-1]


def _spread(texts: Sequence[bytes], times: Sequence[int]) -> Iterable[bytes]:
    """Each text so many times."""
    if len(set(texts)) == 1:
        return repeat(texts[0], sum(times))
    return chain.from_iterable(map(repeat, texts, times))


class _Choices(dict[Choice, bytes]):
    """How choices are written, each worked out when it is first made."""

    def __init__(self, *names: Sequence[str | None]) -> None:
        self._names = names

    def __missing__(self, choice: Choice) -> bytes:
        texts = [_encode(names[index]) for names, index in zip(self._names, choice, strict=True)]
        text = b'"group":%b,"decision":%b,"expert":%b,"instance":%b' % tuple(texts)
        if len(self) < MOST:
            self[choice] = text
        return text


@lru_cache(maxsize=1_024)
def _choices(
    groups: tuple[str, ...], labels: tuple[str, ...], experts: tuple[str, ...], instances: tuple[str, ...]
) -> _Choices:
    """Shared by all tenants of the same names."""
    return _Choices(groups, labels, (*experts, None), (*(instances or [None] * len(labels)), None))
