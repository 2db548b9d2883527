"""The reference tier: what each native function gives, in plain Python, one record at a time.

It is the specification. It also runs where the extension modules are not built. It imports nothing of the core, because
the whole core imports ``core.native``: classes and functions of the core are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

ID_BYTES = 16
LONGEST_ENTRY = 0xFFFF

DecodedRecord = TypeVar("DecodedRecord", bound=tuple[Any, Any, bytes])
"""A record, the event in it, and the id of its entry."""
Decision = TypeVar("Decision")
Entries = Mapping[bytes, bytes | None]
Cell = tuple[int, int]
"""Numbers of a label and of a group."""

_encode = msgspec.msgpack.encode


# Hashes


def record_hash(key: bytes | None, value: bytes | None, timestamp: int) -> bytes:
    """8 bytes that stand for an input record."""
    head = _encode([key, timestamp])
    return blake2b(head + (b"\x00" if value is None else b"\x01" + value), digest_size=8).digest()


def record_hashes(keys: list[bytes | None], values: list[bytes | None], timestamps: list[int]) -> bytes:
    """``record_hash`` of many records, one after the other."""
    return b"".join(map(record_hash, keys, values, timestamps))


def hashes_as_received(raws: list[Any]) -> bytes:
    """``record_hash`` of input records as they were received, one after the other."""
    return b"".join([record_hash(raw.key, raw.received, raw.timestamp) for raw in raws])


def digests(keyed: list[tuple[bytes, Sequence[str]]], size: int) -> bytes:
    """Digests of texts, one after the other: ``keyed`` are pairs of a key and its texts."""
    return b"".join(
        [blake2b(text.encode(), key=key, digest_size=size).digest() for key, texts in keyed for text in texts]
    )


def contents(texts: list[bytes], contexts: list[bytes], size: int) -> bytes:
    """Digests of texts, each with its context as MessagePack, one after the other."""
    pairs = zip(texts, contexts, strict=True)
    return b"".join([blake2b(text + _encode(context), digest_size=size).digest() for text, context in pairs])


# Decode


def decode_plain(
    requests: list[Any],
    feedback: list[Any],
    limits: Any,
    latest: int,
    head_of: Callable[[bytes, str], bytes | None],
    memory: Any,
    events: tuple[type[Any], type[Any]],
) -> tuple[tuple[list[Any], list[Any]], tuple[list[Any], list[Any]]]:
    """Decode what is written plainly and leave the rest, here everything, to ``decode_request`` or ``decode_feedback``.

    Gives for each input the decoded records, with None for each that is left, and those left. ``head_of(key, tenant)``
    gives what is hashed before an id of the tenant's entries, or None if its records do not belong on this partition.
    ``events`` are the classes of the events of both inputs.
    """
    return ([None] * len(requests), requests), ([None] * len(feedback), feedback)


def put_together(predictions: bytes, panel: Any, others: list[Any], first: dict[bytes, Any], advice: Any) -> Any:
    """Advice made of pieces that are known, or None. Only the native decoder remembers pieces."""
    return None


# Join


def ids(requests: Iterable[tuple[Any, Any, bytes]], feedback: Iterable[tuple[Any, Any, bytes]]) -> list[bytes]:
    """The ids of the entries that records need, each once."""
    return list(dict.fromkeys([key for records in (requests, feedback) for _, _, key in records]))


def by_tenant(requests: Iterable[DecodedRecord]) -> dict[str, list[DecodedRecord]]:
    """Requests of each tenant, in their order."""
    found: dict[str, list[DecodedRecord]] = {}
    for decoded in requests:
        found.setdefault(decoded[1].tenant, []).append(decoded)
    return found


def first_look(
    chunk: Sequence[tuple[Any, Any, bytes]], changed: dict[bytes, bytes | None], before: Entries
) -> tuple[bool, set[Any], set[frozenset[str]]]:
    """Whether no entry of these requests is known and all differ; the panels asked; the sets of labels predicted."""
    new, panels, labels, keys = True, set(), set(), set()
    for _, event, key in chunk:
        new = new and key not in changed and not before.get(key) and key not in keys
        keys.add(key)
        panels.add(event.advice.panel)
        labels.add(event.advice.labels)
    return new, panels, labels


def match(
    labels: Iterable[DecodedRecord],
    changed: dict[bytes, bytes | None],
    before: Entries,
    clock: int,
    joined: dict[str, Any],
    label: Callable[[Any, Any, bytes, bytes, dict[str, Any]], Any],
) -> list[DecodedRecord]:
    """Hand each label whose entry is known to ``label``, in this order; gives those without an entry.

    The native function joins the common case by itself: a further label of a tenant for a pending decision.
    """
    left = []
    for decoded in labels:
        raw, event, key = decoded
        stored = changed.get(key) or before.get(key)
        if stored is None:
            left.append(decoded)
        else:
            label(raw, event, key, stored, joined)
    return left


# Solver and monitor


def active_set(quadratic: Any, linear: Any, x: Any, most_steps: int, tolerance: float) -> bool:
    """Move x[g, m], a vertex, to the minimiser; False if that is left to the solver's arrays: here, always."""
    return False


def observe(
    labels: Iterable[tuple[int, int, bool, int]],
    counts: dict[Cell, int],
    meet: Callable[[Cell, int, dict[Cell, Any]], Iterable[tuple[Any, bool]]],
    judge: Callable[[Any, int], Any],
) -> None:
    """Labels in their order, each (label, group, wrong, time), for the sequential tests of their cells.

    ``meet(cell, time, tested)`` counts a label and gives the tests that take it, each with whether its group is the
    second one there; ``tested`` and ``counts`` let the native function skip the call. ``judge(test, time)`` sees
    whether a test has raised or cleared an alert.
    """
    for label, group, wrong, at in labels:
        for test, of_b in meet((label, group), at, {}):
            if test.take(of_b, wrong, at):
                judge(test, at)


# Encode


def columns(
    cases: Iterable[tuple[Any, Any, bytes]],
) -> tuple[list[Any], list[bytes], list[str], list[Any], list[bytes]]:
    """Of decoded requests: records, ids of entries, ids of decisions, advice and contexts."""
    raws, keys, decisions, advice, contexts = [], [], [], [], []
    for raw, event, key in cases:
        raws.append(raw)
        keys.append(key)
        decisions.append(event.decision_id)
        advice.append(event.advice)
        contexts.append(event.context)
    return raws, keys, decisions, advice, contexts


def decisions_in_order(
    requests: Iterable[tuple[Any, Any, bytes]],
    values: dict[int, bytes],
    decision: Callable[[str, bytes, Any], Decision],
) -> list[Decision]:
    """Decisions in the order of their requests; ``values`` are by the offsets of these."""
    return [
        decision(event.tenant, values[raw.offset], raw.headers) for raw, event, _ in requests if raw.offset in values
    ]


def written_decisions(
    writers: list[tuple[Any, int, int]],
    ids: list[str],
    choices: Sequence[Any],
    probabilities: Any,
    contexts: list[bytes],
    batches: list[int],
) -> list[bytes]:
    """The JSON of each decision; each ``DecisionWriter`` writes those from a start to an end.

    ``choices`` are columns of groups, labels, experts and instances, by index; ``probabilities`` are parts out of 2³².
    """
    chosen = zip(*[column.tolist() for column in choices], strict=True)
    rows = list(zip(ids, chosen, probabilities.tolist(), contexts, batches, strict=True))
    return [writer.encode(*row) for writer, start, stop in writers for row in rows[start:stop]]


def joined_ids(ids: Iterable[bytes]) -> bytes:
    """Ids of entries in their order, one after the other."""
    return b"".join(sorted(map(_checked, ids)))


def packed_entries(entries: dict[bytes, bytes | None]) -> bytes:
    """Entries to be set, or deleted where there is no value, in the order of their ids; see ``stream.writes``.

    >>> packed_entries({b"2" * 16: None, b"1" * 16: b"value"})
    b'E1111111111111111\\x00\\x05valuee2222222222222222'
    """
    parts = []
    for id, value in sorted(entries.items()):
        if value is None:
            parts.append(b"e" + _checked(id))
            continue
        if len(value) > LONGEST_ENTRY:
            raise ValueError(f"an entry of {len(value)} bytes: at most {LONGEST_ENTRY} can be written")
        parts.append(b"E" + _checked(id) + len(value).to_bytes(2, "big") + value)
    return b"".join(parts)


def _checked(id: bytes) -> bytes:
    if len(id) != ID_BYTES:
        raise ValueError(f"the id of an entry has {len(id)} bytes, not {ID_BYTES}")
    return id
